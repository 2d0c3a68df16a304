"""What an engine overlaps: in a training step (`training.overlaps` of its file), and in inference two halves of a step.

In a training step with tensor or data parallelism:

- `gradients`: gradients are reduced bucket by bucket during the backward pass of the last microbatch; the last bucket
  follows it. Megatron-LM's buckets have 40 M parameters, or 1 M for each replica if that is more
  (`megatron/core/distributed/distributed_data_parallel.py`).
- `parameters`: weights that other replicas updated are gathered likewise during the forward pass of the first
  microbatch.
- `shards`: with ZeRO 2 and 3, the next layer is gathered and the gradients of the previous one are reduced during the
  computation of a layer. The root and the first layer are gathered before the forward pass computes; the gradients of
  the first layer and of the root are reduced after the backward pass has ended. Kernels take longer meanwhile, as with
  DistributedDataParallel (`timing/collectives.py`).
- `context_parallel`: around a ring of n GPUs, keys and values are sent during all but one of the n kernels of
  attention, in the backward pass also their gradients. Kernels take longer meanwhile, as with DistributedDataParallel.
- `tensor_parallel`: the collectives of a sharded sequence overlap with GEMMs as in TransformerEngine by default
  (`transformer_engine/pytorch/module/base.py`, `initialize_ub`), by one of three methods:
  - `ring_exchange`: an all-gather before a GEMM, by copy engines, in as many parts as GPUs share a layer;
  - `pipeline`: a reduce-scatter after a GEMM of the forward pass, by 16 SMs, in 4 parts;
  - `bulk`: a collective that no GEMM beside it waits for (the input gathered again for the gradients of weights, the
    reduced gradient of the input), by 16 SMs. GEMMs hide all of it.
  With the first two, the GEMM runs in the same parts, assumed one after the other: each has waves of its own. All but
  one part is hidden of the collective or of its GEMMs, whichever is shorter. GEMMs do not have the SMs that copy. They
  are limited by computation, so that the DRAM traffic of the collective is not counted.
- `async_tensor_parallel`: the same by PyTorch's symmetric memory (`torch/_inductor/fx_passes/micro_pipeline_tp.py`,
  `torch/distributed/_symmetric_memory/__init__.py`), in as many parts as GPUs share a layer, by copy engines. A kernel
  sums the parts that a reduce-scatter received. Collectives without an adjacent GEMM are exposed: the gradient of an
  input that several GEMMs read is a sum, which is reduced after it, and an input that is gathered again only for the
  gradients of weights.

What overlap costs is at most what it hides, so that it never makes a step slower. Exchanges of gradients and weights
cost nothing here.

In inference, a step can be two halves of the sequences of a replica, of which one exchanges tokens with the experts
while the other one computes (`halves`: SGLang's two-batch overlap, vLLM's dual batch overlap).

Layers with an all-to-all to experts run twice, each time with one half; both read all weights. Other layers, the
embedding and the head run once. In a layer with experts, let both halves together take

    a  for attention and all else outside the experts        d  for the dispatch to the experts
    f  for the routed experts                                e  for the exchange of their outputs

on a stream for kernels and on one for exchanges. The halves A and B take turns:

    kernels     A attention     B attention     A experts     B experts
    exchanges   B outputs       A dispatch      B dispatch    A outputs

B's outputs are those of the layer before. A turn ends when its kernels and its exchange have ended, since the next one
needs both, so that the layer takes

    max(a/2, e/2) + max(a/2, d/2) + max(f/2, d/2) + max(f/2, e/2)

which is at least a + f and at least d + e. It hides min(a, d)/2 + min(f, d)/2 of the dispatch and min(f, e)/2 +
min(a', e)/2 of the outputs, where a' is that of the next layer. Before a layer without experts, and after the last one,
nothing hides B's outputs. Kernels take longer beside an exchange, as with DistributedDataParallel
(`timing/collectives.py`), at most by what is hidden.

This is the order of SGLang's prefill (`_compute_moe_deepseek_blog_prefill` in
`sglang/srt/batch_overlap/operations_strategy.py`). In its decode, the dispatch runs beside the shared experts and the
projections of attention, and the outputs beside the core of attention. Of an odd number of sequences, both halves are
computed as the larger one. A prompt that is alone in its step is not divided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from roofmodel.counting.workload import Step
from roofmodel.engines.engine_file import Halves
from roofmodel.models.architecture import ReferenceCode
from roofmodel.numbers.algebra import Number, ceil_div, either, is_just, maximum, minimum
from roofmodel.steps.placed import NO_TIME, Placed, ReplicaTimes, sum_of
from roofmodel.steps.placed import placed as placed_on
from roofmodel.steps.replicas import is_of_shards
from roofmodel.timing.collectives import contention_seconds
from roofmodel.timing.engine import Timing
from roofmodel.timing.roofline import link_bandwidth
from roofmodel.timing.timing import Expected, expect_elementwise

BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_REPLICA = 40_000_000, 1_000_000
REDUCE_SCATTER_PARTS, COPYING_MULTIPROCESSORS = 4, 16  # num_splits and num_sm of `pipeline` and `bulk`
PASSES = {"forward": ("forward",), "backward": ("backward", "recomputation")}


def with_overlap(placed: Sequence[Placed], step: Step, timing: Timing, times: ReplicaTimes) -> ReplicaTimes:
    """The times of the replicas with what the engine hides, and what this costs."""
    overlaps = step.parallel.overlaps
    in_layers, slower, once = NO_TIME, NO_TIME, NO_TIME
    for stages in PASSES.values():
        for found in _in_layers([each for each in placed if each.operator.stage in stages], step, timing):
            if found is None:
                return times._replace(contention=None, hidden=None)
            in_layers, slower = in_layers + found[0], slower + found[1]
    for overlap, prefix, stages in (
        ("gradients", "gradients.", PASSES["backward"]), ("parameters", "weights.", PASSES["forward"])
    ):  # fmt: skip
        exchanges = [each for each in placed if each.operator.name.startswith(prefix)]
        if overlap not in overlaps or not exchanges:
            continue
        computed = (each for each in placed if each.operator.stage in stages and each.operator.collective is None)
        exchanged, seconds = sum_of(exchanges), sum_of(computed)
        if exchanged is None or seconds is None:
            return times._replace(hidden=None)
        once = once + _hidden(exchanged, 1 - 1 / _buckets(exchanges, step), (1 / step.microbatches) * seconds)
    contention = times.contention and times.contention + slower
    hidden = in_layers + once if times.hidden is NO_TIME else times.hidden
    each_microbatch = (1 / step.microbatches) * (in_layers + -1 * slower)
    return times._replace(contention=contention, hidden=hidden, saved_in_layers=each_microbatch)


def _in_layers(own: Sequence[Placed], step: Step, timing: Timing) -> Iterator[tuple[Expected, Expected] | None]:
    """What each overlap within layers hides in a pass, and how much longer kernels take meanwhile; None if unknown."""
    parallel, overlaps = step.parallel, step.parallel.overlaps
    for name, bulk in (("tensor_parallel", True), ("async_tensor_parallel", False)):
        if name in overlaps and parallel.sequence:
            in_layers = [each for each in own if not each.operator.runs_once_per_step]
            yield _beside_gemms(in_layers, step, timing, bulk)
    if "context_parallel" in overlaps and parallel.cp_kind == "ring":
        yield _beside_attention(own, step, timing)
    if "shards" in overlaps and parallel.wrapper == "sharded" and any(map(is_of_shards, own)):
        yield _beside_layers(own, timing)


def _beside_layers(own: Sequence[Placed], timing: Timing) -> tuple[Expected, Expected] | None:
    """What a pass hides of the exchanges of sharded layers, and how much longer it takes meanwhile; None if unknown."""
    exchanges = [each for each in own if is_of_shards(each)]
    exchanged, computed = sum_of(exchanges), sum_of(each for each in own if each.operator.collective is None)
    ends = sum_of(map(_at_an_end, _of_first_layer(exchanges)))
    if exchanged is None or computed is None or ends is None:
        return None
    hidden = _hidden(exchanged + -1 * ends, 1, computed)
    return hidden, _contention(exchanges, hidden.value / exchanged.value, timing)


def _beside_attention(own: Sequence[Placed], step: Step, timing: Timing) -> tuple[Expected, Expected] | None:
    """What attention hides of a ring of keys and values, and how much longer it takes meanwhile; None if unknown."""
    exchanges = [each for each in own if each.operator.collective and each.operator.collective.name == "ring"]
    exchanged = sum_of(exchanges)
    computed = sum_of(each for each in own if "ring" in each.operator.sizes and each.operator.collective is None)
    if exchanged is None or computed is None:
        return None
    hidden = _hidden(exchanged, 1, (1 - 1 / step.parallel.cp) * computed)
    return hidden, _contention(exchanges, hidden.value / maximum(exchanged.value, 1e-30), timing)


def _contention(exchanges: Iterable[Placed], share: Number, timing: Timing) -> Expected:
    """How much longer kernels take while a share of these exchanges runs beside them."""
    device, slow = timing.device, NO_TIME.value
    for each in exchanges:
        operator = each.operator
        rate = link_bandwidth(operator.collective, device) or device.bandwidth
        seconds = share * operator.count * each.expected.value if each.expected else 0.0
        sent = share * operator.count * operator.link_bytes
        slow = slow + contention_seconds(seconds, sent, rate, device.multiprocessors or 1, device.bandwidth)
    return Expected(slow, slow, slow)


def _of_first_layer(exchanges: Sequence[Placed]) -> list[Placed]:
    """The exchanges of the root and of the first layer of each set of replicas, which no computation hides. The last
    layer is gathered for the backward pass during the loss."""
    first: dict[str, Placed] = {}
    for each in exchanges:
        if each.operator.stage != "forward" and each.operator.name.endswith("all_gather"):
            continue
        known = first.get(each.operator.name)
        if known is None or min(each.operator.layers or (0,)) < min(known.operator.layers or (0,)):
            first[each.operator.name] = each
    return [*first.values()]


def _at_an_end(placed: Placed) -> Placed:
    """The exchange of one layer in all microbatches."""
    layers = placed.operator.layers
    return placed if layers is None else placed._replace(operator=replace(placed.operator, layers=layers[:1]))


def _beside_gemms(own: Sequence[Placed], step: Step, timing: Timing, bulk: bool) -> tuple[Expected, Expected] | None:
    """What GEMMs hide of the collectives of a pass, and how much longer the pass takes meanwhile; None if unknown.

    With `bulk`, collectives without a GEMM that waits for them overlap with the other GEMMs of the pass.
    """
    hidden, alone, beside, by_multiprocessors, longer = [NO_TIME] * 5
    for place, each in enumerate(own):
        if not _shards_sequence(each):
            continue
        gathers = each.operator.collective is not None and each.operator.collective.name == "all_gather"
        near = own[place + 1 :] if gathers else own[max(place - 1, 0) : place]
        gemms = [*takewhile(_has_tokens_as_rows, near)]
        parts = REDUCE_SCATTER_PARTS if bulk and not gathers else step.parallel.tp
        sent, computed, in_parts = sum_of([each]), sum_of(gemms), _in_parts(gemms, parts, step, timing)
        summed = NO_TIME if bulk or gathers or not gemms else _summed_parts(each, step, timing)
        if sent is None or computed is None or in_parts is None or summed is None:
            return None
        if gemms:
            saved = (1 - 1 / parts) * _hidden(sent, 1, computed)
            hidden, beside, longer = hidden + saved, beside + computed, longer + in_parts + summed
            if bulk and not gathers:
                by_multiprocessors = by_multiprocessors + saved
        elif bulk:
            alone = alone + sent
    computed = sum_of(each for each in own if each.operator.kind == "gemm" and each.operator.layers is not None)
    if computed is None:
        return None
    alone = _hidden(alone, 1, Expected(*(maximum(seconds, 0.0) for seconds in computed + -1 * beside)))
    share = COPYING_MULTIPROCESSORS / (timing.device.multiprocessors or COPYING_MULTIPROCESSORS)
    hidden = hidden + alone
    return hidden, _hidden(longer + share * (by_multiprocessors + alone), 1, hidden)


def _summed_parts(exchange: Placed, step: Step, timing: Timing) -> Expected | None:
    """Seconds of the kernels that sum the parts which a GPU received from all others; None if unknown."""
    op = exchange.operator
    size = sum(op.bytes_of(tensor) for tensor in (*op.reads, *op.writes))
    each = expect_elementwise(size, timing.device, step.widths.compute)
    return each and op.count * each


def _has_tokens_as_rows(placed: Placed) -> bool:
    """Whether the operator is a GEMM of a layer that can run in parts of the tokens: no gradient of weights."""
    op = placed.operator
    return op.kind == "gemm" and op.layers is not None and "t" in op.sizes and not op.name.endswith(".grad_weight")


def _in_parts(gemms: Sequence[Placed], parts: Number, step: Step, timing: Timing) -> Expected | None:
    """Seconds that GEMMs take longer if they run in parts of the tokens; None if unknown."""
    split = [
        replace(
            op, sizes={**op.sizes, "t": op.sizes["t"] / parts}, matmul_flops=op.matmul_flops / parts,
            vector_flops=op.vector_flops / parts,
        )
        for op in (each.operator for each in gemms)
    ]  # fmt: skip
    dtype, longer = step.widths.compute, NO_TIME
    bounds = [each.placement for each in placed_on(split, timing.device, dtype)]
    for each, part in zip(gemms, timing.runs(split, bounds, dtype, ReferenceCode()), strict=True):
        if each.expected is None or each.run.expected is None or part.expected is None:
            return None
        more = maximum(parts * part.expected.value / each.run.expected.value - 1, 0)
        longer = longer + each.operator.count * more * each.expected
    return longer


def _shards_sequence(placed: Placed) -> bool:
    """Whether the operator gathers or reduces and scatters the tokens of a layer over neighboring GPUs."""
    collective = placed.operator.collective
    if collective is None or placed.operator.layers is None:
        return False
    return collective.name in ("all_gather", "reduce_scatter") and is_just(collective.rank_stride, 1)


def _buckets(exchanges: Iterable[Placed], step: Step) -> Number:
    """The number of buckets of gradients or weights, at least 1."""
    parameters = sum(each.operator.sizes["W"] for each in exchanges)
    size = maximum(BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_REPLICA * step.parallel.weight_copies)
    return maximum(parameters / size, 1.0)


def _hidden(exchanged: Expected, share: Number, computed: Expected) -> Expected:
    """What computation hides of an exchange, of which only a share can overlap."""
    return Expected(*(minimum(share * sent, seconds) for sent, seconds in zip(exchanged, computed, strict=True)))


# --- Halves of a step of inference ------------------------------------------------------------------


def exchanges_with_experts(each: Placed) -> bool:
    """Whether the operator sends tokens to experts on other GPUs, or their outputs back."""
    collective = each.operator.collective
    return collective is not None and collective.name == "alltoall" and not is_just(collective.experts, 0)


def is_dispatch(exchange: Placed) -> bool:
    """Whether an exchange with experts sends tokens to them."""
    return exchange.operator.name.endswith("dispatch")


def half_step(step: Step) -> Step:
    """The larger half of a step; beside decodes, half of the tokens of each prompt after the mean of both contexts."""
    chunk = step.chunk
    if chunk is not None:
        half = ceil_div(chunk.tokens, 2)
        chunk = chunk._replace(tokens=half, context=chunk.context + ceil_div(chunk.tokens, 4))
    return step._replace(batch=ceil_div(step.batch, 2), chunk=chunk)


def is_divided(step: Step, stage: str, halves: Halves) -> Any:
    """Whether the engine divides a stage of the step; elementwise for arrays."""
    decodes = step.phase == "decode" or stage == "decodes"
    tokens = step.batch * (1 if stage == "decodes" else step.tokens)
    least = halves.decodes if decodes and step.chunk is None else halves.prompts
    if step.chunk is not None:
        tokens = tokens + step.chunk.batch * step.chunk.tokens
    return (step.batch >= 2) & (tokens >= least)


def in_halves(whole: Sequence[Placed], half: Sequence[Placed], step: Step, timing: Timing) -> list[Placed]:
    """The operators of a step with the times of both halves, and what the kernels of one hide of the other's exchanges.

    `half` has the same operators of a `half_step`.
    """
    halves, found = timing.engine.halves, list[Placed]()
    assert halves is not None
    layers_of = {each.operator.stage: _divided_layers(whole, each.operator.stage) for each in whole}
    for one, two in zip(whole, half, strict=True):
        layers = layers_of[one.operator.stage]
        part = len(layers & {*(one.operator.layers or ())}) / len(one.operator.layers or (0,))
        found.append(_both(one, two, part, is_divided(step, one.operator.stage, halves)) if part else one)
    for stage, layers in layers_of.items():
        places = [place for place, each in enumerate(found) if each.operator.stage == stage]
        hidden = _hidden_by_other_half([found[place] for place in places], layers, timing)
        applies = is_divided(step, stage, halves)
        for place, each in zip(places, hidden, strict=True):
            if each is not NO_TIME:
                times = Expected(*(either(applies, saved, 0.0) for saved in each))
                found[place] = found[place]._replace(hidden=times)
    return found


def _divided_layers(own: Sequence[Placed], stage: str) -> set[int]:
    """The layers of a stage that exchange tokens with experts."""
    of_stage = (each for each in own if each.operator.stage == stage and exchanges_with_experts(each))
    return {layer for each in of_stage for layer in each.operator.layers or ()}


def _both(whole: Placed, half: Placed, part: float, applies: Any) -> Placed:
    """An operator with the time of two halves in a part of its layers, where it is divided."""

    def twice(own: Expected | None, other: Expected | None) -> Expected | None:
        if own is None or other is None:
            return None
        times = (1 - part) * own + 2 * part * other
        return Expected(*(either(applies, two, one) for one, two in zip(own, times, strict=True)))

    energy = whole.energy
    if energy is not None and half.energy is not None:
        work = (1 - part) * energy.work + 2 * part * half.energy.work
        energy = energy._replace(work=either(applies, work, energy.work))
    run = whole.run._replace(expected=twice(whole.run.expected, half.run.expected))
    return whole._replace(expected=twice(whole.expected, half.expected), run=run, energy=energy)


def _hidden_by_other_half(own: Sequence[Placed], layers: set[int], timing: Timing) -> list[Expected]:
    """What kernels hide of one occurrence of each operator, less what they take longer meanwhile."""
    hidden = [NO_TIME] * len(own)
    if sum_of(own) is None:
        return hidden
    in_layer = {
        layer: tuple(place for place, each in enumerate(own) if layer in (each.operator.layers or ()))
        for layer in layers
    }
    times = {places: _layer_times(own, places) for places in {*in_layer.values()}}
    for place, each in enumerate(own):
        if each.expected is None or not exchanges_with_experts(each):
            continue
        next_layers = Counter((in_layer[n], in_layer.get(n + 1)) for n in each.operator.layers or ())
        for (places, following), many in next_layers.items():
            attention, experts = times[places]
            if not is_dispatch(each):  # the outputs run beside the attention of the next layer
                attention = NO_TIME if following is None else times[following][0]
            sent = _in_a_layer(each)
            saved = 0.5 * (_hidden(sent, 1, attention) + _hidden(sent, 1, experts))
            hidden[place] = hidden[place] + many / each.operator.count * saved
        share = hidden[place].value / maximum(each.expected.value, 1e-30)
        slower = 1 / each.operator.count * _contention([each], share, timing)
        hidden[place] = hidden[place] + -1 * _hidden(hidden[place], 1, slower)
    return hidden


def _layer_times(own: Sequence[Placed], places: Sequence[int]) -> tuple[Expected, Expected]:
    """The times of all kernels of a layer: outside the routed experts, and of these, between their two exchanges."""
    others, experts, is_between = NO_TIME, NO_TIME, False
    for place in places:
        each = own[place]
        if exchanges_with_experts(each):
            is_between = is_dispatch(each)
        elif each.operator.collective is None and is_between:
            experts = experts + _in_a_layer(each)
        elif each.operator.collective is None:
            others = others + _in_a_layer(each)
    return others, experts


def _in_a_layer(each: Placed) -> Expected:
    """The time of an operator in one of its layers, in all passes and microbatches."""
    own: Expected = each.expected or NO_TIME
    return Expected(*(each.operator.count / len(each.operator.layers or (0,)) * seconds for seconds in own))
