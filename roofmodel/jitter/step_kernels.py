"""The compared kernels of steps as matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from roofmodel.jitter.alignment import RankPlan, StepLayout, extra_durations, select_rows
from roofmodel.jitter.kernels import Booleans, Integers, Kernels
from roofmodel.profiles.timelines.enclosing import rows_by_value
from roofmodel.profiles.timelines.timeline import UNKNOWN

_COLUMNS = ("starts", "ends", "launches", "previous_ends", "net_gaps", "input")


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
        return _from_columns(self.layout, (values[number : number + 1] for values in self[1:]))


def stacked(rows: list[StepKernels]) -> StepKernels:
    """The rows of several matrices of one layout."""
    if len(rows) == 1:
        return rows[0]
    return StepKernels(
        rows[0].layout, *(np.concatenate(values) for values in zip(*(row[1:] for row in rows), strict=True))
    )


def steps_of_rank(
    kernels: Kernels, plan: RankPlan, layouts: Mapping[int, StepLayout], layout_of_step: Mapping[int, int]
) -> Iterator[tuple[list[int], StepKernels]]:
    """The compared steps of a rank by layout: the indices of the steps, and their kernels."""
    regular = _equal_steps(kernels, plan)
    if regular is not None:
        steps = [cuts[0][0] for _, _, cuts in plan.sequences]
        layout = layouts[layout_of_step[steps[0]]]
        yield steps, _step_kernels(kernels, layout, regular, np.broadcast_to(np.int64(0), regular.shape))
        return
    of_layout: dict[int, tuple[list[int], list[Integers], list[Integers]]] = {}
    places = rows_by_value(kernels.steps) if plan.marks is not None else {}
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


def _step_kernels(kernels: Kernels, layout: StepLayout, rows: Integers, extra: Integers) -> StepKernels:
    chosen: Integers | slice = rows
    first, last = int(rows.flat[0]), int(rows.flat[-1])
    if last - first + 1 == rows.size and (np.diff(rows.reshape(-1)) == 1).all():
        chosen = slice(first, last + 1)  # a copy is not needed
    columns = (getattr(kernels, name)[chosen].reshape(rows.shape) for name in _COLUMNS)
    return _from_columns(layout, [*columns, extra])


def _from_columns(layout: StepLayout, columns: Iterable[Any]) -> StepKernels:
    return StepKernels(layout, *columns)


def _equal_steps(kernels: Kernels, plan: RankPlan) -> Integers | None:
    """The rows of the compared kernels, N steps x K, if all steps have equal sequences without other kernels.

    This is `select_rows` for all steps at once, for the usual case.
    """
    if plan.marks is None or len({number for _, number, _ in plan.sequences}) != 1:
        return None
    marks = np.array([mark for mark, _, _ in plan.sequences])
    selection = plan.selections[plan.sequences[0][1]]
    main, others = np.flatnonzero(kernels.main), np.flatnonzero(~kernels.main)
    pattern = np.repeat(*np.array(selection.collectives, np.int64).reshape(-1, 2).T)
    shapes = (len(marks), len(selection.main)), (len(marks), len(pattern))
    equal = len(main) == shapes[0][0] * shapes[0][1] and len(others) == shapes[1][0] * shapes[1][1]
    if not equal or (np.diff(selection.main) != 1).any() or (kernels.launches[others] == UNKNOWN).any():
        return None
    order = np.lexsort([kernels.launches[others], kernels.codes[others], kernels.steps[others]])
    main, others = main.reshape(shapes[0]), others[order].reshape(shapes[1])
    same = all((kernels.steps[rows] == marks[:, None]).all() for rows in (main, others))
    if not same or (kernels.codes[others] != pattern).any():
        return None
    return np.concatenate([main, others], axis=1)[:, selection.order]
