"""Candidates of a training plan: a layout with its choices and microbatch, its time per step, memory and price; their
order, ties within their intervals, and the reason for each place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting.workload import Parallel, Workload
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import AttentionMode, ContextExchange, EngineName, Schedule
from roofmodel.options.workload import DEFAULTS
from roofmodel.plan.candidate import Shares, is_bound
from roofmodel.plan.layouts import TrainingLayout
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
from roofmodel.steps.options import workload
from roofmodel.steps.training_options import DAY
from roofmodel.timing.timing import Expected


class TrainingRun(NamedTuple):
    """A training run: tokens of all steps, sequences of a step, tokens of a sequence."""

    tokens: float
    batch: int
    seq: int
    gpus: int  # at most
    dtype: str
    attention: AttentionMode
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
    `cp_kind`: what the GPUs that share a sequence exchange.
    """

    vpp: int
    recompute: str
    sequence_parallel: str
    zero: int
    cp_kind: ContextExchange


class TrainingCandidate(NamedTuple):
    """A layout with its best microbatch: seconds of a step, model FLOPs utilization, bytes per GPU."""

    device: str
    layout: TrainingLayout
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
    fits_unsharded: bool | None = None  # with ZeRO: whether its layout fits without it

    @property
    def calibrated(self) -> bool:
        """Whether its times are expected ones; otherwise they are lower bounds."""
        return not is_bound(self.step)

    @property
    def gpus(self) -> int:
        """The number of GPUs that the layout uses."""
        return self.layout.gpus

    @property
    def schedule(self) -> Schedule | None:
        """The order of the microbatches in the pipeline."""
        return Parallel(pp=self.layout.pp, vpp=self.choices.vpp).schedule

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
    def gpu_hours(self) -> float:
        """GPU-hours of the run."""
        return float(self.gpus * 24 * self.days.value)

    @property
    def dollars(self) -> float | None:
        """The price of the run."""
        return None if self.price is None else self.price * self.gpu_hours

    @property
    def kwh(self) -> float | None:
        """The energy of all GPUs in the run, in kilowatt-hours."""
        return None if self.watts is None else self.watts * self.gpu_hours / 1000


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
    """The sizes above 1 of the layout and of the pipeline schedule, and an exchange that is no ring: `tp 8 pp 4 dp 2
    vpp 2`, `dp 4 cp 2 ulysses`."""
    kind = candidate.choices.cp_kind
    words = [layout_text(candidate.layout)]
    words += [kind] * (candidate.layout.cp > 1 and kind != DEFAULTS["cp_kind"])
    words += [f"vpp {candidate.choices.vpp}"] * (candidate.choices.vpp > 1)
    return " ".join(words)


class TrainingPiece(NamedTuple):
    """A layout with one set of choices."""

    arch: Architecture
    device: Device
    layout: TrainingLayout
    choices: Choices
    run: TrainingRun
    price: float | None

    @property
    def key(self) -> tuple[TrainingLayout, Choices]:
        """What distinguishes it from the other pieces of its device."""
        return self.layout, self.choices


def training_workload(arch: Architecture, run: TrainingRun, layout: TrainingLayout, choices: Choices) -> Workload:
    """A training step with microbatches of one sequence. Raises WorkloadError where the model does not allow it."""
    work, _ = workload(
        arch, phase="train", batch=run.batch, micro_batch=1, seq=run.seq, dtype=run.dtype, engine=run.engine,
        engine_option=run.engine_option, attention=run.attention,
        memory_utilization=run.memory_utilization, **layout._asdict(), **choices._asdict(),
    )  # fmt: skip
    return work


def column(expected: Any, bound: Any, size: int) -> Any:
    """The expected values of `size` points; the bounds if there are none."""
    return np.broadcast_to(bound if expected is None else expected, size)


def candidate_of(
    piece: TrainingPiece, totals: Mapping[str, Any], sizes: Sequence[int], place: int, memory: Number,
    usable: Number | None, fits_unsharded: bool | None,
) -> TrainingCandidate:  # fmt: skip
    """The candidate of a piece at one of its microbatches."""

    def at(name: str, other: str) -> float:
        return float(column(totals[name], totals[other], len(sizes))[place])

    seconds, bound = at("expected_seconds", "bound_seconds"), at("bound_seconds", "bound_seconds")
    link, memory_share = at("link_share", "link_share"), at("memory_share", "memory_share")
    bubble = at("bubble_share", "bubble_share")
    return TrainingCandidate(
        piece.device.id, piece.layout, piece.choices, sizes[place],
        step=Expected(
            seconds, at("expected_low_seconds", "bound_seconds"), at("expected_high_seconds", "bound_seconds")
        ),
        mfu=None if totals["mfu"] is None else at("mfu", "mfu"),
        watts=None if totals["power_watts"] is None else at("power_watts", "power_watts"),
        mfu_all_pairs=None if totals["mfu_all_pairs"] is None else at("mfu_all_pairs", "mfu"),
        memory=memory, usable=usable,
        shares=Shares(
            at("expected_communication_seconds", "communication_seconds") / seconds,
            at("expected_bubble_seconds", "bubble_seconds") / seconds,
            memory_share, max(0.0, 1 - memory_share - link - bubble), link, bound / seconds,
            0.0 if totals["host_bound"] is None else at("host_bound", "host_bound"),
        ),
        run=piece.run, price=piece.price, fits_unsharded=fits_unsharded,
    )  # fmt: skip


# --- Their order ----------------------------------------------------------------------------------


Merit = tuple[bool, float]
"""The order of candidates of a device: whether the step time is a bound, and seconds of the step."""
LAST: Merit = (True, inf)


def merit_of(candidate: TrainingCandidate) -> Merit:
    """The order of a candidate among those of its device."""
    return not candidate.calibrated, candidate.step.value


def limit_of(found: Iterable[tuple[Merit, TrainingLayout]], count: int) -> Merit:
    """The merit that a candidate needs to be among the first `count`, or the first one with another layout than the
    best; `LAST` if these are not yet known."""
    ordered = sorted(found, key=lambda each: each[0])
    other = next((merit for merit, layout in ordered if layout != ordered[0][1]), LAST)
    return max(ordered[count - 1][0], other) if len(ordered) >= count else LAST


def step_bound(latency: Any, pp: int, vpp: int, microbatches: Any) -> Any:
    """A lower bound of the seconds of a step, from those of a microbatch in all layers without pipeline stages.

    A step takes max m t + (T - t) / v over the stages (`steps/phase.py`), and what runs once per step, for m
    microbatches, v model chunks per stage, a stage that takes t for a microbatch, and T for all p stages. As m ≥ 1 / v,
    this grows with t, whose largest value is at least the mean T / p:

        (m - 1 / v) T / p + T / v

    Stages only add sends to the `latency` of the layers, and hide at most as much communication as all layers do
    together, so that T is at least `latency`.
    """
    return (microbatches - 1 / vpp) * latency / pp + latency / vpp


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
        if searches_unsharded and candidate.fits_unsharded is False:
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
    differences, name = [*_differences(candidate, other)], training_name(other)
    name += f" on {other.gpus} GPUs" * (candidate.gpus != other.gpus)
    than = f"than {name}"
    own, its = (merit.value for merit in _merits(candidate, other, priced))
    if priced and candidate.price != other.price:
        change = its / own - 1
        return f"{_price_difference(change)} {than}: {'; '.join(differences)}"
    change = own / its - 1
    if abs(change) < 0.005:
        return f"as fast as {name}"
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
    if chosen.cp_kind != others.cp_kind:
        yield f"context parallelism by {chosen.cp_kind}, not {others.cp_kind}"
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
