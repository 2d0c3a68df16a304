"""Reasons for differences between measured and counted figures, and the findings of a comparison.

A reason is specific only if the numbers fit it: a tile size whose padding explains the measured FLOPs, masked pairs, or
a working set that fits in L2. Otherwise the reason lists possible causes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from roofmodel.compare.comparison import ComparisonFinding, ComparisonRow, FoundPasses, ModelComparison
from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.roofline.formats import FormatMismatch
from roofmodel.roofline.naming import auxiliary_role

EQUAL_WITHIN = 0.05  # relative difference up to which two figures count as equal
NOTABLE_RATIO = 1.1  # measured / counted, or its inverse, above which a difference needs a reason
NOTABLE_SHARE = 0.03  # share of a pass above which a cost is a finding
SEVERAL_KERNELS = 1.5  # kernels per operator above which the split is a reason
MAX_FINDINGS, MAX_DOUBTS = 3, 2
_TILE = re.compile(r"(?<![\dx])(16|32|48|64|96|128|192|256)x(16|32|48|64|96|128|192|256)(?!\d)")


# --- Reasons for differences between measured and counted -------------------------------------------


def reasons(row: ComparisonRow, comparison: ModelComparison) -> tuple[str, ...]:
    """Reasons why measured FLOPs and bytes of a row differ from the counted ones."""
    device, mismatch = comparison.identified.device, comparison.format_mismatch
    return (*_fast_convolution(row), *_several_kernels(row), *_flops(row), *_bytes(row, device, mismatch))


def _several_kernels(row: ComparisonRow) -> Iterator[str]:
    merged = any("." not in name for name in row.operators)
    ratio = row.kernels / max(1.0, row.occurrences * (1 if merged else len(row.operators)))
    if ratio > SEVERAL_KERNELS:
        layouts = any(auxiliary_role(name) == "layout" for name in row.kernel_names)
        effect = "some of them change the tensor layout" if layouts else "intermediate results pass through memory"
        yield f"{units.significant(ratio, 2)} kernels per operator: {effect}"


def _fast_convolution(row: ComparisonRow) -> Iterator[str]:
    """Convolution algorithms with fewer multiplications than the bound counts."""
    names = " ".join(row.kernel_names).lower()
    for algorithm, word in (("Winograd convolution", "winograd"), ("FFT convolution", "fft")):
        if word in names:
            yield f"{algorithm} needs fewer multiplications than counted"


def _flops(row: ComparisonRow) -> Iterator[str]:
    counted = float(row.cost.flops)
    if not row.measured_flops or not counted or row.cost.matmul_flops * 2 < counted:
        return  # programs differ in how they count vector FLOPs
    ratio = row.measured_flops / counted
    if ratio > NOTABLE_RATIO:
        yield f"{units.significant(ratio)} × the counted FLOPs: {_cause_of_more_flops(row, ratio)}"
    elif ratio < 1 / NOTABLE_RATIO:
        cause = "some pipes were not measured, or the workload is smaller than given"
        if _anchor(row) == "convolution":
            cause = "an algorithm with fewer multiplications (Winograd)"
        yield f"{ratio:.0%} of the counted FLOPs: {cause}"


def _cause_of_more_flops(row: ComparisonRow, ratio: float) -> str:
    operator = row.sample_occurrences[0].placed.operator
    if _anchor(row) == "attention":
        pairs, unmasked = operator.sizes.get("t:s"), operator.sizes.get("t", 1) * operator.sizes.get("s", 1)
        if pairs and abs(float(unmasked / pairs) / ratio - 1) < 2 * EQUAL_WITHIN:
            return "masked pairs are computed too"
        return "the backward pass recomputes the scores" if row.stage == "backward" else "tiles include masked pairs"
    for height, width in _tiles(row):
        if abs(_padding(row, height, width) / ratio - 1) < EQUAL_WITHIN:
            return f"padding to {height} × {width} tiles"
    return "padding, recomputation, or vector work fused into the GEMM"


def _tiles(row: ComparisonRow) -> Iterator[tuple[int, int]]:
    """The tile sizes in the names of a row's kernels, in both orientations; common square tiles if no name has one."""
    tiles = [(int(a), int(b)) for name in row.kernel_names for a, b in _TILE.findall(name)]
    for height, width in tiles or [(n, n) for n in (16, 32, 64, 128, 256)]:
        yield height, width
        if height != width:
            yield width, height


