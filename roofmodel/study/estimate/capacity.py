"""How much fits: the largest size of a workload whose memory stays within the device's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from roofmodel.algebra import Number
from roofmodel.counting import phases
from roofmodel.counting.memory import Memory
from roofmodel.counting.workload import Workload
from roofmodel.models.architecture import Architecture
from roofmodel.study.estimate.parallelism import multiple

SECANTS = 8  # steps after which halving is the surer way


def largest_batch(arch: Architecture, work: Workload, needed: Memory, capacity: Number, limit: int) -> int | None:
    """The most sequences that fit, everything else as asked, which needs so much; 0 where not one does.

    As many as can be dealt out to the GPUs that there are.
    """
    found = _largest(arch, work, "batch", needed, capacity, limit)
    return found and found - found % multiple(work.phases == ("train",), work.parallel, work.micro_batch)


def largest_context(arch: Architecture, work: Workload, needed: Memory, capacity: Number, limit: int) -> int | None:
    """The longest `context` that fits if one was asked for, else the longest `seq`; None where memory sets no end."""
    return _largest(arch, work, "seq" if work.context is None else "context", needed, capacity, limit)


def _largest(arch: Architecture, work: Workload, size: str, needed: Memory, capacity: Number, limit: int) -> int | None:
    asked = getattr(work, size)

    def need(n: int) -> Number:
        other: dict[str, Any] = {size: n}
        return needed.total if n == asked else phases.peak_memory(arch, replace(work, **other), needed.weights).total

    return largest(need, capacity, limit, asked or 1)


def largest(need: Callable[[int], Number], capacity: Number, limit: int, start: int = 1) -> int | None:
    """The largest n below `limit` with need(n) <= capacity, for a need that never shrinks; None where `limit` fits.

    Secants first, as most needs are straight lines: four evaluations, from `start` on. Halving where that takes long.
    """
    low, high = 0, limit  # what fits, what is taken not to
    points = [(n, need(n)) for n in (start, 2 * start)]
    for n, size in points:
        low, high = (max(low, n), high) if size <= capacity else (low, min(high, n))
    while high - low > 1:
        (a, at_a), (b, at_b) = points[-2:]
        secant = a + (capacity - at_a) * (b - a) // (at_b - at_a) if at_a != at_b else high
        n = min(max(int(secant), low + 1), high - 1) if len(points) < SECANTS else (low + high) // 2
        points.append((n, need(n)))
        low, high = (n, high) if points[-1][1] <= capacity else (low, n)
    return None if low >= limit - 1 and need(limit) <= capacity else low
