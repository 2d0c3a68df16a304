"""Kernels that are one piece of work: of one call of the framework, a product and the sum of its parts, a convolution
and the layouts around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from roofmodel.algebra import product
from roofmodel.counting.operator import Gemm
from roofmodel.profiles.kernel import Call, Kernel
from roofmodel.study.compare.naming import Hint, anchor, auxiliary_role, direction, hint, words
from roofmodel.study.profile.points import incomplete, work

if TYPE_CHECKING:
    from roofmodel.devices.device import Device


MOST, PRODUCTS = 12, 3  # kernels, and products among them, that one call of a framework launches
_OPERATOR = re.compile(r"(?P<name>\w+::\w+), .*?op_id = (?P<id>\d{1,12})(?:, .*?sizes = (?P<sizes>\[.*\]))?")
_SHAPE = re.compile(r"\[((?:\d{1,12}(?:, ?\d{1,12})*)?)\]")


class KernelGroup(NamedTuple):
    """Kernels that are one piece of work: of one call of the framework, or a product and the sum of its parts."""

    kernels: tuple[Kernel, ...]
    kind: str | None  # of an anchor
    words: frozenset[str]
    hint: Hint
    direction: str | None  # forward or backward, by its name
    flops: float | None  # as counted; None where some were not
    operand_sizes: tuple[float, ...] = ()  # elements of the three matrices of a product, by the shapes of its call

    @property
    def seconds(self) -> float | None:
        """None where a kernel has no time."""
        times = [kernel.seconds for kernel in self.kernels]
        return None if None in times else sum(t for t in times if t is not None)


def group_kernels(kernels: Sequence[Kernel], device: Device, fused_attention: bool = True) -> list[KernelGroup]:
    """Kernels in order, those that belong together as one.

    Where attention is predicted as one kernel, and no kernel of the file is one, products with a softmax between them
    are that.
    """
    found = _together(kernels, device)
    eager = fused_attention and not any(item.kind == "attention" for item in found)
    return _attention(found) if eager else found


def _together(kernels: Sequence[Kernel], device: Device) -> list[KernelGroup]:
    found: list[KernelGroup] = []
    layout: list[KernelGroup] = []  # transforms that wait for their convolution
    for run in _calls(kernels):
        item = _item(run, device)
        helping = auxiliary_role(run[0].name) if item.kind is None or len(run) == 1 else None
        last = found[-1] if found and not layout else None
        if item.kind == "matrix product" and any(
            auxiliary_role(each.kernels[0].name) == "transform" for each in layout
        ):
            item = item._replace(kind="convolution", operand_sizes=())
        if helping in ("layout", "transform"):
            layout.append(item)
        elif last and last.kind and _belongs(item, helping, last):
            found[-1] = _joined([last, item], last)
        else:
            if item.kind == "convolution":
                found.append(_joined([*layout, item], item))
            else:
                found += _closing(found, layout)
                found.append(item)
            layout = []
    return found + _closing(found, layout)


def _belongs(item: KernelGroup, helping: str | None, last: KernelGroup) -> bool:
    """Whether an item finishes the anchor ahead of it; attention's kernels follow one another."""
    return (helping == "finish" and item.kind in (None, last.kind)) or item.kind == last.kind == "attention"


def _calls(kernels: Sequence[Kernel]) -> Iterator[list[Kernel]]:
    """The kernels of each call of the framework; one that launches a graph of many is no operator, but them all."""
    for _, run in groupby(kernels, key=lambda kernel: (called.id,) if (called := _call(kernel)) else kernel.id):
        together = list(run)
        products = sum(anchor(kernel.name) == "matrix product" for kernel in together)
        kinds = {anchor(kernel.name) for kernel in together} - {None}
        if len(together) <= MOST and products <= PRODUCTS and len(kinds) <= 1:
            yield together
        else:
            yield from ([replace(kernel, call=None)] for kernel in together)


def _call(kernel: Kernel) -> Call | None:
    """The framework's operator that launched a kernel: as the trace has it, or as a range of PyTorch's tells it.

    `torch.autograd.profiler.emit_nvtx(record_shapes=True)` writes `aten::mm, op_id = 7, sizes = [[128, 64], [64, 32]]`.
    """
    if kernel.call or not kernel.nvtx or not (told := _OPERATOR.match(kernel.nvtx[-1])):
        return kernel.call
    shapes = tuple(tuple(map(int, shape.split(","))) if shape else () for shape in _SHAPE.findall(told["sizes"] or ""))
    return Call(int(told["id"]), told["name"], shapes)


