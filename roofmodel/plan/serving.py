"""Steady state of continuous batching on one engine.

A full engine decodes b sequences in every step, and replaces each finished sequence by a new one. With a tokens per
sequence and step (1 without speculative decoding), a sequence needs (osl - 1) / a steps: the prefill gives its first
token. So b a / (osl - 1) sequences finish per step, and as many prompts begin.

The engine computes prompts as soon as they arrive, in the same pass as the decodes (chunked prefill; Agrawal et al.,
Sarathi-Serve, arXiv 2403.02310), up to C tokens in a step: the engine's token budget without the decodes, or the chunk
that is asked for. Prompts of up to C tokens are computed whole, up to floor(C / isl) of them in a step; longer ones in
chunks of C tokens, one in a step. Finished sequences are independent of each other, so the number of new prompts, or
of their chunks, in a step is a random N with a Poisson distribution of mean

    m = b a / (osl - 1) × isl / min(isl, C)

and the mean step takes T = E[t(b, N)], where t is linear between the N that are evaluated and beyond the most that a
step takes. Where m is larger than that, prompts limit the rate, and each step is full. A prompt is in a step with N of
them with a probability that is proportional to N, so

    TPOT = T / a;   requests per second = prompts per step / T;   TTFT = ceil(isl / C) E[N t(b, N)] / m

The derivation is Little's law (Operations Research 9, 1961): b sequences in flight / the time that each decodes. The
99th percentile of the gaps between two tokens is t(b, n) with the 99th percentile n of N.

Some engines compute prompts in steps of their own, before any decode (`prompts_first`). A gap between two tokens is
then a decode and all prompts that arrived: t(b, N) = t(b, 0) + the time of N prompts alone; TTFT is the time of prompts
alone.

Times are those of a cache of mean length: isl + osl / 2 tokens in decodes, (isl - C) / 2 tokens before a chunk; times
are linear in both. TTFT is the time of a prefill that starts at once, with a full batch. With a required rate, it is
the time of a prefill at this rate; `queueing.py` gives the mean wait before it. A microbatch of each pipeline stage
carries its own prompts.

The KV cache is reserved for all sequences at their full length, isl + osl tokens, so that no request is preempted.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting.workload import PromptChunk
from roofmodel.plan.queueing import FullBatches
from roofmodel.plan.speculation import GenerationTimes
from roofmodel.plan.step_times import Array, ServingReplica, StepTimes, Stored
from roofmodel.steps.capacity import fewest_requests

MAX_BATCH = 4096
"""The largest number of sequences per microbatch that is searched."""
MAX_PROMPT_TOKENS = 32768
"""Tokens of the prompts that a pass computes under an engine without a token budget; a longer prompt is computed in one
pass."""
QUANTILE = 0.99
"""Of the gaps between two tokens, for `itl_p99`."""


class RequestLengths(NamedTuple):
    """The requests of a service: tokens of the prompt and of the answer."""

    isl: int
    osl: int


class Points(NamedTuple):
    """The steady states of an engine by batch, ascending: arrays of the same length.

    `batch` counts the sequences of all replicas of the engine. `requests` are per second, `ttft` and `tpot` seconds,
    each with the ends of its interval.
    """

    batch: Array
    ttft: tuple[Array, ...]
    tpot: tuple[Array, ...]
    requests: tuple[Array, ...]
    longest: Array  # seconds of the longest step, or of the longest gap between two decodes
    itl_p99: Array  # seconds that 99 % of the gaps between two tokens do not exceed
    memory: Array  # bytes per GPU
    step: StepTimes  # the mean step

    def at(self, places: Array) -> Points:
        """The points at these indices or where this mask is true."""

        def pick(value: Any) -> Any:
            if isinstance(value, StepTimes):
                return StepTimes(*map(pick, value))
            if isinstance(value, tuple):
                return tuple(map(pick, value))
            return np.broadcast_to(value, self.batch.shape)[places]

        return Points(*map(pick, self))


def batches(limit: int) -> Array:
    """The batches that are searched: all up to 16, then eight in each doubling, so that GEMM tiles are full."""
    sizes = [*range(1, 17)]
    while sizes[-1] < limit:
        step = max(4, 2 ** (sizes[-1].bit_length() - 4))
        sizes.append(sizes[-1] + step)
    return np.array([n for n in sizes if n <= limit] or [1])


def largest_batch(engine: ServingReplica, stored: Stored) -> int:
    """The largest batch per microbatch that the engine takes and whose weights and KV cache fit; 0 if none does."""
    start, asked = fewest_requests(engine.starts), engine.work.options.max_seqs
    limits = [min(MAX_BATCH, asked or MAX_BATCH)]
    if start is not None and start.max_seqs is not None:
        limits.append(start.max_seqs // engine.layout.pp)
    if engine.usable is None:
        return max(0, min(limits))
    if not all(start.starts for start in engine.starts):
        return 0
    for weights, cache in stored:
        rest = engine.usable - weights - (engine.own_memory or 0)
        limits.append(int(rest // cache) if cache else MAX_BATCH if rest > 0 else 0)
    return max(0, min(limits))


def prompt_limit(engine: ServingReplica, isl: int, chunk: int | None) -> int:
    """Prompt tokens of a step at most, if nothing decodes: the engine's token budget, and `chunk` if it is given."""
    start = fewest_requests(engine.starts)
    budget = start.token_budget if start is not None else engine.work.options.token_budget
    return min(filter(None, (budget, chunk)), default=max(isl, MAX_PROMPT_TOKENS))


