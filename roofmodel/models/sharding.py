"""The share of an Architecture on one GPU: its shard of each layer, and the layers of its pipeline stage.

Tensor and expert parallelism are as in Megatron-LM (Shoeybi et al., arXiv 1909.08053, section 3): heads, MLP width and
vocabulary are sharded; norms and routers are replicated. If there are fewer key-value heads than GPUs, each is
replicated on several GPUs; the same holds for the groups of a state space and for the heads of an indexer that selects
blocks. Latents are replicated on all. The vocabulary is padded to a multiple of the GPUs. The width of an expert is
sharded over the GPUs that share the expert.

In a pipeline, consecutive layers go to `pp` stages as evenly as possible, or to `pp * vpp` runs of which a stage has
every pp-th: the interleaved schedule of Narayanan et al. (arXiv 2104.04473, section 2.2). The first run has the
embedding, the last one the head. If the number of layers is not divisible, runs before the last have one layer more, as
in vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from roofmodel.models.architecture import Architecture, Network, Stack, StageSlice
from roofmodel.models.layers import (
    MLP,
    Attention,
    CrossAttention,
    DeltaRule,
    Embedding,
    LatentAttention,
    Layer,
    Lightning,
    Mamba,
    Mamba2,
    MoE,
    Part,
    PerLayerGate,
    ShortConvolution,
)
from roofmodel.numbers.algebra import Number, ceil_div, is_just, maximum, quotient

MAX_SUGGESTED_GPUS = 64  # the largest number of GPUs that a message suggests
MAX_SUGGESTED_EXPERT_GPUS = 1024  # the same for expert parallelism


def shard(arch: Architecture, tp: Number, within: Number) -> Architecture:
    """The shard of one of `tp` GPUs; `within` of them share each expert.

    An MoE keeps the number of all its experts. Sizes must be divisible: see `obstacles`.
    """
    if is_just(tp, 1):
        return arch
    body = arch.body if isinstance(arch.body, Network) else _stack(arch.body, tp, within)
    return replace(arch, body=body, encoder=arch.encoder and _stack(arch.encoder, tp, within))


def _stack(stack: Stack, tp: Number, within: Number) -> Stack:
    table = stack.embedding
    if isinstance(table, Embedding):
        table = table._replace(vocabulary=ceil_div(table.vocabulary, tp))

    kinds = list(stack.kinds)
    layers = {index: shared for layer, indices in kinds for shared in [_layer(layer, tp, within)] for index in indices}
    return stack._replace(
        embedding=table,
        layers=tuple(layers[index] for index in sorted(layers)),
        layer_groups=tuple(indices for _, indices in kinds),  # the same groups: sharding makes no other layers equal
    )


def _layer(layer: Layer, tp: Number, within: Number) -> Layer:
    return tuple(
        sub._replace(branches=tuple(branch._replace(part=_part(branch.part, tp, within)) for branch in sub.branches))
        for sub in layer
    )


def _part(part: Part, tp: Number, within: Number) -> Part:
    """The shard of a part."""
    if isinstance(part, Attention):
        selection = part.selection and part.selection._replace(heads=_replicated_share(part.selection.heads, tp))
        kv_heads = _replicated_share(part.kv_heads, tp)
        return part._replace(heads=quotient(part.heads, tp), kv_heads=kv_heads, selection=selection)
    if isinstance(part, CrossAttention):
        return CrossAttention(_part(part.attention, tp, within))  # type: ignore[arg-type]
    if isinstance(part, LatentAttention):
        return part._replace(heads=quotient(part.heads, tp))
    if isinstance(part, MoE):
        return part._replace(expert=_mlp(part.expert, within), shared=part.shared and _mlp(part.shared, tp))
    if isinstance(part, MLP):
        return _mlp(part, tp)
    if isinstance(part, Mamba | ShortConvolution):
        return part._replace(width=quotient(part.width, tp))
    if isinstance(part, Lightning):
        return part._replace(heads=quotient(part.heads, tp))
    if isinstance(part, DeltaRule):
        return part._replace(heads=quotient(part.heads, tp), value_heads=quotient(part.value_heads, tp))
    assert isinstance(part, Mamba2)  # `obstacles` excludes all others
    return part._replace(heads=quotient(part.heads, tp), groups=_replicated_share(part.groups, tp))


def _mlp(mlp: MLP, gpus: Number) -> MLP:
    return mlp._replace(width=quotient(mlp.width, gpus))


def _replicated_share(count: Number, gpus: Number) -> Number:
    """How many of `count` items a GPU has: at least one, replicated if there are fewer items than GPUs."""
    return maximum(1, quotient(count, gpus))


# --- Divisibility -----------------------------------------------------------------------------------


def obstacles(arch: Architecture, tp: int, ep: int) -> Iterator[str]:
    """Sizes that are not divisible by this number of GPUs, such as `25 heads`; nothing if all are."""
    if isinstance(arch.body, Network):
        if tp > 1:
            yield "no transformer layers"
        return
    for part in arch.parts:
        yield from _obstacles_of_part(part, tp, ep)


def _obstacles_of_part(part: Part, tp: int, ep: int) -> Iterator[str]:
    if isinstance(part, CrossAttention):
        part = part.attention
    within = max(1, tp // ep)  # GPUs that share an expert
    sharded: list[tuple[str, Any, int]] = []  # name, size, GPUs: the size must be divisible
    replicated: list[tuple[str, Any]] = []  # name, size: divisible by `tp`, or a divisor of it
    if isinstance(part, Attention):
        sharded = [("heads", part.heads, tp)]
        replicated = [("key-value heads", part.kv_heads)] if part.kv_heads != part.heads else []
        replicated += [("heads of the indexer", part.selection.heads)] if part.selection else []
    elif isinstance(part, LatentAttention):
        sharded = [("heads", part.heads, tp)]
    elif isinstance(part, MLP):
        sharded = [("columns of the MLP", part.width, tp)]
    elif isinstance(part, MoE):
        sharded = [("experts", part.experts, ep), ("columns of an expert", part.expert.width, within)]
        sharded += [("columns of the shared expert", part.shared.width, tp)] if part.shared else []
    elif isinstance(part, Mamba):
        sharded = [("channels of the state space", part.width, tp)]
    elif isinstance(part, ShortConvolution):
        sharded = [("channels of the convolution", part.width, tp)]
    elif isinstance(part, Mamba2):
        sharded, replicated = [("heads of the state space", part.heads, tp)], [("groups of its heads", part.groups)]
    elif isinstance(part, DeltaRule | Lightning):
        sharded = [("heads of linear attention", part.heads, tp)]
    elif tp > 1:
        yield "per-layer embeddings" if isinstance(part, PerLayerGate) else "token convolutions"
    yield from (f"{size} {name}" for name, size, gpus in sharded if size % gpus)
    yield from (f"{size} {name}" for name, size in replicated if size % tp and tp % size)


def pipeline_runs(layers: int, pp: int, vpp: int) -> tuple[range, ...]:
    """The layers of each run, in the order of the model; run n belongs to stage n modulo pp."""
    runs = pp * vpp
    each, remainder = divmod(layers, runs)
    sizes = [each + (runs - 1 - remainder <= n < runs - 1) for n in range(runs)]
    return tuple(range(start, end) for start, end in pairwise(accumulate(sizes, initial=0)))


def stage(arch: Architecture, which: int, pp: int, vpp: int) -> Architecture:
    """The layers of one stage, all of its runs together."""
    return _with_layers(arch, pipeline_runs(len(arch.stack.layers), pp, vpp)[which::pp]) if pp > 1 else arch


def parts_of_stage(arch: Architecture, which: int, pp: int, vpp: int) -> tuple[Architecture, ...]:
    """The runs of one stage, each as an architecture of its own."""
    return tuple(_with_layers(arch, (run,)) for run in pipeline_runs(len(arch.stack.layers), pp, vpp)[which::pp])


def kinds_of_stages(arch: Architecture, pp: int, vpp: int) -> dict[int, int]:
    """The distinct stages, each by the index of its first occurrence, with the number of its occurrences."""
    first_index: dict[object, int] = {}
    counts: dict[int, int] = {}
    for which in range(pp):
        stack = stage(arch, which, pp, vpp).stack
        layers = tuple((layer, len(indices)) for layer, indices in stack.kinds)
        index = first_index.setdefault((stack.stage_slice, layers), which)
        counts[index] = counts.get(index, 0) + 1
    return counts


def _with_layers(arch: Architecture, runs: tuple[range, ...]) -> Architecture:
    """The architecture with the layers of these runs only."""
    stack, layers = arch.stack, {layer for run in runs for layer in run}
    first, last = 0 in layers, len(stack.layers) - 1 in layers
    groups = (tuple(layer for layer in indices if layer in layers) for _, indices in stack.kinds)
    stack = stack._replace(
        layer_groups=tuple(filter(None, groups)),
        final_norm=stack.final_norm if last else None,
        unused_parameters=stack.unused_parameters if first else 0,
        stage_slice=StageSlice(first, last, len(runs)),
    )
    return replace(arch, body=stack, head=arch.head if last else arch.head._replace(stages=()))


def pipeline_obstacles(arch: Architecture) -> Iterator[str]:
    """Reasons why a model cannot run in a pipeline; nothing if it can."""
    if isinstance(arch.body, Network):
        yield "has no transformer layers"
        return
    if arch.encoder:
        yield "is an encoder-decoder: every decoder layer reads the encoder's output"
    if arch.stack.shared is not None:
        yield "has layers that share their parameters"
    table = arch.stack.embedding
    if isinstance(table, Embedding) and table.relative_rows:
        yield "has relative positions that all layers share"
    if isinstance(table, Embedding) and table.per_layer:
        yield "has an embedding with an input for every layer"
    if any(isinstance(part, Attention) and part.kv_sharing for part in arch.stack.parts):
        yield "has layers that reuse the keys and values of earlier ones"
