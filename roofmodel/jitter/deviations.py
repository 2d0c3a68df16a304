"""The compared kernels of steps as matrices, and the deviations of each rank from the mean over ranks.

The definitions of the deviations are of A. Zulfiqar and R. Knight, "Scaling the Transformer Model Implementation in
PyTorch Across Multiple Nodes" (NVIDIA, 2020). For rank r and kernel i of a step:

    duration     end - start; 0 for collectives, whose time is mostly waiting
    gap          i > 0 on the main stream: start - end of the kernel before it on this stream (with the time of
                 kernels in between that other ranks do not have)
                 collectives on other streams: 0
                 i = 0: see `first_gaps`
    time to end  sum of gap + duration of the kernels 0 to i
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.jitter.alignment import RankPlan, StepLayout, extra_durations, select_rows
from roofmodel.jitter.kernels import Booleans, Integers
from roofmodel.options.values import FirstGap
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines.enclosing import rows_by_value
from roofmodel.profiles.timelines.timeline import UNKNOWN

_COLUMNS = ("start", "end", "launch_start", "previous_end", "net_gap", "input")  # in the order of `StepKernels`


class StepKernels(NamedTuple):
    """The K compared kernels of one step on N ranks, or of N steps with one layout on one rank; nanoseconds."""

    layout: StepLayout
    starts: Integers  # N x K, like the following
    ends: Integers
    launches: Integers
    previous_ends: Integers
    net_gaps: Integers
    input: Integers
    extra: Integers  # durations of the rank's other computation between the common kernel before and this one

    @property
    def collective(self) -> Booleans:
        """K."""
        return self.layout.collective

    @property
    def durations(self) -> Integers:
        """N x K."""
        return self.ends - self.starts

    def row(self, number: int) -> StepKernels:
        """One row, as a matrix."""
        return StepKernels(self.layout, *(values[number : number + 1] for values in self[1:]))


def stacked(rows: list[StepKernels]) -> StepKernels:
    """The rows of several matrices of one layout."""
    if len(rows) == 1:
        return rows[0]
    return StepKernels(
        rows[0].layout, *(np.concatenate(values) for values in zip(*(row[1:] for row in rows), strict=True))
    )


def steps_of_rank(
    kernels: KernelTable, plan: RankPlan, layouts: Mapping[int, StepLayout], layout_of_step: Mapping[int, int]
) -> Iterator[tuple[list[int], StepKernels]]:
    """The compared steps of a rank by layout: the indices of the steps, and their kernels."""
    regular = _equal_steps(kernels, plan)
    if regular is not None:
        steps = [cuts[0][0] for _, _, cuts in plan.sequences]
        layout = layouts[layout_of_step[steps[0]]]
        yield steps, _step_kernels(kernels, layout, regular, np.broadcast_to(np.int64(0), regular.shape))
        return
    of_layout: dict[int, tuple[list[int], list[Integers], list[Integers]]] = {}
    places = rows_by_value(kernels.array("step")) if plan.marks is not None else {}
    for mark, number, cuts in plan.sequences:
        rows = np.arange(len(kernels)) if mark is None else places[mark]
        chosen = select_rows(kernels, rows, plan.selections[number])
        extra = extra_durations(kernels, rows, chosen)
        for step, begin, end in cuts:
            indices, selected, extras = of_layout.setdefault(layout_of_step[step], ([], [], []))
            indices.append(step)
            selected.append(chosen[begin:end])
            extras.append(extra[begin:end])
    for number, (indices, selected, extras) in of_layout.items():
        yield indices, _step_kernels(kernels, layouts[number], np.stack(selected), np.stack(extras))


def _step_kernels(kernels: KernelTable, layout: StepLayout, rows: Integers, extra: Integers) -> StepKernels:
    chosen: Integers | slice = rows
    first, last = int(rows.flat[0]), int(rows.flat[-1])
    if last - first + 1 == rows.size and (np.diff(rows.reshape(-1)) == 1).all():
        chosen = slice(first, last + 1)  # a copy is not needed
    columns = (kernels.array(name)[chosen].reshape(rows.shape) for name in _COLUMNS)
    return StepKernels(layout, *[*columns, extra])


def _equal_steps(kernels: KernelTable, plan: RankPlan) -> Integers | None:
    """The rows of the compared kernels, N steps x K, if all steps have equal sequences without other kernels.

    This is `select_rows` for all steps at once, for the usual case.
    """
    if plan.marks is None or len({number for _, number, _ in plan.sequences}) != 1:
        return None
    marks = np.array([mark for mark, _, _ in plan.sequences])
    selection = plan.selections[plan.sequences[0][1]]
    on_main, steps = kernels.array("main"), kernels.array("step")
    main, others = np.flatnonzero(on_main), np.flatnonzero(~on_main)
    launches, codes = (kernels.array(column)[others] for column in ("launch_start", "code"))
    pattern = np.repeat(*np.array(selection.collectives, np.int64).reshape(-1, 2).T)
    shapes = (len(marks), len(selection.main)), (len(marks), len(pattern))
    equal = len(main) == shapes[0][0] * shapes[0][1] and len(others) == shapes[1][0] * shapes[1][1]
    if not equal or (np.diff(selection.main) != 1).any() or (launches == UNKNOWN).any():
        return None
    order = np.lexsort([launches, codes, steps[others]])
    main, others = main.reshape(shapes[0]), others[order].reshape(shapes[1])
    same = all((steps[rows] == marks[:, None]).all() for rows in (main, others))
    if not same or (codes[order].reshape(shapes[1]) != pattern).any():
        return None
    return np.concatenate([main, others], axis=1)[:, selection.order]


# --- Deviations ------------------------------------------------------------------------------------

Floats = NDArray[np.float64]


class Deviations(NamedTuple):
    """R ranks x K kernels, in seconds: value - mean over ranks."""

    durations: Floats
    gaps: Floats
    times_to_end: Floats
    launch_to_start: Floats | None  # None without launches
    last: int  # the kernel before the last collective: where the lateness of ranks is compared

    @property
    def lateness(self) -> Floats:
        """Deviation of the time to the end at kernel `last`; R."""
        return np.asarray(self.times_to_end[:, self.last])

    @property
    def latest(self) -> int:
        return int(self.lateness.argmax())

    @property
    def earliest(self) -> int:
        return int(self.lateness.argmin())

    def diverges_at(self, rank: int, threshold: float) -> int | None:
        """The first kernel at which a rank is late by more than the threshold (seconds); see `first_beyond`."""
        return first_beyond(self.times_to_end[rank, : self.last + 1], threshold)


def first_beyond(times_to_end: Floats, threshold: float) -> int | None:
    """Index of the first deviation of a rank that exceeds the threshold (seconds).

    None if the last deviation does not exceed it: the rank is not late.
    """
    if not len(times_to_end) or times_to_end[-1] <= threshold:
        return None
    return int(np.argmax(times_to_end > threshold))


def deviations(step: StepKernels, first: Integers) -> Deviations:
    """The deviations in one step on R ranks; `first` is the gap before the first kernel in nanoseconds, R."""
    gaps = kernel_gaps(step, first)
    launched = (step.launches != UNKNOWN).all(axis=0)
    delays = np.where(launched, step.starts - step.launches, np.nan) if launched.any() else None
    return Deviations(
        durations=_deviation(step.durations),
        gaps=_deviation(gaps),
        times_to_end=_deviation(times_to_end(step, gaps)),
        launch_to_start=None if delays is None else _deviation(delays),
        last=step.layout.last,
    )


def _deviation(values: Floats | Integers) -> Floats:
    return np.asarray((values - values.mean(axis=0)) / 1e9)


def kernel_gaps(step: StepKernels, first: Integers) -> Integers:
    """The gap before each kernel in nanoseconds, N x K; `first` is the gap before the first kernel, N."""
    gaps = gaps_to_previous_kernel(step)
    gaps[:, step.layout.first] = first
    return gaps + step.extra


def gaps_to_previous_kernel(step: StepKernels) -> Integers:
    """From the end of the kernel before on the main stream to the start, in nanoseconds; N x K.

    0 for kernels on other streams, and for the first kernel if the files do not have the one before.
    """
    known = step.layout.main & (step.previous_ends != UNKNOWN)
    return np.where(known, np.maximum(step.starts - step.previous_ends, 0), 0)


def first_gaps(
    starts: Integers, collective_ends: Integers, first_gap: FirstGap = "same-step", previous: Integers | None = None
) -> Integers | None:
    """The gap before the first kernel of the main stream, in nanoseconds; R. None without collectives.

    `starts` are the starts of this kernel, `collective_ends` the ends of the step's last collective, UNKNOWN without
    one. same-step: X is the time from the first kernel's start to the end of the step's last collective, which all
    ranks leave together, and the gap is max X - X: the rank that starts first has 0. previous-step: the gap is the time
    from the end of the previous step's last collective (`previous`) to the start; without a previous step as same-step.
    Neither needs clocks that agree between ranks.
    """
    if first_gap == "previous-step" and previous is not None and not (previous == UNKNOWN).any():
        return starts - previous
    if (collective_ends == UNKNOWN).any():
        return None
    distances = collective_ends - starts
    return np.asarray(distances.max() - distances)


def last_collective_ends(step: StepKernels) -> Integers:
    """The end of the last collective of each row; N. UNKNOWN without collectives."""
    if not step.collective.any():
        return np.full(len(step.starts), UNKNOWN)
    return np.asarray(step.ends[:, step.collective].max(axis=1))


def times_to_end(step: StepKernels, gaps: Integers) -> Integers:
    """Sum of gap and duration up to each kernel, with the durations of collectives set to zero; N x K, nanoseconds."""
    return np.asarray(np.cumsum(gaps + np.where(step.collective, 0, step.durations), axis=1))