def steady_states(
    engine: ServingReplica, traffic: RequestLengths, stored: Stored, times: GenerationTimes, chunk: int | None = None
) -> tuple[Points, FullBatches]:
    """The steady states that keep the batch filled, for all batches that leave room for prompt tokens; the full batches
    from which follow TTFT and wait at a lower rate.

    `stored` is what the pipeline stages store for requests at their full length; `chunk` limits the prompt tokens of a
    step further than the engine does.
    """
    isl, osl = traffic
    steps = _steps(engine, isl, times, chunk)
    finished = times.batch * times.accepted / (osl - 1)  # sequences per step
    units = np.minimum(finished * steps.units, steps.most)
    chances = _poisson(units)
    counts = np.arange(chances.shape[1])
    at_counts = _between(steps.evaluated, counts)
    mean = StepTimes._make(np.einsum("bj,bj->b", chances @ at_counts, value) for value in steps.times)
    ends = [each @ at_counts.T for each in steps.times[:3]]  # by batch and number
    in_pass = np.minimum(steps.most, steps.evaluated[-1]).astype(int)
    full = [np.einsum("bj,bj->b", _between(steps.evaluated, in_pass), each) for each in steps.times[:3]]
    with_prompt = chances * counts / units[:, None]  # of the steps, weighted by their prompts
    prefill = tuple(
        steps.parts * ((with_prompt * np.where(counts > in_pass[:, None], at_most[:, None], each)).sum(axis=1) - alone)
        for each, at_most, alone in zip(ends, full, steps.apart, strict=True)
    )
    frequent = np.minimum((chances.cumsum(axis=1) < QUANTILE).sum(axis=1), np.minimum(steps.most, counts[-1]))
    started, apart = units / steps.units, steps.apart[0][:, None]
    outside = engine.work.engine.host.outside_steps(isl)
    points = Points(
        batch=times.batch * engine.sequences_per_batch,
        ttft=tuple(each + outside for each in prefill),
        tpot=tuple(t / times.accepted for t in mean[:3]),
        requests=tuple(started * engine.sequences_per_batch / mean[at] for at in (0, 2, 1)),
        longest=full[0],
        itl_p99=np.take_along_axis(ends[0], frequent.astype(int)[:, None], axis=1)[:, 0],
        memory=peak_memory(stored, times.batch + np.ceil(started), steps.times.activations.max(axis=1)),
        step=mean,
    )
    partial = FullBatches(
        points.batch, points.requests[0], prefill,
        # longer steps contain more of all random times
        remaining=(chances * ((ends[0] - apart) ** 2 + apart**2)).sum(axis=1) / (2 * mean.seconds),
        prompt=steps.units * (full[0] - steps.apart[0]) / in_pass,
        microbatches=engine.sequences_per_batch, outside_steps=outside,
    )  # fmt: skip
    return points.at(steps.has_room), partial.at(steps.has_room)


