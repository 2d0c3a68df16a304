"""The steps of a run, reduced to values per rank: lateness, computation, clocks and causes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from roofmodel.jitter import clocks
from roofmodel.jitter.alignment import ComparedStep, KernelAlignment, StepLayout
from roofmodel.jitter.causes import Cause, find_causes, kind_in_step, late_threshold
from roofmodel.jitter.clocks import CollectiveTimes, RankClocks
from roofmodel.jitter.deviations import (
    Deviations,
    Floats,
    deviations,
    first_beyond,
    first_gaps,
    kernel_gaps,
    times_to_end,
)
from roofmodel.jitter.kernels import Integers
from roofmodel.jitter.lateness import FIRST_PARTS, PARTS, end_tolerance, link_delays, transfer_seconds
from roofmodel.jitter.rank_sums import RankSums, batches, read_steps, sum_ranks
from roofmodel.jitter.step_kernels import StepKernels, stacked
from roofmodel.options.values import FirstGap

MIN_DEVIATION = 0.5e-9  # seconds: timestamps in profiler files are whole nanoseconds
BATCH = 8  # ranks per call of the function that reads kernels; limits the memory

MapPieces = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
"""Applies a function to pieces, in their order: on this machine or on a cluster."""


class DamagedRanks(Exception):
    """Ranks whose files cannot be read: why, by place in the list of ranks."""

    def __init__(self, damaged: Mapping[int, str]) -> None:
        super().__init__(damaged)
        self.damaged = damaged


class StepSummary(NamedTuple):
    """Lateness in one step. Ranks are numbers."""

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


class ReducedSteps(NamedTuple):
    """S steps of R ranks, reduced to values per rank, and the curves of the step with the largest deviation."""

    clocks: RankClocks
    step_seconds: float
    threshold: float  # seconds of deviation from which a rank is late
    steps: tuple[StepSummary, ...]
    lateness: Floats  # S x R; NaN for a rank that the step does not have
    compute: Floats  # seconds of each rank, with a row for the kernels before and after these steps too; NaN likewise
    curves: StepCurves | None
    causes: list[Cause]
    of_rank: Sequence[RankSums]

    def compute_seconds(self) -> list[float | None]:
        """Seconds of the common kernels, collectives apart, of each rank."""
        compared = np.asarray(~np.isnan(self.compute).all(axis=0))
        total = np.nansum(self.compute, axis=0)
        return [float(seconds) if known else None for seconds, known in zip(total, compared, strict=True)]

    def slowest_compute(self) -> tuple[int, float]:
        """The rank (place) with the longest computation, and the difference from the median over ranks, in seconds.

        Means over the steps that all compared ranks have; without such a step, over the steps of each rank.
        """
        places = np.flatnonzero(~np.isnan(self.compute).all(axis=0))
        compute = self.compute[:, places]
        complete = ~np.isnan(compute).any(axis=1)
        means = np.nanmean(compute[complete] if complete.any() else compute, axis=0)
        return int(places[means.argmax()]), float(means.max() - np.median(means))


class _StepLateness(NamedTuple):
    """The lateness of the ranks in one step. Ranks are places in the list of all ranks."""

    number: int  # of the compared step
    late: Floats  # of all ranks; NaN for a rank that the step does not have
    first_gaps: Integers  # of all ranks, in nanoseconds
    mean_times: Floats  # K: time to the end, mean over ranks
    earliest: int
    latest: int


class _Sums:
    """The sums of all ranks over each step: S compared steps, R ranks."""

    def __init__(self, alignment: KernelAlignment, map_pieces: MapPieces) -> None:
        self.alignment = alignment
        shape = len(alignment.steps), len(alignment.ranks)
        self._values: dict[str, Integers] = {}
        self.present = np.zeros(shape, bool)
        self.times_to_end: dict[int, Integers] = {}
        by_place: dict[int, RankSums] = {}
        damaged: dict[int, str] = {}
        for totals in map_pieces(sum_ranks, batches(alignment, BATCH)):
            damaged |= totals.damaged
            for sums in totals.ranks:
                by_place[sums.place] = sums
                self.present[sums.steps, sums.place] = True
                for name, values in sums.values.items():
                    if name not in self._values:
                        self._values[name] = np.zeros(shape, np.int64)
                    self._values[name][sums.steps, sums.place] = values
            for step, times in totals.times_to_end.items():
                self.times_to_end[step] = times + self.times_to_end.get(step, 0)
        if damaged:
            raise DamagedRanks(damaged)
        self.of_rank = [by_place[place] for place in range(shape[1])]

    def __getitem__(self, name: str) -> Integers:
        """Values of one name in nanoseconds, S x R; 0 for a rank that a step does not have."""
        return self._values[name]

    def collectives(self) -> list[CollectiveTimes]:
        """The collectives of each step."""
        places = [{int(step): place for place, step in enumerate(sums.steps)} for sums in self.of_rank]
        times = []
        for number, step in enumerate(self.alignment.steps):
            rows = [(self.of_rank[rank], places[rank][number]) for rank in step.ranks]
            starts = np.stack([sums.collective_starts[place] for sums, place in rows])
            ends = np.stack([sums.collective_ends[place] for sums, place in rows])
            times.append(CollectiveTimes(step.ranks, starts, ends))
        return times

    def seconds(self, name: str) -> Floats:
        """Values of one name in seconds, S x R; NaN for a rank that a step does not have."""
        return np.where(self.present, self._values[name] / 1e9, np.nan)

    def first_gaps(self, number: int, first_gap: FirstGap, previous: int | None) -> Integers | None:
        """The gap before the first kernel of a step, of its ranks; see `deviations.first_gaps`."""
        ranks = list(self.alignment.steps[number].ranks)
        before = None
        if previous is not None and self.present[previous].all():
            before = self["collective_end"][previous, ranks]
        return first_gaps(self["first_start"][number, ranks], self["collective_end"][number, ranks], first_gap, before)

    def layout(self, number: int) -> StepLayout:
        """The layout of a step."""
        return self.alignment.layouts[self.alignment.steps[number].layout]


def reduce_steps(
    alignment: KernelAlignment, stated_threshold: float | None, first_gap: FirstGap, map_pieces: MapPieces
) -> ReducedSteps:
    """Reduce the kernels of all ranks to values per rank and step, and the curves of the worst step.

    `stated_threshold` is the deviation from which a rank is late, in seconds; None: the default of `late_threshold`.
    Raises DamagedRanks if files of ranks cannot be read.
    """
    count = len(alignment.ranks)
    sums = _Sums(alignment, map_pieces)
    collectives = sums.collectives()
    aligned = clocks.align(collectives, [rank.time_base for rank in alignment.ranks])
    complete = [number for number, step in enumerate(alignment.steps) if step.complete]
    if not complete:
        nothing = np.empty((0, count))
        return ReducedSteps(
            aligned, 0.0, late_threshold(stated_threshold, 0.0), (), nothing, nothing, None, [], sums.of_rank
        )
    late = [_step_lateness(sums, number, first_gap) for number in complete]
    parts = _parts(sums, complete)
    tolerance = end_tolerance([collectives[number] for number in complete], aligned.offsets)
    parts["network"] = np.stack(
        [link_delays(collectives[number], aligned.offsets, count, tolerance) for number in complete]
    )
    step_seconds = float(np.median(np.nanmedian((sums.seconds("end") - sums.seconds("start"))[complete], axis=1)))
    threshold = late_threshold(stated_threshold, step_seconds)
    worst = late[int(np.argmax([step.late[step.latest] for step in late]))]
    rows = _rows(alignment, late, worst.number, threshold, map_pieces)
    return ReducedSteps(
        clocks=aligned,
        step_seconds=step_seconds,
        threshold=threshold,
        steps=tuple(
            _summary(step, sums, rows, threshold, kind_in_step(parts, place, step.latest, step.late[step.latest]))
            for place, step in enumerate(late)
        ),
        lateness=np.stack([step.late for step in late]),
        compute=sums.seconds("compute"),
        curves=_curves(alignment, worst, rows[worst.number]),
        causes=find_causes(
            parts,
            alignment.ranks,
            [alignment.steps[number].step for number in complete],
            step_seconds,
            np.array([transfer_seconds(collectives[number]) for number in complete]),
        ),
        of_rank=sums.of_rank,
    )


def _step_lateness(sums: _Sums, number: int, first_gap: FirstGap) -> _StepLateness:
    step, layout = sums.alignment.steps[number], sums.layout(number)
    ranks = list(step.ranks)
    gaps = sums["previous_gap"][number].copy()
    gaps_of_ranks = sums.first_gaps(number, first_gap, number - 1 if number else None)
    if gaps_of_ranks is not None:
        gaps[ranks] = gaps_of_ranks
    times = sums["time_to_end"][number, ranks] + (gaps[ranks] if layout.first <= layout.last else 0)
    total = sums.times_to_end[number].copy()
    total[layout.first :] += gaps[ranks].sum()
    late = np.full(len(sums.alignment.ranks), np.nan)
    late[ranks] = (times - times.mean()) / 1e9
    return _StepLateness(number, late, gaps, total / len(ranks), ranks[int(times.argmin())], ranks[int(times.argmax())])


def _parts(sums: _Sums, complete: Sequence[int]) -> dict[str, Floats]:
    """The parts of the lateness (`network` apart) of S complete steps x R ranks, in seconds; see `Lateness`.

    Delays after the last collective of a step make a rank late in the next step; without a next one, in this step. If
    the files do not have the kernel before a step, the gap before it is relative to the earliest rank.
    """
    inside, tail = ({name: sums.seconds(f"{place}_{name}") for name in PARTS} for place in ("inside", "tail"))
    for parts in (inside, tail):
        parts["first"] = np.where(sums.present, 0.0, np.nan)
    follows = [bool(sums["follows"][number][sums.present[number]].all()) for number in range(len(sums.present))]
    for number, known in enumerate(follows):
        layout = sums.layout(number)
        parts = inside if layout.first <= layout.last else tail
        if known:
            for name in FIRST_PARTS:
                parts[name][number] += sums[f"first_{name}"][number] / 1e9
        elif number in complete and (gaps := sums.first_gaps(number, "same-step", None)) is not None:
            parts["first"][number, list(sums.alignment.steps[number].ranks)] += gaps / 1e9
    if len(complete) == 1 and complete[0] == len(follows) - 1:
        return {name: inside[name][complete] + tail[name][complete] for name in inside}
    for number in complete:
        if number and follows[number] and sums.alignment.steps[number - 1].complete:
            for name in inside:
                inside[name][number] += np.nan_to_num(tail[name][number - 1])
    return {name: values[complete] for name, values in inside.items()}


def _rows(
    alignment: KernelAlignment, late: Sequence[_StepLateness], worst: int, threshold: float, map_pieces: MapPieces
) -> dict[int, dict[int, StepKernels]]:
    """The kernels of the worst step on all ranks, and of each late step on its latest rank; by step and rank."""
    needed: dict[int, set[int]] = {rank: {worst} for rank in alignment.steps[worst].ranks}
    for step in late:
        if step.late[step.latest] > threshold:
            needed.setdefault(step.latest, set()).add(step.number)
    rows_of_step: dict[int, dict[int, StepKernels]] = {}
    pieces = batches(alignment, BATCH, {rank: frozenset(steps) for rank, steps in needed.items()})
    for ranks in map_pieces(read_steps, pieces):
        for rank in ranks:
            for step, rows in rank.steps.items():
                rows_of_step.setdefault(step, {})[rank.place] = rows
    return rows_of_step


def _summary(
    step: _StepLateness, sums: _Sums, rows: Mapping[int, Mapping[int, StepKernels]], threshold: float, kind: str | None
) -> StepSummary:
    alignment, late = sums.alignment, float(step.late[step.latest])
    kernel = None
    if late > threshold:
        layout = sums.layout(step.number)
        row = rows[step.number][step.latest]
        times = times_to_end(row, kernel_gaps(row, step.first_gaps[[step.latest]]))[0]
        kernel = first_beyond((times - step.mean_times)[: layout.last + 1] / 1e9, threshold)
    return StepSummary(
        step=alignment.steps[step.number].step,
        earliest_rank=alignment.ranks[step.earliest].number,
        latest_rank=alignment.ranks[step.latest].number,
        earliest_seconds=float(step.late[step.earliest]),
        latest_seconds=late,
        diverges_at_kernel=kernel,
        kernel_name=None if kernel is None else alignment.names[int(sums.layout(step.number).codes[kernel])],
        cause=kind if late > threshold else None,
    )


def _curves(alignment: KernelAlignment, step: _StepLateness, rows: Mapping[int, StepKernels]) -> StepCurves:
    """The deviations in a step by kernel; `rows` are its kernels by rank."""
    compared_step: ComparedStep = alignment.steps[step.number]
    ranks = list(compared_step.ranks)
    every = stacked([rows[rank] for rank in ranks])
    return StepCurves(
        compared_step.step,
        tuple(alignment.ranks[rank].number for rank in ranks),
        tuple(alignment.names[int(code)] for code in every.layout.codes),
        deviations(every, step.first_gaps[ranks]),
    )
