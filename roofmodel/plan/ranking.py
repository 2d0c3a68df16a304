"""Order of candidates, ties within their intervals, the Pareto front, and the reason for each place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import log, sqrt
from typing import Literal, NamedTuple, Protocol, TypeVar

from roofmodel.numbers import units
from roofmodel.plan.candidate import NO_TARGETS, Candidate, Targets
from roofmodel.plan.layouts import Layout, TrainingLayout
from roofmodel.timing.timing import Expected

SHARED_ERROR = 0.6
"""Correlation of the errors of two expected times of a model on one device: 0.61 between fp16 and fp8, 0.68 between a
batch and four times that batch, on 264 static batches that TensorRT-LLM served on one GPU (`benchmarks/planned.py`)."""
FAR_FROM_CEILING = 0.6
"""Below this ratio of bound to expected time, faster kernels are named as what raises the limit."""
NEAR_CAPACITY = 0.85
"""From this part of the usable memory on, memory capacity is named as what raises the limit."""
NOTHING_DIFFERS = "no part of the step differs by much"
LOWER_BOUND = "a lower bound of its time, as the device is not calibrated"
SMALL_CHANGE = 0.005
"""Rates and costs with a smaller relative difference are said to be the same."""
NEAR_TARGET = 0.9
"""From this part of a latency target on, the target is named."""


class Ranked(NamedTuple):
    """A candidate with its rank, the ranks of the candidates that it ties with, and texts."""

    candidate: Candidate
    rank: int
    ties_with: tuple[int, ...]
    reason: str
    short_reason: str  # its first part, with the rank of the other candidate
    limit: str  # what would raise its rate
    serve_command: str | None = None  # a line for each engine process


def ranked(candidates: Iterable[Candidate], count: int, targets: Targets = NO_TARGETS) -> list[Ranked]:
    """The first candidates in order, and the best one of each device. Those that meet the targets come first, by the
    rate that they serve for each GPU that is paid for (for each dollar, if all have prices), at an equal one by their
    highest rate, then by the first token and TPOT; then the others by how far they miss them, those with an infinite
    wait last if TTFT is limited. Of each, lower bounds come after expected times."""

    def distance(candidate: Candidate) -> tuple[bool, bool, float, float]:
        excluded = candidate.mean_wait is not None and bool(targets.excludes_wait(candidate.mean_wait))
        return not candidate.calibrated, excluded, candidate.violation, candidate.tpot.value

    candidates = list(candidates)
    priced = all(candidate.price is not None for candidate in candidates)

    def place(candidate: Candidate) -> tuple[bool, float, float, float, float]:
        return (
            not candidate.calibrated, -_rounded(candidate.per_paid_gpu / ((priced and candidate.price) or 1.0)),
            -_rounded(candidate.requests.value), candidate.first_token, candidate.tpot.value,
        )  # fmt: skip

    ordered = sorted((candidate for candidate in candidates if candidate.meets), key=place)
    ordered += sorted((candidate for candidate in candidates if not candidate.meets), key=distance)
    shown = shown_by_rank(ordered, count)
    return [
        Ranked(
            candidate, rank, _ties(candidate, rank, shown, priced), *reasons(candidate, rank, ordered), limit(candidate)
        )
        for rank, candidate in shown.items()
    ]


def _rounded(rate: float) -> float:
    """A rate without differences of rounding."""
    return float(f"{rate:.9g}")


class OnDevice(Protocol):
    """A candidate of any kind of plan."""

    @property
    def device(self) -> str:
        """The id of its device."""


AnyCandidate = TypeVar("AnyCandidate", bound=OnDevice)


def shown_by_rank(ordered: Sequence[AnyCandidate], count: int) -> dict[int, AnyCandidate]:
    """The first candidates by rank. The best candidate of each device replaces the last of them where it is missing."""
    first = {candidate.device: rank for rank, candidate in reversed([*enumerate(ordered, 1)])}
    best = sorted(first.values())
    others = (rank for rank in range(1, len(ordered) + 1) if rank not in best)
    ranks = sorted([*best, *islice(others, max(0, count - len(best)))])
    return {rank: ordered[rank - 1] for rank in ranks}


def _merit(candidate: Candidate, priced: bool) -> Expected:
    """The highest output tokens per second and GPU that is paid for, or per dollar."""
    return merit(candidate.highest_per_paid_gpu, candidate.price if priced else None)


def merit(per_gpu: Expected, price: float | None) -> Expected:
    """What candidates are ranked by: the rate per GPU, divided by the price of a GPU if one is given."""
    return Expected(*(rate / (price or 1.0) for rate in per_gpu))


def _ties(candidate: Candidate, rank: int, shown: Mapping[int, Candidate], priced: bool) -> tuple[int, ...]:
    others = ((place, other) for place, other in shown.items() if place != rank and _are_comparable(candidate, other))
    return tuple(
        place
        for place, other in others
        if ties(
            _merit(candidate, priced), _merit(other, priced), SHARED_ERROR if candidate.device == other.device else 0.0
        )
    )


def _are_comparable(candidate: Candidate, other: Candidate) -> bool:
    """Whether both meet the targets, with times of the same kind."""
    return candidate.meets and other.meets and candidate.calibrated == other.calibrated


def ties(expected: Expected, other: Expected, shared: float = SHARED_ERROR) -> bool:
    """Whether the intervals of two rates do not separate them.

    The errors of two rates, as logarithms, have the half-widths of the intervals that face each other and the
    correlation `shared`, so the difference of the logarithms has the half-width sqrt(a² + b² - 2 shared a b).
    """
    high, low = (expected, other) if expected.value >= other.value else (other, expected)
    down, up = log(high.value / high.low), log(low.high / low.value)
    return log(high.value / low.value) <= sqrt(max(0.0, down**2 + up**2 - 2 * shared * down * up))


def front(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The Pareto front of output tokens per second and GPU that is paid for against tokens per second and user, by
    falling rate."""
    frontier: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda each: (-each.highest_per_paid_gpu.value, each.tpot.value)):
        if not frontier or candidate.tpot.value < frontier[-1].tpot.value:
            frontier.append(candidate)
    return frontier


