"""Measured kernels, and predicted operators, as points under a device's roofs.

A point is a group of kernels at one memory level: its intensity is all its FLOPs over the bytes of that
level, its performance all its FLOPs over its time. What it could attain follows from the roofs:

    least time = max(FLOPs of each pipe / that pipe's peak, bytes / the level's bandwidth)
    attainable = FLOPs / least time, fraction = least time / measured time

which for a single pipe is min(peak, bandwidth x intensity) (Williams et al., CACM 52(4), 2009). Pipes that
work at once could do more together than any of them: attainable ends at the highest of their peaks. The
hierarchical form, a point a level, is Yang, Kurth and Williams, "Hierarchical Roofline analysis for
GPUs", CCPE 32(20), 2020.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.errors import Option, WorkloadError, suggest
from roofmodel.profiles.kernel import Flops, Kernel, Traffic
from roofmodel.study.estimate.estimate import Estimate


class Group(NamedTuple):
    """Kernels that are shown as one: sums over its launches; None where one of them lacks the figure."""

    name: str
    category: str
    invocations: int
    seconds: float | None
    flops: Flops
    bytes: Traffic
    occupancy: float | None = None  # achieved, weighted by time; a fraction of the maximum
    registers: int | None = None  # per thread; the most that a launch has


class Point(NamedTuple):
    """A group at one level of the memory hierarchy."""

    name: str
    category: str
    level: str
    pipe: str | None  # the pipe that would take longest; None where no FLOPs were counted
    intensity: float | None  # FLOP per byte
    flops_per_second: float | None
    attainable: float | None  # FLOP/s
    fraction: float | None  # of what the roofs allow; above 1 is a finding
    bound: str | None  # "compute" or "memory"; None where FLOPs that were not counted could decide it
    seconds: float | None
    share: float | None  # of the measured time
    invocations: int
    predicted: bool = False
    incomplete: bool = False  # not all FLOPs were counted: intensity and performance are lower bounds
    occupancy: float | None = None  # achieved, as a fraction of the maximum
    registers: int | None = None  # per thread
    finding: str | None = None  # why it may stand above its roof, where it does
    flops_per_second_low: float | None = None  # if halves were not packed; None where there are none, or it is known

    @property
    def low(self) -> tuple[float, float] | None:
        """Where it stands, FLOP/B and FLOP/s, if its halves were not packed; None where it has none."""
        if self.flops_per_second_low is None or not self.intensity or not self.flops_per_second:
            return None
        return self.intensity * self.flops_per_second_low / self.flops_per_second, self.flops_per_second_low


# --- Groups -----------------------------------------------------------------------------------------


def base_name(name: str) -> str:
    """A kernel's name without return type, nameless namespaces, template arguments and parameters."""
    name = re.sub(r"(?:<unnamed>|\(anonymous namespace\)|\(anonymous\))::", "", name)
    name = re.sub(r"^(?:void|static)\s+", "", name)
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)", "", name)) != name:
        name = shorter
    return name.strip() or "unnamed"


# First match wins, on the lower-cased name. The kernel libraries that PyTorch and its peers launch.
_CATEGORIES = (
    ("communication", r"nccl|rccl|allreduce|all_reduce|nvshmem"),
    ("memory", r"memcpy|memset|copy_device_to_device|copydevice"),
    (
        "layout",
        r"nchwtonhwc|nhwctonchw|transpose|permute|im2col|swapdimension|shuffle|compute\w*(?:offset|ind(?:ex|ices))",
    ),
    ("attention", r"flash|fmha|attention|attn|mha_|sdpa"),
    ("norm", r"norm(?!al)|\bbn_(?:fw|bw)"),
    ("reduction", r"pool|topk"),  # a maximum or a mean of a window; before the names around them
    ("convolution", r"conv|scudnn|winograd|wgrad|dgrad|cudnn.*(?:nhwc|nchw)|implicit_?gemm"),
    ("matrix product", r"gemm|gemv|cutlass|cublas|nvjet|xmma|hmma|s\d{4,5}|wgmma|splitk|cijk_"),
    ("softmax", r"softmax"),
    ("reduction", r"reduce|argmax|argmin|cub::|scan"),
    ("optimizer", r"adam|sgd|optimizer|multi_tensor"),
    ("embedding", r"embedding|indexselect|index_select|gather|scatter"),
    ("elementwise", r"elementwise|vectorized|unrolled|activation|gelu|silu|relu|dropout|triton_poi|cat"),
)


