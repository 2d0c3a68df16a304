"""Groups of kernels that do one piece of work: one framework call, a GEMM and its split-K sum, a convolution and its
layout changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from roofmodel.counting.operator import Gemm
from roofmodel.numbers.algebra import product
from roofmodel.profiles.kernel import Call, Kernel
from roofmodel.roofline.naming import Hint, anchor, auxiliary_role, direction, hint, words
from roofmodel.roofline.points import flops_by_pipe, incomplete

if TYPE_CHECKING:
    from roofmodel.devices.device import Device


MAX_CALL_KERNELS, MAX_CALL_GEMMS = 12, 3  # of one framework call
_OPERATOR = re.compile(r"(?P<name>\w+::\w+), .*?op_id = (?P<id>\d{1,12})(?:, .*?sizes = (?P<sizes>\[.*\]))?")
_SHAPE = re.compile(r"\[((?:\d{1,12}(?:, ?\d{1,12})*)?)\]")


class WorkGroup(NamedTuple):
    """Kernels that do one piece of work."""

    kernels: tuple[Kernel, ...]
    kind: str | None  # kind of anchor; None for light work
    words: frozenset[str]
    hint: Hint
    direction: str | None  # forward or backward, by its name
    flops: float | None  # measured; None if incomplete
    operand_sizes: tuple[float, ...] = ()  # elements of the three matrices of a GEMM, from recorded shapes

    @property
    def seconds(self) -> float | None:
        """Sum of the kernel times; None if a kernel has no time."""
        times = [kernel.seconds for kernel in self.kernels]
        return None if None in times else sum(t for t in times if t is not None)


def group_kernels(kernels: Sequence[Kernel], device: Device, fused_attention: bool = True) -> list[WorkGroup]:
    """Kernels in launch order, grouped.

    With `fused_attention` and no attention kernel in the file, two GEMMs with a softmax between them become one
    attention group.
    """
    groups = _group_calls(kernels, device)
    eager = fused_attention and not any(group.kind == "attention" for group in groups)
    return _join_eager_attention(groups) if eager else groups


def _group_calls(kernels: Sequence[Kernel], device: Device) -> list[WorkGroup]:
    groups: list[WorkGroup] = []
    layout: list[WorkGroup] = []  # layout changes before a convolution
    for run in _runs(kernels):
        group = _group(run, device)
        role = auxiliary_role(run[0].name) if group.kind is None or len(run) == 1 else None
        previous = groups[-1] if groups and not layout else None
        if group.kind == "GEMM" and any(auxiliary_role(each.kernels[0].name) == "transform" for each in layout):
            group = group._replace(kind="convolution", operand_sizes=())
        if role in ("layout", "transform"):
            layout.append(group)
        elif previous and previous.kind and _belongs(group, role, previous):
            groups[-1] = _merged([previous, group], previous)
        else:
            if group.kind == "convolution":
                groups.append(_merged([*layout, group], group))
            else:
                groups += _join_layout_after(groups, layout)
                groups.append(group)
            layout = []
    return groups + _join_layout_after(groups, layout)


def _belongs(group: WorkGroup, role: str | None, previous: WorkGroup) -> bool:
    """Whether an item belongs to the anchor before it: it finishes that anchor, or both are attention."""
    return (role == "finish" and group.kind in (None, previous.kind)) or group.kind == previous.kind == "attention"


def without_graph_calls(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The kernels, without their call where it launched a whole graph, since its name and shapes are not theirs."""
    every = [(kernel, is_graph) for run, is_graph in _calls(kernels) for kernel in run]
    if not any(is_graph for _, is_graph in every):
        return list(kernels)
    table = kernels[0].table.select([kernel.row for kernel, _ in every])
    table.set("call", [None if is_graph else kernel.call for kernel, is_graph in every])
    return list(table)


def _runs(kernels: Sequence[Kernel]) -> Iterator[list[Kernel]]:
    """The kernels of each framework call; the kernels of a call that launches a whole graph stay separate."""
    for run, is_graph in _calls(kernels):
        yield from ([kernel] for kernel in run) if is_graph else [run]


def _calls(kernels: Sequence[Kernel]) -> Iterator[tuple[list[Kernel], bool]]:
    """The kernels of each framework call, and whether the call launched a whole graph."""
    for _, run in groupby(kernels, key=lambda kernel: (call.id,) if (call := _call(kernel)) else kernel.id):
        launched = list(run)
        gemms = sum(anchor(kernel.name) == "GEMM" for kernel in launched)
        kinds = {anchor(kernel.name) for kernel in launched} - {None}
        yield launched, len(launched) > MAX_CALL_KERNELS or gemms > MAX_CALL_GEMMS or len(kinds) > 1


def _call(kernel: Kernel) -> Call | None:
    """The framework's operator that launched a kernel: from the trace, or from an NVTX range of PyTorch.

    `torch.autograd.profiler.emit_nvtx(record_shapes=True)` writes `aten::mm, op_id = 7, sizes = [[128, 64], [64, 32]]`.
    """
    if kernel.call or not kernel.nvtx or not (match := _OPERATOR.match(kernel.nvtx[-1])):
        return kernel.call
    shapes = tuple(tuple(map(int, shape.split(","))) if shape else () for shape in _SHAPE.findall(match["sizes"] or ""))
    return Call(int(match["id"]), match["name"], shapes)


