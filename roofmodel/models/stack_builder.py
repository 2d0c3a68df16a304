"""Builds the layers of a transformer from the fields that its config states."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from roofmodel.models.architecture import (
    AlternatingUpdates,
    Embedding,
    FrameConvolution,
    Patches,
    PerLayerEmbedding,
    Projection,
    ResidualSums,
    Stack,
    Streams,
)
from roofmodel.models.fields import ACTIVATION_FIELDS, FIELDS, SLIDING, Fields
from roofmodel.models.layers import (
    ACTIVATIONS,
    KINDS,
    MLP,
    Attention,
    AttentionExperts,
    BlockSelection,
    Branch,
    CompressedAttention,
    CrossAttention,
    DisentangledAttention,
    HeadNorm,
    ImageWindow,
    Indexer,
    LatentAttention,
    Layer,
    LinearMixer,
    LinearMLP,
    LowRank,
    Mamba,
    MoE,
    NGrams,
    Norm,
    Part,
    PerLayerGate,
    RelativeLogits,
    ResidualFilter,
    Sublayer,
    TokenConvolution,
)
from roofmodel.numbers.algebra import ceil_div


def stack(fields: Fields, *, causal: bool, crosses: bool = False) -> Stack:
    """The layers that the fields describe, with their embedding. With `crosses`, they have cross attention."""
    norm = _norm(fields)
    return Stack(
        hidden=fields["hidden"],
        causal=causal,
        embedding=_patches(fields, norm) if fields["patch"] else _embedding(fields, norm),
        layers=tuple(
            _with_sums(_layer(i, _fields_of_layer(i, fields), norm, crosses, inner), i, fields["layers_per_sum"])
            for i in range(fields["layers"])
            for inner in range(fields["layers_per_group"])
        ),
        norm=norm,
        final_norm=norm if fields["final_norm"] else None,
        unused_parameters=fields["unused_parameters"],
        shared=_shared(fields),
        streams=_streams(fields),
        updates=AlternatingUpdates(fields["altup_streams"], fields["altup_scale"]) if fields["altup_streams"] else None,
        sums=ResidualSums(fields["layers_per_sum"], fields["normed_sums"]) if fields["layers_per_sum"] else None,
    )


def _fields_of_layer(index: int, fields: Fields) -> Fields:
    return ChainMap(fields["layer_fields"][index], fields) if fields["layer_fields"] else fields  # type: ignore[arg-type]


def _with_sums(layer: Layer, index: int, block: int) -> Layer:
    """A layer of a model with attention residuals, each sum of which has the outputs of `block` layers.

    The first sublayer of a block finishes the running sum and starts one; the others add to it.
    """
    if not block:
        return layer
    first, *others = layer
    first = first._replace(earlier_sums=ceil_div(index, block), starts_sum=index % block == 0)
    return first, *(sublayer._replace(earlier_sums=index // block + 1) for sublayer in others)


def _streams(fields: Fields) -> Streams | None:
    if not fields["streams"]:
        return None
    return Streams(fields["streams"], fields["streams_sinkhorn"], fields["streams_head"], fields["streams_rank"])


def _embedding(fields: Fields, norm: Norm) -> Embedding:
    return Embedding(
        vocabulary=fields["vocabulary"],
        width=fields["embedding_width"],
        position_rows=fields["positions"] + fields["position_extra"] if fields["position_table"] else 0,
        fixed_positions=fields["sinusoidal_positions"],
        type_rows=fields["type_rows"],
        task_rows=fields["task_rows"],
        norm=norm._replace(gain=fields["embedding_norm_gain"]) if fields["embedding_norm"] else None,
        projection=_projection(fields) if fields["embedding_projected"] else None,
        relative_rows=0 if fields["relative_table_per_layer"] else fields["relative_rows"],
        relative_norm=norm if fields["relative_rows"] and fields["relative_norm"] else None,
        frame_convolutions=tuple(FrameConvolution(*sizes) for sizes in fields["frame_convolutions"]),
        padded_to_positions=fields["padded_to_positions"],
        shared_with_decoder=fields["shared_token_table"],
        per_layer=_per_layer(fields, norm) if fields["per_layer_input"] else None,
    )


def _per_layer(fields: Fields, norm: Norm) -> PerLayerEmbedding:
    return PerLayerEmbedding(fields["per_layer_vocabulary"], fields["layers"], fields["per_layer_input"], norm)


def _projection(fields: Fields) -> Projection:
    return Projection(
        after=fields["embedding_projected_after"],
        bias=fields["embedding_projected_bias"],
        projects_back=fields["embedding_projected_back"],
    )


def _shared(fields: Fields) -> tuple[int, ...] | None:
    """The index of each layer's parameter set. ALBERT's rule: consecutive groups of about equal length."""
    layers, groups, inner = fields["layers"], fields["parameter_groups"], fields["layers_per_group"]
    if groups == layers:
        return None
    return tuple(int(i / (layers / groups)) * inner + j for i in range(layers) for j in range(inner))


def _patches(fields: Fields, norm: Norm) -> Patches:
    return Patches(
        image=fields["image"], patch=fields["patch"], channels=fields["channels"], special=fields["special_tokens"],
        bias=fields["patch_bias"], positions=fields["image_positions"], norm=norm if fields["patch_norm"] else None,
    )  # fmt: skip


def _norm(fields: Fields) -> Norm:
    return Norm(kind=fields["norm"], gain=fields["norm_affine"], bias=fields["norm_bias"])


def _layer(index: int, fields: Fields, norm: Norm, crosses: bool, inner: int = 0) -> Layer:
    """A layer's sublayers; identical layers compare equal. With `crosses`, the layer has cross attention.

    `inner` is the number of the layer in its group.
    """
    before, after = (norm if fields[place] else None for place in ("pre_norm", "out_norm"))
    if fields["post_norm_layers"] and fields["post_norm_layers"][index]:
        before, after = None, norm
    closing = norm if fields["sum_norm"] else None
    first = before if index or fields["first_norm"] else None
    scale, gate_rank, filter_ = fields["block_scale"], fields["norm_gate_rank"], _out_filter(fields)
    mixer_after = after and after._replace(gain=fields["mixer_out_norm_gain"])
    # Parallel mixers share one norm.
    mixers = tuple(
        Branch(_mixer(name, index, fields), None if i else first, mixer_after, scale, gate_rank, filter=filter_)
        for i, name in enumerate(filter(None, fields["mixers"][index].split("+")))
    )
    gated = fields["gated_sum"]
    separate = fields["separate_inputs"] and fields["layer_types"][index] != SLIDING
    has_laurel = any(isinstance(mixer.part, LowRank) for mixer in mixers)
    first_block = Sublayer(mixers, closing, adds_input=has_laurel, separate_inputs=separate, gated_sum=gated)
    mixing = (*_ngrams(fields), first_block) if mixers else ()
    if not fields["mlp"]:
        return mixing
    has_experts = fields["experts"] and fields["expert_layers"][index]
    width = fields["kv_shared_mlp_width" if _reuses_keys_and_values(index, fields) else "mlp_width"]
    mlp = Branch(_feed_forward(fields, width), before, after, scale, filter=filter_)
    out_norm = norm if fields["expert_out_norm"] else after
    experts = Branch(_moe(fields), before, out_norm, gate_rank=gate_rank, filter=filter_)
    if not has_experts:
        block = Sublayer((mlp,), closing)
    elif fields["shortcut_experts"]:
        beside = (experts._replace(before=None, is_shortcut=True),) if inner == 0 else ()
        block = Sublayer((mlp, *beside), closing, adds_shortcut=inner == fields["layers_per_group"] - 1)
    elif fields["mlp_with_experts"]:
        block = Sublayer((mlp, experts), closing, sum_norm=norm)
    else:
        block = Sublayer((experts,), closing)
    if not fields["parallel"]:
        cross_attention = _cross_attention(index, fields, before, after, closing) if crosses else ()
        last = (*_per_layer_gate(fields, after), *_convolution(index, fields, norm))
        return *mixing, *cross_attention, block._replace(gated_sum=gated), *last
    (mlp,) = block.branches
    if fields["parallel_norms"] == 1:
        mlp = mlp._replace(before=None)
    return (Sublayer((*mixers, mlp), closing),)


def _ngrams(fields: Fields) -> Layer:
    if not fields["ngram_rows"]:
        return ()
    channels = fields["streams"] * fields["hidden"]
    return (Sublayer((Branch(_part(NGrams, fields, channels=channels), before=None),)),)


def _cross_attention(
    index: int, fields: Fields, before: Norm | None, after: Norm | None, closing: Norm | None
) -> Layer:
    part = CrossAttention(_attention(index, fields)._replace(relative_bias=False, relative_rows=0))
    return (Sublayer((Branch(part, before, after),), closing),)


def _per_layer_gate(fields: Fields, after: Norm | None) -> Layer:
    if not fields["per_layer_input"]:
        return ()
    part = _part(PerLayerGate, fields, width=fields["per_layer_input"])
    return (Sublayer((Branch(part, before=None, after=after),)),)


def _convolution(index: int, fields: Fields, norm: Norm) -> Layer:
    if index or not fields["conv_kernel"]:
        return ()
    return (Sublayer((Branch(_part(TokenConvolution, fields), before=None),), after=norm),)


# --- Parts ------------------------------------------------------------------------------------------

Kind = TypeVar("Kind", bound=Any)


def _part(kind: type[Kind], fields: Fields, *prefixes: str, **given: Any) -> Kind:
    """A part whose attributes are the fields of the same name (see `layers.KINDS`), except those that are given.

    A field with one of the `prefixes` comes first.
    """
    for attribute, field in _sources(kind, prefixes):  # type: ignore[arg-type]
        if attribute not in given:
            given[attribute] = _norm(fields) if field == "norm" else fields[field]
            if field in ACTIVATION_FIELDS:
                given[attribute] = ACTIVATIONS[given[attribute]]
    return kind(**given)  # type: ignore[no-any-return]


@cache
def _sources(kind: Any, prefixes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Each attribute of a part for which there is a field, with that field."""
    prefixes = (*prefixes, *KINDS[kind.__name__].prefixes, "")
    candidates = {name: [each + name for each in prefixes if each + name in FIELDS] for name in kind._fields}
    return tuple((name, fields[0]) for name, fields in candidates.items() if fields)