def reasons(candidate: Candidate, rank: int, ordered: Sequence[Candidate]) -> tuple[str, str]:
    """The difference between a candidate and the one that it is compared with: the first candidate; for the first one
    the best one with another layout. In full, with the name of the other candidate, and its first part, with its rank.
    """
    if not candidate.meets:
        alone = "nearest to the targets" if rank == 1 else "" if candidate.calibrated else LOWER_BOUND
        return alone, alone
    if ordered[0].calibrated and not candidate.calibrated:
        return LOWER_BOUND, LOWER_BOUND
    other = ordered[0] if rank > 1 else _runner_up(candidate, ordered) or next(iter(ordered[1:]), None)
    if other is None or not other.meets or other.calibrated != candidate.calibrated:
        return ("no other layout meets the targets",) * 2
    place = next(number for number, each in enumerate(ordered, 1) if each is other)
    change, causes = _change(candidate, other), _causes(candidate, other)
    if not causes:
        return f"{change} {name(other)}", f"{change} rank {place}"
    brief = re.sub(" of GPU time per (output )?", " per ", causes[0]).replace(" takes ", " ", 1)
    return f"{change} {name(other)}: {'; '.join(causes)}", f"{change} rank {place}: {brief}"


def _change(candidate: Candidate, other: Candidate) -> str:
    """`4 GPUs more than`, `12% fewer tokens/s than`: the difference that decides the rank."""
    paid = candidate.gpus_paid - other.gpus_paid
    if candidate.device == other.device and paid:
        return f"{units.count(abs(paid), 'GPU')} {'more' if paid > 0 else 'fewer'} than"
    if candidate.price is not None and other.price is not None and candidate.device != other.device:
        ratio = (other.per_paid_gpu / other.price) / (candidate.per_paid_gpu / candidate.price) - 1
        if abs(ratio) >= SMALL_CHANGE:
            return f"{abs(ratio):.0%} {'higher' if ratio > 0 else 'lower'} cost than"
    per_gpu = "" if candidate.device == other.device else "/GPU"
    change = candidate.highest_per_paid_gpu.value / other.highest_per_paid_gpu.value - 1
    same = "as many GPUs, " if candidate.required is not None and candidate.device == other.device else ""
    if abs(change) < SMALL_CHANGE:
        return f"{same}as fast as"
    return f"{same}{abs(change):.0%} {'more' if change > 0 else 'fewer'} tokens/s{per_gpu} than"