def _closing(found: list[KernelGroup], layout: list[KernelGroup]) -> list[KernelGroup]:
    """Transforms behind a convolution join it; the others stand for themselves."""
    if layout and found and found[-1].kind == "convolution":
        found[-1] = _joined([found[-1], *layout], found[-1])
        return []
    return list(layout)


def _attention(found: list[KernelGroup]) -> list[KernelGroup]:
    """Products of scores and of values with all that stands between them, as one; backward there are two of each."""
    spans: list[tuple[int, int]] = []
    for at, item in enumerate(found):
        if (
            item.kind is None
            and {"softmax", "routing"} & item.words == {"softmax"}
            and (spans == [] or at > spans[-1][1])
        ):
            many = 2 if item.direction == "backward" else 1
            first, last = _products(found, at, -1, many), _products(found, at, 1, many)
            if first is not None and last is not None and (spans == [] or first > spans[-1][1]):
                spans.append((first, last))
    joined: list[KernelGroup] = []
    behind = 0
    for first, last in spans:
        parts = found[first : last + 1]
        joined += found[behind:first]
        joined.append(_joined(parts, parts[0])._replace(kind="attention", operand_sizes=(), flops=_sum(parts)))
        behind = last + 1
    return joined + found[behind:]


def _products(found: Sequence[KernelGroup], at: int, way: int, many: int) -> int | None:
    """Where so many products stand next to a softmax; None where something comes in between that attention has not."""
    seen = 0
    while 0 <= (at := at + way) < len(found):
        item = found[at]
        if item.kind == "matrix product":
            seen += 1
            if seen == many:
                return at
        elif item.kind or item.words & {"norm", "gather", "activation", "softmax", "pool", "routing"}:
            return None
    return None


def _sum(parts: Sequence[KernelGroup]) -> float | None:
    counted = [part.flops for part in parts]
    return None if None in counted else sum(flops for flops in counted if flops is not None)


def _joined(parts: Sequence[KernelGroup], main: KernelGroup) -> KernelGroup:
    return main._replace(kernels=tuple(kernel for part in parts for kernel in part.kernels))


def _item(run: Sequence[Kernel], device: Device) -> KernelGroup:
    call = _call(run[0])
    kinds = [anchor(kernel.name) for kernel in run]
    kind = next((k for k in ("attention", "convolution", "scan", "matrix product") if k in kinds), None)
    said = frozenset().union(*(words(kernel.name) for kernel in run))
    if call and kind is None:
        said = words(call.name) or said
    shape = operand_sizes(run[0]) if kind == "matrix product" else ()
    return KernelGroup(tuple(run), kind, said, hint(run[0].nvtx), _direction(run), counted_flops(run, device), shape)


def _direction(run: Sequence[Kernel]) -> str | None:
    """What the names of the kernels say of it, else that of the call."""
    said = [direction(kernel.name) for kernel in run]
    said += [direction(call.name)] if (call := _call(run[0])) else []
    return next((each for each in said if each), None)


def recorded_gemm(kernel: Kernel) -> Gemm | None:
    """The matrix product that launched a kernel, by the shapes of its factors; None where they were not recorded."""
    if (call := _call(kernel)) is None:
        return None
    name, shapes = call.name.removeprefix("aten::"), call.shapes
    factors = shapes[1:3] if name in ("addmm", "baddbmm", "addmv") else shapes[:2]
    if name not in ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "linear", "mv", "addmv") or len(factors) < 2:
        return None
    a, b = factors
    if len(a) < 2 or not b:
        return None
    rows, k = product(a[:-1]), a[-1]
    batch = a[0] if name in ("bmm", "baddbmm") else 1
    n = 1 if len(b) == 1 else b[0] if name == "linear" else b[-1]
    return Gemm(batch, rows // max(1, batch), n, k)


def operand_sizes(kernel: Kernel) -> tuple[float, ...]:
    """How many elements its two factors and its result have; nothing where shapes were not recorded."""
    found = recorded_gemm(kernel)
    if found is None:
        return ()
    batch, m, n, k = (float(size) for size in found)
    return (batch * m * k, batch * k * n, batch * m * n)


def counted_flops(run: Sequence[Kernel], device: Device) -> float | None:
    """The FLOPs that counters saw; None where some were not counted."""
    if any(incomplete(kernel.flops, device) for kernel in run):
        return None
    return sum(sum(work(kernel.flops).values()) for kernel in run)