def _attention(index: int, fields: Fields) -> Attention:
    gains, norm, rotary_layers = fields["qk_norm_gains"], _norm(fields), fields["rotary_layers"]
    has_window = fields["layer_types"][index] == SLIDING
    prefix = "window_" if has_window else ""
    has_rotary = rotary_layers is None or rotary_layers[index]
    value_dim = fields[f"{prefix}value_dim"]
    head_norm = HeadNorm(
        norm._replace(gain=gains != "none", bias=fields["qk_norm_bias"] and gains != "none"),
        gains if gains in ("each", "queries") else "shared",
    )
    return _part(
        Attention,
        fields,
        prefix,
        value_dim=value_dim if value_dim != fields[f"{prefix}head_dim"] else None,
        fused=fields["fused_qkv"],
        rotary_dim=fields[f"{prefix}rotary_dim"] if has_rotary else 0,
        relative_rows=fields["relative_rows"] if fields["relative_table_per_layer"] else 0,
        disentangled=_disentangled(fields) if fields["relative_rows"] and not fields["relative_bias"] else None,
        window=(fields["window"] or None) if has_window else None,
        norm=head_norm if fields["qk_norm"] and (has_rotary or not fields["qk_norm_rotary_only"]) else None,
        values_from_keys=fields["values_from_keys"] and not has_window,
        value_norm=norm._replace(gain=False, bias=False) if fields["value_norm"] else None,
        kv_sharing=("reuses" if _reuses_keys_and_values(index, fields) else "source")
        if fields["kv_shared_layers"]
        else "",
        selection=_part(BlockSelection, fields) if fields["index_blocks"] and _has_indexer(index, fields) else None,
        inner_norm=norm._replace(gain=False) if fields["heads_norm"] else _inner_norm(fields),
        relative_logits=_relative_logits(fields, prefix),
        image_window=ImageWindow(fields["patch"], fields["image_window"])
        if has_window and fields["image_window"]
        else None,
        experts=AttentionExperts(fields["experts"], fields["experts_active"]) if fields["attention_experts"] else None,
    )