class _Steps(NamedTuple):
    """Steps of an engine with prompts: by batch, and by the numbers of prompts that are evaluated. A unit is a prompt,
    or a chunk of one that is too long for a step."""

    evaluated: Array  # numbers of units in a step, from 0
    times: StepTimes  # by batch and these numbers
    units: Array  # of a prompt
    parts: Array  # steps of a prompt
    most: Array  # units in a step at most
    apart: tuple[Array, ...]  # seconds of the decodes that are no part of TTFT
    has_room: Array  # whether the decodes leave tokens for prompts


def _steps(engine: ServingReplica, isl: int, times: GenerationTimes, chunk: int | None) -> _Steps:
    """The steps with prompts, evaluated for 0, 1, 2, 4 … prompts."""
    prompts_first, zero = engine.work.engine.prompts_first, np.zeros(len(times.batch))
    room = prompt_limit(engine, isl, None) - (0 if prompts_first else times.verified) * times.batch
    room = np.minimum(room, chunk or isl + MAX_PROMPT_TOKENS)
    tokens = np.clip(room, 1, isl)
    parts, most = -(-isl // tokens), np.maximum(1, room // isl)
    evaluated = np.array([*(2**power for power in range(int(most.max() - 1).bit_length())), most.max()])
    decode = StepTimes._make(np.asarray(value)[..., None] for value in times.decode)
    if prompts_first:  # each gap between two tokens contains whole prompts
        alone = times.prompts(PromptChunk(evaluated[None, :], tokens[:1, None], (isl - tokens[:1, None]) // 2))
        mixed, apart = decode + parts[:, None] * alone, tuple(times.decode[:3])
        units, parts, most = zero + 1, zero + 1, zero + np.inf
    else:
        mixed = times.mixed(PromptChunk(evaluated[None, :], tokens[:, None], (isl - tokens[:, None]) // 2))
        apart, units = (zero, zero, zero), isl / tokens
    shape = (len(times.batch), len(evaluated))
    by_number = (
        np.concatenate((np.broadcast_to(none, (shape[0], 1)), np.broadcast_to(several, shape)), axis=1)
        for none, several in zip(decode, mixed, strict=True)
    )
    return _Steps(np.append(0, evaluated), StepTimes._make(by_number), units, parts, most, apart, room > 0)


def _poisson(mean: Array) -> Array:
    """Probabilities of 0, 1, 2 … of a Poisson distribution, a row for each mean, as far as they matter."""
    largest = float(mean.max())
    counts = np.arange(int(largest + 8 * sqrt(largest)) + 10)
    factorials = np.log(np.maximum(counts, 1)).cumsum()
    chances = np.exp(counts * np.log(mean)[:, None] - factorials - mean[:, None])
    return chances / chances.sum(axis=1, keepdims=True)


def _between(evaluated: Array, counts: Array) -> Array:
    """For each of `counts` the weights of `evaluated` numbers, from 0, with which a time is linear between them, and
    beyond the last one on the line through the first and the last."""
    weights = np.array([np.interp(counts, evaluated, one) for one in np.eye(len(evaluated))]).T
    beyond = counts > evaluated[-1]
    ratio = counts[beyond] / evaluated[-1]
    weights[beyond, 0], weights[beyond, -1] = 1 - ratio, ratio
    return weights


def peak_memory(stored: Stored, sequences: Array, activations: Array) -> Array:
    """Bytes per GPU of the pipeline stage that needs most, with this many sequences per microbatch in the cache."""
    stages = (weights + sequences * cache for weights, cache in stored)
    return np.maximum.reduce([*np.broadcast_arrays(*stages)]) + activations


def pareto(latency: Any, rate: Any) -> Any:
    """The indices of the Pareto front (lower latency, higher rate), by increasing latency."""
    if not len(latency):
        return np.array([], dtype=int)
    order = np.lexsort((-rate, latency))
    highest = np.maximum.accumulate(rate[order])
    return order[np.concatenate(([True], highest[1:] > highest[:-1]))]
