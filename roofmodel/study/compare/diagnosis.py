"""Where the time of a comparison goes, and why what was measured is not what was counted.

A reason is said only where the numbers fit it: tiles whose padding gives the FLOPs that were counted, pairs that the
mask hides, bytes that fit into the L2. What fits to nothing is said to be unexplained by saying what may be.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from roofmodel import units
from roofmodel.devices.device import Device
from roofmodel.study.compare.comparison import Comparison, Passes, Row
from roofmodel.study.compare.formats import Other
from roofmodel.study.compare.naming import helps

NEAR = 0.05  # figures this close are one
MORE = 1.1
_TILE = re.compile(r"(?<![\dx])(16|32|48|64|96|128|192|256)x(16|32|48|64|96|128|192|256)(?!\d)")


# --- Why measured and counted differ ----------------------------------------------------------------


def why(row: Row, found: Comparison) -> tuple[str, ...]:
    """Why measured FLOPs and bytes differ from those counted, as far as the numbers tell."""
    return (*_fewer(row), *_several(row), *_flops(row), *_bytes(row, found.identified.device, found.other))


def _several(row: Row) -> Iterator[str]:
    """Whether an operator takes several kernels, which write and read in between."""
    merged = any("." not in name for name in row.operators)
    often = row.kernels / max(1.0, row.occurrences * (1 if merged else len(row.operators)))
    if often > 1.5:
        layouts = any(helps(name) == "layout" for name in row.names)
        how = "layouts are changed around it" if layouts else "they write and read in between"
        yield f"{units.significant(often, 2)} kernels for one operator: {how}"


def _fewer(row: Row) -> Iterator[str]:
    """Algorithms of convolution that multiply less than the bound counts."""
    named = " ".join(row.names).lower()
    for algorithm, word in (("Winograd's algorithm", "winograd"), ("convolution by Fourier transforms", "fft")):
        if word in named:
            yield f"{algorithm} needs fewer multiplications than are counted"


def _flops(row: Row) -> Iterator[str]:
    counted = float(row.cost.flops)
    if not row.measured_flops or not counted or row.cost.matmul_flops * 2 < counted:
        return  # of vector work each program counts differently
    ratio = row.measured_flops / counted
    if ratio > MORE:
        yield f"{units.significant(ratio)} × the FLOPs: {_more(row, ratio)}"
    elif ratio < 1 / MORE:
        how = "an algorithm with fewer multiplications (Winograd)" if _kind(row) == "convolution" else ""
        how = how or "work on pipes that were not counted, or a smaller workload than was told"
        yield f"{ratio:.0%} of the FLOPs: {how}"


def _more(row: Row, ratio: float) -> str:
    first = row.work[0].placed.operator
    if _kind(row) == "attention":
        pairs, every = first.sizes.get("t:s"), first.sizes.get("t", 1) * first.sizes.get("s", 1)
        if pairs and abs(float(every / pairs) / ratio - 1) < 2 * NEAR:
            return "masked pairs are computed as well"
        return "scores are computed again" if row.stage == "backward" else "tiles beyond the mask, or pairs it hides"
    for tall, wide in _tiles(row):
        if abs(_padded(row, tall, wide) / ratio - 1) < NEAR:
            return f"padded to tiles of {tall} × {wide}"
    return "padding, recomputation, or the arithmetic around the product"


def _tiles(row: Row) -> Iterator[tuple[int, int]]:
    """The tiles that the names of its kernels tell, else those that are usual."""
    named = [(int(a), int(b)) for name in row.names for a, b in _TILE.findall(name)]
    for tall, wide in named or [(n, n) for n in (16, 32, 64, 128, 256)]:
        yield tall, wide
        if tall != wide:
            yield wide, tall


def _padded(row: Row, tall: int, wide: int) -> float:
    """By how much tiles enlarge its products."""
    whole = padded = 0.0
    for occurrence in row.work:
        if matrices := occurrence.placed.operator.gemm:
            m, n = float(matrices.m), float(matrices.n)
            whole += m * n * float(matrices.k)
            padded += math.ceil(m / tall) * tall * math.ceil(n / wide) * wide * float(matrices.k)
    return padded / whole if whole else 0.0


def _bytes(row: Row, device: Device, other: Other | None) -> Iterator[str]:
    counted, measured = float(row.cost.bytes), row.measured_bytes
    if measured is None or not counted:
        return
    ratio, l2 = measured / counted, device.levels.get("l2")
    each = counted / max(1.0, row.occurrences)
    if ratio < 1 / MORE:
        fits = l2 is not None and l2.capacity is not None and each < l2.capacity
        held = f"the L2 holds the {units.si(each, 'B')} of one" if fits else "part of it was in the L2"
        yield f"{ratio:.0%} of the bytes: {held}"
    elif ratio > MORE:
        wider = other.wider if other else 1.0
        how = [f"{other.named} is {units.significant(wider)} × as wide as {other.told}"] if other and wider > 1 else []
        if ratio > MORE * wider:
            how.append(_moves(row))
        yield f"{units.significant(ratio)} × the bytes: {', and '.join(how)}"


def _moves(row: Row) -> str:
    if [*_several(row)]:
        return "several kernels for one operator"
    return "tiles read the matrices again" if row.cost.matmul_flops else "wider formats, or sectors read in part"


def _kind(row: Row) -> str | None:
    return row.work[0].anchor if row.work else None


# --- Findings ---------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """Something that costs time, or that puts the comparison in doubt. `seconds` are what is at stake in one pass."""

    # "model", "layers", "attention", "shape", "impossible", "idle", "left kernels", "left operators", "row", "most"
    kind: str
    phase: str
    seconds: float
    share: float  # of the pass
    row: Row | None = None
    detail: str = ""


LISTED = 3
NOTABLE = 0.03  # of a pass


def findings(found: Comparison) -> tuple[Finding, ...]:
    """The three that matter: what puts the comparison in doubt first, then what costs most."""
    every = [finding for passes in found.passes for finding in _of_pass(found, passes)]
    doubts = [f for f in every if f.kind in ("model", "layers", "attention", "shape", "impossible")]
    costs = sorted((f for f in every if f not in doubts), key=lambda f: -f.seconds)
    return tuple([*doubts[:2], *costs][:LISTED])


def _of_pass(found: Comparison, passes: Passes) -> Iterator[Finding]:
    phase = passes.phase
    rows = [row for row in found.rows if row.phase == phase]
    whole = passes.seconds
    yield from _shapes(found, phase)
    yield from (Finding("layers", phase, 0.0, 1.0) for layers in found.doubtful if layers.phase == phase)
    heads = sum(left.occurrences for left in found.left_operators if _attends(found, left.operator, phase))
    if heads and not any(row.work[0].anchor == "attention" for row in rows):
        yield Finding("attention", phase, 0.0, 1.0, detail=units.significant(heads))
    if passes.span_seconds and passes.idle_seconds and passes.idle_seconds > 2 * NOTABLE * passes.span_seconds:
        yield Finding("idle", phase, passes.idle_seconds, passes.idle_seconds / passes.span_seconds)
    if not whole:
        return
    timed = [row for row in rows if row.measured_seconds is not None]
    fast = [row for row in timed if (row.measured_seconds or 0.0) < (1 - NEAR) * row.bound_seconds]
    fast = [row for row in fast if not _resident(row, found.identified.device) and not [*_fewer(row)]]
    if gained := sum(row.bound_seconds - (row.measured_seconds or 0.0) for row in fast):
        worst = max(fast, key=lambda row: row.bound_seconds - (row.measured_seconds or 0.0))
        if gained > NOTABLE * whole:
            yield Finding("impossible", phase, gained, gained / whole, worst)
    for row in timed:
        if (lost := row.lost_seconds or 0.0) > NOTABLE * whole:
            yield Finding("row", phase, lost, lost / whole, row)
    left = [kernel for kernel in found.left_kernels if kernel.phase == phase]
    if (took := sum(kernel.seconds or 0.0 for kernel in left)) > NOTABLE * whole:
        kinds: dict[str, float] = {}
        for kernel in left:
            kinds[kernel.category] = kinds.get(kernel.category, 0.0) + (kernel.seconds or 0.0)
        longest = sorted(kinds, key=lambda kind: -kinds[kind])[:LISTED]
        listed = ", ".join(f"{kind} {units.seconds(kinds[kind])}" for kind in longest)
        yield Finding("left kernels", phase, took, took / whole, detail=listed)
    missing = [left for left in found.left_operators if left.phase == phase]
    bound = sum(left.bound_seconds for left in missing)
    total = bound + sum(row.bound_seconds for row in rows)
    if bound > 2 * NOTABLE * total:
        largest = max(missing, key=lambda left: left.bound_seconds)
        yield Finding("left operators", phase, bound, bound / total, detail=largest.operator)
    best = max(timed, key=lambda row: row.measured_seconds or 0.0, default=None)
    if best:
        yield Finding("most", phase, 0.0, (best.measured_seconds or 0.0) / whole, best)


def _resident(row: Row, device: Device) -> bool:
    """Whether what it moves may come from the L2, so that DRAM does not bound it."""
    l2 = device.levels.get("l2")
    each = float(row.cost.bytes) / max(1.0, row.occurrences)
    kept = float(row.cost.weight_bytes + row.cost.cache_bytes)  # from one pass to the next
    return row.bound == "memory" and l2 is not None and l2.capacity is not None and max(each, kept) < l2.capacity


def _attends(found: Comparison, operator: str, phase: str) -> bool:
    """Whether an operator of a phase is fused attention."""
    listed = next(p.placed for p in found.estimate.phases if p.step.phase == phase)
    return any(placed.operator.name == operator and placed.operator.kind == "attention" for placed in listed)


def _shapes(found: Comparison, phase: str) -> Iterator[Finding]:
    """Whether the products in the file have other rows than the workload's."""
    shaped = [product for product in found.shaped if product.phase == phase]
    others = [product for product in shaped if not product.fits]
    if 2 * len(others) > len(shaped):
        sizes = Counter(f"{product.there.k} × {product.there.n}" for product in others)
        listed = ", ".join(size for size, _ in sizes.most_common(3))
        yield Finding("model", phase, 0.0, len(others) / len(shaped), detail=listed)
        return
    rows = Counter(product.there.m for product in shaped if product.fits and product.there.m != product.told)
    if 2 * sum(rows.values()) > len(shaped):
        yield Finding("shape", phase, 0.0, sum(rows.values()) / len(shaped), detail=str(rows.most_common(1)[0][0]))