def _runner_up(candidate: Candidate, ordered: Sequence[Candidate]) -> Candidate | None:
    """The best candidate with another layout."""
    return next((each for each in ordered if _are_comparable(each, candidate) and name(each) != name(candidate)), None)


def _causes(candidate: Candidate, other: Candidate) -> list[str]:
    """The number of GPUs or engines, or the one option that differs, or the part of the GPU time that differs most in
    the direction of the rates; with it the options that differ, apart from the layout, which the names state. Empty
    where the rates are the same.

    Of two disaggregated candidates, the engines that limit the slower one are compared.
    """
    ratio = candidate.highest_per_paid_gpu.value / other.highest_per_paid_gpu.value
    if abs(ratio - 1) < SMALL_CHANGE:
        return []
    slower = candidate if ratio < 1 else other
    stage = _limiting_stage(slower)
    if text := _used_gpus(candidate, other, log(ratio)):
        return [text]
    if candidate.mode != other.mode:
        modes = "prefill and decode on the same engines"
        if candidate.mode == "disaggregated":
            modes = "separate engines for prefill and decode"
        return [modes, *_shared_differences(candidate, other)]
    if text := _number_of_engines(candidate, other, stage) or _idle_engines(candidate, other, stage):
        return [text]
    differences = [*_shared_differences(candidate, other), *_stage_differences(candidate, other, stage)]
    mine, theirs = _engines(candidate, stage), _engines(other, stage)
    if len(differences) == 1 and mine.layout.engine == theirs.layout.engine:
        return differences
    each = "prompt" if stage == "prefill" else "output token"
    by_part = _limiting_stage(candidate) == _limiting_stage(other)  # else their shares are those of different steps
    term = largest_term(
        _gpu_time(candidate, stage, by_part), _gpu_time(other, stage, by_part), f"of GPU time per {each}"
    )
    return [*term, *differences] or [NOTHING_DIFFERS]


def _used_gpus(candidate: Candidate, other: Candidate, total: float) -> str | None:
    """`6 of 8 GPUs used, not 8`, if this explains at least half of `total`, the difference of the rates for each GPU
    that is paid for (as logarithms)."""
    used, theirs = (each.gpus / each.gpus_paid for each in (candidate, other))
    more = log(used / theirs)
    if more * total <= 0 or abs(more) < abs(total) / 2:
        return None
    return f"{candidate.gpus} of {candidate.gpus_paid} GPUs used, not {other.gpus}"


def largest_term(terms: Mapping[str, float], other: Mapping[str, float], of_what: str) -> list[str]:
    """`communication takes 1.2 ms of a step, not 0.8 ms`: of the seconds by what takes them, those that differ most in
    the direction in which their sums differ. Empty if these have the same text."""
    sign = 1 if sum(terms.values()) > sum(other.values()) else -1
    longest = max(terms, key=lambda term: sign * (terms[term] - other[term]))
    mine, theirs = (units.seconds(each[longest]) if each[longest] > 0 else "0" for each in (terms, other))
    return [f"{longest} {mine} {of_what}, not {theirs}"] if mine != theirs else []


def by_part_of(seconds: float, communication: float, idle: float) -> dict[str, float]:
    """Seconds by what takes them, from their shares of communication and of idle pipeline stages."""
    return {
        "communication takes": seconds * communication,
        "pipeline stages idle": seconds * idle,
        "computation takes": seconds * (1 - communication - idle),
    }


