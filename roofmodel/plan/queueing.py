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

- Places and prompts are M/D/c queues. A sequence keeps a place for (osl - 1) / a steps. A prompt keeps its microbatch
  for its part of a step that is full of prompts.
- A step runs with probability 1 - exp(-m), where m is the mean number of requests per microbatch, rate × seconds in
  service, by Little's law. This is the probability that an M/G/∞ queue is not empty: its requests are Poisson
  distributed, and it never makes a request wait. The running step ends after E[step²] / (2 E[step]) seconds on average.
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
    """Full batches of an engine: arrays by batch, ascending."""

    batch: Array  # sequences of the engine
    requests: Array  # per second
    ttft: tuple[Array, ...]  # seconds of a prefill in steps, with the ends of its interval
    remaining: Array  # mean seconds from a random time to the end of the step
    prompt: Array  # seconds for which a prompt keeps a microbatch, in full steps
    microbatches: int  # of the engine, in flight at a time
    outside_steps: float = 0.0  # seconds of TTFT that the engine's host adds

    def at(self, places: Array) -> FullBatches:
        """The batches at these places or where this mask is true."""
        return FullBatches(
            self.batch[places], self.requests[places], tuple(each[places] for each in self.ttft),
            self.remaining[places], self.prompt[places], self.microbatches, self.outside_steps,
        )  # fmt: skip


class PartialLoad(NamedTuple):
    """By batch: TTFT with the ends of its interval, and the mean wait before it, in seconds.

    Where the rate is not sustained, the wait is infinite and TTFT is that of the full batch.
    """

    ttft: tuple[Array, ...]
    wait: Array


def partial_load(full: FullBatches, rate: float, engines: int) -> PartialLoad:
    """The prefill of `engines` equal engines at `rate` requests per second, which arrive at random."""
    highest = np.maximum.accumulate(full.requests)  # a larger batch has no lower rate

    def at_rate(values: Array) -> Any:
        return np.interp(rate / engines, highest, values)

    ttft = [at_rate(each) for each in full.ttft]
    in_place = at_rate(full.batch / full.requests)
    servers = full.microbatches * engines
    running = -np.expm1(-rate * (in_place + ttft[0]) / servers) * at_rate(full.remaining)
    prompts = mean_wait(rate, servers, at_rate(full.prompt))
    # a request waits for a place only while the batch is full
    place = mean_wait(rate, full.batch * engines, full.batch / full.requests)
    sustained = rate < full.requests * engines
    wait = np.where(sustained, place + running + prompts, inf)
    ends = zip(ttft, full.ttft, strict=True)
    return PartialLoad(tuple(np.where(wait < inf, each, at_full) + full.outside_steps for each, at_full in ends), wait)


def fewest_engines(full: FullBatches, place: int, rate: float, most: int, limit: float) -> int | None:
    """The smallest number of engines that sustain `rate` requests per second, with at most `limit` seconds of wait and
    prefill, if each has the batch at `place`; None if `most` do not suffice.

    With more engines, each has a lower load, so that wait and prefill take less time.
    """
    own = full.at(np.arange(place + 1))

    def suffices(engines: int) -> bool:
        load = partial_load(own, rate, engines)
        return bool(load.wait[-1] < inf and load.ttft[0][-1] + load.wait[-1] <= limit)

    least = int(rate // full.requests[place]) + 1
    if least > most or not suffices(most):
        return None
    if limit == inf:
        return least
    return least + bisect_left(range(least, most), True, key=suffices)
