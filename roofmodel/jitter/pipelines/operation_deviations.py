"""Deviations between ranks of a training job with pipelines, by computation and step.

All stages compute the same microbatches, so the computations of a microbatch are compared over all ranks. The lateness
of a rank in a step is the sum of its deviations: how much longer it computes than the mean of the ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.errors import ProfileError
from roofmodel.jitter.causes import Cause, late_threshold
from roofmodel.jitter.deviations import first_beyond
from roofmodel.jitter.pipelines.pipeline_causes import pipeline_causes
from roofmodel.jitter.pipelines.schedules import BACKWARD, FORWARD, PipelineOperation, ReplaySelection, Schedule, select
from roofmodel.jitter.pipelines.what_if import WhatIf, analyze, replay_selection
from roofmodel.jitter.reduced_steps import StepSummary
from roofmodel.profiles.operation_table import OperationTable


class OperationRank(NamedTuple):
    """A rank and its totals over all compared steps."""

    rank: int
    file: str
    dp_rank: int
    stage: int
    operations: int
    compute_seconds: float


class OperationCurves(NamedTuple):
    """The deviations in one step, by computation."""

    step: int
    ranks: tuple[int, ...]
    names: tuple[str, ...]
    durations: NDArray[np.float64]  # (ranks, computations): seconds - mean over ranks

    @property
    def times_to_end(self) -> NDArray[np.float64]:
        """Sum of the deviations up to each computation."""
        return np.asarray(self.durations.cumsum(axis=1))


@dataclass(frozen=True)
class OperationJitter:
    """The comparison of the ranks of a training job with pipelines."""

    files: tuple[str, ...]
    ranks: tuple[OperationRank, ...]
    step_seconds: float  # median over steps
    threshold: float  # seconds of deviation from which a rank is late
    computations: int  # that all ranks execute, in all steps
    steps: tuple[StepSummary, ...]
    lateness: NDArray[np.float64]  # (steps, ranks), seconds
    curves: OperationCurves  # of the step with the largest lateness
    causes: tuple[Cause, ...]
    what_if: WhatIf | None  # None if the steps cannot be replayed
    warnings: tuple[str, ...]


def operation_jitter(table: OperationTable, stated_threshold: float | None = None) -> OperationJitter:
    """Compare the ranks of a job; a rank is late from `stated_threshold` seconds on, by default from `late_threshold`.

    A job that cannot be replayed has no causes and no what-if analysis; a warning states why. Raises ProfileError if no
    step has all operations of all ranks.
    """
    selection = select(table)
    warnings = [*table.warnings, *selection.warnings]
    causes: list[Cause] = []
    slowdowns = None
    try:
        job = replay_selection(table.file, selection)
        slowdowns = analyze(job)
        causes = pipeline_causes(job, slowdowns)
        warnings += slowdowns.warnings
    except ProfileError as error:
        warnings.append(f"the steps cannot be replayed: {error}")
    unknown = frozenset(worker.rank for worker in selection.partial)
    step_seconds = float(np.median(_step_seconds(selection)))
    threshold = late_threshold(stated_threshold, step_seconds)
    step_curves = sorted(step_deviations(selection), key=lambda curves: curves.step)
    return OperationJitter(
        files=table.files,
        ranks=_ranks(selection, table),
        step_seconds=step_seconds,
        threshold=threshold,
        computations=sum(len(curves.names) for curves in step_curves),
        steps=tuple(step_summary(curves, threshold, causes, unknown) for curves in step_curves),
        lateness=np.stack([curves.durations.sum(axis=1) for curves in step_curves]),
        curves=max(step_curves, key=lambda curves: float(curves.durations.sum(axis=1).max())),
        causes=tuple(causes),
        what_if=slowdowns,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def step_deviations(selection: ReplaySelection) -> Iterator[OperationCurves]:
    """The deviations of each step, over all ranks in ascending order."""
    for number, schedule in enumerate(selection.schedules):
        keys, indices = _common_computations(schedule)
        times = schedule.ends - schedule.starts
        columns = {int(dp_rank): column for column, dp_rank in enumerate(schedule.dp_ranks)}
        # Of each compared worker: its rank, and seconds by computation and step.
        compared = [
            (rank, times[indices[stage]][:, :, columns[dp_rank]])
            for (dp_rank, stage), rank in selection.ranks.items()
            if stage in indices
        ]
        compared += [(worker.rank, worker.seconds[number][indices[worker.stage]]) for worker in selection.partial]
        compared.sort(key=lambda each: each[0])
        ranks = tuple(rank for rank, _ in compared)
        seconds = np.stack([each for _, each in compared])  # (ranks, computations, steps)
        deviations = seconds - seconds.mean(axis=0)
        several = len({key[1] for key in keys}) > 1
        names = tuple(
            f"microbatch {microbatch} {kind.split('-')[0]}" + (f", chunk {chunk}" if several else "")
            for kind, chunk, microbatch in keys
        )
        for place, step in enumerate(schedule.steps.tolist()):
            yield OperationCurves(step, ranks, names, deviations[:, :, place])


_Key = tuple[str, int, int]  # kind, model chunk, microbatch


def _key(operation: PipelineOperation) -> _Key:
    microbatch = operation.microbatch if operation.microbatch >= 0 else operation.number
    return operation.kind, operation.model_chunk, microbatch


def _common_computations(schedule: Schedule) -> tuple[list[_Key], dict[int, list[int]]]:
    """The computations that all stages execute, in the order of the last stage, and their indices by stage."""
    by_stage: dict[int, dict[_Key, int]] = {}
    for index, operation in enumerate(schedule.operations):
        if operation.kind in (FORWARD, BACKWARD):
            by_stage.setdefault(operation.stage, {})[_key(operation)] = index
    last = by_stage[max(by_stage)]
    keys = [key for key in last if all(key in indices for indices in by_stage.values())]
    return keys, {stage: [indices[key] for key in keys] for stage, indices in by_stage.items()}


def _step_seconds(selection: ReplaySelection) -> NDArray[np.float64]:
    return np.concatenate([each.ends.max((0, 2)) - each.starts.min((0, 2)) for each in selection.schedules])


def _ranks(selection: ReplaySelection, table: OperationTable) -> tuple[OperationRank, ...]:
    first = table.rows.drop_duplicates(["dp_rank", "stage"])[["dp_rank", "stage", "file"]].to_numpy().tolist()
    files = {(dp_rank, stage): table.files[file] for dp_rank, stage, file in first}
    ranks = [
        OperationRank(
            worker.rank,
            files[worker.dp_rank, worker.stage],
            worker.dp_rank,
            worker.stage,
            worker.operations,
            float(sum(np.nansum(seconds) for seconds in worker.seconds)),
        )
        for worker in selection.partial
    ]
    for (dp_rank, stage), rank in selection.ranks.items():
        operations, seconds = 0, 0.0
        for schedule in selection.schedules:
            column = int(np.flatnonzero(schedule.dp_ranks == dp_rank)[0])
            own = [index for index, operation in enumerate(schedule.operations) if operation.stage == stage]
            computing = [index for index in own if schedule.operations[index].kind in (FORWARD, BACKWARD)]
            operations += len(own) * len(schedule.steps)
            seconds += float((schedule.ends - schedule.starts)[computing, :, column].sum())
        ranks.append(OperationRank(rank, files[dp_rank, stage], dp_rank, stage, operations, seconds))
    return tuple(sorted(ranks))


def step_summary(
    curves: OperationCurves, threshold: float, causes: Sequence[Cause], unknown: Collection[int] = ()
) -> StepSummary:
    """Which rank is early and which is late in a step, and from which computation on; `threshold` in seconds.

    The causes of the ranks in `unknown` are not known, because they are not replayed.
    """
    late = curves.durations.sum(axis=1)
    earliest, latest = int(late.argmin()), int(late.argmax())
    place = first_beyond(curves.times_to_end[latest], threshold)
    has_cause = late[latest] > threshold and curves.ranks[latest] not in unknown
    return StepSummary(
        step=curves.step,
        earliest_rank=curves.ranks[earliest],
        latest_rank=curves.ranks[latest],
        earliest_seconds=float(late[earliest]),
        latest_seconds=float(late[latest]),
        diverges_at_kernel=place,
        kernel_name=None if place is None else curves.names[place],
        cause=_cause_of(curves.ranks[latest], causes) if has_cause else None,
    )


def _cause_of(rank: int, causes: Sequence[Cause]) -> str:
    """The largest cause that concerns a rank; a cause without ranks concerns all."""
    return next((cause.kind for cause in causes if not cause.ranks or rank in cause.ranks), "random")
