"""A candidate of a plan: an engine layout with its formats, batch and chunk, and what it achieves."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, isinf
from typing import Any, Literal, NamedTuple

import numpy as np

from roofmodel.numbers.algebra import Number
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.serving import Points
from roofmodel.plan.step_times import ServingReplica, StepTimes
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

    def latency_ratio(self, ttft: float | None, tpot: float) -> float:
        """The largest ratio of a latency to its target; 0 without targets."""
        pairs = ((ttft, self.ttft), (tpot, self.tpot))
        return max((value / target for value, target in pairs if value is not None and target is not None), default=0.0)

    def meets_ttft(self, first_token: Any) -> Any:
        """Whether the first token arrives within the limit of TTFT; elementwise for arrays."""
        return first_token <= (inf if self.ttft is None else self.ttft)

    def excludes_wait(self, wait: Any) -> Any:
        """Whether a limit of TTFT excludes a mean wait because it is infinite."""
        return np.isinf(wait) & (self.ttft is not None and self.requests is not None)

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


NO_TARGETS = Targets()


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
    """A service of `gpus` GPUs, at most as many as there are. `batch` counts the sequences of all replicas; rates are
    those of all engines."""

    device: str
    mode: Mode
    layout: Layout
    formats: Formats
    gpus: int
    batch: int
    chunk: int | None  # prompt tokens in a step; None in disaggregated serving
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
    def dollars_per_million_tokens(self) -> float | None:
        """The price of a million output tokens; the prompt's tokens are included in it."""
        return None if self.price is None else self.price / 3600 * 1e6 / self.per_gpu.value

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

    @property
    def sufficient_gpus(self) -> int | None:
        """The GPUs of so many of these engines that they reach the required rate, however long the wait; None without a
        required rate."""
        if self.required is None:
            return None
        units = 1 if self.prefill else self.layout.engines  # disaggregated engines are matched to each other
        return ceil(self.required / (float(self.requests.value) / units)) * self.gpus // units


def with_wait(ttft: Any, wait: Any) -> Any:
    """TTFT with the mean wait before it; without it where it is infinite, because the rate then misses its target."""
    return ttft + np.where(np.isfinite(wait), wait, 0.0)


def candidate(
    engine: ServingReplica, layout: Layout, points: Points, place: int, *, osl: int, targets: Targets,
    price: float | None, largest: int,
) -> Candidate:  # fmt: skip
    """The candidate at one of an engine's points, with all engines of the layout."""

    def interval(values: Sequence[Any], times: int = 1) -> Expected:
        return Expected(*(times * float(value[place]) for value in values))

    wait = float(points.wait[place])
    ttft, tpot, requests = interval(points.ttft), interval(points.tpot), interval(points.requests, layout.engines)
    microbatches = engine.sequences_per_batch * layout.engines
    return Candidate(
        device=engine.device.id, mode="mixed", layout=layout, formats=resolved(engine), gpus=layout.gpus,
        batch=int(points.batch[place]) * layout.engines, chunk=int(points.chunk[place]), ttft=ttft, tpot=tpot,
        requests=requests, osl=osl, memory=points.memory[place].item(), usable=engine.usable,
        shares=shares(points.step, place),
        violation=float(targets.violation(with_wait(ttft.value, wait), tpot.value, requests.value)),
        largest_itl=float(points.longest[place]), itl_p99=float(points.itl_p99[place]),
        # at a sustained rate, TTFT depends on the sequences in flight, not on the size of the full batch
        latency_ratio=targets.latency_ratio(ttft.value if isinf(wait) else None, tpot.value),
        decode_memory=points.memory[place].item(),
        largest_batch=largest * microbatches, price=price, required=targets.requests,
        mean_wait=None if targets.requests is None else wait,
    )  # fmt: skip


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