def _out_filter(fields: Fields) -> ResidualFilter | None:
    return ResidualFilter(fields["hidden"], fields["out_taps"]) if fields["out_taps"] else None


def _relative_logits(fields: Fields, prefix: str) -> RelativeLogits | None:
    width = fields["relative_logits_width"]
    if not width:
        return None
    norm = _norm(fields) if fields["relative_logits_norm"] else None
    return RelativeLogits(width, fields[f"{prefix}relative_logits_rows"], norm)


def _inner_norm(fields: Fields) -> Norm | None:
    return _norm(fields) if fields["inner_norm"] else None


def _has_indexer(index: int, fields: Fields) -> bool:
    return fields["index_layers"] is None or bool(fields["index_layers"][index])


def _reuses_keys_and_values(index: int, fields: Fields) -> bool:
    return index >= fields["layers"] - fields["kv_shared_layers"]  # type: ignore[no-any-return]


def _mamba(index: int, fields: Fields) -> Mamba:
    norm = _norm(fields)._replace(gain=fields["selection_norm_gain"])
    return _part(Mamba, fields, norm=norm if fields["selection_norm"] else None)


def _latent_attention(index: int, fields: Fields) -> LatentAttention:
    has_window = fields["layer_types"][index] == SLIDING
    prefix = "window_" if has_window else ""
    topk = None if has_window else fields["index_topk"]
    indexer = _part(Indexer, fields) if topk and _has_indexer(index, fields) else None
    sources, nope, rotary = fields["latent_sources"], fields[f"{prefix}nope_dim"], fields[f"{prefix}rotary_dim"]
    is_shared = sources is not None and sources.count(sources[index]) > 1
    has_rotary = fields["rotary_layers"] is None or fields["rotary_layers"][index]
    return _part(
        LatentAttention,
        fields,
        prefix,
        window=fields["window"] if has_window else None,
        sinks=fields["latent_sinks"],
        index_topk=topk,
        down_bias=fields["qkv_bias"],
        indexer=indexer,
        nope_dim=nope if has_rotary else nope + rotary,
        rotary_dim=rotary if has_rotary else 0,
        rotary=bool(fields["latent_rotary"] and has_rotary),
        kv_sharing=("source" if sources[index] == index else "reuses") if is_shared else "",
    )


