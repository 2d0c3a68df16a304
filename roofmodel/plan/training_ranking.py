"""Order of the candidates of a training plan, ties within their intervals, and the reason for each place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from roofmodel.plan.ranking import SHARED_ERROR, merit, shown_by_rank, ties
from roofmodel.plan.training_candidate import TrainingCandidate, schedule, training_name
from roofmodel.timing.timing import Expected


class RankedTraining(NamedTuple):
    """A candidate with its rank, the ranks that it ties with, and the reason."""

    candidate: TrainingCandidate
    rank: int
    ties_with: tuple[int, ...]
    reason: str


def by_merit(candidates: Iterable[TrainingCandidate]) -> list[TrainingCandidate]:
    """The candidates, fastest first; cheapest first if all have a price."""
    found = list(candidates)
    priced = all(one.price is not None for one in found)
    return sorted(found, key=lambda one: -_merit(one, priced).value)


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
    """The largest difference from another candidate. `priced`: whether candidates are ranked by price; then it is the
    difference of the price if their GPUs have different prices, else of the step time."""
    if other is None:
        return "the only layout that fits"
    by_price = priced and one.price != other.price
    change = _merit(one, by_price).value / _merit(other, by_price).value - 1
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
    text = f"{abs(change):.0%} {'faster' if change >= 0 else 'slower'}"
    if by_price:
        text = _price_difference(_merit(other, by_price).value / _merit(one, by_price).value - 1)
    return f"{text} than {training_name(other)}: {cause}"


def _price_difference(change: float) -> str:
    """The relative difference of two prices as text."""
    return f"{abs(change):.0%} {'cheaper' if change <= 0 else 'more expensive'}"
