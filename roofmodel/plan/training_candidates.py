"""Candidates of a training plan: a layout with its choices and microbatch, its time per step, memory and price; their
order, ties within their intervals, and the reason for each place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from roofmodel.engines.engine import Engine
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import EngineName
from roofmodel.plan.candidate import Shares, is_bound
from roofmodel.plan.layouts import Layout
from roofmodel.plan.ranking import (
    LOWER_BOUND,
    NOTHING_DIFFERS,
    SHARED_ERROR,
    by_part_of,
    largest_term,
    layout_text,
    merit,
    shown_by_rank,
    ties,
)
from roofmodel.timing.timing import Expected

DAY = 86400


class TrainingRun(NamedTuple):
    """A training run: tokens of all steps, sequences of a step, tokens of a sequence."""

    tokens: float
    batch: int
    seq: int
    gpus: int  # at most
    dtype: str
    attention: str
    memory_utilization: float | None
    engine: EngineName
    engine_option: tuple[tuple[str, str], ...] = ()

    @property
    def engine_id(self) -> str:
        """The name of the engine in documents."""
        return Engine.load(self.engine).id

    @property
    def steps(self) -> float:
        """The number of steps."""
        return self.tokens / (self.batch * self.seq)


class Choices(NamedTuple):
    """The options of a layout apart from its sizes and the microbatch.

    `vpp`: the number of model parts per pipeline stage. `zero`: 1 if the replicas shard the optimizer state, else 0.
    """

    vpp: int
    recompute: str
    sequence_parallel: str
    zero: int


class TrainingCandidate(NamedTuple):
    """A layout with its best microbatch: seconds of a step, model FLOPs utilization, bytes per GPU."""

    device: str
    layout: Layout
    choices: Choices
    micro_batch: int
    step: Expected
    mfu: float | None
    mfu_all_pairs: float | None
    memory: Number
    usable: Number | None
    shares: Shares
    run: TrainingRun
    price: float | None = None  # dollars per hour and GPU
    watts: float | None = None  # mean power of a GPU

    @property
    def calibrated(self) -> bool:
        """Whether its times are expected ones; otherwise they are lower bounds."""
        return not is_bound(self.step)

    @property
    def gpus(self) -> int:
        """The number of GPUs that the layout uses."""
        return self.layout.gpus

    @property
    def per_gpu(self) -> Expected:
        """Tokens per second and GPU."""
        tokens = self.run.batch * self.run.seq / self.gpus
        return Expected(*(tokens / seconds for seconds in (self.step.value, self.step.high, self.step.low)))

    @property
    def days(self) -> Expected:
        """Days of the run."""
        return Expected(*(self.run.steps * seconds / DAY for seconds in self.step))

    @property
    def dollars(self) -> float | None:
        """The price of the run."""
        return None if self.price is None else self.price * self.gpus * 24 * self.days.value

    @property
    def kwh(self) -> float | None:
        """The energy of all GPUs in the run, in kilowatt-hours."""
        return None if self.watts is None else self.watts * self.gpus * 24 * self.days.value / 1000


def schedule(choices: Choices) -> str:
    """The number of model parts per pipeline stage as text."""
    return f"{choices.vpp} model {'parts' if choices.vpp > 1 else 'part'} per stage"


def training_name(candidate: TrainingCandidate) -> str:
    """The layout, and what it does to save memory: `tp 8 pp 4 dp 2 vpp 2, full recomputation`."""
    words = [training_layout(candidate)]
    words += [f"{candidate.choices.recompute} recomputation"] * (candidate.choices.recompute != "none")
    words += ["sequence parallel"] * (candidate.choices.sequence_parallel == "on")
    words += [f"ZeRO-{candidate.choices.zero}"] * (candidate.choices.zero > 0)
    return ", ".join(words)


def training_layout(candidate: TrainingCandidate) -> str:
    """The sizes above 1 of the layout and of the pipeline schedule: `tp 8 pp 4 dp 2 vpp 2`."""
    return layout_text(candidate.layout) + (f" vpp {candidate.choices.vpp}" if candidate.choices.vpp > 1 else "")


# --- Their order ----------------------------------------------------------------------------------


class RankedTraining(NamedTuple):
    """A candidate with its rank, the ranks that it ties with, and the reason."""

    candidate: TrainingCandidate
    rank: int
    ties_with: tuple[int, ...]
    reason: str


def by_merit(candidates: Iterable[TrainingCandidate]) -> list[TrainingCandidate]:
    """The candidates, fastest first. If all have a price, those of a device follow each other, and the device whose
    fastest layout has the lowest price comes first. Lower bounds come after expected times.
    """
    fastest_first = sorted(candidates, key=lambda candidate: (not candidate.calibrated, -_speed(candidate).value))
    if any(candidate.price is None for candidate in fastest_first):
        return fastest_first
    tokens_per_dollar = dict[str, float]()
    for candidate in fastest_first:
        tokens_per_dollar.setdefault(candidate.device, merit(candidate.per_gpu, candidate.price).value)
    return sorted(fastest_first, key=lambda each: (not each.calibrated, -tokens_per_dollar[each.device]))


def _speed(candidate: TrainingCandidate) -> Expected:
    """Tokens per second."""
    return candidate.gpus * candidate.per_gpu


def _merits(candidate: TrainingCandidate, other: TrainingCandidate, priced: bool) -> tuple[Expected, Expected]:
    """What is compared of two candidates: tokens per second, or per dollar where their GPUs have different prices."""
    if priced and candidate.price != other.price:
        return merit(candidate.per_gpu, candidate.price), merit(other.per_gpu, other.price)
    return _speed(candidate), _speed(other)


def ranked_training(
    fitting: Sequence[TrainingCandidate], count: int, searches_unsharded: bool
) -> Iterator[RankedTraining]:
    """The first candidates, and the best one of each device, with their reasons; `fitting` are all, by `by_merit`.

    `searches_unsharded`: whether layouts whose replicas do not shard the optimizer state were searched, too.
    """
    shown = shown_by_rank(fitting, count)
    fit = {(candidate.device, candidate.layout, candidate.choices) for candidate in fitting}
    priced = all(candidate.price is not None for candidate in fitting)
    for rank, candidate in shown.items():
        tied = (
            place
            for place, other in shown.items()
            if place != rank
            and candidate.calibrated == other.calibrated
            and ties(*_merits(candidate, other, priced), SHARED_ERROR * (candidate.device == other.device))
        )
        other = fitting[0] if rank > 1 else _runner_up(fitting)
        reason = training_reason(candidate, other, priced)
        unsharded = candidate.device, candidate.layout, candidate.choices._replace(zero=0)
        if searches_unsharded and unsharded not in fit:
            reason += f"; it does not fit without ZeRO-{candidate.choices.zero}"
        yield RankedTraining(candidate, rank, tuple(tied), reason)


def _runner_up(fitting: Sequence[TrainingCandidate]) -> TrainingCandidate | None:
    """The best candidate with another layout than the first, else with another device."""
    first, *others = fitting
    return next(
        (other for other in others if other.layout != first.layout),
        next((other for other in others if other.device != first.device), None),
    )


def training_reason(candidate: TrainingCandidate, other: TrainingCandidate | None, priced: bool = False) -> str:
    """The one option that differs from another candidate, or the part of the step that differs most in the direction of
    the step times; with it the options that differ, apart from the layout, which the names state. `priced`: whether
    candidates are ranked by price; then the difference is that of the price if their GPUs have different prices."""
    if other is None:
        return "the only layout that fits"
    if other.calibrated and not candidate.calibrated:
        return LOWER_BOUND
    differences, than = [*_differences(candidate, other)], f"than {training_name(other)}"
    own, its = (merit.value for merit in _merits(candidate, other, priced))
    if priced and candidate.price != other.price:
        change = its / own - 1
        return f"{_price_difference(change)} {than}: {'; '.join(differences)}"
    change = own / its - 1
    if abs(change) < 0.005:
        return f"as fast as {training_name(other)}"
    if len(differences) != 1 or candidate.layout != other.layout:
        differences = [*largest_term(_seconds(candidate), _seconds(other), "of a step"), *differences]
    cause = "; ".join(differences) or NOTHING_DIFFERS
    return f"{abs(change):.0%} {'faster' if change >= 0 else 'slower'} {than}: {cause}"


def _seconds(candidate: TrainingCandidate) -> dict[str, float]:
    """The step time by what takes it."""
    return by_part_of(candidate.step.value, candidate.shares.communication, candidate.shares.idle)


def _differences(candidate: TrainingCandidate, other: TrainingCandidate) -> Iterator[str]:
    """The options that differ, apart from the layout."""
    chosen, others = candidate.choices, other.choices
    if candidate.device != other.device:
        yield f"{candidate.device}, not {other.device}"
    if chosen.vpp != others.vpp:
        yield f"{schedule(chosen)}, not {others.vpp}"
    if chosen.recompute != others.recompute:
        yield f"recomputation {chosen.recompute}, not {others.recompute}"
    if candidate.micro_batch != other.micro_batch:
        yield f"microbatches of {candidate.micro_batch}, not {other.micro_batch}"
    if chosen.sequence_parallel != others.sequence_parallel:
        yield f"sequence parallelism {chosen.sequence_parallel}"
    if chosen.zero != others.zero:
        yield f"optimizer state {'sharded' if chosen.zero else 'on each replica'}"


def _price_difference(change: float) -> str:
    """The relative difference of two prices as text."""
    return f"{abs(change):.0%} {'cheaper' if change <= 0 else 'more expensive'}"