def _compressed_attention(index: int, fields: Fields) -> CompressedAttention:
    ratio, overlaps = fields["compressed_ratio"][index], bool(fields["compressed_overlaps"][index])
    indexer = _part(Indexer, fields) if overlaps else None
    topk = fields["index_topk"] if overlaps else None
    return _part(CompressedAttention, fields, ratio=ratio, overlaps=overlaps, index_topk=topk, indexer=indexer)


def _attends(index: int, fields: Fields) -> Part:
    if fields["compressed_ratio"] is not None:
        return _compressed_attention(index, fields)
    return _latent_attention(index, fields) if fields["latent"] else _attention(index, fields)


def _short_convolution(index: int, fields: Fields) -> Part:
    return _recurrent("ShortConvolution", fields, width=fields["hidden"])


def _feed_forward(fields: Fields, width: int) -> Part:
    if fields["mlp_kind"] == "linear":
        return _linear(LinearMLP, fields)
    return _recurrent("ChannelMix", fields) if fields["mlp_kind"] == "channel_mix" else _mlp(fields, width)


def _linear(kind: type[Kind], fields: Fields) -> Kind:
    return _part(kind, fields, width=fields["hidden"])


def _linear_mixer(index: int, fields: Fields) -> LinearMixer:
    return _linear(LinearMixer, fields)


