"""What fits: what a serving engine reports about memory when it starts, and the largest batch and context.

The rule of a serving engine and its constants are the engine's (`engines/engine_file.py`). Weights are those as stored.
The activations of a step are the larger of two peaks:

    layer     live activations of the operators, with the token budget as one prompt, and further hidden states
    sampler   sequences x vocabulary x (logits in the working format + what sorting them needs), hidden states

The engine measures them with its largest step, whatever the workload is, so that they do not depend on its lengths.

The largest batch and context come from one formula of peak memory. It is traced (roofmodel/numbers/traced.py): one walk
through the model per pass gives peak memory as a function of batch and length, which the search then evaluates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import takewhile
from operator import itemgetter
from typing import Any, NamedTuple

from roofmodel.counting import passes, phases
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import Memory, Walk, one_pass
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import ServingMemory
from roofmodel.models.architecture import Architecture, Embedding
from roofmodel.models.layers import Attention, LatentAttention, MoE, Uncached, parts
from roofmodel.numbers.algebra import Number, is_just, maximum, minimum
from roofmodel.numbers.traced import Trace, map_cases
from roofmodel.options.values import MEMORY_UTILIZATION, Phase
from roofmodel.options.workload import Options

SERVED = (("prefill",), ("decode",), ("prefill", "decode"), ("generate",))
"""The phases of a server."""


class StartMemory(NamedTuple):
    """The memory of one GPU when the engine has started, in bytes, and what the whole engine can serve.

    The GPU is of the pipeline stage whose KV cache takes the fewest requests. `kv_cache` is negative where the rest
    exceeds what may be used. None: not stated for this engine.
    """

    device: Number  # as the driver states it
    utilization: Number
    weights: Number
    non_torch: Number
    activation_peak: Number | None
    graphs: Number | None
    subtracts_graphs: bool  # from what the KV cache may have
    kv_cache: Number
    request: Number  # bytes of the KV cache that one request of the longest length needs
    max_len: Number
    token_budget: int | None
    max_seqs: int | None
    max_concurrency: Number
    block: int  # of the KV cache, in tokens
    starts_without: bool  # even if the cache is too small for one request

    @property
    def starts(self) -> Any:
        """Whether the engine starts: the KV cache is large enough for one request of the longest length."""
        return self.kv_cache > 0 if self.starts_without else self.kv_cache >= self.request

    @property
    def kv_tokens(self) -> Number:
        """The tokens of the KV cache of the whole engine, in whole blocks."""
        return self.max_concurrency * self.max_len // self.block * self.block

    @property
    def usable(self) -> Number:
        """The bytes of the device that may be used."""
        return self.utilization * self.device

    def needed(self, cached: Number) -> Number:
        """The bytes that the engine needs to start and to have so many bytes in its KV cache; at most `usable` where
        it can."""
        least = 0 if self.starts_without else self.request
        return self.usable - self.kv_cache + maximum(cached, least)


def longest_sequence(work: Workload) -> Number:
    """The tokens of the longest sequence: `--max-len`, or the workload's prompt with what it generates."""
    if work.options.max_len is not None:
        return work.options.max_len
    lengths = []
    for step in work.steps():
        lengths.append(step.context + step.tokens + (step.passes - 1 if step.phase == "generate" else 0))
    longest = lengths[0]
    for length in lengths[1:]:
        longest = maximum(longest, length)
    return longest


def server_states_memory(device: Device, work: Workload) -> bool:
    """Whether the engine of a workload says how it divides the memory of the device that serves it."""
    return (
        work.engine.memory is not None and work.phases in SERVED and work.weights_known and work.decoder_seq is None
        and device.driver_capacity is not None
    )  # fmt: skip


def serves(arch: Architecture, phases: tuple[Phase, ...]) -> bool:
    """Whether these are phases of a server that generates text with a decoder."""
    return phases in SERVED and arch.generates and not arch.encoder


def default_utilization(engine: Engine, device: Device | None, options: Options, served: bool) -> float:
    """The share of a device's memory that is used where no option states it: that of the engine's flag."""
    if not served or engine.memory is None or device is None or device.driver_capacity is None:
        return MEMORY_UTILIZATION
    limits = engine.memory.limits(device.driver_capacity, device.generation, options.tp)
    share: float = engine.memory.default_utilization(
        device.driver_capacity, options.token_budget or limits.token_budget or 0, limits.graph_sequences,
        options.tp * options.pp,
    )  # fmt: skip
    return share


def needed_bytes(starts: Sequence[StartMemory], memory: Memory) -> Number:
    """The bytes per GPU that a workload with this peak memory needs: under an engine that states how it divides the
    memory, those with which it starts and serves the workload."""
    if not starts:
        return memory.total
    return reduce(maximum, (start.needed(memory.kv_cache) for start in starts))


def fewest_requests(starts: Sequence[StartMemory]) -> StartMemory | None:
    """The memory on the pipeline stage whose KV cache takes the fewest requests; None without any."""
    return min(starts, key=lambda start: start.max_concurrency, default=None)


