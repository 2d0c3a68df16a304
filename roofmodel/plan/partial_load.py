"""Mixed engines at a rate below their highest: the time of a prefill, and the mean wait before it.

At a rate r, fewer sequences are in flight than the batch allows: n, for which `serving.py` gives the rate r. Steps and
prefills take the time of n sequences, interpolated between the batches that are searched, and at least that of one.

The wait is the sum of three waits, each with its own approximation: for a free place in the batch, for the end of the
running step, and for the chunks of earlier prompts. Near the highest rate, the first and the last overlap, so that the
sum is an upper estimate.

- Places and prompts are M/D/c queues (`queueing.py`). A sequence keeps a place for (osl - 1) / a steps. Each microbatch
  computes one prompt after another.
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

from roofmodel.plan.queueing import mean_wait
from roofmodel.plan.step_times import Array


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

    def with_chunks(self, chunks: Array) -> FullBatches:
        """With these chunks only, given by their places."""
        return FullBatches(
            self.batch, self.prompts[chunks], self.tokens[chunks], self.parts[chunks], self.filled[:, chunks],
            self.requests[:, chunks], tuple(each[:, chunks] for each in self.ttft), self.remaining[:, chunks],
            self.microbatches,
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
        return bool(wait < inf and load.ttft[0][row, -1] + wait <= limit)

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
