"""The largest batch and context whose memory fits into the device's, from one formula of peak memory.

The formula is traced (roofmodel/numbers/traced.py): one walk through the model per pass gives peak memory as a function
of batch and length, which the search then evaluates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import itemgetter
from typing import Any, NamedTuple

from roofmodel.counting import passes, phases
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import Memory
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import Number
from roofmodel.numbers.traced import Trace, map_cases
from roofmodel.steps.parallelism import batch_divisor
from roofmodel.steps.server_start import server_states_memory

SECANTS = 8  # steps after which bisection converges faster
MIN_TRACED_SIZES = {"batch": 1, "seq": 2, "context": 1, "new_tokens": 1}
"""The smallest sizes that the formula is valid for. Operators differ for one token and for an empty cache."""


class MemoryFormula:
    """Peak memory of a workload per GPU, as a function of its batch and its length.

    Generation has one formula for its prefill, and one for its last decode, which also gives the operators.
    `weights` are the bytes of the weights on a GPU.
    """

    def __init__(self, arch: Architecture, work: Workload, weights: Number) -> None:
        self.arch, self.work, self.weights = arch, work, weights
        lengths = () if arch.image else ("seq",) if work.context is None else ("context",)
        self.generates = work.phases == ("generate",) and work.parallel.pp == 1
        self.sizes = {name: getattr(work, name) for name in ("batch", *lengths)}
        if self.generates:
            self.sizes["new_tokens"] = work.new_tokens
        self._formulas: dict[tuple[_PassStep | None, frozenset[tuple[str, int]]], _Formula] = {}

    def at(self, sizes: Mapping[str, int]) -> Memory:
        """The peak memory with these sizes of the workload replaced: `batch`, and `context` if given, else `seq`."""
        largest = (phases.prompt_step, phases.last_decode_step) if self.generates else (None,)
        return reduce(Memory.larger, (self._formula(each, sizes).memory({**self.sizes, **sizes}) for each in largest))

    def decode_operators(self, new_tokens: int) -> tuple[Operator, ...]:
        """The operators of the last decode of a generation of so many tokens after the first."""
        sizes = {**self.sizes, "new_tokens": new_tokens}
        formula = self._formula(phases.last_decode_step, sizes)
        operators, numbers = formula.operators(sizes)
        return tuple(operator.with_numbers(values) for operator, values in zip(operators, numbers, strict=True))

    def _formula(self, which: _PassStep | None, sizes: Mapping[str, int]) -> _Formula:
        """The traced formula of a pass, or of all passes. Sizes below MIN_TRACED_SIZES are constants in it."""
        all_sizes = {**self.sizes, **sizes}
        fixed = {name: size for name, size in all_sizes.items() if size < MIN_TRACED_SIZES[name]}
        key = which, frozenset(fixed.items())
        if key in self._formulas:
            return self._formulas[key]
        trace = Trace()
        inputs: dict[str, Any] = {name: trace.input(name, MIN_TRACED_SIZES[name]) for name in self.sizes}
        work = self.work._replace(**{**inputs, **fixed})

        def counted() -> tuple[Memory, list[Operator], tuple[Any, ...]]:
            if which is None:
                return phases.peak_memory(self.arch, work, self.weights), [], ()
            step = which(work.steps()[0])
            operators = passes.one_pass(self.arch, step)
            needed = passes.pass_memory(passes.gpu_share(self.arch, step), step, operators, self.weights)
            return needed, [*operators], tuple(operator.numbers for operator in operators)

        cases = trace.cases(counted)
        self._formulas[key] = _Formula(
            trace.evaluator(map_cases(cases, itemgetter(0))), trace.evaluator(map_cases(cases, itemgetter(slice(1, 3))))
        )
        return self._formulas[key]


class _Formula(NamedTuple):
    """The memory of one or several passes as a function of sizes, and the operators of a pass with their numbers."""

    memory: Callable[[Mapping[str, int]], Memory]
    operators: Callable[[Mapping[str, int]], tuple[list[Operator], tuple[Any, ...]]]


Total = Callable[[Mapping[str, int]], Number]
"""The bytes per GPU that count against the usable ones, with these sizes of the workload replaced."""
_PassStep = Callable[[Step], Step]
"""The step of one pass of generation."""


def usable_memory(device: Device, work: Workload) -> Number:
    """The bytes of the device's memory that the workload may use; the device must state its memory.

    They are a share of what the driver states where the engine's file has the share's default, else of all DRAM.
    """
    capacity = device.driver_capacity if server_states_memory(device, work) else device.capacity
    assert capacity is not None
    assert work.options.memory_utilization is not None
    return work.options.memory_utilization * capacity


def largest_batch(
    formula: MemoryFormula, needed: Memory, capacity: Number, limit: int, total: Total | None = None
) -> int | None:
    """The largest batch that fits and can be sharded evenly over the GPUs; 0 if none fits.

    `needed` is the memory of the workload, `total` the bytes that count with some sizes replaced (default: all roles).
    """
    if exceeds_at_any_size(needed, capacity):
        return 0
    work, start, total = formula.work, formula.sizes["batch"], total or (lambda sizes: formula.at(sizes).total)
    batch = largest(lambda n: total({"batch": n}), capacity, limit, start)
    return batch and batch - batch % batch_divisor(work.phases == ("train",), work.parallel, work.micro_batch)


def largest_context(
    formula: MemoryFormula, needed: Memory, capacity: Number, limit: int, total: Total | None = None
) -> int | None:
    """The largest `context` that fits if one is given, else the largest `seq`; None if every length fits.

    `needed` is the memory of the workload, `total` the bytes that count with some sizes replaced (default: all roles).
    """
    if exceeds_at_any_size(needed, capacity):
        return 0
    length = "seq" if formula.work.context is None else "context"
    # The cache of one token is at least half that of two; a length of 1 has a formula of its own, which takes longer.
    at_two = formula.at({length: 2})
    if _parameter_bytes(at_two) + at_two.kv_cache / 2 > capacity:
        return 0
    total = total or (lambda sizes: formula.at(sizes).total)
    return largest(lambda n: total({length: n}), capacity, limit, formula.sizes[length] or 1)


def exceeds_at_any_size(needed: Memory, capacity: Number) -> bool:
    """Whether the part of the memory that depends neither on the batch nor on the length exceeds the capacity."""
    return bool(_parameter_bytes(needed) > capacity)


def _parameter_bytes(needed: Memory) -> Number:
    """Weights, gradients, their buckets, and optimizer state."""
    return needed.weights + needed.gradients + needed.optimizer + needed.other


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
