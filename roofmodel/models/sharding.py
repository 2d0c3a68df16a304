"""One GPU's share of an Architecture, where several GPUs share every layer.

As Megatron-LM splits a transformer (Shoeybi et al., arXiv 1909.08053, section 3): heads, the MLP's width and the
vocabulary are dealt out, norms and routers stand on every GPU. Key-value heads that are fewer than the GPUs stand on
several of them, groups of a state space likewise; latents, which no head owns, on all. Vocabularies are padded to a
multiple of the GPUs. The width of an expert is dealt out to those GPUs that share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from roofmodel.algebra import Number, ceil_div, is_just, maximum, quotient
from roofmodel.models.architecture import Architecture, Stack
from roofmodel.models.attention import Attention, CrossAttention, LatentAttention
from roofmodel.models.convolutional import Network
from roofmodel.models.embeddings import Embedding
from roofmodel.models.layers import MLP, Layer, LayerInput, MoE, Part
from roofmodel.models.recurrent import DeltaRule, Lightning, Mamba, Mamba2, ShortConvolution

MOST = 64  # GPUs that are tried where a message says which numbers of them would work


def share(arch: Architecture, tp: Number, within: Number) -> Architecture:
    """The architecture of one of `tp` GPUs that share each layer, `within` of them each expert.

    A mixture keeps the number of all its experts. Sizes must divide, as `obstacles` tells.
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
    layers = {index: _layer(layer, tp, within) for layer, indices in kinds for index in indices}
    return stack._replace(
        embedding=table,
        layers=tuple(layers[index] for index in sorted(layers)),
        alike=tuple(indices for _, indices in kinds),  # alike they stay, and no others become so
    )


def _layer(layer: Layer, tp: Number, within: Number) -> Layer:
    return tuple(
        sub._replace(branches=tuple(one._replace(part=_part(one.part, tp, within)) for one in sub.branches))
        for sub in layer
    )


def _part(part: Part, tp: Number, within: Number) -> Part:
    """What a GPU has of a part."""
    if isinstance(part, Attention):
        return part._replace(heads=quotient(part.heads, tp), kv_heads=_dealt(part.kv_heads, tp))
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
    assert isinstance(part, Mamba2)  # others are in the way
    return part._replace(heads=quotient(part.heads, tp), groups=_dealt(part.groups, tp))


def _mlp(mlp: MLP, gpus: Number) -> MLP:
    return mlp._replace(width=quotient(mlp.width, gpus))


def _dealt(things: Number, gpus: Number) -> Number:
    """How many of some things a GPU has, of which several GPUs hold the same one where there are too few."""
    return maximum(1, quotient(things, gpus))


# --- What divides -----------------------------------------------------------------------------------


def obstacles(arch: Architecture, tp: int, ep: int) -> Iterator[str]:
    """What cannot be dealt out to so many GPUs, such as `25 heads`; nothing where all of it can."""
    if isinstance(arch.body, Network):
        if tp > 1:
            yield "no layers of heads and widths"
        return
    for part in dict.fromkeys((*arch.stack.parts, *(arch.encoder.parts if arch.encoder else ()))):
        yield from _in_the_way(part, tp, ep)


def _in_the_way(part: Part, tp: int, ep: int) -> Iterator[str]:
    if isinstance(part, CrossAttention):
        part = part.attention
    within = max(1, tp // ep)  # GPUs that share an expert
    dealt: list[tuple[str, Any, int]] = []  # what divides among how many
    held: list[tuple[str, Any]] = []  # what divides, or stands on several GPUs
    if isinstance(part, Attention):
        dealt = [("heads", part.heads, tp)]
        held = [("key-value heads", part.kv_heads)] if part.kv_heads != part.heads else []
    elif isinstance(part, LatentAttention):
        dealt = [("heads", part.heads, tp)]
    elif isinstance(part, MLP):
        dealt = [("columns of the MLP", part.width, tp)]
    elif isinstance(part, MoE):
        dealt = [("experts", part.experts, ep), ("columns of an expert", part.expert.width, within)]
        dealt += [("columns of the shared expert", part.shared.width, tp)] if part.shared else []
    elif isinstance(part, Mamba):
        dealt = [("channels of the state space", part.width, tp)]
    elif isinstance(part, ShortConvolution):
        dealt = [("channels of the filter", part.width, tp)]
    elif isinstance(part, Mamba2):
        dealt, held = [("heads of the state space", part.heads, tp)], [("groups of its heads", part.groups)]
    elif isinstance(part, DeltaRule | Lightning):
        dealt = [("heads of linear attention", part.heads, tp)]
    elif tp > 1:
        yield "inputs of each layer's own" if isinstance(part, LayerInput) else "filters over tokens"
    yield from (f"{size} {name}" for name, size, gpus in dealt if size % gpus)
    yield from (f"{size} {name}" for name, size in held if size % tp and tp % size)
