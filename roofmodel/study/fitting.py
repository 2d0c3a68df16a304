"""How much fits: the largest size of a workload whose memory stays within the device's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from roofmodel.algebra import Number
from roofmodel.counting import phases
from roofmodel.counting.workload import Workload
from roofmodel.models.architecture import Architecture

SECANTS = 8  # steps after which halving is the surer way


def largest_batch(arch: Architecture, work: Workload, weights: Number, capacity: Number, limit: int) -> int | None:
    """The most sequences that fit beside so many bytes of weights, everything else as asked; 0 where not one does."""
    return largest(lambda n: phases.need(arch, replace(work, batch=n), weights).total, capacity, limit)


def largest_context(arch: Architecture, work: Workload, weights: Number, capacity: Number, limit: int) -> int | None:
    """The longest `context` that fits if one was asked for, else the longest `seq`; None where memory sets no end."""

    def asking(n: int) -> Workload:
        return replace(work, seq=n) if work.context is None else replace(work, context=n)

    return largest(lambda n: phases.need(arch, asking(n), weights).total, capacity, limit)


def largest(need: Callable[[int], Number], capacity: Number, limit: int) -> int | None:
    """The largest n below `limit` with need(n) <= capacity, for a need that never shrinks; None where `limit` fits.

    Secants first, as most needs are straight lines: four evaluations. Halving where that takes too long.
    """
    low, high = 0, limit  # what fits, what is taken not to
    points = [(1, need(1)), (2, need(2))]
    for n, size in points:
        low, high = (max(low, n), high) if size <= capacity else (low, min(high, n))
    while high - low > 1:
        (a, at_a), (b, at_b) = points[-2:]
        secant = a + (capacity - at_a) * (b - a) // (at_b - at_a) if at_a != at_b else high
        n = min(max(int(secant), low + 1), high - 1) if len(points) < SECANTS else (low + high) // 2
        points.append((n, need(n)))
        low, high = (n, high) if points[-1][1] <= capacity else (low, n)
    return None if low >= limit - 1 and need(limit) <= capacity else low