def server_starts(
    arch: Architecture, device: Device, work: Workload, walk: Walk = one_pass, max_len: Number | None = None
) -> tuple[StartMemory, ...]:
    """The memory of a server that starts for this workload, on a GPU of each distinct pipeline stage; none where the
    engine or the device states no memory."""
    if not server_states_memory(device, work):
        return ()
    max_len = longest_sequence(work) if max_len is None else max_len
    return tuple(
        _of_stage(arch, device, work, step, max_len, walk) for _, step in phases.distinct_stages(arch, work.steps()[0])
    )


def _of_stage(
    arch: Architecture, device: Device, work: Workload, step: Step, max_len: Number, walk: Walk
) -> StartMemory:
    """The memory of a GPU of the pipeline stage that the step names."""
    rule, layout, options = work.engine.memory, work.parallel, work.options
    assert rule is not None
    total = device.driver_capacity
    assert total is not None
    limits = rule.limits(total, device.generation, layout.tp)
    budget, most = options.token_budget or limits.token_budget, options.max_seqs or limits.max_seqs
    if rule.whole_prompts and options.token_budget is None:
        budget = maximum(max_len, budget or 1)
    utilization = options.memory_utilization
    assert utilization is not None
    weights = phases.weight_bytes(arch, step, walk=walk)
    shared = layout.tp > 1 or layout.experts_span_replicas
    outside, peak, graphs = rule.outside_torch[shared], _activation_peak(arch, rule, step, budget, most, walk), None
    if rule.graphs is not None:
        graphs = rule.graphs * len(passes.gpu_share(arch, step).stack.layers)
    of_step = (peak or 0) + (graphs or 0) * rule.subtracts_graphs
    cache = rule.for_cache(total, utilization, weights, outside, of_step)
    request = _request_bytes(passes.gpu_share(arch, step), step, max_len, budget)
    engines = layout.dp if layout.experts_span_replicas else 1
    room = maximum(cache, 0)
    caches = not isinstance(request, int) or request > 0  # a pipeline stage of state spaces and experts caches nothing
    most_requests = engines * room / request if caches else math.inf
    return StartMemory(
        total, utilization, weights, outside, peak, graphs, rule.subtracts_graphs, cache, request, max_len, budget,
        most, most_requests, rule.block, rule.starts_without,
    )  # fmt: skip


def _activation_peak(
    arch: Architecture, rule: ServingMemory, step: Step, budget: Number | None, most: Number | None, walk: Walk
) -> Number | None:
    """The peak of activations of a step at its limits, on a GPU of the step's pipeline stage."""
    if rule.hidden_buffers is None or budget is None:
        return None
    parallel, share = step.parallel, passes.gpu_share(arch, step)
    width = step.widths.dtype.bits // 8
    hidden = budget * arch.facts["hidden"].value * width
    experts = _experts_bytes(share, budget) * width
    sends = 2 * (parallel.pp > 1)  # hidden states and residual stream of a pipeline stage
    counted = phases.whole_model_step(step)  # the pass from which the weights come; activations are linear in tokens
    live = passes.activation_bytes(takewhile(lambda op: op.group != "head", walk(arch, counted)))
    layer = maximum(live * budget / (counted.batch * counted.tokens), experts)
    peak = layer + (rule.hidden_buffers + sends) * hidden
    if rule.sampler is None or most is None or parallel.stage != parallel.pp - 1:
        return peak
    assert isinstance(arch.stack.embedding, Embedding)
    logits = minimum(most, budget) * arch.stack.embedding.vocabulary
    return maximum(peak, logits * (width + rule.sampler) + hidden + experts * rule.experts_kept)


def _experts_bytes(share: Architecture, tokens: Number) -> Number:
    """Elements of the two buffers with the experts' outputs, which the widest layer needs: of gate and up or of down,
    and of the activation or of down (vLLM, fused_moe.py, TritonExperts.workspace_shapes)."""
    widest: Number = 0
    for layer, _ in share.stack.kinds:
        for part in parts(layer):
            if isinstance(part, MoE):
                hidden, inner = share.facts["hidden"].value, part.expert.width
                widest = maximum(widest, tokens * part.active * (maximum(inner, hidden) + maximum(2 * inner, hidden)))
    return widest


def _request_bytes(share: Architecture, step: Step, max_len: Number, budget: Number | None) -> Number:
    """Bytes of the KV cache that one request of this length needs.

    With a window, the new tokens of a step evict nothing before it ends, so that the cache has both.
    """
    total: Number = 0
    for layer, layers in share.stack.kinds:
        for part in parts(layer):
            if isinstance(part, Uncached):
                continue
            if isinstance(part, Attention | LatentAttention) and part.window is not None and budget is not None:
                part = part._replace(window=part.window - 1 + budget)
            total += share.times(layers) * sum(step.widths.kv.bytes(each) for each in part.cached(max_len, 0))
    return total


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
    return batch and batch - batch % work.parallel.batch_divisor(work.phases == ("train",), work.micro_batch)


def largest_context(
    formula: MemoryFormula, needed: Memory, capacity: Number, limit: int, total: Total | None = None
) -> int | None:
    """The largest `context` that fits if one is given, else the largest `seq` that the GPUs can share; None if every
    length fits.

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
    tokens = largest(lambda n: total({length: n}), capacity, limit, formula.sizes[length] or 1)
    cp = formula.work.parallel.cp
    return tokens if tokens is None or is_just(cp, 1) else int(tokens - tokens % (2 * cp))


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