def _padding(row: ComparisonRow, height: int, width: int) -> float:
    """FLOPs of a row's GEMMs padded to whole tiles, divided by their FLOPs; 0 without GEMMs."""
    exact = padded = 0.0
    for occurrence in row.sample_occurrences:
        if gemm := occurrence.placed.operator.gemm:
            m, n, k = float(gemm.m), float(gemm.n), float(gemm.k)
            exact += m * n * k
            padded += math.ceil(m / height) * height * math.ceil(n / width) * width * k
    return padded / exact if exact else 0.0


def _bytes(row: ComparisonRow, device: Device, mismatch: FormatMismatch | None) -> Iterator[str]:
    counted, measured = float(row.cost.bytes), row.measured_bytes
    if measured is None or not counted:
        return
    ratio, l2 = measured / counted, device.levels.get("l2")
    working_set = counted / max(1.0, row.occurrences)
    if ratio < 1 / NOTABLE_RATIO:
        fits = l2 is not None and l2.capacity is not None and working_set < l2.capacity
        cause = f"the {units.si(working_set, 'B')} working set fits in L2" if fits else "part of the data stays in L2"
        yield f"DRAM traffic is {ratio:.0%} of the count: {cause}"
    elif ratio > NOTABLE_RATIO:
        width = mismatch.width_ratio if mismatch else 1.0
        causes = []
        if mismatch and width > 1:
            causes.append(f"{mismatch.measured} is {units.significant(width)} × as wide as {mismatch.given}")
        if ratio > NOTABLE_RATIO * width:
            causes.append(_cause_of_more_bytes(row))
        yield f"DRAM traffic is {units.significant(ratio)} × the count: {', and '.join(causes)}"


def _cause_of_more_bytes(row: ComparisonRow) -> str:
    if [*_several_kernels(row)]:
        return "several kernels per operator"
    return "tiles read the matrices more than once" if row.cost.matmul_flops else "wider formats or partly used sectors"


def _anchor(row: ComparisonRow) -> str | None:
    return row.sample_occurrences[0].anchor if row.sample_occurrences else None


# --- Findings ---------------------------------------------------------------------------------------


def findings(comparison: ModelComparison) -> tuple[ComparisonFinding, ...]:
    """The three most important findings: at most two doubts about the comparison, then the largest costs."""
    all_findings = [finding for passes in comparison.passes for finding in _phase_findings(comparison, passes)]
    doubts = [f for f in all_findings if f.is_doubt]
    costs = sorted((f for f in all_findings if not f.is_doubt), key=lambda f: -f.seconds)
    return tuple([*doubts[:MAX_DOUBTS], *costs][:MAX_FINDINGS])


def _phase_findings(comparison: ModelComparison, passes: FoundPasses) -> Iterator[ComparisonFinding]:
    phase, pass_seconds = passes.phase, passes.seconds
    rows = [row for row in comparison.rows if row.phase == phase]
    yield from _gemm_shapes(comparison, phase)
    yield from (
        ComparisonFinding("layers", phase, 0.0, 1.0) for layers in comparison.layer_mismatches if layers.phase == phase
    )
    yield from _missing_attention(comparison, phase, rows)
    if passes.span_seconds and passes.idle_seconds and passes.idle_seconds > 2 * NOTABLE_SHARE * passes.span_seconds:
        yield ComparisonFinding("idle", phase, passes.idle_seconds, passes.idle_seconds / passes.span_seconds)
    if not pass_seconds:
        return
    timed = [row for row in rows if row.measured_seconds is not None]
    yield from _too_fast(timed, phase, pass_seconds, comparison.identified.device)
    for row in timed:
        if (excess := row.excess_seconds or 0.0) > NOTABLE_SHARE * pass_seconds:
            yield ComparisonFinding("slow", phase, excess, excess / pass_seconds, row)
    unmatched = sum(kernels.seconds or 0.0 for kernels in comparison.unmatched_kernels if kernels.phase == phase)
    if unmatched > NOTABLE_SHARE * pass_seconds:
        yield ComparisonFinding("unmatched kernels", phase, unmatched, unmatched / pass_seconds)
    missing = [operators for operators in comparison.unmatched_operators if operators.phase == phase]
    missing_bound = sum(operators.bound_seconds for operators in missing)
    bound = missing_bound + sum(row.bound_seconds for row in rows)
    if missing_bound > 2 * NOTABLE_SHARE * bound:
        largest = max(missing, key=lambda operators: operators.bound_seconds)
        yield ComparisonFinding(
            "unmatched operators", phase, missing_bound, missing_bound / bound, detail=largest.operator
        )
    longest = max(timed, key=lambda row: row.measured_seconds or 0.0, default=None)
    if longest:
        yield ComparisonFinding("longest", phase, 0.0, (longest.measured_seconds or 0.0) / pass_seconds, longest)


