"""The mean wait in a queue before the prefill, for requests that arrive at random.

Requests arrive as a Poisson process; each keeps one of several servers for the same time (M/D/c). The mean wait is
that of exponential times (M/M/c, Erlang's C formula) times

    (1 + (1 - load) (c - 1) (sqrt(4 + 5 c) - 2) / (16 load c)) / 2

(Cosmetatos, "Approximate explicit formulae for the average queueing time in the processes (M/D/r) and (D/M/r)", INFOR
13(3), 1975). With one server this is the formula of Pollaczek and Khinchine, which is exact. The factor grows without
limit as the load goes to 0, so it is at most c / (c + 1), the limit of light traffic: a request waits only if all c
servers are busy, which is equally likely in both queues (Erlang's B formula holds for any service times). It then waits
for the first of c remaining times: these are uniform from 0 to s in M/D/c, with the mean minimum s / (c + 1), and
exponential in M/M/c, with s / c.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

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
