"""A candidate of a plan: an engine layout with its formats, batch and chunk, and what it achieves."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isnan, nan
from typing import Any, Literal, NamedTuple

import numpy as np

from roofmodel.numbers.algebra import Number
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.serving import Points
from roofmodel.plan.step_times import Array, ServingReplica, StepTimes
from roofmodel.timing.timing import Expected

Mode = Literal["mixed", "disaggregated"]
"""Prefill and decode on the same engines, or on engines of their own."""
EQUAL = 1e-9
"""Two rates or latencies with a smaller relative difference are equal."""


class Targets(NamedTuple):
    """The limits of latency in seconds and the required rate in requests per second; None for no limit."""

    ttft: float | None = None
    tpot: float | None = None
    requests: float | None = None
    itl_p99: float | None = None

    def latency_ratio(self, ttft: float | None, tpot: float, itl_p99: float) -> float:
        """The largest ratio of a latency to its target; 0 without targets."""
        pairs = ((ttft, self.ttft), (tpot, self.tpot), (itl_p99, self.itl_p99))
        return max((value / target for value, target in pairs if value is not None and target is not None), default=0.0)

    def meets_ttft(self, first_token: Any) -> Any:
        """Whether the first token arrives within the limit of TTFT; elementwise for arrays."""
        return first_token <= (inf if self.ttft is None else self.ttft)

    def excludes_wait(self, wait: Any) -> Any:
        """Whether a limit of TTFT excludes a mean wait because it is infinite."""
        return np.isinf(wait) & (self.ttft is not None and self.requests is not None)

    def violation(self, ttft: Any, tpot: Any, requests: Any, itl_p99: Any) -> Any:
        """The largest ratio by which a latency or a rate misses its target: at most 1 where all targets are met."""
        pairs = ((ttft, self.ttft), (tpot, self.tpot), (itl_p99, self.itl_p99))
        ratios = [np.asarray(value / target) for value, target in pairs if target is not None]
        if self.requests is not None:
            ratios.append(np.asarray(self.requests / np.asarray(requests, dtype=float)))
        shape = np.broadcast_shapes(*map(np.shape, (ttft, tpot, requests, itl_p99)))
        return np.maximum.reduce([np.zeros(shape), *(np.broadcast_to(ratio, shape) for ratio in ratios)])


NO_TARGETS = Targets()


class Supply(NamedTuple):
    """The GPUs of one device that a service may use, their price in dollars per hour and GPU, and whether all of them
    are paid for, or only those that are used."""

    gpus: int
    price: float | None = None
    all_paid: bool = True

    def paid(self, used: int) -> int:
        """The GPUs that are paid for."""
        return self.gpus if self.all_paid else used


class Shares(NamedTuple):
    """The mean step of a candidate by cause: communication, idle pipeline stages, and the ceilings of its bound.

    The first two are parts of the expected time, the next three parts of the bound. `ceiling_share` is bound / expected
    time. `overhead` is the part of the expected time that is of steps that the host limits.
    """

    communication: float
    idle: float
    memory: float
    compute: float
    link: float
    ceiling_share: float
    overhead: float = 0.0

    @property
    def bound_by(self) -> str:
        """The ceiling that limits most of the bound; `overhead` where the host limits most of the time."""
        if self.overhead > 0.5:
            return "overhead"
        parts = {"memory": self.memory, "compute": self.compute, "communication": self.link}
        return max(parts, key=parts.__getitem__)


def is_bound(time: Expected) -> bool:
    """Whether a time of a candidate is a lower bound, because its device is not calibrated: it has no interval."""
    return bool(time.low == time.high)


class PrefillEngines(NamedTuple):
    """The engines that compute prompts in disaggregated serving; the candidate's own fields are those of decode."""

    layout: Layout  # of all prefill engines
    batch: int  # prompts of an engine
    transfer: float  # seconds to send the KV cache of a prompt
    limits: bool  # whether they limit the rate, not the decode engines
    requests: float  # prompts per second of all of them


