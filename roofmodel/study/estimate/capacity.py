"""The largest batch and context whose memory fits into the device's, from one formula of peak memory.

The formula is traced (roofmodel/tracing/): one walk through the model per pass gives peak memory as a function of batch
and length, which the search then evaluates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from roofmodel.algebra import Number
from roofmodel.counting import phases
from roofmodel.counting.memory import Memory
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.study.estimate.parallelism import batch_divisor
from roofmodel.tracing.trace import Trace

SECANTS = 8  # steps after which bisection converges faster
MIN_TRACED_SIZES = {"batch": 1, "seq": 2, "context": 1}
"""The smallest sizes that the formula is valid for. Operators differ for one token and for an empty cache."""


class MemoryFormula:
    """Peak memory of a workload per GPU, as a function of its batch and its length."""

    def __init__(self, arch: Architecture, work: Workload, weights: Number) -> None:
        self.arch, self.work, self.weights = arch, work, weights
        lengths = () if arch.image else ("seq",) if work.context is None else ("context",)
        self.sizes = {name: getattr(work, name) for name in ("batch", *lengths)}
        self._evaluators: dict[frozenset[tuple[str, int]], Callable[[Mapping[str, int]], Any]] = {}

    def at(self, sizes: Mapping[str, int]) -> Memory:
        """The peak memory with these sizes of the workload replaced: `batch`, and `context` if given, else `seq`."""
        all_sizes = {**self.sizes, **sizes}
        small = {name: size for name, size in all_sizes.items() if size < MIN_TRACED_SIZES[name]}
        key = frozenset(small.items())
        if key not in self._evaluators:
            self._evaluators[key] = self._evaluator(small)
        found: Memory = self._evaluators[key](all_sizes)
        return found

    def _evaluator(self, fixed: Mapping[str, int]) -> Callable[[Mapping[str, int]], Any]:
        """The traced formula of all sizes except the fixed ones."""
        trace = Trace()
        inputs: dict[str, Any] = {name: trace.input(name, MIN_TRACED_SIZES[name]) for name in self.sizes}
        work = self.work._replace(**{**inputs, **fixed})
        return trace.evaluator(trace.cases(lambda: phases.peak_memory(self.arch, work, self.weights)))


def usable_memory(device: Device, work: Workload) -> Number:
    """The bytes of the device's memory that the workload may use; the device must state its memory."""
    assert device.capacity is not None
    return work.memory_utilization * device.capacity


def largest_batch(formula: MemoryFormula, capacity: Number, limit: int) -> int | None:
    """The largest batch that fits and can be sharded evenly over the GPUs; 0 if none fits."""
    work, found = formula.work, _largest(formula, "batch", capacity, limit)
    return found and found - found % batch_divisor(work.phases == ("train",), work.parallel, work.micro_batch)


def largest_context(formula: MemoryFormula, capacity: Number, limit: int) -> int | None:
    """The largest `context` that fits if one is given, else the largest `seq`; None if every length fits."""
    length = "seq" if formula.work.context is None else "context"
    if _exceeds_at_one_token(formula.at({length: 2}), capacity):
        return 0
    return _largest(formula, length, capacity, limit)


def _exceeds_at_one_token(at_two: Memory, capacity: Number) -> bool:
    """Whether the capacity is exceeded without activations, by the lower bound that follows from a length of 2.

    The cache of one token is at least half the cache of two, and weights, gradients and optimizer state do not depend
    on the length. This avoids the walks for a length of 1, which has a formula of its own.
    """
    fixed = at_two.weights + at_two.gradients + at_two.optimizer
    return bool(fixed + at_two.kv_cache / 2 > capacity)


def _largest(formula: MemoryFormula, size: str, capacity: Number, limit: int) -> int | None:
    return largest(lambda n: formula.at({size: n}).total, capacity, limit, formula.sizes[size] or 1)


def largest(need: Callable[[int], Number], capacity: Number, limit: int, start: int = 1) -> int | None:
    """The largest n below `limit` with need(n) <= capacity, for a non-decreasing need; None if `limit` fits.

    Secant steps from `start` find the root of a linear need in four evaluations; bisection follows if they do not
    converge.
    """
    low, high = 0, limit  # the largest known to fit, the smallest assumed not to fit
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
