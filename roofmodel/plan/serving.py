"""Steady state of continuous batching on one engine, with chunked prefill.

A full engine decodes b sequences in every step, and replaces each finished sequence by a new one. With a tokens per
sequence and step (1 without speculative decoding), a sequence needs (osl - 1) / a steps: the prefill gives its first
token. So b a / (osl - 1) sequences finish per step, and their successors bring

    P = b a isl / (osl - 1)     prompt tokens per step.

The engine computes them in chunks of C tokens, in the same pass as the decodes (Agrawal et al., Sarathi-Serve,
arXiv 2403.02310). The share of steps with a chunk is f = P / C, at most 1, and the mean step takes

    T = (1 - f) t(b, 0) + f t(b, C).

    TPOT = T / a;     requests per second = b a / ((osl - 1) T);     TTFT = ceil(isl / C) t(b, C)

The derivation is Little's law (Operations Research 9, 1961): b sequences in flight / the time that each decodes.
Times are those of a cache of mean length: isl + osl / 2 tokens in decodes, (isl - C) / 2 tokens before a chunk; times
are linear in both. TTFT is the time of a prefill that starts at once, with a full batch. With a required rate, it is
the time of a prefill at this rate; `queueing.py` gives the mean wait before it. A microbatch of each pipeline stage
carries its own chunk.

The KV cache is reserved for all sequences at their full length, isl + osl tokens, so that no request is preempted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting.workload import PromptChunk
from roofmodel.plan.queueing import FullBatches, partial_load
from roofmodel.plan.speculation import GenerationTimes
from roofmodel.plan.step_times import Array, ServingReplica, StepTimes, Stored

MAX_BATCH = 4096
"""The largest number of sequences per microbatch that is searched."""
SMALLEST_CHUNK, LARGEST_CHUNK = 128, 32768
"""Limits of the tokens of a chunk; engines allow 512 to 16384 tokens per step by default."""


RARE_STEPS = 0.01
"""The share of the steps that the 99th percentile of the gaps between two tokens leaves out."""


class RequestLengths(NamedTuple):
    """The requests of a service: tokens of the prompt and of the answer."""

    isl: int
    osl: int


class Points(NamedTuple):
    """The steady states of an engine, by batch and chunk: flat arrays of the same length.

    `batch` counts the sequences of all replicas of the engine. `requests` are per second, `ttft` and `tpot` seconds,
    each with the ends of its interval.
    """

    batch: Array
    chunk: Array
    ttft: tuple[Array, ...]
    tpot: tuple[Array, Array, Array]
    requests: tuple[Array, Array, Array]
    wait: Array  # mean seconds before the prefill at the required rate; infinite where it is not sustained, or unknown
    longest: Array  # seconds of the longest step, which has a chunk
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
            return np.asarray(value)[places]

        return Points(*map(pick, self))


def batches(limit: int) -> Array:
    """The batches that are searched: all up to 16, then eight in each doubling, so that GEMM tiles are full."""
    sizes = [*range(1, 17)]
    while sizes[-1] < limit:
        step = max(4, 2 ** (sizes[-1].bit_length() - 4))
        sizes.append(sizes[-1] + step)
    return np.array([n for n in sizes if n <= limit] or [1])


def chunks(isl: int) -> list[tuple[int, int, int]]:
    """(prompts per step, tokens of each, chunks per prompt): whole prompts, several of them, or equal parts of one."""
    parts_of_pass = {}
    parts = 1
    while parts == 1 or isl // parts >= SMALLEST_CHUNK:
        tokens = -(-isl // parts)
        if tokens <= LARGEST_CHUNK or isl // (2 * parts) < SMALLEST_CHUNK:
            parts_of_pass[1, tokens] = -(-isl // tokens)
        parts *= 2
    prompts = 2
    while prompts * isl <= LARGEST_CHUNK and prompts <= MAX_BATCH:
        parts_of_pass[prompts, isl] = 1
        prompts *= 2
    return [(prompts, tokens, parts) for (prompts, tokens), parts in sorted(parts_of_pass.items())]


def largest_batch(engine: ServingReplica, stored: Stored) -> int:
    """The largest batch per microbatch whose weights and KV cache fit; 0 if none does."""
    if engine.usable is None:
        return MAX_BATCH
    limits = [min(MAX_BATCH, engine.work.options.max_seqs or MAX_BATCH)]
    if not all(start.starts for start in engine.starts):
        return 0
    for weights, cache in stored:
        rest = engine.usable - weights - (engine.own_memory or 0)
        limits.append(int(rest // cache) if cache else MAX_BATCH if rest > 0 else 0)
    return max(0, min(limits))


def steady_states(
    engine: ServingReplica, traffic: RequestLengths, stored: Stored, times: GenerationTimes, rate: float | None = None,
    engines: int = 1,
) -> tuple[Points, FullBatches | None]:  # fmt: skip
    """The steady states that keep the batch filled, for all batches and all chunks; with a required rate, the full
    batches from which follow TTFT and wait at this rate.

    `stored` is what the pipeline stages store for requests at their full length. `rate` is the required rate of all
    `engines` of this kind.
    """
    isl, osl = traffic
    searched, b, accepted = chunks(isl), times.batch[:, None], times.accepted
    prompts, tokens, parts = (np.array(column)[None, :] for column in zip(*searched, strict=True))
    mixed = times.mixed(PromptChunk(prompts, tokens, (isl - tokens) // 2))
    decode = StepTimes._make(np.asarray(value)[..., None] for value in times.decode)
    finished = b * accepted / (osl - 1)  # sequences per step
    share = finished * isl / (prompts * tokens)  # of the steps, those with a chunk
    mean = (1 - share) * decode + share * mixed
    squares = (1 - share) * decode.seconds**2 + share * mixed.seconds**2
    filled = np.broadcast_to(share <= 1, np.shape(mean.seconds))
    ttft: tuple[Array, ...] = tuple(np.broadcast_to(parts * t, filled.shape) for t in mixed[:3])
    requests = tuple(finished * engine.sequences_per_batch / mean[at] for at in (0, 2, 1))
    wait: Array = np.inf
    full: FullBatches | None = None
    if rate is not None:
        remaining = squares / (2 * mean.seconds)  # longer steps contain more of all random times
        full = FullBatches(
            times.batch * engine.sequences_per_batch, prompts[0], (prompts * tokens)[0], parts[0], filled, requests[0],
            ttft, remaining, engine.sequences_per_batch, engine.work.engine.host.outside_steps(isl),
        )  # fmt: skip
        ttft, wait = partial_load(full, rate, engines)
    outside = engine.work.engine.host.outside_steps(isl)
    points = Points(
        batch=b * engine.sequences_per_batch,
        chunk=prompts * tokens,
        ttft=tuple(each + outside for each in ttft),
        tpot=tuple(t / accepted for t in mean[:3]),
        requests=requests,
        wait=wait,
        longest=mixed.seconds,
        itl_p99=np.where(share > RARE_STEPS, mixed.seconds, decode.seconds),
        memory=peak_memory(stored, b + prompts, mixed.activations),
        step=mean,
    )
    return _broadcast(points, filled.shape).at(filled.ravel()), full


def peak_memory(stored: Stored, sequences: Array, activations: Array) -> Array:
    """Bytes per GPU of the pipeline stage that needs most, with this many sequences per microbatch in the cache."""
    stages = (weights + sequences * cache for weights, cache in stored)
    return np.maximum.reduce([*np.broadcast_arrays(*stages)]) + activations


def _broadcast(points: Points, shape: tuple[int, ...]) -> Points:
    """The points as flat arrays."""

    def flat(value: Any) -> Any:
        if isinstance(value, StepTimes):
            return StepTimes(*map(flat, value))
        if isinstance(value, tuple):
            return tuple(map(flat, value))
        return np.broadcast_to(value, shape).ravel()

    return Points(*map(flat, points))


def pareto(latency: Any, rate: Any) -> Any:
    """The indices of the Pareto front (lower latency, higher rate), by increasing latency."""
    if not len(latency):
        return np.array([], dtype=int)
    order = np.lexsort((-rate, latency))
    highest = np.maximum.accumulate(rate[order])
    return order[np.concatenate(([True], highest[1:] > highest[:-1]))]