def _gpu_time(candidate: Candidate, stage: Stage, by_part: bool) -> dict[str, float]:
    """The GPU time of the engines of a stage by what takes it: seconds per prompt of prefill engines, else per output
    token. `by_part`: whether `candidate.shares` are those of this stage."""
    per_request, shares = 1 / _engines(candidate, stage).requests_per_gpu, candidate.shares
    seconds = per_request if stage == "prefill" else per_request / candidate.osl
    if not by_part:
        return {f"{stage} takes": seconds}
    if stage == "prefill":  # whole passes follow each other, so pipeline stages idle in the first one only
        return by_part_of(seconds, shares.communication / (1 - shares.idle), 0.0)
    return by_part_of(seconds, shares.communication, shares.idle)


Stage = Literal["prefill", "decode"]


def _limiting_stage(candidate: Candidate) -> Stage:
    """The stage whose engines limit the rate; decode for mixed steps."""
    return "prefill" if candidate.prefill is not None and candidate.prefill.limits else "decode"


class Engines(NamedTuple):
    """The engines of a candidate that compute one stage: their layout, and the rate that they could sustain."""

    layout: Layout
    batch: int  # sequences of all of them in a step, prompts of one of them in a pass
    requests: float  # per second

    @property
    def requests_per_gpu(self) -> float:
        """Requests per second and GPU of these engines."""
        return self.requests / self.layout.gpus


def _engines(candidate: Candidate, stage: Stage) -> Engines:
    """The engines that compute a stage. Those that decode need osl - 1 tokens of each sequence."""
    if stage == "prefill" and candidate.prefill is not None:
        return Engines(candidate.prefill.layout, candidate.prefill.batch, candidate.prefill.requests)
    return Engines(candidate.layout, candidate.batch, candidate.batch / ((candidate.osl - 1) * candidate.tpot.value))


def _number_of_engines(candidate: Candidate, other: Candidate, stage: Stage) -> str | None:
    """`4 prefill engines, not 5`, if this explains at least half of the difference of their rates (as logarithms)."""
    mine, theirs = _engines(candidate, stage), _engines(other, stage)
    more = log(mine.layout.gpus / theirs.layout.gpus)
    total = log(mine.requests / theirs.requests)
    if more * total <= 0 or abs(more) < abs(total) / 2:
        return None
    if mine.layout.engine == theirs.layout.engine:
        return f"{units.count(mine.layout.engines, f'{stage} engine')}, not {theirs.layout.engines}"
    return f"{units.count(mine.layout.gpus, f'{stage} GPU')}, not {theirs.layout.gpus}"


def _idle_engines(candidate: Candidate, other: Candidate, stage: Stage) -> str | None:
    """`4 decode GPUs, not 2`, if the GPUs of the stage that does not limit the slower candidate explain at least half
    of the difference of the rates per GPU (as logarithms)."""
    not_limiting: Stage = "decode" if stage == "prefill" else "prefill"
    if candidate.prefill is None or other.prefill is None:
        return None
    mine, theirs = (_engines(each, not_limiting).layout.gpus for each in (candidate, other))
    fewer = log(other.gpus_paid / candidate.gpus_paid)
    total = log(candidate.highest_per_paid_gpu.value / other.highest_per_paid_gpu.value)
    if mine == theirs or fewer * total <= 0 or abs(fewer) < abs(total) / 2:
        return None
    return f"{units.count(mine, f'{not_limiting} GPU')}, not {theirs}"


def _shared_differences(candidate: Candidate, other: Candidate) -> Iterator[str]:
    """The device and the formats, where they differ."""
    if candidate.device != other.device:
        yield f"{candidate.device}, not {other.device}"
    if candidate.formats != other.formats:
        yield f"{format_text(candidate)}, not {format_text(other)}"