def _too_fast(
    timed: list[ComparisonRow], phase: str, pass_seconds: float, device: Device
) -> Iterator[ComparisonFinding]:
    """Rows that take less than their bound, unless data in L2 or a convolution algorithm explains it."""
    gains = [
        (row.bound_seconds - (row.measured_seconds or 0.0), row)
        for row in timed
        if (row.measured_seconds or 0.0) < (1 - EQUAL_WITHIN) * row.bound_seconds
        and not _fits_in_l2(row, device)
        and not [*_fast_convolution(row)]
    ]
    total = sum(gain for gain, _ in gains)
    if total > NOTABLE_SHARE * pass_seconds:
        _, fastest = max(gains, key=lambda gain: gain[0])
        yield ComparisonFinding("too fast", phase, total, total / pass_seconds, fastest)


def _fits_in_l2(row: ComparisonRow, device: Device) -> bool:
    """Whether a memory-bound row may read its data from L2, so that its DRAM bound does not apply."""
    l2 = device.levels.get("l2")
    working_set = float(row.cost.bytes) / max(1.0, row.occurrences)
    reused = float(row.cost.weight_bytes + row.cost.cache_bytes)  # by the next pass
    return (
        row.bound == "memory" and l2 is not None and l2.capacity is not None and max(working_set, reused) < l2.capacity
    )


def _missing_attention(
    comparison: ModelComparison, phase: str, rows: list[ComparisonRow]
) -> Iterator[ComparisonFinding]:
    """Fused attention in the model, and no kernel in the file that looks like attention."""
    placed = next(p.placed for p in comparison.estimate.phases if p.step.phase == phase)
    fused = {each.operator.name for each in placed if each.operator.kind == "attention"}
    missing = (each for each in comparison.unmatched_operators if each.phase == phase)
    count = sum(each.occurrences for each in missing if each.operator in fused)
    if count and not any(_anchor(row) == "attention" for row in rows):
        yield ComparisonFinding("attention", phase, 0.0, 1.0, detail=units.significant(count))


def _gemm_shapes(comparison: ModelComparison, phase: str) -> Iterator[ComparisonFinding]:
    """Whether most GEMMs in the file have other weight matrices than the model, or other rows than the workload."""
    gemms = [gemm for gemm in comparison.gemms if gemm.phase == phase]
    others = [gemm for gemm in gemms if not gemm.same_weights]
    if 2 * len(others) > len(gemms):
        sizes = Counter(f"{gemm.shape.k} × {gemm.shape.n}" for gemm in others)
        listed = ", ".join(size for size, _ in sizes.most_common(3))
        yield ComparisonFinding("weights", phase, 0.0, len(others) / len(gemms), detail=listed)
        return
    rows = Counter(gemm.shape.m for gemm in gemms if gemm.same_weights and gemm.shape.m != gemm.given_rows)
    if 2 * sum(rows.values()) > len(gemms):
        yield ComparisonFinding(
            "rows", phase, 0.0, sum(rows.values()) / len(gemms), detail=str(rows.most_common(1)[0][0])
        )
