"""Tables of every compared kernel on every rank in every step: `roof jitter --kernels FILE.csv`.

For each step, kernel and rank: duration, gap, time to the end and launch to start (see `deviations.py`) as measured,
and as deviation from the mean over ranks. The steps are read in groups, so that a long run fits into memory.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from roofmodel.files import output_files
from roofmodel.jitter.alignment import KernelAlignment
from roofmodel.jitter.deviations import (
    StepKernels,
    first_gaps,
    gaps_to_previous_kernel,
    kernel_gaps,
    last_collective_ends,
    stacked,
)
from roofmodel.jitter.deviations import times_to_end as times_to_end_of
from roofmodel.jitter.kernels import Integers
from roofmodel.jitter.reduced_steps import BATCH, MapPieces, batches, read_steps
from roofmodel.options.values import FirstGap
from roofmodel.profiles.timelines.timeline import UNKNOWN

QUANTITIES = ("duration", "gap", "time_to_end", "launch_to_start")
COLUMNS = (
    "step", "kernel", "name", "collective", "rank",
    *(f"{quantity}_{kind}" for kind in ("seconds", "deviation_seconds") for quantity in QUANTITIES),
)  # fmt: skip
MAX_KERNELS = 2_000_000  # of all ranks that are in memory at once


def write(alignment: KernelAlignment, first_gap: FirstGap, map_pieces: MapPieces, path: str) -> Path:
    """Write the table of the complete steps; an unknown value is an empty field. Raises OutputError."""
    target = output_files.check(path, ["csv"])

    def table(file: Path) -> None:
        with open(file, "w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(COLUMNS)
            for rows in _rows(alignment, first_gap, map_pieces):
                writer.writerows(rows)

    output_files.replace(target, table)
    return target


def _rows(alignment: KernelAlignment, first_gap: FirstGap, map_pieces: MapPieces) -> Iterator[list[list[object]]]:
    """The rows of each complete step, in the order of step, kernel and rank."""
    previous: tuple[int, Integers] | None = None  # a step, and the ends of its last collective
    for numbers in _groups(alignment):
        chosen: dict[int, set[int]] = {}
        for number in numbers:
            for place in alignment.steps[number].ranks:
                chosen.setdefault(place, set()).add(number)
        by_step: dict[int, dict[int, StepKernels]] = {number: {} for number in numbers}
        pieces = batches(alignment, BATCH, {place: frozenset(steps) for place, steps in chosen.items()})
        for ranks in map_pieces(read_steps, pieces):
            for rank in ranks:
                for number, kernels in rank.steps.items():
                    if number in by_step:
                        by_step[number][rank.place] = kernels
        for number in numbers:
            ranks_of_step = alignment.steps[number].ranks
            kernels = stacked([by_step[number][place] for place in ranks_of_step])
            ends = last_collective_ends(kernels)
            before = previous[1] if previous and previous[0] == number - 1 and len(previous[1]) == len(ends) else None
            if alignment.steps[number].complete:
                yield _rows_of_step(alignment, number, kernels, _first_gaps(kernels, ends, first_gap, before))
            previous = number, ends


def _groups(alignment: KernelAlignment) -> Iterator[list[int]]:
    """The numbers of the steps, in groups of at most MAX_KERNELS kernels (at least one step)."""
    group, kernels = list[int](), 0
    for number, step in enumerate(alignment.steps):
        size = len(step.ranks) * len(alignment.layouts[step.layout].codes)
        if group and kernels + size > MAX_KERNELS:
            yield group
            group, kernels = [], 0
        group.append(number)
        kernels += size
    if group:
        yield group


def _first_gaps(kernels: StepKernels, ends: Integers, first_gap: FirstGap, previous: Integers | None) -> Integers:
    first = kernels.layout.first
    gaps = first_gaps(kernels.starts[:, first], ends, first_gap, previous)
    return gaps_to_previous_kernel(kernels)[:, first] if gaps is None else gaps


def _rows_of_step(alignment: KernelAlignment, number: int, kernels: StepKernels, first: Integers) -> list[list[object]]:
    step, gaps = alignment.steps[number], kernel_gaps(kernels, first)
    delays = np.where(kernels.launches != UNKNOWN, kernels.starts - kernels.launches, np.nan)
    measured = [kernels.durations / 1e9, gaps / 1e9, times_to_end_of(kernels, gaps) / 1e9, delays / 1e9]
    values = np.stack([*measured, *(each - each.mean(axis=0) for each in measured)], axis=-1)  # ranks x kernels x 8
    names = [alignment.names[int(code)] for code in kernels.layout.codes]
    ranks = [alignment.ranks[place].number for place in step.ranks]
    return [
        [step.step, kernel, name, int(kernels.collective[kernel]), rank, *_cells(values[place, kernel])]
        for kernel, name in enumerate(names)
        for place, rank in enumerate(ranks)
    ]


def _cells(values: np.ndarray) -> list[object]:
    """Seconds with whole nanoseconds' digits; empty for unknown ones."""
    return ["" if np.isnan(value) else f"{value:.10g}" for value in values.tolist()]