def _stage_differences(candidate: Candidate, other: Candidate, stage: Stage) -> Iterator[str]:
    """The options of the engines of a stage that differ, apart from the layout of mixed engines."""
    mine, theirs = (_engines(each, stage) for each in (candidate, other))
    if candidate.prefill and mine.layout.engine != theirs.layout.engine:
        yield f"{stage} engines of {layout_text(mine.layout.engine)}, not {layout_text(theirs.layout.engine)}"
    each, another = (engines.batch / engines.layout.gpus for engines in (mine, theirs))
    if stage == "prefill" and mine.batch != theirs.batch:
        yield f"{units.count(mine.batch, 'prompt')} in a prefill, not {theirs.batch}"
    elif stage == "decode" and mine.layout.gpus != theirs.layout.gpus and each != another:
        yield f"batch {units.significant(each)} per decode GPU, not {units.significant(another)}"
    elif stage == "decode" and each != another:
        yield f"batch {mine.batch}, not {theirs.batch}"
    if candidate.chunk != other.chunk:
        yield f"up to {candidate.chunk} prompt tokens in a step, not {other.chunk}"


def limit(candidate: Candidate) -> str:
    """What would raise the rate: a larger batch, memory, a faster link, or faster kernels; and the ceiling today."""
    parts, shares = [], candidate.shares
    used = 0.0 if candidate.usable is None else float(candidate.decode_memory) / float(candidate.usable)
    if candidate.prefill is not None and candidate.prefill.limits:
        parts.append("more prefill engines")
    elif candidate.latency_ratio >= NEAR_TARGET and candidate.latency_ratio >= used:
        parts.append("a larger batch, which the latency targets exclude")
    elif used >= NEAR_CAPACITY:
        parts.append("more memory per GPU for a larger batch")
    if shares.bound_by == "overhead":
        parts.append("a faster host, whose part of a step takes longer than the kernels")
    elif shares.bound_by == "communication" or shares.communication > 0.3:
        parts.append("a faster link")
    elif shares.ceiling_share < FAR_FROM_CEILING:
        parts.append(f"faster kernels (at {shares.ceiling_share:.0%} of the bound)")
    elif shares.bound_by == "memory":
        parts.append("more memory bandwidth")
    else:
        parts.append("more FLOP/s")
    return "; ".join(parts)


def name(candidate: Candidate) -> str:
    """The layout as options: `tp 4 dp 2`; `tp 2 dp 2 → tp 4`, prefill → decode, in disaggregated serving."""
    own = layout_text(candidate.layout)
    return f"{layout_text(candidate.prefill.layout)} → {own}" if candidate.prefill else own


def layout_text(layout: Layout | TrainingLayout) -> str:
    """The sizes above 1 of a layout."""
    sizes = layout._asdict()
    return " ".join(f"{option} {size}" for option, size in sizes.items() if size > 1) or "tp 1"


def format_text(candidate: Candidate) -> str:
    """The formats, those of weights and KV cache where they differ from the compute format: `fp16 weights mxfp4`; only
    that of the weights if it names the compute format, as `fp8_block` does."""
    dtype, weights, kv, _ = candidate.formats
    words = [weights] if str(weights).startswith(dtype) else [dtype, f"weights {weights}"]
    return " ".join([*words, *([f"kv {kv}"] if kv != dtype else [])])


def violation_text(candidate: Candidate, targets: Targets) -> str:
    """How a candidate misses the targets: `TTFT 620 ms of at most 500 ms`."""
    violations = []
    first = "TTFT" if candidate.first_token == candidate.ttft.value else "wait + TTFT"
    for label, value, target in (
        (first, candidate.first_token, targets.ttft), ("TPOT", candidate.tpot.value, targets.tpot),
        ("ITL p99", candidate.itl_p99, targets.itl_p99),
    ):  # fmt: skip
        if target is not None and value > target:
            violations.append(f"{label} {units.seconds(value)} of at most {units.seconds(target)}")
    if candidate.required is not None and candidate.requests.value < candidate.required:
        violations.append(
            f"{units.significant(candidate.requests.value)} of {units.significant(candidate.required)} requests/s"
        )
    return ", ".join(violations)
