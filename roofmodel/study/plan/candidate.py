"""A candidate of a plan: an engine layout with its formats, batch and chunk, and what it achieves."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, expm1, inf
from typing import Any, Literal, NamedTuple

import numpy as np

from roofmodel.algebra import Number
from roofmodel.study.plan.layouts import Formats, Layout
from roofmodel.study.plan.queueing import mean_wait
from roofmodel.study.plan.serving import Points
from roofmodel.study.plan.step_times import Engine, StepTimes

Mode = Literal["mixed", "disaggregated"]
"""Prefill and decode on the same engines, or on engines of their own."""
EQUAL = 1e-9
"""Two rates or latencies with a smaller relative difference are equal."""


class Interval(NamedTuple):
    """An expected value and the ends of its interval."""

    value: float
    low: float
    high: float


class Targets(NamedTuple):
    """The limits of latency in seconds and the required rate in requests per second; None for no limit."""

    ttft: float | None = None
    tpot: float | None = None
    requests: float | None = None

    def latency_ratio(self, ttft: float | None, tpot: float) -> float:
        """The largest ratio of a latency to its target; 0 without targets."""
        pairs = ((ttft, self.ttft), (tpot, self.tpot))
        return max((value / target for value, target in pairs if value is not None and target is not None), default=0.0)

    def violation(self, ttft: Any, tpot: Any, requests: Any) -> Any:
        """The largest ratio by which a latency or a rate misses its target: at most 1 where all targets are met."""
        ratios = [np.zeros(np.shape(ttft))]
        if self.ttft is not None:
            ratios.append(ttft / self.ttft)
        if self.tpot is not None:
            ratios.append(tpot / self.tpot)
        if self.requests is not None:
            ratios.append(self.requests / requests)
        return np.maximum.reduce(ratios)


class Shares(NamedTuple):
    """The mean step of a candidate by cause: communication, idle pipeline stages, and the ceilings of its bound.

    The first two are parts of the expected time, the next three parts of the bound. `ceiling_share` is bound / expected
    time.
    """

    communication: float
    idle: float
    memory: float
    compute: float
    link: float
    ceiling_share: float

    @property
    def bound_by(self) -> str:
        """The ceiling that limits most of the bound."""
        found = {"memory": self.memory, "compute": self.compute, "communication": self.link}
        return max(found, key=found.__getitem__)


class PrefillEngines(NamedTuple):
    """The engines that compute prompts in disaggregated serving; the candidate's own fields are those of decode."""

    layout: Layout  # of all prefill engines
    batch: int  # prompts of an engine
    transfer: float  # seconds to send the KV cache of a prompt
    limits: bool  # whether they limit the rate, not the decode engines
    requests: float  # prompts per second of all of them


class ChunkedPrefill(NamedTuple):
    """The prefill of mixed engines, as a queue: each of the servers, one per microbatch, takes one prompt at a time."""

    seconds_per_prompt: float
    servers: int
    remaining: float  # mean seconds from a random time to the end of the step, in a full batch