def _matrix_memory(index: int, fields: Fields) -> Part:
    return _recurrent("MatrixMemory", fields, fused=fields["fused_qkv"])


def _dense(index: int, fields: Fields) -> MLP:
    return _mlp(fields, fields["mlp_width"])


def _low_rank(index: int, fields: Fields) -> LowRank:
    return _part(LowRank, fields)


def _experts(index: int, fields: Fields) -> MoE:
    return _moe(fields)


MIXERS: dict[str, str | Callable[[int, Fields], Part]] = {
    "attention": _attends, "mamba": _mamba, "mamba2": "Mamba2", "recurrence": "GatedRecurrence", "time_mix": "TimeMix",
    "delta_rule": "DeltaRule", "lightning": "Lightning", "matrix_memory": _matrix_memory,
    "convolution": _short_convolution, "laurel": _low_rank, "mlp": _dense, "experts": _experts, "linear": _linear_mixer,
}  # fmt: skip
"""The mixers of a layer by their names in the field `mixers`: a class of `recurrent_layers` or a function."""


def _mixer(name: str, index: int, fields: Fields) -> Part:
    mixer = MIXERS[name]
    return _recurrent(mixer, fields) if isinstance(mixer, str) else mixer(index, fields)


def _recurrent(name: str, fields: Fields, **given: Any) -> Part:
    """A recurrent layer; few models have one, so their module is imported only for these."""
    from roofmodel.models import recurrent_layers

    part: Part = _part(getattr(recurrent_layers, name), fields, **given)
    return part


def _disentangled(fields: Fields) -> DisentangledAttention:
    terms = fields["disentangled"]
    return DisentangledAttention(
        fields["relative_rows"], "c2p" in terms, "p2c" in terms, fields["disentangled_shared_projections"]
    )


def _mlp(fields: Fields, width: int) -> MLP:
    return _part(MLP, fields, width=width, fused=fields["fused_gate"], inner_norm=_inner_norm(fields))


def _expert_groups(fields: Fields) -> tuple[int, int]:
    """The groups of experts, and those of which a token has experts; (1, 1) without a limit.

    The defaults of a config class set none in a config of other sizes. In a derivation, experts are a symbol.
    """
    experts, groups = fields["experts"], fields["expert_groups"] or 1
    chosen = fields["experts_active_groups"] or groups
    if groups == 1 or not isinstance(experts, int) or experts % groups:
        return 1, 1
    return (groups, chosen) if chosen * experts // groups >= fields["experts_active"] else (1, 1)


def _moe(fields: Fields) -> MoE:
    groups, active_groups = _expert_groups(fields)
    return _part(
        MoE,
        fields,
        active=fields["experts_active"],
        expert=_part(MLP, fields, "expert_", fused=fields["fused_experts"], inner_norm=None, scale=False),
        shared=_mlp(fields, fields["shared_width"])._replace(scale=False) if fields["shared_width"] else None,
        router_norm=_norm(fields) if fields["mlp_with_experts"] else None,
        latent_input_norm=_norm(fields) if fields["expert_latent_input_norm"] else None,
        latent_norm=_norm(fields) if fields["expert_latent_norm"] else None,
        expert_norm=_norm(fields) if fields["expert_norm"] else None,
        groups=groups,
        active_groups=active_groups,
    )


def max_tokens(fields: Fields) -> int | None:
    """The longest sequence that the positions allow; None: no limit."""
    positions: int | None = fields["positions"]
    pad: int | None = fields["padding_position"]
    return positions if positions is None or pad is None else max(positions - pad - 1, 0)