class Candidate(NamedTuple):
    """A service of `gpus` GPUs. `batch` counts the sequences of all replicas; rates are the highest of all engines."""

    device: str
    mode: Mode
    layout: Layout
    formats: Formats
    gpus: int
    gpus_paid: int
    batch: int
    chunk: int | None  # prompt tokens in a step at most; None in disaggregated serving
    ttft: Expected
    tpot: Expected
    requests: Expected  # per second
    osl: int
    memory: Number  # bytes per GPU
    usable: Number | None
    shares: Shares
    violation: float
    largest_itl: float  # seconds between two tokens at most: the longest step
    itl_p99: float  # the 99th percentile of these seconds
    largest_batch: int  # that fits, over all replicas
    joules_per_request: float = nan  # of all GPUs while they compute; NaN where the device states no power
    price: float | None = None  # dollars per hour and GPU
    required: float | None = None  # requests per second
    prefill: PrefillEngines | None = None
    latency_ratio: float = 0.0  # of the latencies that the batch affects, to their targets
    decode_memory: Number = 0  # bytes per GPU of the engines that decode
    mean_wait: float | None = None
    """Seconds in the queue before the prefill, if requests arrive at random at the required rate; infinity if the
    service cannot sustain it, None without a required rate. The queue for a place in a decode batch of disaggregated
    serving is not counted."""
    engine: str = ""
    engines_needed: int | None = None
    """Replicas of a mixed engine that meet all targets at the required rate; None where all are needed or it is not
    known."""

    @property
    def fits(self) -> bool | None:
        """Whether the memory suffices; None where it is unknown."""
        return None if self.usable is None else bool(self.memory <= self.usable)

    @property
    def calibrated(self) -> bool:
        """Whether its times are expected ones; otherwise they are lower bounds."""
        return not is_bound(self.tpot)

    @property
    def meets(self) -> bool:
        """Whether it fits and meets all targets."""
        return self.fits is not False and self.violation <= 1

    @property
    def tokens_per_second(self) -> Expected:
        """Output tokens per second of the service."""
        return Expected(*(self.osl * rate for rate in self.requests))

    @property
    def per_gpu(self) -> Expected:
        """Output tokens per second and GPU."""
        return Expected(*(rate / self.gpus for rate in self.tokens_per_second))

    @property
    def highest_per_paid_gpu(self) -> Expected:
        """The highest output tokens per second for each GPU that is paid for."""
        return Expected(*(rate / self.gpus_paid for rate in self.tokens_per_second))

    @property
    def served(self) -> float:
        """Requests per second: the required rate if it is reached, else the highest one."""
        highest = float(self.requests.value)
        return highest if self.required is None else min(self.required, highest)

    @property
    def per_paid_gpu(self) -> float:
        """Output tokens per second that are served, for each GPU that is paid for."""
        return self.osl * self.served / self.gpus_paid

    @property
    def dollars_per_million_tokens(self) -> float | None:
        """The price of a million output tokens; the prompt's tokens are included in it."""
        return None if self.price is None else self.price / 3600 * 1e6 / self.per_paid_gpu

    @property
    def joules_per_token(self) -> float | None:
        """Joules of all GPUs for an output token, of the prefill as well; None where the device states no power."""
        return None if isnan(self.joules_per_request) else self.joules_per_request / self.osl

    @property
    def watts(self) -> float | None:
        """Mean power of a GPU at the highest rate, without idle ones; None where the device states no power."""
        return None if isnan(self.joules_per_request) else self.joules_per_request * self.requests.value / self.gpus

    @property
    def first_token(self) -> float:
        """Seconds from the arrival of a request to its first token: TTFT, with the mean wait before it if the service
        sustains the required rate."""
        return self.ttft.value if self.mean_wait is None else float(with_wait(self.ttft.value, self.mean_wait))

    @property
    def gpus_needed(self) -> int | None:
        """The GPUs of the engines that the required rate needs; None without a required rate."""
        engines = self.layout.engines
        return None if self.required is None else self.gpus * (self.engines_needed or engines) // engines


def with_wait(ttft: Any, wait: Any) -> Any:
    """TTFT with the mean wait before it; without it where it is infinite, because the rate then misses its target."""
    return ttft + np.where(np.isfinite(wait), wait, 0.0)


def candidate(
    engine: ServingReplica, engines: int, points: Points, place: int, *, ttft: Sequence[Any], wait: float | None,
    osl: int, targets: Targets, supply: Supply, largest: int, chunk: int,
) -> Candidate:  # fmt: skip
    """The candidate at one of an engine's points, with so many engines.

    `ttft` has a prefill's seconds with the ends of its interval, by point.
    """
    layout = engine.layout._replace(dp=engine.layout.dp * engines)

    def interval(values: Sequence[Any], times: int = 1) -> Expected:
        return Expected(*(times * float(value[place]) for value in values))

    first, tpot, requests = interval(ttft), interval(points.tpot), interval(points.requests, engines)
    with_queue = first.value if wait is None else float(with_wait(first.value, wait))
    gap = float(points.itl_p99[place])
    return Candidate(
        device=engine.device.id, mode="mixed", layout=layout, formats=resolved(engine), gpus=layout.gpus,
        gpus_paid=supply.paid(layout.gpus), batch=int(points.batch[place]) * engines, chunk=chunk, ttft=first,
        tpot=tpot, requests=requests, osl=osl, memory=points.memory[place].item(), usable=engine.usable,
        shares=shares(points.step, place),
        violation=float(targets.violation(with_queue, tpot.value, requests.value, gap)),
        largest_itl=float(points.longest[place]), itl_p99=gap,
        joules_per_request=joules_per_request(engine.layout.gpus, points.step, points.requests[0], place),
        # at a sustained rate, TTFT depends on the sequences in flight, not on the size of the full batch
        latency_ratio=targets.latency_ratio(first.value if wait in (None, inf) else None, tpot.value, gap),
        decode_memory=points.memory[place].item(), largest_batch=largest * engine.sequences_per_batch * engines,
        price=supply.price, required=targets.requests, mean_wait=wait,
    )  # fmt: skip


def joules_per_request(gpus: int, step: StepTimes, requests: Array, place: int) -> float:
    """Joules of an engine's GPUs for one of its `requests` per second, at one of its points."""
    return float(gpus * step.energy[place] / step.seconds[place] / requests[place])


def resolved(engine: ServingReplica) -> Formats:
    """The engine's formats, with defaults replaced by the formats that they stand for."""
    work = engine.work
    return Formats(
        work.dtype, work.weights or work.dtype, work.kv or work.dtype, work.activations or work.dtype
    )  # fmt: skip


def shares(step: StepTimes, place: int) -> Shares:
    """The parts of a step at one of its points."""
    seconds, bound = (float(value[place]) for value in (step.seconds, step.bound))
    memory, link, idle = (float(value[place]) for value in (step.memory_bound, step.link_bound, step.idle))
    return Shares(
        communication=float(step.communication[place]) / seconds, idle=idle / seconds, memory=memory / bound,
        compute=max(0.0, 1 - (memory + link) / bound), link=link / bound, ceiling_share=bound / seconds,
        overhead=float(np.asarray(step.overhead)[place]) / seconds,
    )  # fmt: skip
