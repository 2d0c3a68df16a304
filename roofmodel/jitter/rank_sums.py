"""Reduce the kernels of one rank to sums per step. Only this reads the times of kernels; ranks are independent.

The sums are whole nanoseconds, so they do not depend on the order in which ranks are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from roofmodel.jitter.alignment import (
    KernelAlignment,
    KernelSelection,
    RankPlan,
    RankSequences,
    StepLayout,
    rank_sequences,
    select_rows,
)
from roofmodel.jitter.deviations import gaps_to_previous_kernel, last_collective_ends, times_to_end
from roofmodel.jitter.kernels import Integers, compared_kernels
from roofmodel.jitter.lateness import part_sums
from roofmodel.jitter.rank_files import DamagedRankFile
from roofmodel.jitter.ranks import ComparedRank, launch_to_start_median
from roofmodel.jitter.sequences import CollectiveSequence, collective_sequence
from roofmodel.jitter.step_kernels import StepKernels, steps_of_rank
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
    return [collective_sequence(rank.sources[0].load()) for rank in ranks]


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
        total += kernels.starts[rows] - kernels.previous_ends[rows]
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
    compared = int((kernels.ends - kernels.starts).sum())
    durations = [table.ends - table.starts for table in tables]
    every = sum(int(each.sum()) for each in durations)
    collectives = sum(int(each[table.collective].sum()) for each, table in zip(durations, tables, strict=True))
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
