"""Why ranks are late: the persistent and the single delays of a run, each with its evidence.

The rule: the excess of a rank in a step is its lateness (`lateness.py`) minus the median of the other ranks in the same
step, so what a step costs all ranks cancels. Two hypotheses are tested against ranks that are equal but for noise,
which is independent from step to step.

1. A rank is late in a single step: its excess, minus the rank's own median over steps, is an outlier. Times of single
   steps have longer tails than the normal distribution, so both tails of the noise are taken as exponential. Their
   scale is the median absolute residual of all ranks, or the upper quartile of the residuals if that is larger, with
   n = (steps - 1) * (ranks - 1) degrees of freedom. The probability that one residual exceeds x
   scales is (1 + x / n)**-n / 2.
2. A rank is late in all steps. Single late steps are left out. Either the mean of the rank, minus the median of the
   other ranks' means, exceeds 0 by Student's t test with n degrees of freedom; the variance is the mean over ranks, or
   that of the rank if it is larger. Or the excess is above 0 in more steps than the sign test allows, which needs more
   steps, but no assumption about the noise; from so many steps on, each has half of the level. If ranks differ from
   each other persistently, only the latest one is named, and those that stand out from the differences between the
   others (Student's t with ranks - 2).

Both are corrected by Bonferroni, over ranks x steps and over ranks: in a run without delays and with such noise, each
of them names a rank with a probability of at most LEVEL. If only the upper tail is long, the first one does so more
often: in 12 % of runs of 16 ranks and 20 steps with noise from the exponential distribution. An effect below
SIGNIFICANT of a step is not reported. The cause of a delay is its largest part, and the evidence denies another part
only if it is below SIGNIFICANT. With one step there is no noise to compare with, and delays are said to be untested. If
no rank is late in all steps, but the ranks wait for the latest one for VARIATION of the step, that is reported as
variation.

    gpu       longer kernels                            cpu      later launches
    input     a longer gap before the step, or time in the data loader
    network   collectives that take longer after all their ranks have started
    node      one of these on all ranks of one host     rank     a late rank whose launches are not in the file
    workload  kernels that other ranks do not have, or kernel times that vary from step to step on all ranks
    random    late ranks that change from step to step
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from roofmodel.jitter.deviations import Floats
from roofmodel.jitter.kernels import Booleans
from roofmodel.jitter.ranks import ComparedRank
from roofmodel.numbers import units

LEVEL = 0.01  # probability that a cause is named in a run of equal ranks: users follow each one up by hand
SIGNIFICANT = 0.005  # of a step; a smaller effect is not worth the search
# Share of a step that ranks wait for changing ranks, from which it is reported. It is never zero, and it is the sum of
# what all ranks do, so it has no single reason to remove.
VARIATION = 0.02
THRESHOLD = 100e-6  # seconds of deviation from which a rank is late in a short step: above the jitter of launches
# Share of a delay from which one of its parts counts: less is often a consequence of another part. A wait for input is
# at the start of the step alone: with a quarter of the gaps at other launches, the CPU is slow.
PART = 0.25
# Hosts: 3 of 4 ranks must be late, so that one rank that noise hides does not hide its host. Files that do not state
# hosts are cut into blocks of the usual numbers of GPUs of a server.
OF_HOST, HOST_SIZES = 0.75, (16, 8, 4)
MAX_NAMED = 3  # ranks with single late steps that have a cause of their own; the others have one together

QUARTILE = NormalDist().inv_cdf(0.75)  # of the normal distribution, in standard deviations
MANY = 1000  # degrees of freedom from which Student's t is a normal distribution

KINDS = {
    "compute": "gpu", "extra": "workload", "input": "input", "first": "input", "launch": "cpu", "queued": "rank",
    "unknown": "rank", "network": "network",
}  # fmt: skip
GAPS = ("input", "first", "launch", "queued", "unknown")


class Cause(NamedTuple):
    """A reason for late ranks or lost time. `ranks` is empty if it concerns all, or no particular ones.

    `seconds_per_step` is how much later these ranks are than the others, on average.
    """

    kind: str
    ranks: tuple[int, ...]  # numbers
    seconds_per_step: float
    evidence: str  # in words
    evidence_values: dict[str, float | int | str] | None = None  # the numbers of the evidence, where it has names


class _Delay(NamedTuple):
    rank: int  # place
    part: str
    seconds: float  # of the part; of single steps, the sum
    parts: Mapping[str, float]  # seconds of all parts
    steps: tuple[int, ...] = ()  # places of single late steps; empty: late in all steps

    @property
    def kind(self) -> str:
        return KINDS[self.part]


class _Run(NamedTuple):
    """S steps of R ranks that have at least one of them."""

    parts: Mapping[str, Floats]  # S x R, seconds
    ranks: Sequence[ComparedRank]
    steps: Sequence[int]  # numbers
    step_seconds: float

    @property
    def lateness(self) -> Floats:
        """S x R."""
        return np.asarray(sum(self.parts.values()))

    @property
    def least(self) -> float:
        """The smallest effect that is reported, in seconds."""
        return SIGNIFICANT * self.step_seconds

    def amount(self, seconds: float) -> str:
        """Such as `3 ms per step (1.2% of the step)`."""
        return f"{units.seconds(seconds)} per step ({seconds / self.step_seconds:.1%} of the step)"


def late_threshold(threshold: float | None, step_seconds: float) -> float:
    """The deviation from which a rank is late, in seconds, as given or by default.

    The default is 100 µs, or SIGNIFICANT of the step if that is longer: no smaller deviation is a cause.
    """
    return max(THRESHOLD, SIGNIFICANT * step_seconds) if threshold is None else threshold


def find_causes(
    parts: Mapping[str, Floats],
    ranks: Sequence[ComparedRank],
    steps: Sequence[int],
    step_seconds: float,
    transfers: Floats,
) -> list[Cause]:
    """The causes, most seconds first. `transfers`: transfer time of the collectives of each step, S."""
    compared = np.flatnonzero(~np.isnan(parts["compute"]).all(axis=0))
    if not step_seconds or len(compared) < 2:
        return []
    parts = _with_late_starts({name: values[:, compared] for name, values in parts.items()})
    run = _Run(parts, [ranks[place] for place in compared.tolist()], steps, step_seconds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # steps that no rank of a host has: their median is NaN
        single = late_cells(run.lateness)
        rest = run._replace(parts={name: np.where(single, np.nan, values) for name, values in parts.items()})
        persistent = list(_persistent_causes(rest))
        causes = [*persistent, *_single_causes(run, single), *_slow_collectives(run, transfers)]
        if not persistent and len(steps) > 1:
            causes += _variation(rest)
    return sorted(causes, key=lambda cause: -cause.seconds_per_step)


def kind_in_step(parts: Mapping[str, Floats], step: int, rank: int, late: float) -> str | None:
    """The kind of the largest delay of a rank in one step; None if no part explains PART of its lateness."""
    parts = _with_late_starts(parts)
    excess = {name: float(values[step, rank] - np.nanmedian(values[step])) for name, values in parts.items()}
    largest, seconds = next(iter(_by_size(excess).items()))
    return KINDS[largest] if seconds > PART * late else None


def _with_late_starts(parts: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """Where the files have the times of the data loader, the rest of the gap before a step is a late launch."""
    if not np.nansum(parts["input"]) > 0:
        return parts
    return {**parts, "launch": parts["launch"] + parts["first"], "first": np.zeros_like(parts["first"])}


def _by_size(delays: Mapping[str, float]) -> dict[str, float]:
    """The parts of a delay, largest first; late launches at the start of the step and after it are one part."""
    joined = dict(delays)
    first, launch = (max(joined[name], 0.0) for name in ("first", "launch"))
    if launch > PART * (first + launch):
        joined |= {"launch": first + launch, "first": 0.0}
    return dict(sorted(joined.items(), key=lambda part: -part[1]))


# --- The rule -----------------------------------------------------------------------------------------


def excesses(values: Floats) -> Floats:
    """The values (S x R) minus the median of the other ranks in the same step; NaN without another rank."""
    ordered = np.sort(values, axis=1)  # NaN are the last
    places = values.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    others = np.isfinite(values).sum(axis=1, keepdims=True) - 1

    def of_others(place: Floats) -> Floats:
        """The other ranks' value at a place in their order."""
        return np.take_along_axis(ordered, np.clip(place + (places <= place), 0, values.shape[1] - 1), axis=1)

    return np.where(others > 0, values - (of_others((others - 1) // 2) + of_others(others // 2)) / 2, np.nan)


def _freedom(excess: Floats) -> int:
    """Degrees of freedom of the noise: values - ranks - steps + 1; one column is not relative to other ranks."""
    steps, ranks = excess.shape
    return int(np.isfinite(excess).sum() - ranks - (steps - 1) * (ranks > 1))


def late_cells(values: Floats) -> Booleans:
    """Where a rank is late in a single step, S x R. One column are steps without other ranks to compare with."""
    excess = excesses(values) if values.shape[1] > 1 else values
    freedom = _freedom(excess)
    if freedom < 1:
        return np.zeros(values.shape, bool)
    residuals = excess - np.nanmedian(excess, axis=0)
    # the residual of a rank's median step is 0 by definition: one of each rank is no estimate of the noise
    free = np.take_along_axis(residuals, np.argsort(np.abs(residuals), axis=0)[1:], axis=0)
    # half of the late side is above the upper quartile; times have the longer tail on this side
    scale = float(max(np.nanmedian(np.abs(free)), np.nanquantile(free, 0.75, method="lower"))) / math.log(2)
    with np.errstate(divide="ignore", over="ignore"):
        chance = (1 + np.maximum(residuals, 0) / scale / freedom) ** -float(freedom) / 2 if scale else residuals <= 0
    return np.asarray(chance < LEVEL / np.isfinite(excess).sum())


def delays_of_ranks(values: Floats) -> Floats:
    """How much later each rank is than the others: in its median over steps, minus that of the other ranks; R."""
    return _against_others(np.nanmedian(_relative(values), axis=0))


def _relative(values: Floats) -> Floats:
    """Without what a step costs all ranks."""
    return np.asarray(values - np.nanmedian(values, axis=1, keepdims=True))


def _against_others(of_ranks: Floats) -> Floats:
    return np.asarray(excesses(of_ranks[None])[0])


def late_ranks(values: Floats, least: float) -> Booleans:
    """The ranks that are late in all steps (values: S x R) by `least` seconds or more; R."""
    ranks = values.shape[1]
    delays, excess = delays_of_ranks(values), excesses(values)
    late, freedom = delays >= least, _freedom(excess)
    if late.any() and freedom >= 1:
        counts, times = np.isfinite(excess).sum(axis=0), (excess > 0).sum(axis=0)
        means = _against_others(np.nanmean(_relative(values), axis=0))
        variances = np.nansum((excess - np.nanmean(excess, axis=0)) ** 2, axis=0) / np.maximum(counts - 1, 1)
        errors = np.sqrt(np.maximum(variances, variances[counts > 1].mean()) / np.maximum(counts, 1))
        level = LEVEL / ranks
        if 0.5 ** int(counts.max()) < level / 2:  # enough steps for the sign test: half of the level for each test
            level /= 2
        for rank in np.flatnonzero(late).tolist():
            by_mean = means[rank] > 0 and student_tail(float(means[rank]), float(errors[rank]), freedom) < level
            late[rank] = by_mean or sign_tail(int(times[rank]), int(counts[rank])) < level
    highest = np.nanmax(delays)
    for rank in np.flatnonzero(late).tolist():
        if freedom < 1 or delays[rank] < highest:
            low, middle = np.nanpercentile(np.delete(delays, rank), (25, 50))  # late ranks do not change this half
            late[rank] = student_tail(float(delays[rank]), float(middle - low) / QUARTILE, ranks - 2) < LEVEL / ranks
    return late


def sign_tail(times: int, count: int) -> float:
    """The probability that at least `times` of `count` equally likely signs are positive.

    In logarithms: the binomial coefficient has no float from 1030 on.
    """
    whole = math.lgamma(count + 1) - count * math.log(2)
    terms = (whole - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(times, count + 1))
    return math.fsum(map(math.exp, terms))


def student_tail(difference: float, error: float, freedom: int) -> float:
    """The probability that Student's t exceeds a positive difference / its standard error.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    freedom = min(freedom, MANY)
    angle = math.atan2(difference, error * math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    term = total = 1.0 if freedom % 2 == 0 else cosine
    for power in range(2 + freedom % 2, freedom - 1, 2):
        term *= cosine**2 * (power - 1) / power
        total += term
    if freedom % 2 == 0:
        return (1 - sine * total) / 2
    return 0.5 - (angle + (sine * total if freedom > 1 else 0)) / math.pi


# --- Late in all steps --------------------------------------------------------------------------------


def _persistent_causes(run: _Run) -> Iterator[Cause]:
    """Delays of hosts, then of ranks relative to the ranks of their host."""
    for cause, members in _slow_hosts(run):
        yield cause
        run = run._replace(parts={name: _without_excess(values, members) for name, values in run.parts.items()})
    yield from _rank_causes(run, list(_persistent_delays(run.parts, run.least)))


def _persistent_delays(parts: Mapping[str, Floats], least: float) -> Iterator[_Delay]:
    """The largest part of the delay of each late rank, and the others that are late by themselves."""
    late = late_ranks(np.asarray(sum(parts.values())), least)
    if not late.any():
        return
    delays = {name: delays_of_ranks(values) for name, values in parts.items()}
    alone = {name: late_ranks(values, least) for name, values in parts.items()}
    for rank in np.flatnonzero(late).tolist():
        of_rank = _by_size({name: float(values[rank]) for name, values in delays.items()})
        whole = sum(of_rank.values())
        for part, seconds in of_rank.items():
            if part == next(iter(of_rank)) or (seconds >= PART * whole and alone[part][rank]):
                yield _Delay(rank, part, seconds, of_rank)


def _slow_hosts(run: _Run) -> Iterator[tuple[Cause, list[int]]]:
    """Hosts on which (nearly) all ranks have the same delay, with the places of their ranks."""
    places: dict[str | None, list[int]] = {}
    for place, rank in enumerate(run.ranks):
        places.setdefault(rank.host, []).append(place)
    if None in places or len(places) < 2:
        return
    hosts = list(places)

    def of_hosts(values: Floats) -> Floats:
        return np.stack([np.nanmedian(values[:, places[host]], axis=1) for host in hosts], axis=1)

    for delay in _persistent_delays({name: of_hosts(values) for name, values in run.parts.items()}, run.least):
        members = places[hosts[delay.rank]]
        others = np.setdiff1d(np.arange(len(run.ranks)), members)
        values = run.parts[delay.part]
        excess = np.nanmedian(values[:, members] - np.nanmedian(values[:, others], axis=1, keepdims=True), axis=0)
        share = float((excess > delay.seconds / 2).mean())
        if len(members) > 1 and share >= OF_HOST:
            yield _host_cause(run, f"the host of {hosts[delay.rank]}", members, share, delay), members


def _without_excess(values: Floats, members: list[int]) -> Floats:
    """The values without the usual difference of these ranks to the others, so that only their own delays remain."""
    others = np.setdiff1d(np.arange(values.shape[1]), members)
    difference = np.nanmedian(values[:, members], axis=1) - np.nanmedian(values[:, others], axis=1)
    result = values.copy()
    result[:, members] -= float(np.nanmedian(difference))
    return result


def _host_cause(run: _Run, host: str, members: Sequence[int], share: float, delay: _Delay) -> Cause:
    return Cause(
        "node",
        tuple(run.ranks[place].number for place in members),
        delay.seconds,
        f"{round(share * len(members))} of the {len(members)} ranks of {host} have {_WHAT[delay.part]} than those of "
        f"other hosts: {run.amount(delay.seconds)}",
    )


def _rank_causes(run: _Run, delays: list[_Delay]) -> Iterator[Cause]:
    """A cause per delay; equal delays of consecutive ranks are one cause if the files do not state the hosts."""
    by_kind: dict[str, list[_Delay]] = {}
    for delay in delays:
        by_kind.setdefault(delay.kind, []).append(delay)
    for kind, delays_of_kind in by_kind.items():
        block = _consecutive([delay.rank for delay in delays_of_kind], len(run.ranks))
        if block and run.ranks[0].host is None:
            mean = delays_of_kind[0]._replace(seconds=float(np.mean([delay.seconds for delay in delays_of_kind])))
            first, last = (run.ranks[place].number for place in (block[0], block[-1]))
            host = f"{first} to {last}, which probably share a host,"
            yield _host_cause(run, host, block, len(delays_of_kind) / len(block), mean)
            continue
        for delay in delays_of_kind:
            rank, steps = run.ranks[delay.rank], int(np.isfinite(run.lateness[:, delay.rank]).sum())
            when = f"median of {steps} steps" if steps > 1 else "in the only step, which does not exclude chance"
            clocks, values = _sampled(rank, run.ranks) if kind == "gpu" else ("", None)
            text = (
                f"rank {rank.number} has {_WHAT[delay.part]} than the other ranks: {run.amount(delay.seconds)}, "
                f"{when}. {clocks or _reason(run, delay)}"
            )
            yield Cause(kind, (rank.number,), delay.seconds, text, values)


def _consecutive(late: list[int], count: int) -> list[int]:
    """The block of ranks with the size of a usual host that has (nearly) only late ranks, and all of them."""
    for size in HOST_SIZES:
        begin = min(late) // size * size
        if begin + size <= count > size and max(late) < begin + size and len(set(late)) >= OF_HOST * size:
            return list(range(begin, begin + size))
    return []


# --- Late in single steps -----------------------------------------------------------------------------


def _single_causes(run: _Run, single: Booleans) -> Iterator[Cause]:
    """A cause for each of the ranks with the longest delays in single steps, and one for all others."""
    delays = sorted(_single_delays(run, single), key=lambda delay: -delay.seconds)
    for delay in delays[:MAX_NAMED]:
        rank, count, every = run.ranks[delay.rank], len(delay.steps), len(run.steps)
        numbers = [run.steps[step] for step in delay.steps]
        where = f"step {numbers[0]}" if count == 1 else f"{count} of {every} steps ({units.listed(numbers)})"
        mean = delay.seconds / count
        text = (
            f"rank {rank.number} has {_WHAT[delay.part]} than the other ranks in {where}: {units.seconds(mean)} longer "
            f"than in its other steps{' on average' if count > 1 else ''} ({mean / run.step_seconds:.1%} of a step). "
            f"{_reason(run, delay._replace(seconds=mean))}"
        )
        yield Cause(delay.kind, (rank.number,), delay.seconds / every, text)
    if more := delays[MAX_NAMED:]:
        numbers = sorted({run.ranks[delay.rank].number for delay in more})
        steps = len({step for delay in more for step in delay.steps})
        seconds = sum(delay.seconds for delay in more) / len(run.steps)
        text = (
            f"late in single steps, in {steps} of {len(run.steps)} steps in all: "
            f"{units.count(len(numbers), 'rank')} ({units.listed(numbers)}), {run.amount(seconds)} on average"
        )
        yield Cause("random", tuple(numbers), seconds, text)


def _single_delays(run: _Run, single: Booleans) -> Iterator[_Delay]:
    """The delays of each rank in single steps, by their largest part; seconds more than in the rank's usual step."""
    usual = np.where(single, np.nan, run.lateness)
    whole = excesses(run.lateness) - np.where(late_ranks(usual, run.least), delays_of_ranks(usual), 0.0)
    cells = np.argwhere(single & (whole >= run.least))
    if not len(cells):
        return
    excess = {name: excesses(values) for name, values in run.parts.items()}
    more = {name: values - np.nanmedian(values, axis=0) for name, values in excess.items()}
    by_rank: dict[tuple[int, str], list[tuple[int, dict[str, float]]]] = {}
    for step, rank in cells.tolist():
        parts = _by_size({name: float(values[step, rank]) for name, values in more.items()})
        by_rank.setdefault((rank, next(iter(parts))), []).append((step, parts))
    for (rank, part), found in by_rank.items():
        steps = tuple(step for step, _ in found)
        means = {name: sum(parts[name] for _, parts in found) / len(found) for name in run.parts}
        yield _Delay(rank, part, float(whole[steps, rank].sum()), means, steps)


def _slow_collectives(run: _Run, transfers: Floats) -> Iterator[Cause]:
    """Steps in which collectives take longer on all ranks, the last one to start included."""
    excess = transfers - float(np.median(transfers))
    slow = late_cells(transfers[:, None])[:, 0] & (excess >= run.least)
    if slow.any():
        seconds, mean = float(excess[slow].sum()) / len(transfers), float(excess[slow].mean())
        text = (
            f"in {int(slow.sum())} of {len(transfers)} steps the collectives take {units.seconds(mean)} longer on all "
            "ranks, also on the last rank to start, which does not wait"
        )
        yield Cause("network", (), seconds, text)


# --- Late in changing steps ---------------------------------------------------------------------------


def _variation(run: _Run) -> Iterator[Cause]:
    """Time that all ranks wait for the latest one, where no rank is persistently late."""
    excess, compute = excesses(run.lateness), excesses(run.parts["compute"])
    known = np.isfinite(excess).any(axis=1)
    excess, compute = excess[known], compute[known]
    if not len(excess):
        return
    latest = np.nanargmax(excess, axis=1)
    rows = np.arange(len(excess))
    losses = excess[rows, latest]
    seconds = float(losses.mean())
    if seconds < VARIATION * run.step_seconds:
        return
    numbers = np.unique(latest)
    if compute[rows, latest].sum() > losses.sum() / 2 and len(numbers) > 1:
        text = (
            f"the kernel times of the ranks differ by {units.seconds(seconds)} per step, in each step on other ranks "
            f"({units.count(len(numbers), 'rank')} are the latest in some step), as with inputs of different lengths"
        )
        yield Cause("workload", (), seconds, text)
        return
    often = [place for place in numbers.tolist() if 2 * losses[latest == place].sum() > losses.sum()]
    if not often:
        text = (
            f"the latest rank is {units.seconds(seconds)} later than the others on average; no rank causes more than "
            "half of it"
        )
    else:
        amounts = losses[latest == often[0]]
        low, high = (units.seconds(float(amount)) for amount in (amounts.min(), amounts.max()))
        text = (
            f"rank {run.ranks[often[0]].number} is the latest in {len(amounts)} of {len(latest)} steps, by "
            f"{low if low == high else f'{low} to {high}'}, which does not exclude chance; {units.seconds(seconds)} "
            "per step on average"
        )
    yield Cause("random", tuple(run.ranks[place].number for place in often), seconds, text)


# --- Evidence -----------------------------------------------------------------------------------------

_WHAT = {
    "compute": "longer kernels",
    "extra": "more other kernels",
    "input": "longer waits for the data loader",
    "first": "a longer gap before the first kernel of the step",
    "launch": "later launches",
    "queued": "longer gaps before kernels that were already launched",
    "unknown": "longer gaps between kernels",
    "network": "collectives that end later",
}
_WHY = {
    "compute": "check clock, power and temperature of this GPU",
    "extra": "It does other work than the other ranks",
    "input": "The launching thread fetches a batch meanwhile",
    "first": "The first kernel was launched late{kernels}: the step waits for its input, or for the CPU at its start",
    "launch": "The GPU had finished all launched kernels{kernels}: the CPU is the cause",
    "queued": "The kernels wait for another stream, an event or a copy",
    "unknown": "The files have no launches, so CPU, host and GPU cannot be distinguished",
    "network": "All ranks of these collectives had started, so a link of this rank is slow",
}


def _reason(run: _Run, delay: _Delay) -> str:
    """Why the part is late. It states that another part is not late only where this holds by the same rule."""
    if delay.part != "compute":
        longer = delay.parts["compute"] >= run.least
        return _WHY[delay.part].format(kernels="" if longer else ", and the kernels are not longer")
    if delay.steps:
        steps = "step" if len(delay.steps) == 1 else "steps"
        return f"It had more work in {'this' if len(delay.steps) == 1 else 'these'} {steps}, or its GPU a lower clock"
    gaps = max(delay.parts[name] for name in GAPS) >= run.least
    text = f"{'' if gaps else 'Its launches and its gaps are not longer: '}{_WHY['compute']}"
    return text[0].upper() + text[1:]


def _sampled(rank: ComparedRank, ranks: Sequence[ComparedRank]) -> tuple[str, dict[str, float | int | str] | None]:
    """Clock and power of a rank's GPU against the median of the other ranks, if the files have them; their numbers."""
    texts, values = [], dict[str, float | int | str]()
    for name, label, unit, key in (("clock", "SM clock", "Hz", "clock_hertz"), ("power", "power", "W", "power_watts")):
        own = getattr(rank, name)
        others = [value for other in ranks if other is not rank and (value := getattr(other, name)) is not None]
        if own and others and (usual := float(np.median(others))):  # 0: the GPU does not report the quantity
            values |= {key: own, f"others_{key}": usual}
            texts.append(
                f"{label} of its GPU: {units.si(own, unit)}, {abs(own / usual - 1):.1%} "
                f"{'below' if own < usual else 'above'} the other ranks' median of {units.si(usual, unit)}"
            )
    return "; ".join(texts), values or None
