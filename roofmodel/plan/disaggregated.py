"""Disaggregated serving: engines that only compute prompts, and engines that only decode.

A request goes to a prefill engine, which gives its first token. Its KV cache then goes over the link to a decode engine
(Zhong et al., DistServe, arXiv 2401.09670; Patel et al., Splitwise, arXiv 2311.18677). With x prefill engines and y
decode engines,

    requests per second = min(x × rate of a prefill engine, y × rate of a decode engine)
    TTFT = prefill + bytes of the KV cache per GPU / bandwidth of its link

The engine whose GPUs hold more of the cache limits the transfer. It is not overlapped with the prefill, which makes
TTFT an upper bound. A pipeline of prefill stages works on one microbatch of prompts per stage: a prompt takes the time
through all stages, and the slowest stage sets the rate.

With a required rate, TTFT includes the time of a prefill at this rate; `queueing.py` gives the mean wait before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from roofmodel.devices.device import Device
from roofmodel.numbers.algebra import Number
from roofmodel.plan.candidate import (
    EQUAL,
    Candidate,
    PrefillEngines,
    Targets,
    resolved,
    shares,
    with_wait,
)
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.queueing import mean_wait
from roofmodel.plan.serving import RequestLengths, pareto, peak_memory
from roofmodel.plan.speculation import GenerationTimes
from roofmodel.plan.step_times import Array, ServingReplica, StepTimes, Stored, prefill_times, stored_cache
from roofmodel.timing.timing import Expected

MAX_PROMPT_TOKENS = 32768
"""Tokens of the prompts that a prefill engine computes in one pass."""


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
        memory=memory, usable=served.usable, step=step, cache=_cache_of_prompt(served, traffic),
    )  # fmt: skip


def prefill_rates(served: ServingReplica, traffic: RequestLengths, weights: Sequence[Number]) -> PrefillRates | None:
    """The rates of an engine that only computes prompts, for the batches that fit; None if none does.

    `weights` are the bytes of each pipeline stage. The prefill of a draft model is left out.
    """
    most = max(1, MAX_PROMPT_TOKENS // traffic.isl)
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
        memory=memory, step=step, cache=_cache_of_prompt(served, traffic),
    )  # fmt: skip


def _fitting(memory: Array, usable: Number | None) -> Any:
    return np.ones(len(memory), dtype=bool) if usable is None else memory <= usable


def _at(step: StepTimes, places: Array) -> StepTimes:
    size = len(places)
    return StepTimes._make(np.broadcast_to(value, size)[places] for value in step)


def _cache_of_prompt(served: ServingReplica, traffic: RequestLengths) -> Number:
    """Bytes per GPU of the KV cache of one prompt, on the pipeline stage with most of it."""
    return max(stored_cache(served, traffic.isl))


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

    gpus: int
    traffic: RequestLengths
    targets: Targets
    price: float | None
    links: Sequence[ServiceLink]


def matched(
    prefill: Iterable[PrefillRates], decode: Iterable[DecodeRates], common: EngineMatching
) -> Iterator[tuple[int, Candidate, list[Candidate]]]:
    """For each decode engine: the number of candidates over all prefill engines with the same formats and all numbers
    of both, the best one, and the Pareto front."""
    engines = list(prefill)
    for decoder in decode:
        pairs = [
            _pair(prefiller, decoder, link, common)
            for prefiller in engines
            if prefiller.formats == decoder.formats
            for link in common.links
        ]
        if possible := [pair for pair in pairs if pair is not None]:
            yield _best_and_front(decoder, possible, common)


def _best_and_front(
    decode: DecodeRates, pairs: Sequence[EnginePair], common: EngineMatching
) -> tuple[int, Candidate, list[Candidate]]:
    """The number of candidates of a decode engine, the best one, and the Pareto front.

    Rates are those per GPU. At an equal rate, both take the candidate with most GPUs, of those the one with the
    earliest first token.
    """
    rate, gpus, missed, wait, first_token, tpot, pair_of, place_of = (np.concatenate(parts) for parts in zip(*(
        ((pair.rate / pair.gpus[:, None]).ravel(), np.repeat(pair.gpus, pair.rate.shape[1]), pair.missed.ravel(),
         pair.wait.ravel(), with_wait(pair.ttft[0], pair.wait).ravel(),
         np.tile(decode.tpot[0], len(pair.decoders)), np.full(pair.rate.size, number), np.arange(pair.rate.size))
        for number, pair in enumerate(pairs)
    ), strict=True))  # fmt: skip

    def at(place: Any) -> Candidate:
        pair = pairs[pair_of[place]]
        number, batch = np.unravel_index(place_of[place], pair.rate.shape)
        return _candidate(pair, decode, int(number), int(batch), common)

    met = missed <= 1
    best = np.lexsort((missed, common.targets.excludes_wait(wait)))[0]
    if met.any():
        highest = np.flatnonzero(met & (rate >= rate[met].max() * (1 - EQUAL)))
        highest = highest[gpus[highest] == gpus[highest].max()]
        earliest = first_token[highest].min() * (1 + EQUAL)
        best = min(highest, key=lambda place: (first_token[place] > earliest, tpot[place]))
    shown = np.flatnonzero(common.targets.meets_ttft(first_token))
    shown = shown[np.argsort(first_token[shown], kind="stable")]
    return len(rate), at(best), [at(place) for place in shown[pareto(tpot[shown], rate[shown])]]


class EnginePair(NamedTuple):
    """A prefill and a decode engine: pairs of numbers of them; the other arrays by pair and by batch."""

    prefill: PrefillRates
    prompts: Array  # place of the batch of the prefill engine
    transfer: float
    prefillers: Array
    decoders: Array
    gpus: Array  # of all engines
    ttft: tuple[Array, ...]  # with the ends of its interval
    wait: Array
    rate: Array
    missed: Array  # the largest violation of a target


def _pair(prefill: PrefillRates, decode: DecodeRates, link: ServiceLink, common: EngineMatching) -> EnginePair | None:
    """Numbers of two engines that use no more GPUs than the link connects; None if one of each does not fit in them."""
    transfer, limit = max(prefill.cache, decode.cache) / link.bandwidth, common.targets.ttft
    counts = np.meshgrid(_numbers(link.most // prefill.layout.gpus), _numbers(link.most // decode.layout.gpus))
    prefillers, decoders = (count.ravel() for count in counts)
    gpus = prefillers * prefill.layout.gpus + decoders * decode.layout.gpus
    possible = (link.above < gpus) & (gpus <= link.most)
    if not possible.any():
        return None
    prefillers, decoders, gpus = prefillers[possible], decoders[possible], gpus[possible]
    prompts = _prompts(prefill, decode, prefillers, decoders, np.inf if limit is None else limit - transfer)
    rate = np.minimum(prefillers[:, None] * prefill.requests[0][prompts], decoders[:, None] * decode.requests[0])
    ttft, wait = _first_token(prefill, prompts, prefillers, rate, common.targets.requests)
    ttft = tuple(each + transfer for each in ttft)
    missed = common.targets.violation(with_wait(ttft[0], wait), np.broadcast_to(decode.tpot[0], rate.shape), rate)
    return EnginePair(prefill, prompts, transfer, prefillers, decoders, gpus, ttft, wait, rate, missed)


def _numbers(most: int) -> Array:
    """The numbers of engines that are searched: all up to 8, then four in each doubling."""
    numbers = [*range(1, 9)]
    while numbers[-1] < most:
        numbers.append(numbers[-1] + max(2, 2 ** (numbers[-1].bit_length() - 3)))
    return np.array([number for number in numbers if number <= most], dtype=int)


def _first_token(
    prefill: PrefillRates, prompts: Array, prefillers: Array, highest: Array, required: float | None
) -> tuple[tuple[Array, ...], Array]:
    """The time of a prefill with its interval, and the mean wait before it, by the number of engines and by batch.

    At the required rate, a pass computes the number of prompts, up to the largest, that gives the smallest sum. Engines
    are servers that take one prompt after another (M/D/c). The wait is infinite where the rate is not sustained; TTFT
    is then that of the largest pass, as without a required rate.
    """
    ttft = tuple(each[prompts] for each in prefill.ttft)
    if required is None:
        return ttft, np.full(prompts.shape, np.inf)
    # Waits by the number of engines and the prompts of a pass.
    waits = mean_wait(required, prefillers[:, None], 1 / prefill.requests[0])
    place = _cheapest_so_far(prefill.ttft[0] + waits)
    chosen = np.take_along_axis(place, prompts, axis=1)
    wait = np.where(required < highest, np.take_along_axis(waits, chosen, axis=1), np.inf)
    ends = zip(prefill.ttft, ttft, strict=True)
    return tuple(np.where(wait < np.inf, each[chosen], full) for each, full in ends), wait


def _cheapest_so_far(values: Array) -> Array:
    """For each place of each row, the place of the smallest value up to it."""
    places = np.arange(values.shape[1])
    return np.maximum.accumulate(np.where(values <= np.minimum.accumulate(values, axis=1), places, 0), axis=1)


def _prompts(prefill: PrefillRates, decode: DecodeRates, prefillers: Array, decoders: Array, limit: float) -> Array:
    """The place of the batch of prompts with the shortest pass that does not lower the rate, by the number of decode
    engines and by batch. A pass takes at most `limit` seconds; if none does, it is the shortest pass."""
    ready = np.flatnonzero(prefill.ttft[0] <= limit)
    places = np.full((len(decoders), len(decode.batch)), np.argmin(prefill.ttft[0]))
    if not len(ready):
        return places
    needed = np.minimum(
        (prefillers * prefill.requests[0][ready].max())[:, None], decoders[:, None] * decode.requests[0]
    )
    for place in ready[np.argsort(-prefill.ttft[0][ready], kind="stable")]:
        places[(prefillers * prefill.requests[0][place])[:, None] >= needed * (1 - EQUAL)] = place
    return places


def _candidate(pair: EnginePair, decode: DecodeRates, engines: int, place: int, common: EngineMatching) -> Candidate:
    """The candidate with the number of engines at `engines` and the batch at `place`."""
    prefill, prompts, transfer = pair.prefill, int(pair.prompts[engines, place]), pair.transfer
    prefillers, decoders = int(pair.prefillers[engines]), int(pair.decoders[engines])
    requests = Expected(*(
        min(prefillers * float(rate[prompts]), decoders * float(other[place]))
        for rate, other in zip(prefill.requests, decode.requests, strict=True)
    ))  # fmt: skip
    limits = prefillers * prefill.requests[0][prompts] < decoders * decode.requests[0][place]
    return Candidate(
        device=decode.device, mode="disaggregated", layout=_times(decode.layout, decoders), formats=decode.formats,
        gpus=int(pair.gpus[engines]), batch=int(decode.batch[place]) * decoders, chunk=None,
        ttft=Expected(*(float(value[engines, place]) for value in pair.ttft)),
        tpot=Expected(*(float(value[place]) for value in decode.tpot)), requests=requests, osl=common.traffic.osl,
        memory=max(decode.memory[place].item(), prefill.memory[prompts].item()), usable=decode.usable,
        shares=shares(prefill.step, prompts) if limits else shares(decode.step, place),
        violation=float(pair.missed[engines, place]), largest_itl=float(decode.step.seconds[place]),
        itl_p99=float(decode.step.seconds[place]),
        latency_ratio=common.targets.latency_ratio(None, float(decode.tpot[0][place])),
        decode_memory=decode.memory[place].item(),
        largest_batch=int(decode.batch[-1]) * decoders, price=common.price, required=common.targets.requests,
        prefill=PrefillEngines(
            _times(prefill.layout, prefillers), int(prefill.batch[prompts]), transfer, bool(limits),
            prefillers * float(prefill.requests[0][prompts]),
        ),
        mean_wait=None if common.targets.requests is None else float(pair.wait[engines, place]),
    )  # fmt: skip


def _times(layout: Layout, engines: int) -> Layout:
    return layout._replace(dp=layout.dp * engines)