def _join_layout_after(groups: list[WorkGroup], layout: list[WorkGroup]) -> list[WorkGroup]:
    """Join layout changes to the convolution before them; without one they stay separate."""
    if layout and groups and groups[-1].kind == "convolution":
        groups[-1] = _merged([groups[-1], *layout], groups[-1])
        return []
    return list(layout)


def _join_eager_attention(groups: list[WorkGroup]) -> list[WorkGroup]:
    """Join the GEMMs of scores and values and all kernels between them; a backward pass has two of each."""
    spans: list[tuple[int, int]] = []
    for index, group in enumerate(groups):
        if (
            group.kind is None
            and {"softmax", "routing"} & group.words == {"softmax"}
            and (spans == [] or index > spans[-1][1])
        ):
            gemms = 2 if group.direction == "backward" else 1
            first, last = _nth_gemm(groups, index, -1, gemms), _nth_gemm(groups, index, 1, gemms)
            if first is not None and last is not None and (spans == [] or first > spans[-1][1]):
                spans.append((first, last))
    joined: list[WorkGroup] = []
    end = 0
    for first, last in spans:
        parts = groups[first : last + 1]
        joined += groups[end:first]
        joined.append(_merged(parts, parts[0])._replace(kind="attention", operand_sizes=(), flops=_total_flops(parts)))
        end = last + 1
    return joined + groups[end:]


def _nth_gemm(groups: Sequence[WorkGroup], index: int, step: int, n: int) -> int | None:
    """Index of the `n`-th GEMM before or after a softmax; None if another kind of kernel comes first."""
    gemms = 0
    while 0 <= (index := index + step) < len(groups):
        group = groups[index]
        if group.kind == "GEMM":
            gemms += 1
            if gemms == n:
                return index
        elif group.kind or group.words & {"norm", "gather", "activation", "softmax", "pool", "routing"}:
            return None
    return None


def _total_flops(parts: Sequence[WorkGroup]) -> float | None:
    counted = [part.flops for part in parts]
    return None if None in counted else sum(flops for flops in counted if flops is not None)


def _merged(parts: Sequence[WorkGroup], main: WorkGroup) -> WorkGroup:
    return main._replace(kernels=tuple(kernel for part in parts for kernel in part.kernels))


def _group(run: Sequence[Kernel], device: Device) -> WorkGroup:
    call = _call(run[0])
    kinds = [anchor(kernel.name) for kernel in run]
    kind = next((k for k in ("attention", "convolution", "scan", "GEMM") if k in kinds), None)
    name_words = frozenset().union(*(words(kernel.name) for kernel in run))
    if call and kind is None:
        name_words = words(call.name) or name_words
    shape = operand_sizes(run[0]) if kind == "GEMM" else ()
    return WorkGroup(
        tuple(run), kind, name_words, hint(run[0].nvtx), _direction(run), counted_flops(run, device), shape
    )


def _direction(run: Sequence[Kernel]) -> str | None:
    """Forward or backward by the kernel names, else by the name of the call."""
    directions = [direction(kernel.name) for kernel in run]
    directions += [direction(call.name)] if (call := _call(run[0])) else []
    return next((each for each in directions if each), None)


def recorded_gemm(kernel: Kernel) -> Gemm | None:
    """The GEMM shape of the call that launched a kernel; None if shapes were not recorded."""
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


def recorded_attention(kernel: Kernel) -> tuple[int, int, int] | None:
    """Sequences, queries and keys of the fused attention that launched a kernel; None if shapes were not recorded.

    Its first two arguments are queries and keys: batch x heads x positions x head size.
    """
    call = _call(kernel)
    if call is None or "scaled_dot_product" not in call.name or "backward" in call.name or len(call.shapes) < 2:
        return None
    queries, keys = call.shapes[:2]
    if len(queries) != 4 or len(keys) != 4 or not all((*queries, *keys)):
        return None
    return int(queries[0]), int(queries[2]), int(keys[2])


def recorded_images(kernel: Kernel) -> int | None:
    """Images of the convolution that launched a kernel; None if shapes were not recorded.

    Its first argument, also of its backward pass, is images x channels x rows x columns.
    """
    call = _call(kernel)
    if call is None or "conv" not in call.name or not call.shapes or len(call.shapes[0]) != 4:
        return None
    return int(call.shapes[0][0]) or None


def operand_sizes(kernel: Kernel) -> tuple[float, ...]:
    """Elements of the two factors and the result of a GEMM; empty if shapes were not recorded."""
    gemm_sizes = recorded_gemm(kernel)
    if gemm_sizes is None:
        return ()
    batch, m, n, k = (float(size) for size in gemm_sizes)
    return (batch * m * k, batch * k * n, batch * m * n)


def counted_flops(run: Sequence[Kernel], device: Device) -> float | None:
    """Measured FLOPs of kernels; None if some were not counted."""
    if any(incomplete(kernel.flops, device) for kernel in run):
        return None
    return sum(sum(flops_by_pipe(kernel.flops).values()) for kernel in run)
