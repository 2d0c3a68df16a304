"""Causes of the time that a pipeline loses to stragglers: stages, ranks, microbatches, communication or chance.

Each cause is removed alone from the recorded times of the operations; the replay without it gives the seconds that a
step would save.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.jitter.causes import Cause
from roofmodel.jitter.pipelines.schedules import BACKWARD, FORWARD, PipelineOperation
from roofmodel.jitter.pipelines.what_if import Replay, WhatIf, Worker, keep_kinds, keep_others, reported_kind
from roofmodel.numbers import units

LOST_SHARE, STEP_SHARE = 0.05, 0.01  # a cause saves at least these shares of the lost time and of the step
# Correlation from which microbatches are long for the same reason in forward and backward computations, and on all
# stages: the length of their sequences determines all of these times.
CORRELATED = 0.9
# A stage is slow above this multiple of the mean of the stages. One of 20 layers is 5 % of a stage: with so many layers
# or fewer, moving a layer to another stage cannot remove a smaller difference.
_SLOW_STAGE = 1.05
# A rank is slow above this multiple of the middle rank of its stage: less makes a step at most 2 % longer, which is
# close to STEP_SHARE. The difference must also exceed these standard errors over microbatches and steps. With normal
# noise, chance exceeds 3.7 of them for one rank of 10,000; sequence lengths have longer tails.
_SLOW_RANK, _SIGNIFICANT = 1.02, 5.0
# A rank is named from this share of the time that all slow ranks cost: the report lists the few ranks to replace first.
_OWN_SHARE = 0.1
_MOST_RANKS = 32  # that are examined: each needs a replay

Evidence = dict[str, float | int | str]


class _Place(NamedTuple):
    """Where a computation runs: one kind of computation of one model chunk."""

    kind: str
    stage: int
    model_chunk: int


Change = Callable[[PipelineOperation, NDArray[np.float64], NDArray[np.int64]], NDArray[np.float64]]
"""New times of a computation from its recorded ones, (steps, dp_ranks), and the data-parallel ranks."""


class _Computations:
    """The recorded times of computations and their means by place and data-parallel rank."""

    def __init__(self, job: Replay) -> None:
        self.job = job
        self.dp_ranks = sorted({worker.dp_rank for worker in job.ranks})
        column = {dp_rank: number for number, dp_rank in enumerate(self.dp_ranks)}
        times: dict[_Place, list[NDArray[np.float64]]] = defaultdict(list)
        for schedule, recorded in zip(job.schedules, job.recorded, strict=True):
            order = [column[dp_rank] for dp_rank in schedule.dp_ranks.tolist()]
            for number, operation in enumerate(schedule.operations):
                if (place := _place(operation)) is not None:
                    times[place].append(recorded[number][:, np.argsort(order)])
        # (microbatches and steps, dp_ranks)
        self.times = {place: np.concatenate(seconds) for place, seconds in times.items()}
        self.worker_means = {place: seconds.mean(0) for place, seconds in self.times.items()}
        # A middle rank, not the mean: one slow rank does not make its stage slow.
        self.stage_means = {
            place: float(np.sort(means)[(len(means) - 1) // 2]) for place, means in self.worker_means.items()
        }
        self.kind_means = {
            kind: float(np.mean([mean for place, mean in self.stage_means.items() if place.kind == kind]))
            for kind in {place.kind for place in self.times}
        }

    def changed_seconds(self, change: Change) -> float:
        """Mean seconds of a step in the replay with changed times of the computations."""
        variants = []
        for schedule, recorded in zip(self.job.schedules, self.job.recorded, strict=True):
            times = recorded.copy()
            for number, operation in enumerate(schedule.operations):
                if _place(operation) is not None:
                    times[number] = change(operation, recorded[number], schedule.dp_ranks)
            variants.append(times)
        everything = keep_others(keep_kinds())
        return float(self.job.step_seconds([everything], variants).mean())

    def means_of(self, place: _Place, dp_ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        """The mean times at a place, in the order of `dp_ranks`."""
        return np.asarray(self.worker_means[place][np.searchsorted(self.dp_ranks, dp_ranks)])


def pipeline_causes(job: Replay, what_if: WhatIf) -> list[Cause]:
    """The causes of lost time, the one that saves most first; empty if the ranks lose no time to each other."""
    replayed = float(what_if.replayed_seconds.mean())
    lost = replayed - float(what_if.ideal_seconds.mean())
    if lost <= 0:
        return []
    computations = _Computations(job)
    least = max(LOST_SHARE * lost, STEP_SHARE * replayed)
    causes = [
        *_stages(computations, what_if, replayed),
        *_ranks(computations, what_if, replayed, least),
        *_microbatches(computations, replayed),
        *_operations(job, what_if, replayed),
    ]
    large = sorted((c for c in causes if c.seconds_per_step >= least), key=lambda cause: -cause.seconds_per_step)
    return [_with_share(cause, cause.seconds_per_step / lost) for cause in large]


def _with_share(cause: Cause, share: float) -> Cause:
    saved = units.seconds(cause.seconds_per_step)
    text = f"{cause.evidence}; without this a step takes {saved} less ({share:.0%} of the lost time)"
    return cause._replace(evidence=text, evidence_values={"share_of_lost_time": share, **(cause.evidence_values or {})})


def _place(operation: PipelineOperation) -> _Place | None:
    if operation.kind not in (FORWARD, BACKWARD):
        return None
    return _Place(operation.kind, operation.stage, operation.model_chunk)


def _stages(computations: _Computations, what_if: WhatIf, replayed: float) -> Iterator[Cause]:
    """Stages with more work than others: all stages get the mean time, relative differences within a stage remain."""

    def balanced(
        operation: PipelineOperation, seconds: NDArray[np.float64], dp_ranks: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        place = _place(operation)
        assert place is not None
        mean, own = computations.kind_means[place.kind], computations.stage_means[place]
        return seconds * (mean / own) if own else seconds + mean

    totals: dict[int, float] = defaultdict(float)
    for place, mean in computations.stage_means.items():
        totals[place.stage] += mean
    mean_total = float(np.mean(list(totals.values())))
    slow = [stage for stage, total in totals.items() if total > _SLOW_STAGE * mean_total]
    if not slow:
        return
    worst = max(slow, key=lambda stage: totals[stage])
    words: list[str] = []
    evidence: Evidence = {"stage": worst, "slowdown_of_stage": what_if.by_stage[worst]}
    for kind in (FORWARD, BACKWARD):
        of_kind = [(place.stage, mean) for place, mean in computations.stage_means.items() if place.kind == kind]
        own = [mean for stage, mean in of_kind if stage == worst]
        others = [mean for stage, mean in of_kind if stage != worst]
        if own and any(others):
            ratio = float(np.mean(own) / np.mean(others))
            evidence[f"{kind}_to_other_stages".replace("-", "_")] = ratio
            words.append(f"{ratio:.2f} times in {kind.split('-')[0]}")
    if what_if.m_s is not None:
        evidence["m_s"] = what_if.m_s
    ranks = tuple(sorted(rank for worker, rank in what_if.ranks.items() if worker.stage in slow))
    text = f"stage {worst} computes longer than the other stages" + (f" ({', '.join(words)})" if words else "")
    yield Cause("stage", ranks, replayed - computations.changed_seconds(balanced), text, evidence)


def _ranks(computations: _Computations, what_if: WhatIf, replayed: float, least: float) -> Iterator[Cause]:
    """Workers that are slower than the other data-parallel ranks of their stage in all steps."""
    ratios = _persistent_ratios(computations)

    def without(workers: Sequence[Worker]) -> float:
        def balanced(
            operation: PipelineOperation, seconds: NDArray[np.float64], dp_ranks: NDArray[np.int64]
        ) -> NDArray[np.float64]:
            place = _place(operation)
            assert place is not None
            means = computations.means_of(place, dp_ranks)
            chosen = np.array([(dp_rank, place.stage) in workers for dp_rank in dp_ranks.tolist()])
            factor = np.divide(
                computations.stage_means[place], means, out=np.ones_like(means), where=chosen & (means > 0)
            )
            return seconds * factor

        return replayed - computations.changed_seconds(balanced)

    slow = sorted(ratios, key=lambda worker: -ratios[worker])[:_MOST_RANKS]
    if not slow or (saved := without(slow)) < least:
        return
    # Each rank alone, with all other slow ones repaired: two equally slow ranks hide each other.
    alone = {worker: saved - without([other for other in slow if other != worker]) for worker in slow}
    named_workers = [worker for worker in slow if alone[worker] >= _OWN_SHARE * saved] or slow
    evidence: Evidence = {
        "compute_to_other_ranks": ratios[named_workers[0]],
        "slowdown_of_rank": what_if.by_worker[named_workers[0]],
    }
    if what_if.m_w is not None:
        evidence["m_w"] = what_if.m_w
    ranks = tuple(what_if.ranks[worker] for worker in named_workers)
    text = (
        f"rank {units.listed(ranks)} computes longer than the other ranks of its stage in all steps "
        f"(rank {ranks[0]}: {ratios[named_workers[0]]:.2f} times)"
    )
    yield Cause("rank", ranks, without(named_workers), text, evidence)


def _persistent_ratios(computations: _Computations) -> dict[Worker, float]:
    """Compute time relative to the middle rank of the stage, for workers that are significantly slower."""
    ratios = {}
    for stage in sorted({place.stage for place in computations.times}):
        places = [place for place, mean in computations.stage_means.items() if place.stage == stage and mean > 0]
        if not places:
            continue
        relative = np.concatenate([computations.times[place] / computations.stage_means[place] for place in places])
        mean = relative.mean(0)
        error = relative.std(0) / np.sqrt(len(relative))
        for dp_rank, ratio, spread in zip(computations.dp_ranks, mean.tolist(), error.tolist(), strict=True):
            if ratio > _SLOW_RANK and ratio - 1 > _SIGNIFICANT * spread:
                ratios[Worker(dp_rank, stage)] = ratio
    return ratios


def _microbatches(computations: _Computations, replayed: float) -> Iterator[Cause]:
    """Differences between microbatches and steps on the same worker: of their inputs, or by chance."""

    def balanced(
        operation: PipelineOperation, seconds: NDArray[np.float64], dp_ranks: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        place = _place(operation)
        assert place is not None
        return np.broadcast_to(computations.means_of(place, dp_ranks), seconds.shape)

    saved = replayed - computations.changed_seconds(balanced)
    evidence: Evidence = {}
    for kind in (FORWARD, BACKWARD):
        relative_times = [
            _relative(times, times.mean(0)).ravel() for place, times in computations.times.items() if place.kind == kind
        ]
        relative = np.concatenate([np.zeros(0), *relative_times])
        if (relative := relative[np.isfinite(relative)]).size:
            evidence[f"{kind}_variation".replace("-", "_")] = float(relative.std())
    directions, stages = _correlations(computations.job)
    known_values = [value for value in (directions, stages) if value is not None]
    for name, value in (("forward_backward_correlation", directions), ("stage_correlation", stages)):
        if value is not None:
            evidence[name] = value
    same_reason = bool(known_values) and min(known_values) >= CORRELATED
    variation = ", ".join(
        f"{direction} {evidence[key]:.0%}"
        for direction in ("forward", "backward")
        if (key := f"{direction}_compute_variation") in evidence
    )
    correlations = ", ".join(
        f"{value:.2f} between {pair}"
        for pair, value in (("forward and backward", directions), ("stages", stages))
        if value is not None
    )
    text = (
        f"microbatches differ in computation ({variation}), and the same ones are long everywhere (correlation "
        f"{correlations}): their sequence lengths differ"
        if same_reason
        else f"computations vary on each rank ({variation}) without a common reason"
        + (f" (correlation {correlations})" if known_values else "")
    )
    yield Cause("workload" if same_reason else "random", (), saved, text, evidence)


def _correlations(job: Replay) -> tuple[float | None, float | None]:
    """Correlation of the times of a microbatch: forward with backward, and of one stage with the next.

    Times are relative to the mean of the worker, and without a second stage to that of the worker in the step: only
    the input makes a microbatch long in all stages, or longer than the others of its step.
    """
    directions, stages = _Pairs(), _Pairs()
    several = len({worker.stage for worker in job.ranks}) > 1
    for schedule, recorded in zip(job.schedules, job.recorded, strict=True):
        groups: dict[_Place, dict[tuple[int, int], NDArray[np.float64]]] = defaultdict(dict)
        for number, operation in enumerate(schedule.operations):
            if (place := _place(operation)) is not None:
                microbatch = operation.microbatch if operation.microbatch >= 0 else operation.number
                groups[place][operation.model_chunk, microbatch] = recorded[number]
        for place, times in groups.items():
            values = np.stack(list(times.values()))
            mean = values.mean((0, 1)) if several else values.mean(0)
            groups[place] = {key: _relative(seconds, mean) for key, seconds in times.items()}
        for place, times in groups.items():
            if place.kind == FORWARD:
                directions.add(times, groups.get(place._replace(kind=BACKWARD), {}))
            stages.add(times, groups.get(place._replace(stage=place.stage + 1), {}))
    return directions.correlation, stages.correlation


def _relative(times: NDArray[np.float64], mean: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    """Times divided by their mean; NaN where the mean is zero."""
    known = np.broadcast_to(mean > 0, times.shape)
    return np.asarray(np.divide(times, mean, out=np.full(times.shape, np.nan), where=known))


class _Pairs:
    """Pairs of times of the same microbatch."""

    def __init__(self) -> None:
        self.first: list[NDArray[np.float64]] = []
        self.second: list[NDArray[np.float64]] = []

    def add(
        self, first: dict[tuple[int, int], NDArray[np.float64]], second: dict[tuple[int, int], NDArray[np.float64]]
    ) -> None:
        for key in first.keys() & second.keys():
            self.first.append(first[key].ravel())
            self.second.append(second[key].ravel())

    @property
    def correlation(self) -> float | None:
        """None without pairs or without variation."""
        if not self.first:
            return None
        first, second = np.concatenate(self.first), np.concatenate(self.second)
        known = np.isfinite(first) & np.isfinite(second)
        first, second = first[known], second[known]
        if not known.any() or min(first.std(), second.std()) < 1e-9:
            return None
        return float(np.corrcoef(first, second)[0, 1])


def _operations(job: Replay, what_if: WhatIf, replayed: float) -> Iterator[Cause]:
    """Kinds of operations other than computations, made ideal one at a time."""
    kinds = [kind for kind in what_if.by_operation if kind not in (FORWARD, BACKWARD)]
    if not kinds:
        return
    seconds = job.step_seconds([keep_others(keep_kinds(kind)) for kind in kinds]).mean(1)
    for kind, improved in zip(kinds, seconds.tolist(), strict=True):
        times = [
            recorded[number].ravel()
            for schedule, recorded in zip(job.schedules, job.recorded, strict=True)
            for number, operation in enumerate(schedule.operations)
            if reported_kind(operation.kind) == kind
        ]
        values = np.concatenate(times)
        evidence: Evidence = {
            "operation": kind,
            "slowdown_of_operation": what_if.by_operation[kind],
            "median_seconds": float(np.median(values)),
            "p99_seconds": float(np.quantile(values, 0.99)),
        }
        text = (
            f"{kind} varies: median {units.seconds(float(evidence['median_seconds']))}, 99 % below "
            f"{units.seconds(float(evidence['p99_seconds']))}"
        )
        yield Cause("operation", (), replayed - improved, text, evidence)