def category(name: str) -> str:
    """What kind of work a kernel's name suggests."""
    lowered = name.lower()
    return next((kind for kind, pattern in _CATEGORIES if re.search(pattern, lowered)), "other")


def lecture_category(name: str) -> str:
    """The four groups of the profiling lecture (preset `lecture`), in its order of precedence."""
    lowered = name.lower()
    if "gemm" in name:
        return "matrix-mul"
    if "CUDA memcpy" in name or "nccl" in lowered or "copy_device_to_device" in lowered or "CUDA memset" in name:
        return "memory_mgmt"
    if any(part in name for part in ("::native", "vectorized_elementwise", "_cpp1_ii", "reduce_kernel")):
        return "custom_ops"
    return "other"


GROUPINGS: Mapping[str, Callable[[Kernel], str]] = {
    "name": lambda kernel: kernel.name,
    "base": lambda kernel: base_name(kernel.name),
    "nvtx": lambda kernel: " / ".join(kernel.nvtx) or "(no range)",
    "category": lambda kernel: category(kernel.name),
    "lecture": lambda kernel: lecture_category(kernel.name),
}


def group(kernels: Iterable[Kernel], by: str) -> list[Group]:
    """Kernels summed by `name`, `base`, `nvtx`, `category` or `lecture`; longest first."""
    if by not in GROUPINGS:
        raise WorkloadError(
            Option("by"), f": unknown grouping {by!r}{suggest(by, GROUPINGS)}; known: {', '.join(GROUPINGS)}"
        )
    bundles: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        bundles.setdefault(GROUPINGS[by](kernel), []).append(kernel)
    groups = [_sum(name, bundle) for name, bundle in bundles.items()]
    if by == "lecture":
        groups = [group._replace(category=group.name) for group in groups]
    return sorted(groups, key=lambda g: -(g.seconds or 0))


def _sum(name: str, bundle: list[Kernel]) -> Group:
    kinds = {category(kernel.name) for kernel in bundle}
    seconds = total(kernel.seconds for kernel in bundle)
    resident = total(None if k.occupancy is None else k.occupancy * (k.seconds or 0) for k in bundle)
    return Group(
        name=name,
        category=kinds.pop() if len(kinds) == 1 else "other",
        invocations=sum(kernel.invocations for kernel in bundle),
        seconds=seconds,
        flops=Flops(*(total(column) for column in zip(*(kernel.flops for kernel in bundle), strict=True))),
        bytes=Traffic(*(total(column) for column in zip(*(kernel.bytes for kernel in bundle), strict=True))),
        occupancy=resident / seconds if resident is not None and seconds else None,
        registers=max((kernel.registers for kernel in bundle if kernel.registers is not None), default=None),
    )


