"""Disaggregated serving: engines that only compute prompts, and engines that only decode.

A request goes to a prefill engine, which gives its first token. Its KV cache then goes over the link to a decode engine
(Zhong et al., DistServe, arXiv 2401.09670; Patel et al., Splitwise, arXiv 2311.18677). With x prefill engines and y
decode engines,

    requests per second = min(x × rate of a prefill engine, y × rate of a decode engine)
    TTFT = prefill + bytes of the KV cache per GPU / bandwidth of its link

With all GPUs, x and y are those with the highest rate; at a required rate, the smallest that meet it and the targets.

The engine whose GPUs hold more of the cache limits the transfer. It is not overlapped with the prefill, which makes
TTFT an upper bound. A pipeline of prefill stages works on one microbatch of prompts per stage: a prompt takes the time
through all stages, and the slowest stage sets the rate.

With a required rate, TTFT includes the time of a prefill at this rate; `queueing.py` gives the mean wait before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, inf
from typing import Any, NamedTuple

import numpy as np

from roofmodel.devices.device import Device
from roofmodel.numbers.algebra import Number
from roofmodel.plan.candidate import (
    EQUAL,
    Candidate,
    PrefillEngines,
    Supply,
    Targets,
    joules_per_request,
    resolved,
    shares,
    with_wait,
)
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.queueing import mean_wait
from roofmodel.plan.serving import RequestLengths, pareto, peak_memory, prompt_limit
from roofmodel.plan.speculation import GenerationTimes
from roofmodel.plan.step_times import Array, ServingReplica, StepTimes, Stored, prefill_times, stored_cache
from roofmodel.timing.timing import Expected


class DecodeRates(NamedTuple):
    """One decode engine, by batch: seconds per token and requests per second with their intervals, bytes per GPU."""

    device: str
    layout: Layout
    formats: Formats
    batch: Array  # sequences of the engine
    tpot: tuple[Array, ...]
    requests: tuple[Array, ...]
    memory: Array
    usable: Number | None
    step: StepTimes
    cache: Number  # bytes per GPU of the KV cache of one prompt

    def joules(self, place: int) -> float:
        """Joules of all GPUs for the decodes of a request, with the batch at `place`."""
        return joules_per_request(self.layout.gpus, self.step, self.requests[0], place)


class PrefillRates(NamedTuple):
    """One prefill engine, by the number of prompts in a pass."""

    device: str
    layout: Layout
    formats: Formats
    batch: Array  # prompts of the engine
    ttft: tuple[Array, ...]
    requests: tuple[Array, ...]
    memory: Array
    step: StepTimes
    cache: Number

    def joules(self, place: int) -> float:
        """Joules of all GPUs for a prompt, with the prompts of a pass at `place`."""
        return joules_per_request(self.layout.gpus, self.step, self.requests[0], place)


def decode_rates(
    served: ServingReplica, traffic: RequestLengths, stored: Stored, times: GenerationTimes
) -> DecodeRates | None:
    """The rates of an engine that only decodes, for the batches that fit; None if none does."""
    step, batch = times.decode, times.batch
    memory = peak_memory(stored, batch, step.activations)
    fits = _fitting(memory, served.usable)
    if not fits.any():
        return None
    batch, memory, step = batch[fits], memory[fits], _at(step, fits)
    sequences = batch * served.sequences_per_batch
    return DecodeRates(
        served.device.id, served.layout, resolved(served), sequences,
        tpot=tuple(t / times.accepted for t in step[:3]),
        requests=tuple(sequences * times.accepted / ((traffic.osl - 1) * step[at]) for at in (0, 2, 1)),
        memory=memory, usable=served.usable, step=step, cache=cache_of_prompt(served, traffic.isl),
    )  # fmt: skip


def prefill_rates(served: ServingReplica, traffic: RequestLengths, weights: Sequence[Number]) -> PrefillRates | None:
    """The rates of an engine that only computes prompts, for the batches that fit; None if none does.

    `weights` are the bytes of each pipeline stage. The prefill of a draft model is left out.
    """
    most = max(1, prompt_limit(served, traffic.isl, None) // traffic.isl)
    batch = np.array([2**power for power in range(most.bit_length())])
    step, pp = prefill_times(served, batch, traffic.isl), served.layout.pp
    stored = list(zip(weights, stored_cache(served, traffic.isl), strict=True))
    memory = peak_memory(stored, batch, step.activations)
    fits = _fitting(memory, served.usable)
    if not fits.any():
        return None
    batch, memory, step = batch[fits], memory[fits], _at(step, fits)
    busy = 1 - step.idle / step.seconds  # of a pass of one microbatch per stage
    outside = served.work.engine.host.outside_steps(traffic.isl)
    prompts = batch * served.sequences_per_batch
    return PrefillRates(
        served.device.id, served.layout, resolved(served), prompts,
        ttft=tuple(t * (1 - (pp - 1) / pp * busy) + outside for t in step[:3]),
        requests=tuple(prompts / (step[at] * busy) for at in (0, 2, 1)),
        memory=memory, step=step, cache=cache_of_prompt(served, traffic.isl),
    )  # fmt: skip


def _fitting(memory: Array, usable: Number | None) -> Any:
    return np.ones(len(memory), dtype=bool) if usable is None else memory <= usable


def _at(step: StepTimes, places: Array) -> StepTimes:
    size = len(places)
    return StepTimes._make(np.broadcast_to(value, size)[places] for value in step)


def cache_of_prompt(served: ServingReplica, isl: Number) -> Number:
    """Bytes per GPU of the KV cache of one prompt, on the pipeline stage with most of it."""
    return max(stored_cache(served, isl))


def transfer_seconds(sent: Number, received: Number, link: ServiceLink) -> float:
    """Seconds to send the KV cache of a prompt: bytes per GPU of the engine that sends and of the one that receives."""
    return float(max(sent, received) / link.bandwidth)


class ServiceLink(NamedTuple):
    """Bytes per second that a GPU sends to one of another engine, in services of more than `above` and at most `most`
    GPUs."""

    above: int
    most: int
    bandwidth: float


def service_links(device: Device, gpus: int) -> list[ServiceLink]:
    """The links of services of at most so many GPUs: the one within a node, and that between nodes."""
    node = device.network.beyond or gpus if device.network else gpus
    links = ((0, min(node, gpus), device.inside), (node, gpus, device.network))
    return [ServiceLink(above, most, link.bandwidth / 2) for above, most, link in links if link and above < most]


class EngineMatching(NamedTuple):
    """What all pairs of engines share."""

    supply: Supply
    traffic: RequestLengths
    targets: Targets
    links: Sequence[ServiceLink]


def matched(
    prefill: Iterable[PrefillRates], decode: Iterable[DecodeRates], common: EngineMatching
) -> Iterator[tuple[int, Candidate, list[Candidate]]]:
    """For each decode engine: the number of its batches with all prefill engines in the same formats, the best
    candidate, and the Pareto front."""
    engines = [(each, _queue(each, common)) for each in prefill]
    for decoder in decode:
        pairs = [
            _Pair(prefiller, queue, decoder, link, common)
            for prefiller, queue in engines
            if prefiller.formats == decoder.formats
            for link in common.links
            if prefiller.layout.gpus + decoder.layout.gpus <= link.most
        ]
        if pairs:
            yield len(pairs) * len(decoder.batch), _best(pairs, common.targets), _front(pairs)


def _best(pairs: Sequence[_Pair], targets: Targets) -> Candidate:
    """The candidate of a decode engine that meets all targets with the fewest GPUs at a required rate, or with the
    highest rate; else the one that is nearest to them."""
    if several := [found for pair in pairs if (found := pair.fewest_gpus()) is not None]:
        return min(several, key=lambda one: (one.gpus, -one.requests.value, one.first_token))

    def rank(one: Candidate) -> tuple[float, ...]:
        excluded = one.mean_wait is not None and bool(targets.excludes_wait(one.mean_wait))
        missed = (0.0, -float(f"{one.requests.value:.9g}")) if one.meets else (1.0 + excluded, one.violation)
        return *missed, one.first_token, one.gpus, one.tpot.value

    return min((pair.fastest() for pair in pairs), key=rank)


def _front(pairs: Sequence[_Pair]) -> list[Candidate]:
    """The Pareto front of rate and TPOT with all GPUs, of candidates that meet the target of TTFT without a queue."""
    in_time = [pair for pair in pairs if pair.is_in_time]
    if not in_time:
        return []
    size = len(pairs[0].decode.batch)
    tpot, rates = np.tile(pairs[0].decode.tpot[0], len(in_time)), np.concatenate([pair.rates for pair in in_time])
    return [in_time[place // size].without_queue(place % size) for place in pareto(tpot, rates).tolist()]


class Queue(NamedTuple):
    """The prefill at the required rate, by the number of prefill engines from 1."""

    place: Array  # of the prompts in a pass
    wait: Array  # mean seconds before the prefill; infinite where the rate is not sustained
    seconds: Array  # of both


def _queue(prefill: PrefillRates, common: EngineMatching) -> Queue | None:
    """The prefill at the required rate. A pass computes the number of prompts that gives the smallest sum of wait and
    prefill. Engines are servers that take one prompt after another (M/D/c)."""
    rate = common.targets.requests
    if rate is None:
        return None
    numbers = np.arange(1, common.supply.gpus // prefill.layout.gpus + 1)
    waits = mean_wait(rate, numbers[:, None], 1 / prefill.requests[0])
    place = np.argmin(prefill.ttft[0] + waits, axis=1)
    wait = waits[np.arange(len(numbers)), place]
    return Queue(place, wait, prefill.ttft[0][place] + wait)


class _Pair:
    """A prefill and a decode engine, which are repeated. `rates`: the highest requests per second of all of them, by
    batch of the decode engine."""

    def __init__(
        self, prefill: PrefillRates, queue: Queue | None, decode: DecodeRates, link: ServiceLink, common: EngineMatching
    ) -> None:
        self.prefill, self.queue, self.decode, self.common, self.most = prefill, queue, decode, common, link.most
        self.transfer = transfer_seconds(prefill.cache, decode.cache, link)
        limit = common.targets.ttft
        self.limit = inf if limit is None else limit - self.transfer
        """Seconds of wait and prefill at most."""
        ready = np.flatnonzero(prefill.ttft[0] <= self.limit)
        self.is_in_time = bool(len(ready))
        self.place = int(
            ready[np.argmax(prefill.requests[0][ready])] if self.is_in_time else np.argmin(prefill.ttft[0])
        )
        """Of the prompts in a pass with the highest rate."""
        self.decoders, self.rates = self._matched()

    def _prefillers(self, decoders: Any) -> Any:
        """The prefill engines for which so many decode engines leave GPUs."""
        return (self.most - decoders * self.decode.layout.gpus) // self.prefill.layout.gpus

    def _matched(self) -> tuple[Array, Array]:
        """The number of decode engines with the highest rate, and this rate, by batch: the largest number that prefill
        engines do not limit, or the next one."""
        each, prompts = self.decode.requests[0], float(self.prefill.requests[0][self.place])
        most = (self.most - self.prefill.layout.gpus) // self.decode.layout.gpus
        low, high = np.zeros(len(each), dtype=int), np.full(len(each), most)
        for _ in range(most.bit_length()):
            middle = (low + high + 1) // 2
            suffices = self._prefillers(middle) * prompts >= middle * each
            low, high = np.where(suffices, middle, low), np.where(suffices, high, middle - 1)
        numbers = np.array([np.maximum(low, 1), np.minimum(low + 1, most)])
        rates = np.minimum(self._prefillers(numbers) * prompts, numbers * each)
        better = (rates[1] > rates[0]).astype(int)
        columns = np.arange(len(each))
        return numbers[better, columns], rates[better, columns]

    def fewest_gpus(self) -> Candidate | None:
        """The fewest engines of both kinds that meet all targets at the required rate; None if the GPUs do not suffice
        or no rate is required."""
        targets, decode = self.common.targets, self.decode
        if targets.requests is None or self.queue is None:
            return None
        allowed = np.flatnonzero(targets.violation(0.0, decode.tpot[0], inf, decode.step.seconds) <= 1)
        prefillers = np.flatnonzero(np.isfinite(self.queue.seconds) & (self.queue.seconds <= self.limit))
        if not len(allowed) or not len(prefillers):
            return None
        batch = int(allowed[np.argmax(decode.requests[0][allowed])])
        decoders = int(targets.requests // decode.requests[0][batch]) + 1
        number = int(prefillers[0])
        if (number + 1) * self.prefill.layout.gpus + decoders * decode.layout.gpus > self.most:
            return None
        return self._candidate(batch, number + 1, decoders, int(self.queue.place[number]), targets)

    def fastest(self) -> Candidate:
        """The candidate with the highest rate that meets all targets, else the one that is nearest to them. At a
        required rate, it has all GPUs."""
        targets, decode = self.common.targets, self.decode
        first = float(self.prefill.ttft[0][self.place]) + self.transfer
        missed = targets.violation(first, decode.tpot[0], self.rates, decode.step.seconds)
        batch = int(np.lexsort((-self.rates, np.where(missed <= 1, 0.0, missed)))[0])
        if self.queue is None:
            return self.without_queue(batch)
        decoders = int(self.decoders[batch])
        prefillers = int(self._prefillers(decoders))
        place = self.queue.place[prefillers - 1] if np.isfinite(self.queue.seconds[prefillers - 1]) else self.place
        return self._candidate(batch, prefillers, decoders, int(place), targets)

    def without_queue(self, batch: int) -> Candidate:
        """The candidate with this batch, without a required rate: of the numbers of engines and of prompts in a pass
        that reach its rate, those with the earliest first token, then with the fewest GPUs."""
        prefill, rate = self.prefill, float(self.rates[batch]) * (1 - EQUAL)
        decoders = ceil(rate / float(self.decode.requests[0][batch]))
        reached = np.flatnonzero(int(self._prefillers(decoders)) * prefill.requests[0] >= rate)
        place = int(reached[np.argmin(prefill.ttft[0][reached])])
        prefillers = ceil(rate / float(prefill.requests[0][place]))
        return self._candidate(batch, prefillers, decoders, place, self.common.targets._replace(requests=None))

    def _candidate(self, batch: int, prefillers: int, decoders: int, prompts: int, targets: Targets) -> Candidate:
        """The candidate with these numbers of engines, batch and prompts of a pass, given by their places."""
        prefill, decode = self.prefill, self.decode
        computed, decoded = (
            [number * float(rate[place]) for rate in rates]
            for number, rates, place in ((prefillers, prefill.requests, prompts), (decoders, decode.requests, batch))
        )
        requests = Expected(*map(min, computed, decoded))
        limits = computed[0] < decoded[0]
        gpus = prefillers * prefill.layout.gpus + decoders * decode.layout.gpus
        ttft = Expected(*(float(value[prompts]) + self.transfer for value in prefill.ttft))
        wait = None
        if targets.requests is not None and self.queue is not None:
            wait = float(self.queue.wait[prefillers - 1]) if targets.requests < requests.value else inf
        tpot, gap = Expected(*(float(value[batch]) for value in decode.tpot)), float(decode.step.seconds[batch])
        first = ttft.value if wait is None else float(with_wait(ttft.value, wait))
        supply = self.common.supply
        return Candidate(
            device=decode.device, mode="disaggregated", layout=_times(decode.layout, decoders), formats=decode.formats,
            gpus=gpus, gpus_paid=supply.paid(gpus), batch=int(decode.batch[batch]) * decoders, chunk=None, ttft=ttft,
            tpot=tpot, requests=requests, osl=self.common.traffic.osl,
            memory=max(decode.memory[batch].item(), prefill.memory[prompts].item()), usable=decode.usable,
            shares=shares(prefill.step, prompts) if limits else shares(decode.step, batch),
            violation=float(targets.violation(first, tpot.value, requests.value, gap)), largest_itl=gap, itl_p99=gap,
            joules_per_request=prefill.joules(prompts) + decode.joules(batch),
            latency_ratio=targets.latency_ratio(None, tpot.value, gap), decode_memory=decode.memory[batch].item(),
            largest_batch=int(decode.batch[-1]) * decoders, price=supply.price, required=targets.requests,
            prefill=PrefillEngines(
                _times(prefill.layout, prefillers), int(prefill.batch[prompts]), self.transfer, limits, computed[0],
            ),
            mean_wait=wait,
        )  # fmt: skip


def _times(layout: Layout, engines: int) -> Layout:
    return layout._replace(dp=layout.dp * engines)
