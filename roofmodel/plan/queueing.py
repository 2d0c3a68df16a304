"""The wait before the prefill: a queue of requests that arrive at random, and engines below their highest rate.

**The queue.** Requests arrive as a Poisson process; each keeps one of several servers for the same time (M/D/c). The
mean wait is that of exponential times (M/M/c, Erlang's C formula) times

    (1 + (1 - load) (c - 1) (sqrt(4 + 5 c) - 2) / (16 load c)) / 2

(Cosmetatos, "Approximate explicit formulae for the average queueing time in the processes (M/D/r) and (D/M/r)", INFOR
13(3), 1975). With one server this is the formula of Pollaczek and Khinchine, which is exact. The factor grows without
limit as the load goes to 0, so it is at most c / (c + 1), the limit of light traffic: a request waits only if all c
servers are busy, which is equally likely in both queues (Erlang's B formula holds for any service times). It then waits
for the first of c remaining times: these are uniform from 0 to s in M/D/c, with the mean minimum s / (c + 1), and
exponential in M/M/c, with s / c.

**Mixed engines below their highest rate.** At a rate r, fewer sequences are in flight than the batch allows: n, for
which `serving.py` gives the rate r. Steps and prefills take the time of n sequences, interpolated between the batches
that are searched, and at least that of one.

The wait is the sum of three waits, each with its own approximation: for a free place in the batch, for the end of the
running step, and for the chunks of earlier prompts. Near the highest rate, the first and the last overlap, so that the
sum is an upper estimate.

- Places and prompts are M/D/c queues. A sequence keeps a place for (osl - 1) / a steps. Each microbatch computes one
  prompt after another.
- A step runs with probability 1 - exp(-m), where m is the mean number of requests per microbatch, rate × seconds in
  service, by Little's law. This is the probability that an M/G/∞ queue is not empty: its requests are Poisson
  distributed, and it never makes a request wait. The running step ends after E[step²] / (2 E[step]) seconds on average.

A chunk for several prompts contains fewer of them at a low rate. TTFT and wait are those of the number of prompts up to
the chunk's that gives the smallest sum.
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import Any, NamedTuple

import numpy as np

from roofmodel.plan.step_times import Array

NEGLIGIBLE = 1e-16
"""Relative size below which further terms of a sum are left out."""
IMPROBABLE = 1e-30
"""A probability of waiting below this is 0."""


def mean_wait(rate: float, servers: Any, seconds: Any) -> Any:
    """Seconds that a request waits on average for one of `servers`, each of which takes `seconds` per request.

    `servers` and `seconds` may be arrays. Infinity where `rate` requests per second keep all servers busy.
    """
    work = rate * np.asarray(seconds, dtype=float)
    load = work / servers
    queued = (load < 1) & (work > 0)
    work, load = np.where(queued, work, 1.0), np.where(queued, load, 0.5)  # anything valid elsewhere
    exponential = _probability_of_waiting(work, load, servers) * seconds / (servers * (1 - load))
    spread = (1 - load) * (servers - 1) * (np.sqrt(4 + 5 * servers) - 2) / (16 * load * servers)
    wait = exponential * np.minimum((1 + spread) / 2, servers / (servers + 1))
    return np.where(queued, wait, np.where(rate * np.asarray(seconds) >= servers, inf, 0.0))[()]


def _probability_of_waiting(work: Any, load: Any, servers: Any) -> Any:
    """Erlang's C formula; `work` is rate × seconds per request.

    It follows from his B formula, whose inverse is the sum over k of servers! / (servers - k)! / work^k.
    """
    term = total = np.ones(np.broadcast_shapes(np.shape(work), np.shape(servers)))
    count = 0
    while np.any((count < servers) & (term > NEGLIGIBLE * total) & (total < 1 / IMPROBABLE)):
        term = np.where(total < 1 / IMPROBABLE, term * np.maximum(servers - count, 0) / work, 0.0)
        total = total + term
        count += 1
    blocked = np.where(total < 1 / IMPROBABLE, 1 / total, 0.0)
    return blocked / (1 - load * (1 - blocked))


# --- Engines below their highest rate -------------------------------------------------------------


class FullBatches(NamedTuple):
    """Full batches of an engine: arrays by batch, by chunk, or by both."""

    batch: Array  # sequences of the engine, ascending
    prompts: Array  # in a chunk
    tokens: Array  # of a chunk
    parts: Array  # chunks of a prompt
    filled: Array  # whether the chunks suffice to fill the batch
    requests: Array  # per second
    ttft: tuple[Array, ...]  # seconds, with the ends of the interval
    remaining: Array  # mean seconds from a random time to the end of the step
    microbatches: int  # of the engine, in flight at a time
    outside_steps: float = 0.0  # seconds of TTFT that the engine's host adds

    def with_chunks(self, chunks: Array) -> FullBatches:
        """With these chunks only, given by their places."""
        return FullBatches(
            self.batch, self.prompts[chunks], self.tokens[chunks], self.parts[chunks], self.filled[:, chunks],
            self.requests[:, chunks], tuple(each[:, chunks] for each in self.ttft), self.remaining[:, chunks],
            self.microbatches, self.outside_steps,
        )  # fmt: skip


class PartialLoad(NamedTuple):
    """By batch and chunk: TTFT with the ends of its interval, and the mean wait before it, in seconds.

    Where the rate is not sustained, the wait is infinite and TTFT is that of the full batch.
    """

    ttft: tuple[Array, ...]
    wait: Array


def partial_load(full: FullBatches, rate: float, engines: int) -> PartialLoad:
    """The prefill of `engines` equal engines at `rate` requests per second, which arrive at random."""
    load = PartialLoad(tuple(np.array(each) for each in full.ttft), np.full(full.requests.shape, inf))
    fewer: tuple[Any, Any] | None = None  # TTFT and wait with fewer whole prompts in a chunk
    for chunk in range(len(full.prompts)):
        ttft, wait = _with_chunk(full, chunk, rate, engines)
        if full.parts[chunk] == 1:
            if fewer is not None:
                better = fewer[0][0] + fewer[1] < ttft[0] + wait
                ttft, wait = np.where(better, fewer[0], ttft), np.where(better, fewer[1], wait)
            fewer = ttft, wait
        load.wait[:, chunk] = np.where(rate < full.requests[:, chunk] * engines, wait, inf)
        for own, value in zip(load.ttft, ttft, strict=True):
            own[:, chunk] = np.where(load.wait[:, chunk] < inf, value, own[:, chunk])
    return load


def fewest_engines(full: FullBatches, batch: int, chunk: int, rate: float, most: int, limit: float) -> int:
    """The smallest number of engines that sustain `rate` requests per second, with at most `limit` seconds of wait and
    prefill, if each has this batch and chunks of so many tokens; `most` if no smaller number does.

    With more engines, each has a lower load, so that wait and prefill take less time.
    """
    row, column = (int(np.flatnonzero(sizes == size)[0]) for sizes, size in ((full.batch, batch), (full.tokens, chunk)))
    with_fewer_prompts = np.flatnonzero((full.parts == 1) & (np.arange(len(full.parts)) < column))
    own = full.with_chunks(np.append(with_fewer_prompts, column))

    def suffices(engines: int) -> bool:
        load = partial_load(own, rate, engines)
        wait = load.wait[row, -1]
        return bool(wait < inf and load.ttft[0][row, -1] + own.outside_steps + wait <= limit)

    sustaining = range(min(int(rate // full.requests[row, column]) + 1, most), most)
    return sustaining.start + bisect_left(sustaining, True, key=suffices)


def _with_chunk(full: FullBatches, chunk: int, rate: float, engines: int) -> tuple[Any, Any]:
    """TTFT with its interval, and the wait, by batch, with chunks of this number of prompts."""
    filled = full.filled[:, chunk]
    shape = (len(full.ttft), len(full.batch))
    if not filled.any():
        return np.full(shape, inf), np.full(shape[1], inf)
    requests = np.maximum.accumulate(full.requests[filled, chunk])  # a larger batch has no lower rate

    def at_rate(values: Any) -> Any:
        return np.interp(rate / engines, requests, values)

    ttft = np.array([at_rate(each[filled, chunk]) for each in full.ttft])
    if rate >= requests[-1] * engines:
        return np.full(shape, inf), np.full(shape[1], inf)
    in_place = at_rate(full.batch[filled] / full.requests[filled, chunk])
    servers = full.microbatches * engines
    running = -np.expm1(-rate * (in_place + ttft[0]) / servers) * at_rate(full.remaining[filled, chunk])
    prompts = mean_wait(rate, servers, ttft[0] / full.prompts[chunk])
    # a request waits for a place only while the batch is full
    in_full_batch = np.where(filled, full.batch / full.requests[:, chunk], in_place)
    place = mean_wait(rate, full.batch * engines, in_full_batch)
    return np.broadcast_to(ttft[:, None], shape), place + running + prompts
