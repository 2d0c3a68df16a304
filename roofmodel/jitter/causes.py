"""Why ranks are late: the persistent, frequent or random delays of a run, each with its evidence.

A delay of a rank is the excess of one part of its lateness (`lateness.py`) over the usual value of the other ranks. It
is a cause if it is at least SIGNIFICANT of the step time and stands out from the noise between ranks and between steps.

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
from typing import NamedTuple

import numpy as np

from roofmodel.jitter.deviations import Floats
from roofmodel.jitter.kernels import Booleans
from roofmodel.jitter.ranks import ComparedRank
from roofmodel.numbers import units

# The thresholds are choices of this project, without an external source.

# Shares of the step time from which a delay is reported. A persistent delay costs its share in every step, and can be
# removed as a whole; smaller ones are not worth the search. Random lateness is never zero and has no single reason to
# remove, so it is reported from 2 % on.
SIGNIFICANT, RANDOM = 0.005, 0.02
THRESHOLD = 100e-6  # seconds of deviation from which a rank is late in a short step: above the jitter of launches

# Distances from the differences between the other ranks, in standard deviations. A rank that is also the latest in more
# steps than chance allows needs 3. Single steps count from twice 4.5 on, because the times of single steps have more
# outliers than a normal distribution.
DEVIATIONS, DEVIATIONS_OF_LATEST, OF_SINGLE_STEPS = 4.5, 3.0, 2 * 4.5
CHANCE = 0.005  # probability that one of the equal ranks of a run is the latest as often
OF_PART = 10  # factor of ERROR and CHANCE for the parts of a lateness: the rank is known to be late as a whole

# Student's t test of the delay of a rank: the probability that one of the ranks of a run without delays passes; least
# degrees of freedom; those from which single outliers are left out; ratio from which a variance is not the common one;
# degrees of freedom from which the distribution is a normal one.
ERROR, LEAST_FREEDOM, FREEDOM_OF_OUTLIERS, OTHER_VARIANCE, MANY = 0.007, 2, 9, 6.0, 1000

# A rank is frequently late in at least a tenth of the steps (two steps at least are needed for it, so runs of 20), and
# OTHERS_LATE times as often as the median rank: delays that all ranks have now and then are no property of one rank.
FREQUENT, OTHERS_LATE = 0.1, 5

# Shares of a lateness. A second part is a cause as well if it has nearly half of the rank's delay; less is often a
# consequence of the first. In a single step, which no median smooths, a part must have a quarter to be named.
SECOND, EXPLAINED = 0.4, 0.25
BY_COMPUTE = 0.6  # clearly more than half of random lateness is of kernels: the workload varies
OFTEN_LATEST = 0.5  # of the steps: a rank that is the latest in half of them is named

# Hosts: 3 of 4 ranks must be late, so that one rank that noise hides does not hide its host. Files that do not state
# hosts are cut into blocks of the usual numbers of GPUs of a server.
OF_HOST, HOST_SIZES = 0.75, (16, 8, 4)

# The first gap of a step compared with all its other gaps. A slow CPU delays every launch, and most launches are after
# the first; if the first gap alone has 3 times the sum of the others, the start of the step is the reason.
FIRST_ALONE = 3
SIMILAR = 2  # ratio of the lengths of two halves of the ranks from which they are two groups, not one and its tail

# Statistics of a normal distribution.
NORMAL_HALF = 1.349  # length of its shortest half, in standard deviations
MAD = 1.4826  # standard deviation / median absolute deviation

KINDS = {
    "compute": "gpu", "extra": "workload", "input": "input", "first": "input", "launch": "cpu", "queued": "rank",
    "unknown": "rank", "network": "network",
}  # fmt: skip


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
    kind: str
    part: str
    seconds: float
    steps: int  # in which the rank is late; all if it is persistent
    persistent: bool


def late_threshold(threshold: float | None, step_seconds: float) -> float:
    """The deviation from which a rank is late, in seconds, as given or by default.

    The default is 100 µs, or SIGNIFICANT of the step if that is longer: no smaller deviation is a cause.
    """
    return max(THRESHOLD, SIGNIFICANT * step_seconds) if threshold is None else threshold


def find_causes(
    parts: Mapping[str, Floats], ranks: Sequence[ComparedRank], step_seconds: float, transfers: Floats
) -> list[Cause]:
    """The causes, most seconds first. `transfers`: transfer time of the collectives of each step, S."""
    compared = np.flatnonzero(~np.isnan(parts["compute"]).all(axis=0))
    if not step_seconds or len(compared) < 2:
        return []
    parts = {name: values[:, compared] for name, values in parts.items()}
    ranks = [ranks[place] for place in compared.tolist()]
    parts = _first_gaps_as_launches(parts) if _has_loader(parts) else parts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # steps that no rank of a host has: their median is NaN
        causes = list(_systematic(parts, ranks, step_seconds))
        causes += _slow_network(transfers, step_seconds)
        if not causes and len(parts["compute"]) > 1:
            causes += _unsystematic(parts, ranks, step_seconds)
    return sorted(causes, key=lambda cause: -cause.seconds_per_step)


def _systematic(parts: Mapping[str, Floats], ranks: Sequence[ComparedRank], step_seconds: float) -> Iterator[Cause]:
    """Delays of hosts, then of ranks relative to the ranks of their host."""
    for cause, members in _slow_hosts(parts, ranks, step_seconds):
        yield cause
        parts = {name: _without_excess(values, members) for name, values in parts.items()}
    yield from _rank_causes(list(_delays(parts, step_seconds)), ranks, step_seconds)


def kind_in_step(parts: Mapping[str, Floats], step: int, rank: int, late: float) -> str | None:
    """The kind of the largest delay of a rank in one step; None if no part explains EXPLAINED of its lateness."""
    parts = _first_gaps_as_launches(parts) if _has_loader(parts) else parts
    excess = {name: float(values[step, rank] - np.nanmedian(values[step])) for name, values in parts.items()}
    if excess["first"] < FIRST_ALONE * excess["launch"]:
        excess["launch"] += max(excess.pop("first"), 0)
    largest = max(excess, key=lambda name: excess[name])
    return KINDS[largest] if excess[largest] > EXPLAINED * late else None


def _has_loader(parts: Mapping[str, Floats]) -> bool:
    return bool(np.nansum(parts["input"]) > 0)


def _first_gaps_as_launches(parts: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """Where the files have the times of the data loader, the rest of the gap before a step is a late launch."""
    return {**parts, "launch": parts["launch"] + parts["first"], "first": np.zeros_like(parts["first"])}


# --- Delays of single ranks -------------------------------------------------------------------------


def _delays(parts: Mapping[str, Floats], step_seconds: float) -> Iterator[_Delay]:
    """The delays of each rank whose lateness as a whole stands out, largest part first."""
    lateness = sum(parts.values())
    late = {rank: delay for rank, *delay in _outliers(np.asarray(lateness), step_seconds)}
    of_rank: dict[int, list[_Delay]] = {}
    for name, values in parts.items() if late else ():
        for rank, seconds, steps, persistent in _outliers(values, step_seconds, OF_PART):
            if rank in late:
                of_rank.setdefault(rank, []).append(_Delay(rank, KINDS[name], name, seconds, steps, persistent))
    for rank, delays in of_rank.items():
        delays = sorted(_joined_gaps(delays), key=lambda delay: -delay.seconds)
        for delay in delays:
            if delay is delays[0] or delay.seconds >= SECOND * late[rank][0]:
                yield delay


def _joined_gaps(delays: list[_Delay]) -> list[_Delay]:
    """Late launches at the start of the step and after it are one delay; a wait for input is at the start alone."""
    first, launch = (next((delay for delay in delays if delay.part == part), None) for part in ("first", "launch"))
    if first is None or launch is None:
        return delays
    others = [delay for delay in delays if delay not in (first, launch)]
    if first.seconds >= FIRST_ALONE * launch.seconds:
        return [*others, first]
    return [*others, launch._replace(seconds=launch.seconds + first.seconds)]


def _outliers(values: Floats, step_seconds: float, factor: float = 1) -> Iterator[tuple[int, float, int, bool]]:
    """Ranks whose values (S x R) are higher than usual: place, seconds per step, steps, and whether in most steps.

    `factor` multiplies the probabilities of ranks that are named by chance.
    """
    count = len(values)
    relative = values - np.nanmean(values, axis=1, keepdims=True)
    centers = np.nanmedian(relative, axis=0)
    usual, spread = _shortest_half(centers[np.isfinite(centers)])
    noise = float(np.nanmedian(MAD * np.nanmedian(np.abs(relative - centers), axis=0)))
    lower = max(SIGNIFICANT * step_seconds, DEVIATIONS_OF_LATEST * spread)
    candidates = np.flatnonzero(centers - usual > lower)
    persistent = _exceed_noise(relative, noise, factor * ERROR) & (centers - usual > DEVIATIONS * spread)
    for rank in candidates:
        if persistent[rank] or _is_no_chance(relative, int(rank), factor * CHANCE):
            yield int(rank), float(centers[rank] - usual), int(np.isfinite(relative[:, rank]).sum()), True
    if count < 2 / FREQUENT:
        return
    events = relative - usual > max(2 * SIGNIFICANT * step_seconds, OF_SINGLE_STEPS * float(np.hypot(spread, noise)))
    times = events.sum(axis=0)
    means = np.nanmean(relative - usual, axis=0)
    others = float(np.median(times))
    for rank in np.flatnonzero(
        (times >= FREQUENT * count) & (times >= OTHERS_LATE * others + 1) & (means > SIGNIFICANT * step_seconds)
    ):
        if centers[rank] - usual <= lower:
            yield int(rank), float(means[rank]), int(times[rank]), False


def _exceed_noise(relative: Floats, noise: float, error_probability: float) -> Booleans:
    """Whether the mean of each rank over the steps exceeds the usual mean of the ranks by more than noise explains.

    `relative` are deviations from the mean over ranks, S x R. Each rank has Student's t test; one of R equal ranks
    passes with `error_probability`. The variance is the mean over ranks, or that of the rank itself if it is larger.
    """
    steps, ranks = relative.shape
    freedom = (steps - 1) * (ranks - 1)
    if freedom < LEAST_FREEDOM:  # no estimate of the noise
        return np.ones(ranks, bool)
    if freedom >= FREEDOM_OF_OUTLIERS and noise:
        distances = np.abs(relative - np.nanmedian(relative, axis=0))
        usual_distances = np.maximum(noise, MAD * np.nanmedian(distances, axis=0))
        relative = np.where(distances > OF_SINGLE_STEPS * usual_distances, np.nan, relative)
    counts = np.isfinite(relative).sum(axis=0)
    means = np.nanmean(relative, axis=0)
    variances = np.nansum((relative - means) ** 2, axis=0) / np.maximum(counts - 1, 1) * ranks / (ranks - 1)
    usual, _ = _shortest_half(means[np.isfinite(means)])
    common = float(np.mean(np.minimum(variances, OTHER_VARIANCE * np.median(variances))))
    of_usual = 1 / max(1, ranks // 2)  # the variance of the usual mean, which is that of half of the ranks
    result = np.zeros(ranks, bool)
    for rank in np.flatnonzero(means > usual):
        own = float(variances[rank])
        error = math.sqrt(max(common, own) * (1 + of_usual) / counts[rank])
        degrees_of_freedom = int(counts[rank]) - 1 if own > OTHER_VARIANCE * common else freedom
        result[rank] = _student_tail(float(means[rank] - usual), error, degrees_of_freedom) < error_probability / ranks
    return result


def _student_tail(difference: float, error: float, freedom: int) -> float:
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


def _is_no_chance(values: Floats, rank: int, chance: float = CHANCE) -> bool:
    """Whether a rank has the largest value in more steps than equal ranks would have, with probability `chance`."""
    steps, ranks = values.shape
    largest = int((np.nanargmax(values, axis=1) == rank).sum())
    if largest < 2:
        return False
    # ranks * the sum over n >= largest of binomial(steps, n) * ranks**-n * (1 - 1 / ranks)**(steps - n), in logarithms:
    # the binomial coefficient has no float from 1030 steps on
    logarithms = [
        math.lgamma(steps + 1) - math.lgamma(times + 1) - math.lgamma(steps - times + 1)
        - times * math.log(ranks) + (steps - times) * math.log1p(-1 / ranks)
        for times in range(largest, steps + 1)
    ]  # fmt: skip
    return bool(ranks * math.fsum(map(math.exp, logarithms)) < chance)


def _shortest_half(values: Floats) -> tuple[float, float]:
    """Center and standard deviation of the densest half of the values; the lower one of two similar halves.

    Up to half of the ranks may be late without an effect on it. Of two values, it takes the smaller one.
    """
    ordered = np.sort(values)
    if len(ordered) < 3:
        return float(ordered[0]), 0.0
    half = max(2, len(ordered) // 2)
    lengths = ordered[half - 1 :] - ordered[: len(ordered) - half + 1]
    begin = int(lengths.argmin())
    if begin >= half and lengths[0] <= SIMILAR * lengths[begin]:  # two groups: the upper one is late
        begin = 0
    return float(np.median(ordered[begin : begin + half])), float(lengths[begin]) / NORMAL_HALF


# --- Hosts ------------------------------------------------------------------------------------------


def _slow_hosts(
    parts: Mapping[str, Floats], ranks: Sequence[ComparedRank], step_seconds: float
) -> Iterator[tuple[Cause, list[int]]]:
    """Hosts on which (nearly) all ranks have the same delay, with the places of their ranks."""
    places: dict[str | None, list[int]] = {}
    for place, rank in enumerate(ranks):
        places.setdefault(rank.host, []).append(place)
    if None in places or len(places) < 2 or all(len(members) < 2 for members in places.values()):
        return
    hosts = list(places)

    def of_hosts(values: Floats) -> Floats:
        return np.stack([np.nanmedian(values[:, places[host]], axis=1) for host in hosts], axis=1)

    late = {number for number, *_ in _outliers(of_hosts(np.asarray(sum(parts.values()))), step_seconds)}
    for name, values in parts.items() if late else ():
        for number, seconds, _, persistent in _outliers(of_hosts(values), step_seconds, OF_PART):
            members = places[hosts[number]]
            others = [place for place in range(len(ranks)) if place not in members]
            usual = np.nanmedian(values[:, others], axis=1, keepdims=True)
            excess = np.nanmedian(values[:, members] - usual, axis=0)
            share = float((excess > seconds / 2).mean())
            if number in late and persistent and len(members) > 1 and share >= OF_HOST:
                host = f"the host of {hosts[number]}"
                yield _host_cause(host, members, ranks, name, share, seconds, step_seconds), members


def _without_excess(values: Floats, members: list[int]) -> Floats:
    """The values without the usual difference of these ranks to the others, so that only their own delays remain."""
    others = np.setdiff1d(np.arange(values.shape[1]), members)
    difference = np.nanmedian(values[:, members], axis=1) - np.nanmedian(values[:, others], axis=1)
    result = values.copy()
    result[:, members] -= float(np.nanmedian(difference))
    return result


def _host_cause(
    host: str,
    members: Sequence[int],
    ranks: Sequence[ComparedRank],
    part: str,
    share: float,
    seconds: float,
    step_seconds: float,
) -> Cause:
    return Cause(
        "node",
        tuple(ranks[place].number for place in members),
        seconds,
        f"{round(share * len(members))} of the {len(members)} ranks of {host} have {_WHAT[part]} than those of other "
        f"hosts: {units.seconds(seconds)} per step ({seconds / step_seconds:.1%} of the step)",
    )


def _rank_causes(delays: list[_Delay], ranks: Sequence[ComparedRank], step_seconds: float) -> Iterator[Cause]:
    """A cause per delay; equal delays of consecutive ranks are one cause if the files do not state the hosts."""
    by_kind: dict[str, list[_Delay]] = {}
    for delay in delays:
        by_kind.setdefault(delay.kind, []).append(delay)
    for kind, delays_of_kind in by_kind.items():
        block = _consecutive([delay.rank for delay in delays_of_kind], len(ranks)) if ranks[0].host is None else []
        if block:
            seconds = float(np.mean([delay.seconds for delay in delays_of_kind]))
            host = f"{ranks[block[0]].number} to {ranks[block[-1]].number}, which probably share a host,"
            share = len(delays_of_kind) / len(block)
            yield _host_cause(host, block, ranks, delays_of_kind[0].part, share, seconds, step_seconds)
            continue
        for delay in delays_of_kind:
            _, values = _sampled(ranks[delay.rank], ranks) if kind == "gpu" else ("", None)
            yield Cause(kind, (ranks[delay.rank].number,), delay.seconds, _evidence(delay, ranks, step_seconds), values)


def _consecutive(late: list[int], count: int) -> list[int]:
    """The block of ranks with the size of a usual host that has (nearly) only late ranks, and all of them."""
    for size in HOST_SIZES:
        begin = min(late) // size * size
        if begin + size <= count > size and max(late) < begin + size and len(set(late)) >= OF_HOST * size:
            return list(range(begin, begin + size))
    return []


# --- Evidence ---------------------------------------------------------------------------------------

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
    "compute": "Its launches and its gaps are not longer: check clock, power and temperature of this GPU",
    "extra": "It does other work than the other ranks",
    "input": "The launching thread fetches a batch meanwhile",
    "first": "The first kernel was launched late, the kernels are not longer: the step waits for its input, or for the "
    "CPU at the start of the step",
    "launch": "The GPU had finished all launched kernels, and the kernels are not longer: the CPU is the cause",
    "queued": "The kernels wait for another stream, an event or a copy",
    "unknown": "The files have no launches, so CPU, host and GPU cannot be distinguished",
    "network": "All ranks of these collectives had started, so a link of this rank is slow",
}


def _evidence(delay: _Delay, ranks: Sequence[ComparedRank], step_seconds: float) -> str:
    rank = ranks[delay.rank]
    when = f"mean of {delay.steps} late steps among all steps"
    if delay.persistent:
        when = f"median of {delay.steps} steps" if delay.steps > 1 else "in the only step"
        if delay.steps > 1 and (delay.steps - 1) * (len(ranks) - 1) < LEAST_FREEDOM:
            when += ", which are too few to exclude chance"
    text = f"rank {rank.number} has {_WHAT[delay.part]} than the other ranks: "
    amount = f"{units.seconds(delay.seconds)} per step ({delay.seconds / step_seconds:.1%} of the step), {when}"
    sampled, _ = _sampled(rank, ranks) if delay.part == "compute" else ("", None)
    return f"{text}{amount}. {sampled or _WHY[delay.part]}"


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


# --- Causes that concern all ranks ------------------------------------------------------------------


def _slow_network(transfers: Floats, step_seconds: float) -> Iterator[Cause]:
    """Steps in which collectives take longer on all ranks, the last one to start included."""
    if len(transfers) < 3:
        return
    excess = transfers - float(np.median(transfers))
    noise = MAD * float(np.median(np.abs(excess)))
    slow = excess > max(2 * SIGNIFICANT * step_seconds, OF_SINGLE_STEPS * noise)
    seconds = float(excess[slow].sum()) / len(transfers)
    if seconds > SIGNIFICANT * step_seconds:
        mean = float(excess[slow].mean())
        yield Cause(
            "network",
            (),
            seconds,
            f"in {int(slow.sum())} of {len(transfers)} steps the collectives take {units.seconds(mean)} longer on all "
            "ranks, also on the last rank to start, which does not wait",
        )


def _unsystematic(parts: Mapping[str, Floats], ranks: Sequence[ComparedRank], step_seconds: float) -> Iterator[Cause]:
    """Time that all ranks wait for the latest one, where no rank is persistently late."""
    lateness = np.asarray(sum(parts.values()))
    excess = lateness - np.nanmedian(lateness, axis=1, keepdims=True)
    latest = np.nanargmax(excess, axis=1)
    losses = np.take_along_axis(excess, latest[:, None], axis=1)[:, 0] * (2 if lateness.shape[1] == 2 else 1)
    seconds = float(np.nanmean(losses))
    if seconds < RANDOM * step_seconds:
        return
    compute = parts["compute"] - np.nanmedian(parts["compute"], axis=1, keepdims=True)
    by_compute = float(np.take_along_axis(compute, latest[:, None], axis=1).sum()) / float(losses.sum() or 1)
    if lateness.shape[1] == 2:
        by_compute *= 2
    numbers, times = np.unique(latest, return_counts=True)
    if by_compute > BY_COMPUTE and len(numbers) > 1:
        text = (
            f"the kernel times of the ranks differ by {units.seconds(seconds)} per step, in each step on other ranks "
            f"({units.count(len(numbers), 'rank')} are the latest in some step): inputs of different lengths"
        )
        yield Cause("workload", (), seconds, text)
        return
    often = numbers[(times >= max(2, OFTEN_LATEST * len(latest)))]
    frequent = sorted((place for place in often.tolist() if losses[latest == place].sum() > 0),
                      key=lambda place: -losses[latest == place].sum())  # fmt: skip
    if not frequent:
        text = (
            f"the latest rank is {units.seconds(seconds)} later than the others on average; no rank is the latest in "
            "more than half of the steps"
        )
    else:
        amounts = losses[latest == frequent[0]]
        low, high = (units.seconds(float(amount)) for amount in (amounts.min(), amounts.max()))
        chance = "the delays vary too much" if amounts.max() > SIMILAR * amounts.min() else "too few steps"
        text = (
            f"rank {ranks[frequent[0]].number} is the latest in {len(amounts)} of {len(latest)} steps, by "
            f"{low if low == high else f'{low} to {high}'}: {chance} to exclude chance; {units.seconds(seconds)} "
            "per step on average"
        )
    yield Cause("random", tuple(ranks[place].number for place in frequent), seconds, text)
