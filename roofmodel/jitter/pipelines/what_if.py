"""What-if analysis of stragglers: how long steps would take if some or all operations took their ideal time.

Definitions: "Understanding Stragglers in Large Model Training Using What-if Analysis" (arXiv 2505.05713). The ideal
time of a kind of operation is taken over all ranks and steps: the mean for computations, the median of the transfer
times for communications, because their distribution has a long tail. A slowdown is the mean time of a step divided by
its mean time with all operations at their ideal time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.errors import ProfileError
from roofmodel.jitter.pipelines.dependencies import Dependencies, dependencies, transfer_seconds
from roofmodel.jitter.pipelines.replay import Scenario, step_seconds
from roofmodel.jitter.pipelines.schedules import COMMUNICATION, POINT_TO_POINT, ReplaySelection, Schedule

LARGE_ERROR = 0.05  # of the replay, from which a warning follows
WORST_WORKERS = 0.03  # share of the workers that M_W makes ideal (equation 5 of the paper)


class Worker(NamedTuple):
    """The GPUs of a pipeline stage of a data-parallel rank."""

    dp_rank: int
    stage: int


Keep = Callable[[Schedule], NDArray[np.bool_]]
"""Which operations of a schedule keep their recorded time: booleans that broadcast to (operations, dp_ranks)."""


@dataclass(frozen=True)
class WhatIf:
    """Slowdowns of a training job by stragglers.

    `slowdown` is the replay without launch delays divided by the replay with ideal times (S). The `by_` slowdowns keep
    the recorded times of one kind of operation (S_t), data-parallel rank or stage and make all others ideal. The
    slowdown of a worker is the smaller one of its rank's and its stage's (S_w). `m_w` and `m_s` are the shares of the
    lost time that ideal times of the worst 3 % of the workers (M_W), or of the last stage (M_S), recover; None if no
    time is lost.
    """

    replay_error: float  # mean over steps of |replayed / recorded - 1|
    slowdown: float
    by_operation: dict[str, float]
    by_dp_rank: dict[int, float]
    by_stage: dict[int, float]
    by_worker: dict[Worker, float]
    m_w: float | None
    m_s: float | None
    steps: tuple[int, ...]
    recorded_seconds: NDArray[np.float64]  # (steps,), as are the next two
    replayed_seconds: NDArray[np.float64]
    ideal_seconds: NDArray[np.float64]
    worker_slowdowns: NDArray[np.float64]  # (workers in the order of `by_worker`, steps)
    ranks: dict[Worker, int]
    worst_workers: tuple[Worker, ...]  # those of `m_w`
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Replay:
    """A training job that can be replayed: its steps by schedule, with recorded and ideal times of the operations."""

    file: str
    schedules: tuple[Schedule, ...]
    dependencies: tuple[Dependencies, ...]
    recorded: tuple[NDArray[np.float64], ...]  # by schedule: (operations, steps, dp_ranks), seconds
    ideal: tuple[NDArray[np.float64], ...]  # by schedule: (operations,), seconds
    ranks: dict[Worker, int]
    warnings: tuple[str, ...]

    @property
    def steps(self) -> NDArray[np.int64]:
        return np.concatenate([schedule.steps for schedule in self.schedules])

    def step_seconds(
        self, keeps: Sequence[Keep], recorded: Sequence[NDArray[np.float64]] | None = None
    ) -> NDArray[np.float64]:
        """Seconds of each step in each scenario, (scenarios, steps); `recorded` replaces the recorded times."""
        return np.concatenate(
            [
                step_seconds(graph.tasks, seconds, ideal, [Scenario(keep(schedule)) for keep in keeps])
                for schedule, graph, seconds, ideal in zip(
                    self.schedules, self.dependencies, recorded or self.recorded, self.ideal, strict=True
                )
            ],
            axis=1,
        )


def replay_selection(file: str, selection: ReplaySelection) -> Replay:
    """Rebuild the dependencies of the selected steps of a job; `file` is named in messages.

    Raises ProfileError where no whole step can be rebuilt.
    """
    try:
        graphs = tuple(dependencies(schedule) for schedule in selection.schedules)
    except ProfileError as error:
        raise ProfileError(f"{file}: ", error.message) from None
    recorded = tuple(
        transfer_seconds(schedule, each.tasks) for schedule, each in zip(selection.schedules, graphs, strict=True)
    )
    times = ideal_seconds(selection.schedules, recorded)
    return Replay(
        file,
        selection.schedules,
        graphs,
        recorded,
        tuple(np.array([times[op.kind] for op in schedule.operations]) for schedule in selection.schedules),
        {Worker(*worker): rank for worker, rank in selection.ranks.items()},
        tuple(dict.fromkeys([*selection.warnings, *(f"{file}: {w}" for each in graphs for w in each.warnings)])),
    )


def ideal_seconds(schedules: Sequence[Schedule], recorded: Sequence[NDArray[np.float64]]) -> dict[str, float]:
    """The ideal time of each kind of operation, over all ranks, stages and steps."""
    values: dict[str, list[NDArray[np.float64]]] = {}
    for schedule, seconds in zip(schedules, recorded, strict=True):
        for index, operation in enumerate(schedule.operations):
            values.setdefault(operation.kind, []).append(seconds[index].ravel())
    return {
        kind: float((np.median if kind in COMMUNICATION else np.mean)(np.concatenate(parts)))
        for kind, parts in values.items()
    }


def analyze(job: Replay) -> WhatIf:
    """The slowdowns of a job whose dependencies are rebuilt. Raises ProfileError if its operations take no time."""
    kinds = list(dict.fromkeys(reported_kind(op.kind) for schedule in job.schedules for op in schedule.operations))
    dp_ranks = sorted({worker.dp_rank for worker in job.ranks})
    stages = sorted({worker.stage for worker in job.ranks})
    everything, nothing = keep_kinds(*kinds), keep_kinds()
    scenarios = [everything, nothing, *map(keep_kinds, kinds), *map(keep_dp_rank, dp_ranks), *map(keep_stages, stages)]
    seconds = job.step_seconds(scenarios)
    if seconds[1].min() <= 0:
        raise ProfileError(f"{job.file}: step {job.steps[seconds[1].argmin()]} takes no time; check the durations")
    order = np.argsort(job.steps)
    replayed, ideal = seconds[0], seconds[1]
    slowdowns = seconds.mean(1) / ideal.mean()
    by_step = seconds / ideal
    first_rank, first_stage = 2 + len(kinds), 2 + len(kinds) + len(dp_ranks)
    by_operation = dict(zip(kinds, slowdowns[2:first_rank].tolist(), strict=True))
    by_dp_rank = dict(zip(dp_ranks, slowdowns[first_rank:first_stage].tolist(), strict=True))
    by_stage = dict(zip(stages, slowdowns[first_stage:].tolist(), strict=True))
    rank_steps = dict(zip(dp_ranks, by_step[first_rank:first_stage], strict=True))
    stage_steps = dict(zip(stages, by_step[first_stage:], strict=True))
    by_worker = {
        Worker(dp_rank, stage): min(by_dp_rank[dp_rank], by_stage[stage]) for dp_rank in dp_ranks for stage in stages
    }

    def sort_key(worker: Worker) -> tuple[float, float, int]:
        larger = max(by_dp_rank[worker.dp_rank], by_stage[worker.stage])
        return by_worker[worker], larger, -job.ranks[worker]

    number = max(1, math.ceil(WORST_WORKERS * len(by_worker)))
    worst = tuple(sorted(by_worker, key=sort_key, reverse=True)[:number])
    last_stage = stages[-1]
    improved = job.step_seconds([keep_others(keep_workers(worst)), keep_others(keep_stages(last_stage))]).mean(1)
    lost = replayed.mean() - ideal.mean()
    m_w, m_s = ((replayed.mean() - improved) / lost).tolist() if lost else (None, None)
    recorded = np.concatenate([(each.ends.max((0, 2)) - each.starts.min((0, 2))) for each in job.schedules])
    errors = np.abs(np.divide(replayed, recorded, out=np.ones_like(recorded), where=recorded > 0) - 1)
    replay_error = float(errors.mean())
    return WhatIf(
        replay_error=replay_error,
        slowdown=float(slowdowns[0]),
        by_operation=by_operation,
        by_dp_rank=by_dp_rank,
        by_stage=by_stage,
        by_worker=by_worker,
        m_w=m_w,
        m_s=m_s,
        steps=tuple(job.steps[order].tolist()),
        recorded_seconds=recorded[order],
        replayed_seconds=replayed[order],
        ideal_seconds=ideal[order],
        worker_slowdowns=np.array(
            [np.minimum(rank_steps[worker.dp_rank], stage_steps[worker.stage])[order] for worker in by_worker]
        ),
        ranks=job.ranks,
        worst_workers=worst,
        warnings=(*job.warnings, *_replay_warnings(replay_error)),
    )


def _replay_warnings(error: float) -> list[str]:
    if error <= LARGE_ERROR:
        return []
    return [
        f"the replay differs from the recorded steps by {error:.1%}: launch delays, or operations that are not "
        "recorded, take time that the slowdowns do not include"
    ]


def reported_kind(kind: str) -> str:
    """The kind under which a slowdown is reported: sends and receives of one direction are one.

    Examples:
        >>> reported_kind("forward-send")
        'forward-pp-comm'
    """
    return f"{kind.split('-')[0]}-pp-comm" if kind in POINT_TO_POINT else kind


def keep_kinds(*kinds: str) -> Keep:
    """Keep the recorded times of kinds of operations, as `reported_kind` names them."""
    return lambda schedule: np.array([[reported_kind(op.kind) in kinds] for op in schedule.operations])


def keep_stages(*stages: int) -> Keep:
    """Keep the recorded times of stages."""
    return lambda schedule: np.array([[op.stage in stages] for op in schedule.operations])


def keep_dp_rank(dp_rank: int) -> Keep:
    """Keep the recorded times of a data-parallel rank."""
    return lambda schedule: (schedule.dp_ranks == dp_rank)[None]


def keep_workers(workers: Sequence[Worker]) -> Keep:
    """Keep the recorded times of workers."""
    chosen = set(workers)
    return lambda schedule: np.array(
        [[(dp_rank, op.stage) in chosen for dp_rank in schedule.dp_ranks.tolist()] for op in schedule.operations]
    )


def keep_others(keep: Keep) -> Keep:
    """Keep the recorded times of all other operations."""
    return lambda schedule: ~keep(schedule)
