"""Order of the candidates of a training plan, ties within their intervals, and the reason for each place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from roofmodel.study.plan.ranking import SHARED_ERROR, shown_by_rank, ties
from roofmodel.study.plan.training_candidate import TrainingCandidate, schedule, training_name


class RankedTraining(NamedTuple):
    """A candidate with its rank, the ranks that it ties with, and the reason."""

    candidate: TrainingCandidate
    rank: int
    ties_with: tuple[int, ...]
    reason: str


def ranked_training(
    fitting: Sequence[TrainingCandidate], count: int, searches_unsharded: bool
) -> Iterator[RankedTraining]:
    """The first candidates, and the best one of each device, with their reasons; `fitting` are all, fastest first.

    `searches_unsharded`: whether layouts whose replicas do not shard the optimizer state were searched, too.
    """
    shown, fit = shown_by_rank(fitting, count), {(one.device, one.layout, one.choices) for one in fitting}
    for rank, one in shown.items():
        tied = (
            place
            for place, other in shown.items()
            if place != rank and ties(one.per_gpu, other.per_gpu, SHARED_ERROR * (one.device == other.device))
        )
        other = fitting[0] if rank > 1 else _runner_up(fitting)
        reason, unsharded = training_reason(one, other), (one.device, one.layout, one.choices._replace(zero=0))
        if searches_unsharded and unsharded not in fit:
            reason += f"; it does not fit without ZeRO-{one.choices.zero}"
        yield RankedTraining(one, rank, tuple(tied), reason)


def _runner_up(fitting: Sequence[TrainingCandidate]) -> TrainingCandidate | None:
    """The fastest candidate with another layout than the first, else with another device."""
    first, *others = fitting
    return next(
        (one for one in others if one.layout != first.layout),
        next((one for one in others if one.device != first.device), None),
    )


def training_reason(one: TrainingCandidate, other: TrainingCandidate | None) -> str:
    """The largest difference from another candidate."""
    if other is None:
        return "the only layout that fits"
    change = one.per_gpu.value / other.per_gpu.value - 1
    pairs = (
        ("communication takes", one.shares.communication, other.shares.communication),
        ("pipeline stages idle", one.shares.idle, other.shares.idle),
    )
    found = [
        (abs(a - b), f"{what} {a:.0%} of its step, not {b:.0%}")
        for what, a, b in pairs
        if (a < b) == (change > 0) and f"{a:.0%}" != f"{b:.0%}"
    ]
    stages, other_stages = one.layout.pp, other.layout.pp
    if stages != other_stages:  # the reason, unless one of the shares explains half of the change
        uneven = f"pp {stages}, not {other_stages} (the last stage also computes the LM head)"
        found.append((abs(change) / 2, uneven))
    if one.device != other.device:
        found.append((0.4, f"{one.device}, not {other.device}"))
    chosen, others = one.choices, other.choices
    if chosen.recompute != others.recompute:
        found.append((0.25, f"recomputation {chosen.recompute}, not {others.recompute}"))
    if chosen.vpp != others.vpp:
        found.append((0.02, f"{schedule(chosen)}, not {schedule(others)}"))
    if one.micro_batch != other.micro_batch:
        found.append((0.02, f"microbatches of {one.micro_batch}, not {other.micro_batch}"))
    if chosen.sequence_parallel != others.sequence_parallel:
        found.append((0.02, f"sequence parallelism {chosen.sequence_parallel}"))
    if chosen.zero != others.zero:
        found.append((0.02, f"optimizer state {'sharded' if chosen.zero else 'on each replica'}"))
    cause = max(found)[1] if found else "no part of the step differs by much"
    return f"{abs(change):.0%} {'faster' if change >= 0 else 'slower'} than {training_name(other)}: {cause}"
