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

from math import inf, sqrt


def mean_wait(rate: float, servers: int, seconds: float) -> float:
    """Seconds that a request waits on average for one of `servers`, each of which takes `seconds` per request.

    Infinity where `rate` requests per second keep all servers busy.
    """
    work = rate * seconds
    load = work / servers
    if load >= 1:
        return inf
    if work <= 0:
        return 0.0
    exponential = _probability_of_waiting(work, servers) * seconds / (servers * (1 - load))
    spread = (1 - load) * (servers - 1) * (sqrt(4 + 5 * servers) - 2) / (16 * load * servers)
    return exponential * min((1 + spread) / 2, servers / (servers + 1))


def _probability_of_waiting(work: float, servers: int) -> float:
    """Erlang's C formula, from the recursion of his B formula; `work` is rate × seconds per request."""
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = work * blocked / (count + work * blocked)
    load = work / servers
    return blocked / (1 - load * (1 - blocked))
