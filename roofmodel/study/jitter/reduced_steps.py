"""The steps of a run, reduced to values per rank: lateness, computation, clocks and causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from roofmodel.option_values import FirstGap
from roofmodel.study.jitter import clocks
from roofmodel.study.jitter.alignment import Alignment, StepKernels
from roofmodel.study.jitter.causes import Cause, find_causes, kind_in_step, parts_over_steps
from roofmodel.study.jitter.clocks import Clocks, CollectiveTimes
from roofmodel.study.jitter.deviations import Deviations, Floats, deviations, last_collective_ends
from roofmodel.study.jitter.lateness import Lateness, added, lateness, link_delays, transfer_seconds
from roofmodel.study.jitter.ranks import ComparedRank, Integers

MIN_DEVIATION = 0.5e-9  # seconds: timestamps in profiler files are whole nanoseconds
MAX_COLLECTIVES = 256  # per step, whose times are kept for the clocks and the links; limits the memory of many ranks


class StepSummary(NamedTuple):
    """Lateness in one step. Ranks are numbers; in tables of operations, computations take the place of kernels."""

    step: int
    earliest_rank: int
    latest_rank: int
    earliest_seconds: float  # deviation from the mean over ranks, at the kernel before the last collective
    latest_seconds: float
    diverges_at_kernel: int | None  # index of the first kernel at which the latest rank is late by the threshold
    kernel_name: str | None
    cause: str | None

    @property
    def has_latest(self) -> bool:
        """Whether one rank is later than the others: ranks that are equal within MIN_DEVIATION have no latest one."""
        return self.latest_seconds >= MIN_DEVIATION


class StepCurves(NamedTuple):
    """The deviations of one step, by kernel."""

    step: int
    ranks: tuple[int, ...]  # numbers
    names: tuple[str, ...]
    deviations: Deviations


class _StepLateness(NamedTuple):
    """The lateness of R ranks in one step. Ranks are places in the list of ranks."""

    step: int
    seconds: float  # duration, median over ranks
    late: Floats  # R; NaN for a rank that the step does not have
    earliest: int
    latest: int
    kernel: int | None  # from which the latest rank is late
    kernel_name: str | None


class ReducedSteps(NamedTuple):
    """S steps of R ranks, reduced to values per rank, and the curves of the step with the largest deviation."""

    clocks: Clocks
    step_seconds: float
    steps: tuple[StepSummary, ...]
    lateness: Floats  # S x R; NaN for a rank that the step does not have
    compute: Floats  # seconds of each rank, with a row for the kernels before and after these steps too; NaN likewise
    curves: StepCurves | None
    causes: list[Cause]

    def compute_seconds(self) -> list[float | None]:
        """Seconds of the common kernels, collectives apart, of each rank."""
        compared = np.asarray(~np.isnan(self.compute).all(axis=0))
        total = np.nansum(self.compute, axis=0)
        return [float(seconds) if known else None for seconds, known in zip(total, compared, strict=True)]

    def slowest_compute(self) -> float:
        """The computation of the slowest rank per step / the median over ranks - 1.

        Means over the steps that all compared ranks have; without such a step, over the steps of each rank.
        """
        compute = self.compute[:, ~np.isnan(self.compute).all(axis=0)]
        complete = ~np.isnan(compute).any(axis=1)
        means = np.nanmean(compute[complete] if complete.any() else compute, axis=0)
        median = float(np.median(means))
        return float(means.max()) / median - 1 if median else 0.0


def reduce_steps(alignment: Alignment, threshold: float, first_gap: FirstGap, low: int, high: int) -> ReducedSteps:
    """One pass over the steps, which keeps of each only values per rank, and the curves of the worst."""
    count = len(alignment.ranks)
    compute: list[Floats] = []
    found: list[_StepLateness] = []
    curves: StepCurves | None = None
    largest = -np.inf
    collectives: list[CollectiveTimes] = []
    kept: list[CollectiveTimes] = []  # of complete steps
    parts: list[Lateness] = []
    previous: Integers | None = None
    after: Lateness | None = None
    last: StepKernels | None = None
    for step in alignment.steps(low, high):
        last = step
        compute.append(_of_all_ranks(step, np.where(step.collective, 0, step.durations).sum(axis=1) / 1e9, count))
        collectives.append(_collective_times(step))
        inside, tail = lateness(step, count, single=False)
        if step.complete:
            deviation = deviations(step, first_gap, previous)
            found.append(_step_lateness(step, deviation, alignment, threshold))
            if deviation.lateness.max() > largest:
                largest, curves = deviation.lateness.max(), _curves(step, deviation, alignment)
            parts.append(added(after, inside))
            kept.append(collectives[-1])
        after = tail if step.follows or len(parts) == 1 else None
        previous = last_collective_ends(step) if len(step.ranks) == count else None
    if len(parts) == 1 and last is not None and last.complete:
        parts = [added(*reversed(lateness(last, count, single=True)))]
    aligned = clocks.align(collectives, [rank.file for rank in alignment.ranks])
    if not found:
        return ReducedSteps(aligned, 0.0, (), np.empty((0, count)), np.empty((0, count)), None, [])
    parts = [
        part._replace(network=link_delays(times, aligned.offsets, count))
        for part, times in zip(parts, kept, strict=True)
    ]
    over_steps = parts_over_steps(parts)
    step_seconds = float(np.median([step.seconds for step in found]))
    transfers = np.array([transfer_seconds(times) for times in kept])
    return ReducedSteps(
        clocks=aligned,
        step_seconds=step_seconds,
        steps=tuple(_summary(step, alignment.ranks, threshold, over_steps, index) for index, step in enumerate(found)),
        lateness=np.stack([step.late for step in found]),
        compute=np.stack(compute),
        curves=curves,
        causes=find_causes(over_steps, alignment.ranks, step_seconds, transfers),
    )


def _of_all_ranks(step: StepKernels, values: Floats, count: int) -> Floats:
    """Values of the ranks of a step as values of all ranks; NaN for a rank that the step does not have."""
    result = np.full(count, np.nan)
    result[list(step.ranks)] = values
    return result


def _step_lateness(step: StepKernels, found: Deviations, alignment: Alignment, threshold: float) -> _StepLateness:
    kernel = found.diverges_at(found.latest, threshold)
    return _StepLateness(
        step=step.step,
        seconds=float(np.median(step.ends.max(axis=1) - step.starts.min(axis=1))) / 1e9,
        late=_of_all_ranks(step, found.lateness, len(alignment.ranks)),
        earliest=step.ranks[found.earliest],
        latest=step.ranks[found.latest],
        kernel=kernel,
        kernel_name=None if kernel is None else alignment.names[step.codes[kernel]],
    )


def _curves(step: StepKernels, found: Deviations, alignment: Alignment) -> StepCurves:
    numbers = tuple(alignment.ranks[rank].number for rank in step.ranks)
    return StepCurves(step.step, numbers, tuple(alignment.names[code] for code in step.codes), found)


def _summary(
    step: _StepLateness, ranks: Sequence[ComparedRank], threshold: float, parts: Mapping[str, Floats], index: int
) -> StepSummary:
    late = step.late[step.latest]
    return StepSummary(
        step=step.step,
        earliest_rank=ranks[step.earliest].number,
        latest_rank=ranks[step.latest].number,
        earliest_seconds=float(step.late[step.earliest]),
        latest_seconds=float(late),
        diverges_at_kernel=step.kernel,
        kernel_name=step.kernel_name,
        cause=kind_in_step(parts, index, step.latest, late) if late > threshold else None,
    )


def _collective_times(step: StepKernels) -> CollectiveTimes:
    places = np.flatnonzero(step.collective)
    if len(places) > MAX_COLLECTIVES:
        places = places[np.linspace(0, len(places) - 1, MAX_COLLECTIVES).astype(int)]
    return CollectiveTimes(step.ranks, step.starts[:, places], step.ends[:, places])
