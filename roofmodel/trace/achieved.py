"""Achieved FLOP/s and bandwidth of a rank's kernels against the device's ceilings, from the shapes in a PyTorch trace.

The minimum time of a kernel is max(FLOPs of each pipe / its peak, bytes / DRAM bandwidth), see `roofline/points.py`.
For a group of kernels the minimum times are summed, because the kernels run one after another:

    attainable share = sum of the minimum times / sum of the times

The work of auxiliary kernels is counted at the main kernel of their operator: they add only their time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.devices.device import Device
from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines import enclosing
from roofmodel.profiles.torch_fields import parse_inputs
from roofmodel.roofline.counted_kernels import Operators, count_kernels, flops_by_pipe
from roofmodel.trace.ranks import Rank

Floats = NDArray[np.float64]


class Achieved(NamedTuple):
    """The work of a group of kernels, and the least time that the device needs for it (None: no device)."""

    seconds: float  # of the kernels with a known work, and of auxiliary kernels
    flops: float
    bytes: float
    minimum_seconds: float | None
    compute_bound_seconds: float  # part of the minimum of kernels that a pipe limits

    @property
    def flops_per_second(self) -> float | None:
        return self.flops / self.seconds if self.seconds else None

    @property
    def bytes_per_second(self) -> float | None:
        return self.bytes / self.seconds if self.seconds else None

    @property
    def attainable_share(self) -> float | None:
        """Minimum time / measured time; above 1 where tensors come from a cache instead of DRAM."""
        return None if self.minimum_seconds is None or not self.seconds else self.minimum_seconds / self.seconds

    @property
    def bound(self) -> str | None:
        """`compute` or `memory`, by the larger part of the minimum time."""
        if not self.minimum_seconds:
            return None
        return "compute" if 2 * self.compute_bound_seconds > self.minimum_seconds else "memory"


class RankWork(NamedTuple):
    """The work of each activity of a rank, in the order of its table; 0 where it is unknown."""

    seconds: Floats
    explained: NDArray[np.bool_]  # kernels with a known work, and auxiliary kernels
    known: NDArray[np.bool_]
    flops: Floats
    bytes: Floats
    minimum: Floats | None  # seconds; None: no device
    compute_bound: Floats  # the minimum where a pipe limits it, else 0
    unknown: Mapping[str, tuple[int, float]]  # reason -> kernels and their seconds
    fp32_matmul: NDArray[np.bool_]  # GEMMs and convolutions in fp32 (not tf32)

    def total(self, chosen: Any = slice(None)) -> Achieved | None:
        """The sum over the chosen activities (a mask or indices); None if the work of none is known."""
        if not self.known[chosen].any():
            return None
        part = self.explained[chosen]
        return Achieved(
            float(self.seconds[chosen][part].sum()),
            float(self.flops[chosen].sum()),
            float(self.bytes[chosen].sum()),
            None if self.minimum is None else float(self.minimum[chosen].sum()),
            float(self.compute_bound[chosen].sum()),
        )


class RunRoofline(NamedTuple):
    """How much of a run's kernel time has a known work, and what these kernels achieve."""

    kernel_seconds: float
    achieved: Achieved | None
    unknown: Mapping[str, tuple[int, float]]

    @property
    def explained_share(self) -> float:
        """The share of the kernel time whose work is known."""
        if self.achieved is None or not self.kernel_seconds:
            return 0.0
        return min(self.achieved.seconds / self.kernel_seconds, 1.0)  # sums in another order differ in the last digit


def rank_work(rank: Rank, device: Device | None) -> RankWork | None:
    """The work of a rank's kernels on a device; None if no operator of the trace has recorded shapes."""
    if not rank.timeline.operator_table.distinct("inputs"):
        return None
    indices = np.flatnonzero(rank.is_kernel)
    replayed = rank.work.select(indices)
    kernels = enclosing.with_captured_launches(replayed, rank.timeline.call_table)
    launched_by, operators = _operators(kernels, rank.timeline.operator_table)
    seconds = (rank.ends - rank.starts) / 1e9
    captured = kernels.array("launch_start") != replayed.array("launch_start")
    graphs = frozenset(np.flatnonzero(rank.in_graph[indices] & ~captured).tolist())
    counts = count_kernels(kernels.cells("name"), seconds[indices].tolist(), launched_by, operators, graphs)
    flops, size, compute, known, explained, fp32 = (np.zeros(len(rank.work)) for _ in range(6))
    unknown: dict[str, tuple[int, float]] = {}
    for i, work in zip(indices.tolist(), counts, strict=True):
        known[i], explained[i] = work.known, work.known or work.auxiliary
        flops[i], size[i] = work.matmul_flops + work.vector_flops, work.bytes
        fp32[i] = work.matmul_flops and work.form == "fp32"
        if device is not None and work.known:
            times = (flops / device.pipes[pipe].peak for pipe, flops in flops_by_pipe(work, device).items())
            compute[i] = max(times, default=0.0)
        if work.reason is not None:
            number, before = unknown.get(work.reason, (0, 0.0))
            unknown[work.reason] = number + 1, before + float(seconds[i])
    memory = size / device.bandwidth if device else None
    return RankWork(
        seconds, explained.astype(bool), known.astype(bool), flops, size,
        None if memory is None else np.maximum(compute, memory),
        np.where(compute > memory, compute, 0.0) if memory is not None else compute,
        unknown, fp32.astype(bool),
    )  # fmt: skip


def sum_achieved(totals: Sequence[Achieved]) -> Achieved | None:
    """The sum of the work of several groups of kernels; None of none."""
    if not totals:
        return None
    minima = [total.minimum_seconds for total in totals]
    return Achieved(
        sum(total.seconds for total in totals),
        sum(total.flops for total in totals),
        sum(total.bytes for total in totals),
        None if None in minima else sum(each or 0 for each in minima),
        sum(total.compute_bound_seconds for total in totals),
    )


def run_roofline(works: Sequence[RankWork | None], kernel_seconds: float) -> RunRoofline | None:
    """The sum over all ranks; None if no rank has recorded shapes."""
    counted = [work for work in works if work is not None]
    if not counted:
        return None
    achieved = sum_achieved([total for work in counted if (total := work.total()) is not None])
    unknown: dict[str, tuple[int, float]] = {}
    for work in counted:
        for reason, (number, seconds) in work.unknown.items():
            before = unknown.get(reason, (0, 0.0))
            unknown[reason] = before[0] + number, before[1] + seconds
    ordered = sorted(unknown.items(), key=lambda item: -item[1][1])
    return RunRoofline(kernel_seconds, achieved, dict(ordered))


def _operators(kernels: KernelTable, events: ColumnTable) -> tuple[list[int], Operators]:
    """The innermost operator of each kernel's launch, as an index into the operators that launch some, with callers."""
    innermost, outer = enclosing.calls(kernels, events)
    callers: dict[int, int] = {}
    for event in np.unique(innermost[innermost >= 0]).tolist():
        while event >= 0 and event not in callers:
            callers[event] = event = int(outer[event])
    listed = sorted(callers)
    place = {event: i for i, event in enumerate(listed)} | {-1: -1}
    texts = [events.cell("inputs", event) for event in listed]
    parsed = {text: None if text is None else parse_inputs(text) for text in {*texts}}
    table = Operators(
        [events.cell("name", event) for event in listed],
        [parsed[text] for text in texts],
        [place[callers[event]] for event in listed],
    )
    return [place[event] for event in innermost.tolist()], table