def total(values: Iterable[float | None]) -> float | None:
    """The sum; None as soon as one is not known, for a sum of the rest would be too low."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


# --- Points -----------------------------------------------------------------------------------------

LEVELS = ("dram", "l2", "l1")


def work(flops: Flops) -> dict[str, float]:
    """FLOPs by pipe, of the pipes that were counted. Packed halves stand for fp16; bounds for nothing."""
    return {
        pipe: value
        for pipe, value in flops._asdict().items()
        if value is not None and pipe not in ("fp16_legacy", "tensor_low", "tensor_high")
    }


def incomplete(flops: Flops, device: Device | None) -> bool:
    """Whether the FLOPs that were counted are a lower bound. An unknown device may have tensor cores.

    So it is without any counter of the tensor cores or of fp32, which nearly every kernel uses; a sum of zero, which
    says that there is no work, needs every pipe of the device.
    """
    counted = work(flops)
    no_tensor = flops.tensor_high == 0  # no instruction at all, whatever its type
    pipes = ("fp64", "fp32", "fp16", *device.pipes) if device else ("fp64", "fp32", "fp16", "tensor_")
    tensor = any(pipe.startswith("tensor_") for pipe in counted)
    if flops.fp32 is None or (any(pipe.startswith("tensor_") for pipe in pipes) and not (tensor or no_tensor)):
        return True
    needed = (p for p in pipes if p in Flops._fields and not (no_tensor and p.startswith("tensor_")))
    return not any(counted.values()) and any(pipe not in counted for pipe in needed)


def points(groups: list[Group], device: Device) -> list[Point]:
    """A point a group and level; a group without time or bytes has none."""
    whole = total(g.seconds for g in groups)
    found = []
    for g in groups:
        flops, low = work(g.flops), _unpacked(g.flops)
        for level in LEVELS:
            size = getattr(g.bytes, level)
            if size is None or not g.seconds:
                continue
            point = _point(level, flops, size, g.seconds, device)
            partly = incomplete(g.flops, device)
            found.append(
                point._replace(
                    name=g.name,
                    category=g.category,
                    share=g.seconds / whole if whole else None,
                    invocations=g.invocations,
                    bound=None if partly and point.bound == "memory" else point.bound,
                    incomplete=partly,
                    occupancy=g.occupancy,
                    registers=g.registers,
                    flops_per_second_low=low and low / g.seconds,
                )
            )
    return found


def _unpacked(flops: Flops) -> float | None:
    """All FLOPs if instructions on halves work on one each and not on two; None where there are none."""
    return sum(work(flops).values()) - flops.fp16 + flops.fp16_legacy if flops.fp16 and flops.fp16_legacy else None


def _point(level: str, flops: Mapping[str, float], size: float, seconds: float, device: Device) -> Point:
    """Where FLOPs by pipe and bytes at a level, done in so many seconds, stand under the device's roofs."""
    bandwidth = device.levels[level].bandwidth if level in device.levels else None
    busy = {pipe: n / device.pipes[pipe].peak for pipe, n in flops.items() if n and pipe in device.pipes}
    computing = max(busy.values(), default=0.0)
    moving = size / bandwidth if bandwidth else None
    least = max(computing, moving) if moving is not None else None
    peak = max((device.pipes[pipe].peak for pipe in busy), default=math.inf)
    total = sum(flops.values()) if flops else None
    return Point(
        name="",
        category="other",
        level=level,
        pipe=max(busy, key=lambda pipe: busy[pipe], default=None),
        intensity=total / size if total is not None and size else None,
        flops_per_second=total / seconds if total is not None else None,
        attainable=min(peak, total / least) if total is not None and least else None,
        fraction=least / seconds if least is not None else None,
        bound=None if moving is None else "compute" if computing > moving else "memory",
        seconds=seconds,
        share=None,
        invocations=1,
    )


def predicted(estimate: Estimate) -> list[Point]:
    """An estimate's operators as points at their bounds, all occurrences of one together.

    A point stands on the roof of the pipe that binds it. Where matrix and vector work at once would lift it above, as
    in a fused attention, it shows that pipe's FLOPs alone: the bound takes the other's to be done meanwhile.
    """
    device, dtype = estimate.device, estimate.workload.dtype
    matmul, vector = device.matmul_pipe(dtype), device.vector_pipe(dtype)
    found = []
    for phase in estimate.phases:
        for placed in phase.placed:
            flops = {matmul.name: placed.cost.matmul_flops}
            if vector:
                flops[vector.name] = flops.get(vector.name, 0) + placed.cost.vector_flops
            slowest = max(flops, key=lambda pipe: flops[pipe] / device.pipes[pipe].peak)
            if sum(flops.values()) > device.pipes[slowest].peak * placed.seconds:
                flops = {slowest: flops[slowest]}
            found.append(
                _point("dram", flops, placed.cost.bytes, placed.seconds, device)._replace(
                    name=f"{placed.operator.stage or phase.step.phase}: {placed.operator.name}",
                    category=placed.operator.group,
                    bound=placed.placement.bound,
                    share=placed.seconds / phase.bound_seconds,
                    invocations=placed.operator.count,
                    predicted=True,
                )
            )
    return found
