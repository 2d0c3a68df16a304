"""The kernels of each rank, reduced to sums per step, and the steps of a run, reduced to values per rank.

Only the first part reads the times of kernels; ranks are independent there. The sums are whole nanoseconds, so they do
not depend on the order in which ranks are added. The values per rank are lateness, computation, clocks and causes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from roofmodel.jitter.alignment import (
    ComparedStep,
    KernelAlignment,
    KernelSelection,
    RankPlan,
    RankSequences,
    StepLayout,
    rank_sequences,
    select_rows,
)
from roofmodel.jitter.causes import Cause, find_causes, kind_in_step, late_threshold
from roofmodel.jitter.deviations import (
    Deviations,
    Floats,
    StepKernels,
    deviations,
    first_beyond,
    first_gaps,
    gaps_to_previous_kernel,
    kernel_gaps,
    last_collective_ends,
    stacked,
    steps_of_rank,
    times_to_end,
)
from roofmodel.jitter.kernels import Integers, compared_kernels
from roofmodel.jitter.lateness import (
    FIRST_PARTS,
    PARTS,
    CollectiveTimes,
    RankClocks,
    align,
    end_tolerance,
    link_delays,
    part_sums,
    transfer_seconds,
)
from roofmodel.jitter.rank_files import DamagedRankFile
from roofmodel.jitter.ranks import ComparedRank, launch_to_start_median
from roofmodel.jitter.sequences import CollectiveSequence, collective_sequence
from roofmodel.options.values import FirstGap
from roofmodel.profiles.timelines.timeline import UNKNOWN

MAX_COLLECTIVES = 256  # per step, whose times are kept for the clocks and the links; limits the memory of many ranks


class RankTask(NamedTuple):
    """A rank, and the kernels of it that are compared."""

    place: int  # in the list of ranks
    rank: ComparedRank
    plan: RankPlan


class RankSums(NamedTuple):
    """The sums of one rank over the kernels of each step; S steps."""

    place: int
    steps: Integers  # S: indices of the compared steps
    values: dict[str, Integers]  # nanoseconds, S each; see `_values`
    collective_starts: list[Integers]  # of each step
    collective_ends: list[Integers]
    launch_to_start_median_seconds: float | None
    compute_seconds: float  # of all kernels, collectives apart
    compared_seconds: float  # of the kernels that can be compared
    other_seconds: float  # of the kernels on other streams


class TimeSums(NamedTuple):
    """The sums of several ranks."""

    ranks: list[RankSums]
    times_to_end: dict[int, Integers]  # by step: the sum over these ranks; K, without the first gap
    damaged: dict[int, str]  # place of a rank: why its file cannot be read


class RankBatch(NamedTuple):
    """Ranks for one call of a function, on this machine or another one."""

    tasks: tuple[RankTask, ...]
    layouts: Mapping[int, StepLayout]
    layout_of_step: Mapping[int, int]


def batches(
    alignment: KernelAlignment, size: int, steps: Mapping[int, frozenset[int]] | None = None
) -> Iterable[RankBatch]:
    """The ranks of an alignment in groups; with `steps`, only these ranks and steps (place: indices)."""
    layouts = dict(enumerate(alignment.layouts))
    layout_of_step = {number: step.layout for number, step in enumerate(alignment.steps)}
    tasks = [
        RankTask(place, alignment.ranks[place], plan if steps is None else plan.of_steps(steps[place]))
        for place, plan in enumerate(alignment.plans)
        if steps is None or place in steps
    ]
    used = set(layout_of_step.values())
    used_layouts = {number: layout for number, layout in layouts.items() if number in used}
    for begin in range(0, len(tasks), size):
        yield RankBatch(tuple(tasks[begin : begin + size]), used_layouts, layout_of_step)


class SequenceTask(NamedTuple):
    """Ranks whose sequences are read, in the steps from `low` up to, not including, `high`."""

    places: tuple[int, ...]
    ranks: tuple[ComparedRank, ...]
    marked: bool
    low: int
    high: int


def read_sequences(task: SequenceTask) -> dict[int, RankSequences | str]:
    """The sequences of ranks by place; a text says why a file cannot be read."""
    sequences: dict[int, RankSequences | str] = {}
    for place, rank in zip(task.places, task.ranks, strict=True):
        try:
            sequences[place] = rank_sequences(rank, task.marked, task.low, task.high)
        except DamagedRankFile as error:
            sequences[place] = str(error)
    return sequences


def read_collectives(ranks: Sequence[ComparedRank]) -> list[CollectiveSequence]:
    """The first collectives of ranks that have one file each. Raises DamagedRankFile."""
    return [collective_sequence(rank.load_tables()[0]) for rank in ranks]


class GapTask(NamedTuple):
    """Ranks whose gaps are summed over the selected kernels of whole sequences."""

    places: tuple[int, ...]
    ranks: tuple[ComparedRank, ...]
    selections: tuple[KernelSelection, ...]


def sum_gaps(task: GapTask) -> tuple[Integers, dict[int, str]]:
    """The gap before each selected kernel, summed over ranks, in nanoseconds; why files cannot be read, by place."""
    total, damaged = np.zeros(len(task.selections[0].order), np.int64), {}
    for place, rank, selection in zip(*task, strict=True):
        try:
            kernels = rank.load()
        except DamagedRankFile as error:
            damaged[place] = str(error)
            continue
        rows = select_rows(kernels, np.arange(len(kernels)), selection)
        total += kernels.array("start")[rows] - kernels.array("previous_end")[rows]
    return total, damaged


def sum_ranks(batch: RankBatch) -> TimeSums:
    """The sums of each rank, and the sum of the times to the end over ranks."""
    totals = TimeSums([], {}, {})
    for task in batch.tasks:
        try:
            sums, times = _rank_sums(task, batch)
        except DamagedRankFile as error:
            totals.damaged[task.place] = str(error)
            continue
        totals.ranks.append(sums)
        for step, time in times.items():
            if step in totals.times_to_end:
                totals.times_to_end[step] += time
            else:
                totals.times_to_end[step] = time
    return totals


def _rank_sums(task: RankTask, batch: RankBatch) -> tuple[RankSums, dict[int, Integers]]:
    tables = task.rank.load_tables()
    kernels = compared_kernels(tables)
    numbers: list[int] = []
    values: list[dict[str, Integers]] = []
    starts: list[Integers] = []
    ends: list[Integers] = []
    times: dict[int, Integers] = {}
    for steps, rows in steps_of_rank(kernels, task.plan, batch.layouts, batch.layout_of_step):
        to_end, step_values = _values(rows)
        numbers += steps
        values.append(step_values)
        times |= dict(zip(steps, to_end, strict=True))
        places = np.flatnonzero(rows.collective)
        if len(places) > MAX_COLLECTIVES:
            places = places[np.linspace(0, len(places) - 1, MAX_COLLECTIVES).astype(int)]
        starts += list(rows.starts[:, places])
        ends += list(rows.ends[:, places])
    compared = int((kernels.array("end") - kernels.array("start")).sum())
    durations = [table.array("end") - table.array("start") for table in tables]
    every = sum(int(each.sum()) for each in durations)
    communicates = [table.array("communicates") for table in tables]
    collectives = sum(int(each[chosen].sum()) for each, chosen in zip(durations, communicates, strict=True))
    sums = RankSums(
        place=task.place,
        steps=np.array(numbers, np.int64),
        values={name: np.concatenate([each[name] for each in values]) for name in (values[0] if values else ())},
        collective_starts=starts,
        collective_ends=ends,
        launch_to_start_median_seconds=launch_to_start_median(tables),
        compute_seconds=(every - collectives) / 1e9,
        compared_seconds=compared / 1e9,
        other_seconds=(every - compared) / 1e9,
    )
    return sums, times


def _values(rows: StepKernels) -> tuple[Integers, dict[str, Integers]]:
    """The times to the end of each kernel without the first gap (N x K), and the sums of each step (N).

    previous_gap     gap before the first kernel; 0 if the kernel before it is unknown
    follows          whether that kernel is known
    first_start      start of the first kernel; collective_end: of the last collective, UNKNOWN without one
    time_to_end      at the kernel before the last collective
    compute          durations of all kernels, collectives apart
    start, end       of the step
    and the parts of the lateness
    """
    first = rows.layout.first
    gaps = gaps_to_previous_kernel(rows)
    previous = gaps[:, first].copy()
    gaps[:, first] = 0
    to_end = times_to_end(rows, gaps + rows.extra)
    parts = part_sums(rows)
    return to_end, parts | {
        "previous_gap": previous,
        "follows": (rows.previous_ends[:, first] != UNKNOWN).astype(np.int64),
        "first_start": rows.starts[:, first].copy(),
        "collective_end": last_collective_ends(rows),
        "time_to_end": to_end[:, rows.layout.last].copy(),
        "compute": parts["inside_compute"] + parts["tail_compute"],
        "start": rows.starts.min(axis=1),
        "end": rows.ends.max(axis=1),
    }


class StepRows(NamedTuple):
    """The kernels of single steps of a rank."""

    place: int
    steps: dict[int, StepKernels]  # by index of the compared step; one row


def read_steps(batch: RankBatch) -> list[StepRows]:
    """The kernels of the chosen steps of each rank. Raises DamagedRankFile."""
    step_rows: list[StepRows] = []
    for task in batch.tasks:
        kernels = task.rank.load(task.plan.marks)
        steps: dict[int, StepKernels] = {}
        for numbers, rows in steps_of_rank(kernels, task.plan, batch.layouts, batch.layout_of_step):
            steps |= {number: rows.row(place) for place, number in enumerate(numbers)}
        step_rows.append(StepRows(task.place, steps))
    return step_rows


# --- Values per rank --------------------------------------------------------------------------------

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
    aligned = align(collectives, [rank.time_base for rank in alignment.ranks])
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
