"""What a serving engine reports about memory when it starts: KV tokens, the most requests at once, and what is left.

The rule and its constants are the engine's (`engines/memory.py`). Weights are those as stored. The activations of a
step are the larger of two peaks:

    layer     live activations of the operators, with the token budget as one prompt, and further hidden states
    sampler   sequences x vocabulary x (logits in the working format + what sorting them needs), hidden states

The engine measures them with its largest step, whatever the workload is, so that they do not depend on its lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import takewhile
from typing import Any, NamedTuple

from roofmodel.counting import passes, phases
from roofmodel.counting.passes import Memory, Walk, one_pass
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.engines.memory import ServingMemory
from roofmodel.models.architecture import Architecture
from roofmodel.models.layers import Attention, Embedding, MoE, Uncached, parts
from roofmodel.numbers.algebra import Number, maximum, minimum
from roofmodel.options.values import Phase
from roofmodel.options.workload import MEMORY_UTILIZATION, Options

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
    most_requests = engines * room / request
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
            if isinstance(part, Attention) and part.window is not None and budget is not None:
                part = part._replace(window=part.window - 1 + budget)
            total += share.times(layers) * sum(step.widths.kv.bytes(each) for each in part.cached(max_len, 0))
    return total
