"""Measured kernels and predicted operators as points of a roofline.

A point is a group of kernels at one memory level. Its arithmetic intensity is its FLOPs divided by the bytes of that
level, its performance is its FLOPs divided by its time. The attainable performance follows from the ceilings:

    minimum time = max(FLOPs of each pipe / that pipe's peak, bytes / the level's bandwidth)
    attainable = FLOPs / minimum time, fraction = minimum time / measured time

which for a single pipe is min(peak, bandwidth x intensity) (Williams et al., CACM 52(4), 2009). Several pipes at once
could exceed each of their peaks; attainable is limited to the highest of these peaks. The hierarchical form, one point
per memory level, is Yang, Kurth and Williams, "Hierarchical Roofline analysis for GPUs", CCPE 32(20), 2020.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Flops, Kernel, KernelTable
from roofmodel.roofline.categories import base_name, category, lecture_category

if TYPE_CHECKING:
    from roofmodel.counting.operator import Operator
    from roofmodel.steps.estimate import Estimate
    from roofmodel.steps.placed import Placed


class Reason(NamedTuple):
    """A reason for the time of a kernel; the seconds are an estimate of what its removal saves."""

    reason: str  # a name in `reasons.REASONS`
    seconds: float  # that its removal saves, or the next feasible step towards it; 0: unknown
    evidence: str
    most_seconds: float = 0.0  # that its removal would save at most, if it is known to limit the launch
    affected_seconds: float = 0.0  # of the launches that have it
    source: str = "roof"  # or the tool whose rule states it: "ncu"


class Point(NamedTuple):
    """A group of kernels, or a predicted operator, at one level of the memory hierarchy."""

    name: str
    category: str
    level: str
    pipe: str | None  # the pipe with the longest minimum time; None if no FLOPs were counted
    intensity: float | None  # FLOP per byte
    flops_per_second: float | None
    attainable: float | None  # FLOP/s
    fraction: float | None  # achieved / attainable; above 1 is impossible and gets a finding
    bound: str | None  # "compute" or "memory"; None if FLOPs that were not collected could change it
    seconds: float | None
    share: float | None  # of the measured time
    invocations: int
    predicted: bool = False
    incomplete: bool = False  # not all FLOPs were counted: intensity and performance are lower bounds
    occupancy: float | None = None  # achieved, as a fraction of the maximum
    registers: int | None = None  # per thread
    finding: str | None = None  # possible explanations if the point is above its ceiling
    flops_per_second_low: float | None = None  # if fp16 instructions were not packed; None if there are none
    bytes_per_second: float | None = None
    counted: bool = False  # FLOPs and bytes are counted from the shapes of operators, not measured
    reasons: tuple[Reason, ...] = ()  # for the time of the group, the costliest first

    @property
    def drawable(self) -> bool:
        """Whether it has a position on logarithmic axes."""
        return bool(self.intensity and self.flops_per_second)

    @property
    def unpacked(self) -> tuple[float, float] | None:
        """The position (FLOP/B, FLOP/s) if its fp16 instructions were not packed; None if it has none."""
        if self.flops_per_second_low is None or not self.intensity or not self.flops_per_second:
            return None
        return self.intensity * self.flops_per_second_low / self.flops_per_second, self.flops_per_second_low


# --- Groups -----------------------------------------------------------------------------------------


GROUPINGS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "name": ("name", str),
    "base": ("name", base_name),
    "nvtx": ("nvtx", lambda ranges: " / ".join(ranges or ()) or "(no range)"),
    "category": ("name", category),
    "lecture": ("name", lecture_category),
}
"""The column by which kernels are grouped, and the name of the group of a value."""


def group_name(kernel: Kernel, by: str) -> str:
    """The name of the group of a kernel."""
    column, name = GROUPINGS[by]
    return name(getattr(kernel, column))


def group(kernels: KernelTable, by: str) -> KernelTable:
    """Kernels summed by `name`, `base`, `nvtx`, `category` or `lecture`; longest first. A group has a category."""
    column, name = GROUPINGS[by]
    values = kernels.cells(column)
    names = {value: name(value) for value in dict.fromkeys(values)}
    labels = [names[value] for value in values]
    groups = kernels.grouped(labels)
    groups.set("name", list(dict.fromkeys(labels)))
    if by == "lecture":
        groups.set("category", groups.cells("name"))
    else:
        categories: dict[str, set[str]] = {}
        for label, kernel in dict.fromkeys(zip(labels, kernels.cells("name"), strict=True)):
            categories.setdefault(label, set()).add(category(kernel))
        groups.set("category", [each.pop() if len(each) == 1 else "other" for each in categories.values()])
    seconds = groups.seconds()
    return groups.select(sorted(range(len(groups)), key=lambda row: -(seconds[row] or 0)))


def total(values: Iterable[float | None]) -> float | None:
    """The sum; None if a value is unknown."""
    result = 0.0
    for value in values:
        if value is None:
            return None
        result += value
    return result


# --- Points -----------------------------------------------------------------------------------------

LEVELS = ("dram", "l2", "l1")
FEW_FLOPS = ("memory", "layout", "elementwise", "embedding", "softmax", "norm", "optimizer")
"""Categories with a few FLOPs per element, below the ridge point of any device: uncounted FLOPs do not limit them."""


def flops_by_pipe(flops: Flops) -> dict[str, float]:
    """FLOPs of the pipes that were counted; fp16 counts packed instructions as two. Bounds are left out."""
    return {
        pipe: value
        for pipe, value in flops._asdict().items()
        if value is not None and pipe not in ("fp16_legacy", "tensor_low", "tensor_high")
    }


def incomplete(flops: Flops, device: Device | None) -> bool:
    """Whether the counted FLOPs are only a lower bound. An unknown device (None) may have tensor cores.

    They are a lower bound without a counter of fp32, which nearly every kernel uses, or of the tensor cores. A sum of
    zero is complete only if every pipe of the device was counted.
    """
    counted = flops_by_pipe(flops)
    no_tensor = flops.tensor_high == 0  # no tensor instruction of any type
    pipes = ("fp64", "fp32", "fp16", *device.pipes) if device else ("fp64", "fp32", "fp16", "tensor_")
    tensor = any(pipe.startswith("tensor_") for pipe in counted)
    if flops.fp32 is None or (any(pipe.startswith("tensor_") for pipe in pipes) and not (tensor or no_tensor)):
        return True
    needed = (p for p in pipes if p in Flops._fields and not (no_tensor and p.startswith("tensor_")))
    return not any(counted.values()) and any(pipe not in counted for pipe in needed)


def points(groups: Iterable[Kernel], device: Device) -> list[Point]:
    """One point per group and memory level; none for a group without time or bytes."""
    groups = list(groups)
    total_seconds = total(g.seconds for g in groups)
    group_points = []
    for g in groups:
        every, seconds = g.flops, g.seconds
        flops, unpacked = flops_by_pipe(every), _unpacked_flops(every)
        lower_bound = incomplete(every, device)
        for level in LEVELS:
            size = getattr(g, level)
            if size is None or not seconds:
                continue
            point = _point(level, flops, size, seconds, device)
            unknown = lower_bound and g.category not in FEW_FLOPS
            group_points.append(
                point._replace(
                    name=g.name,
                    category=g.category,
                    share=seconds / total_seconds if total_seconds else None,
                    invocations=g.invocations,
                    bound=None if unknown and point.bound == "memory" else point.bound,
                    incomplete=lower_bound,
                    occupancy=g.occupancy,
                    registers=g.registers,
                    flops_per_second_low=unpacked and unpacked / seconds,
                )
            )
    return group_points


def _unpacked_flops(flops: Flops) -> float | None:
    """All FLOPs if each fp16 instruction works on one value instead of two; None without fp16 instructions."""
    if not flops.fp16 or not flops.fp16_legacy:
        return None
    return sum(flops_by_pipe(flops).values()) - flops.fp16 + flops.fp16_legacy


def _point(level: str, flops: Mapping[str, float], size: float, seconds: float, device: Device) -> Point:
    """The point of FLOPs (by pipe) and bytes at a memory level, executed in `seconds`."""
    bandwidth = device.levels[level].bandwidth if level in device.levels else None
    pipe_seconds = {pipe: n / device.pipes[pipe].peak for pipe, n in flops.items() if n and pipe in device.pipes}
    compute_seconds = max(pipe_seconds.values(), default=0.0)
    memory_seconds = size / bandwidth if bandwidth else None
    minimum_seconds = max(compute_seconds, memory_seconds) if memory_seconds is not None else None
    peak = max((device.pipes[pipe].peak for pipe in pipe_seconds), default=math.inf)
    total = sum(flops.values()) if flops else None
    return Point(
        name="",
        category="other",
        level=level,
        pipe=max(pipe_seconds, key=lambda pipe: pipe_seconds[pipe], default=None),
        intensity=total / size if total is not None and size else None,
        flops_per_second=total / seconds if total is not None else None,
        attainable=min(peak, total / minimum_seconds) if total is not None and minimum_seconds else None,
        fraction=minimum_seconds / seconds if minimum_seconds is not None else None,
        bound=None if memory_seconds is None else "compute" if compute_seconds > memory_seconds else "memory",
        seconds=seconds,
        share=None,
        invocations=1,
        bytes_per_second=size / seconds,
    )


def _operator_category(operator: Operator) -> str:
    """The category of an operator: its group; in a convolutional network the category of the kernels that run it."""
    if operator.kind == "conv" or re.match(r"stem|stage\d", operator.group):
        return {"conv": "convolution", "pool": "reduction"}.get(operator.kind, operator.kind)
    return operator.group


def predicted_point(placed: Placed, device: Device, dtype: str) -> Point:
    """All occurrences of an operator as one point at its bound.

    It is on the ceiling of the pipe that limits it. If matrix and vector FLOPs together would put it above, as in fused
    attention, it has only that pipe's FLOPs: the bound assumes that the other pipe works at the same time.
    """
    matmul, vector = device.matmul_pipe(dtype), device.vector_pipe(dtype)
    flops = {matmul.name: placed.cost.matmul_flops}
    if vector:
        flops[vector.name] = flops.get(vector.name, 0) + placed.cost.vector_flops
    slowest = max(flops, key=lambda pipe: flops[pipe] / device.pipes[pipe].peak)
    if sum(flops.values()) > device.pipes[slowest].peak * placed.seconds:
        flops = {slowest: flops[slowest]}
    return _point("dram", flops, placed.cost.bytes, placed.seconds, device)._replace(
        bound=placed.placement.bound, invocations=placed.operator.count, predicted=True
    )


def predicted_points(estimate: Estimate) -> list[Point]:
    """The operators of an estimate as points at their bounds; all occurrences of an operator are one point."""
    device, dtype = estimate.device, estimate.workload.dtype
    operator_points = []
    for phase in estimate.phases:
        for placed in phase.placed:
            operator_points.append(
                predicted_point(placed, device, dtype)._replace(
                    name=f"{placed.operator.stage or phase.step.phase}: {placed.operator.name}",
                    category=_operator_category(placed.operator),
                    share=placed.seconds / phase.bound_seconds,
                )
            )
    return operator_points