class Candidate(NamedTuple):
    """A service of `gpus` GPUs. `batch` counts the sequences of all replicas; rates are those of all engines."""

    device: str
    mode: Mode
    layout: Layout
    formats: Formats
    gpus: int
    batch: int
    chunk: int | None  # prompt tokens in a step; None in disaggregated serving
    ttft: Interval
    tpot: Interval
    requests: Interval  # per second
    osl: int
    memory: Number  # bytes per GPU
    usable: Number | None
    shares: Shares
    violation: float
    largest_itl: float  # seconds between two tokens at most: the longest step
    largest_batch: int  # that fits, over all replicas
    price: float | None = None  # dollars per hour and GPU
    required: float | None = None  # requests per second
    prefill: PrefillEngines | None = None
    latency_ratio: float = 0.0  # of the latencies that the batch affects, to their targets
    decode_memory: Number = 0  # bytes per GPU of the engines that decode
    chunked: ChunkedPrefill | None = None  # None in disaggregated serving

    @property
    def fits(self) -> bool | None:
        """Whether the memory suffices; None where it is unknown."""
        return None if self.usable is None else bool(self.memory <= self.usable)

    @property
    def meets(self) -> bool:
        """Whether it fits and meets all targets."""
        return self.fits is not False and self.violation <= 1

    @property
    def tokens_per_second(self) -> Interval:
        """Output tokens per second of the service."""
        return Interval(*(self.osl * rate for rate in self.requests))

    @property
    def per_gpu(self) -> Interval:
        """Output tokens per second and GPU."""
        return Interval(*(rate / self.gpus for rate in self.tokens_per_second))

    @property
    def dollars_per_million_tokens(self) -> float | None:
        """The price of a million output tokens; the prompt's tokens are included in it."""
        return None if self.price is None else self.price / 3600 * 1e6 / self.per_gpu.value

    @property
    def mean_wait(self) -> float | None:
        """Seconds that a request waits on average before its prefill; requests arrive at random at the required rate.

        None without a required rate; infinity if the service cannot sustain it. Prefill engines are servers that take
        prompts in their order; the queue for a place in a decode batch is not counted.

        For mixed engines it is an upper estimate, the sum of three waits: for a free place in the batch, for the end of
        the running step, and for the chunks of earlier prompts. Near the highest rate, the first and the last overlap.
        All steps are those of the full batch. A step runs with probability 1 - exp(-n), where n is the mean number of
        requests per microbatch, rate × seconds in service, by Little's law. This is the probability that an M/G/∞
        queue is not empty: its requests are Poisson distributed, and it never makes a request wait.
        """
        rate = self.required
        if rate is None:
            return None
        if rate >= self.requests.value:
            return inf
        if self.prefill is not None:
            servers = self.prefill.layout.engines
            return mean_wait(rate, servers, servers / self.prefill.requests)
        if self.chunked is None:
            return None
        place = mean_wait(rate, self.batch, self.batch / self.requests.value)
        servers = self.chunked.servers
        in_service = rate * (self.batch / self.requests.value + self.ttft.value)
        running = -expm1(-in_service / servers) * self.chunked.remaining
        return place + running + mean_wait(rate, servers, self.chunked.seconds_per_prompt)

    @property
    def gpus_needed(self) -> int | None:
        """The GPUs of the engines that the required rate needs; None without a required rate."""
        sufficient = self.sufficient_gpus
        return None if sufficient is None else min(self.gpus, sufficient)

    @property
    def sufficient_gpus(self) -> int | None:
        """The GPUs of so many of these engines that they reach the required rate; None without a required rate."""
        if self.required is None:
            return None
        units = 1 if self.prefill else self.layout.engines  # disaggregated engines are matched to each other
        return ceil(self.required / (self.requests.value / units)) * self.gpus // units


def candidate(
    engine: Engine, layout: Layout, points: Points, place: int, *, osl: int, targets: Targets, price: float | None,
    largest: int,
) -> Candidate:  # fmt: skip
    """The candidate at one of an engine's points, with all engines of the layout."""

    def interval(values: Sequence[Any], times: int = 1) -> Interval:
        return Interval(*(times * float(value[place]) for value in values))

    ttft, tpot, requests = interval(points.ttft), interval(points.tpot), interval(points.requests, layout.engines)
    microbatches = engine.sequences_per_batch * layout.engines
    return Candidate(
        device=engine.device.id, mode="mixed", layout=layout, formats=resolved(engine), gpus=layout.gpus,
        batch=int(points.batch[place]) * layout.engines, chunk=int(points.chunk[place]), ttft=ttft, tpot=tpot,
        requests=requests, osl=osl, memory=points.memory[place].item(), usable=engine.usable,
        shares=shares(points.step, place), violation=float(targets.violation(ttft.value, tpot.value, requests.value)),
        largest_itl=float(points.longest[place]), latency_ratio=targets.latency_ratio(ttft.value, tpot.value),
        decode_memory=points.memory[place].item(),
        largest_batch=largest * microbatches, price=price, required=targets.requests,
        chunked=ChunkedPrefill(
            ttft.value / float(points.prompts[place]), microbatches, float(points.remaining[place])
        ),
    )  # fmt: skip


def resolved(engine: Engine) -> Formats:
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
    )  # fmt: skip
