"""Order of the candidates of a training plan, ties within their intervals, and the reason for each place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from roofmodel.plan.ranking import (
    LOWER_BOUND,
    NOTHING_DIFFERS,
    SHARED_ERROR,
    by_part_of,
    largest_term,
    merit,
    shown_by_rank,
    ties,
)
from roofmodel.plan.training_candidate import TrainingCandidate, schedule, training_name
from roofmodel.timing.timing import Expected


class RankedTraining(NamedTuple):
    """A candidate with its rank, the ranks that it ties with, and the reason."""

    candidate: TrainingCandidate
    rank: int
    ties_with: tuple[int, ...]
    reason: str


def by_merit(candidates: Iterable[TrainingCandidate]) -> list[TrainingCandidate]:
    """The candidates, fastest first; cheapest first if all have a price. Lower bounds come after expected times."""
    found = list(candidates)
    priced = all(one.price is not None for one in found)
    return sorted(found, key=lambda one: (not one.calibrated, -_merit(one, priced).value))


def _merit(one: TrainingCandidate, priced: bool) -> Expected:
    """Tokens per second and GPU, or per dollar."""
    return merit(one.per_gpu, one.price if priced else None)


def ranked_training(
    fitting: Sequence[TrainingCandidate], count: int, searches_unsharded: bool
) -> Iterator[RankedTraining]:
    """The first candidates, and the best one of each device, with their reasons; `fitting` are all, by `by_merit`.

    `searches_unsharded`: whether layouts whose replicas do not shard the optimizer state were searched, too.
    """
    shown, fit = shown_by_rank(fitting, count), {(one.device, one.layout, one.choices) for one in fitting}
    priced = all(one.price is not None for one in fitting)
    for rank, one in shown.items():
        tied = (
            place
            for place, other in shown.items()
            if place != rank
            and one.calibrated == other.calibrated
            and ties(_merit(one, priced), _merit(other, priced), SHARED_ERROR * (one.device == other.device))
        )
        other = fitting[0] if rank > 1 else _runner_up(fitting)
        reason, unsharded = training_reason(one, other, priced), (one.device, one.layout, one.choices._replace(zero=0))
        if searches_unsharded and unsharded not in fit:
            reason += f"; it does not fit without ZeRO-{one.choices.zero}"
        yield RankedTraining(one, rank, tuple(tied), reason)


def _runner_up(fitting: Sequence[TrainingCandidate]) -> TrainingCandidate | None:
    """The best candidate with another layout than the first, else with another device."""
    first, *others = fitting
    return next(
        (one for one in others if one.layout != first.layout),
        next((one for one in others if one.device != first.device), None),
    )


def training_reason(one: TrainingCandidate, other: TrainingCandidate | None, priced: bool = False) -> str:
    """The one option that differs from another candidate, or the part of the step that differs most in the direction of
    the step times; with it the options that differ, apart from the layout, which the names state. `priced`: whether
    candidates are ranked by price; then the difference is that of the price if their GPUs have different prices."""
    if other is None:
        return "the only layout that fits"
    if other.calibrated and not one.calibrated:
        return LOWER_BOUND
    found, than = [*_differences(one, other)], f"than {training_name(other)}"
    if priced and one.price != other.price:
        change = _merit(other, priced).value / _merit(one, priced).value - 1
        return f"{_price_difference(change)} {than}: {'; '.join(found)}"
    change = _merit(one, False).value / _merit(other, False).value - 1
    if abs(change) < 0.005:
        return f"as fast as {training_name(other)}"
    if len(found) != 1 or one.layout != other.layout:
        found = [*largest_term(_seconds(one), _seconds(other), "of a step"), *found]
    cause = "; ".join(found) or NOTHING_DIFFERS
    return f"{abs(change):.0%} {'faster' if change >= 0 else 'slower'} {than}: {cause}"


def _seconds(one: TrainingCandidate) -> dict[str, float]:
    """The step time by what takes it."""
    return by_part_of(one.step.value, one.shares.communication, one.shares.idle)


def _differences(one: TrainingCandidate, other: TrainingCandidate) -> Iterator[str]:
    """The options that differ, apart from the layout."""
    chosen, others = one.choices, other.choices
    if one.device != other.device:
        yield f"{one.device}, not {other.device}"
    if chosen.vpp != others.vpp:
        yield f"{schedule(chosen)}, not {others.vpp}"
    if chosen.recompute != others.recompute:
        yield f"recomputation {chosen.recompute}, not {others.recompute}"
    if one.micro_batch != other.micro_batch:
        yield f"microbatches of {one.micro_batch}, not {other.micro_batch}"
    if chosen.sequence_parallel != others.sequence_parallel:
        yield f"sequence parallelism {chosen.sequence_parallel}"
    if chosen.zero != others.zero:
        yield f"optimizer state {'sharded' if chosen.zero else 'on each replica'}"


def _price_difference(change: float) -> str:
    """The relative difference of two prices as text."""
    return f"{abs(change):.0%} {'cheaper' if change <= 0 else 'more expensive'}"
