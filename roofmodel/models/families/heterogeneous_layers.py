"""Decoders whose layers are not alike: heads of other numbers and sizes where they slide, keys that others lend;
and those with gates on what heads give.
"""

from __future__ import annotations

from typing import Any

from roofmodel.models.families.latent_attention import ACTIVE, SPARSE_LAYERS, shared_width, sparse_after
from roofmodel.models.families.llama import GEMMA2, LLAMA, one_full_in
from roofmodel.models.families.mixture_of_experts import EXPERTS
from roofmodel.models.family import LM, Family, heads
from roofmodel.models.fields import COUNT, FLAG, FRACTION, FULL, INDICES, SIZE, SLIDING, TYPES, FieldType, key

OVERRIDES = FieldType(lambda v: isinstance(v, dict), "a mapping from layers to what is other there")
OF_HEADS = {"head_dim", "num_key_value_heads", "num_attention_heads"}
EITHER_WAY = FieldType(lambda v: v == "vision", "null or 'vision': tokens that see those ahead of them are not counted")


def _full_last(types: Any) -> Any:
    """The class has the last layer see everything, whatever the config says."""
    return [*types[:-1], FULL] if isinstance(types, list) and types else types


def _one_full_in_six(f: Any) -> list[str]:
    return _full_last([FULL if (layer + 1) % 6 == 0 else SLIDING for layer in range(f["layers"])])  # type: ignore[no-any-return]


def _alike(overrides: Any) -> Any:
    """`per_layer_config`, as the class writes it: layers by number -> what their heads have otherwise."""
    wanted = f"for each layer of one kind the same {', '.join(map(repr, sorted(OF_HEADS)))}, and nothing for others"
    if not isinstance(overrides, dict) or not all(str(layer).isdigit() for layer in overrides):
        raise ValueError(wanted)
    for found in overrides.values():
        if not isinstance(found, dict) or not OF_HEADS.issuperset(found) or found != next(iter(overrides.values())):
            raise ValueError(wanted)
        if not all(SIZE.accepts(size) for size in found.values()):
            raise ValueError(wanted)
    return {int(layer): found for layer, found in overrides.items()}


def _overridden(kind: str, name: str, alike: str, otherwise: Any) -> Any:
    """What the heads of this kind of layer have: their own in `per_layer_config`, where the config has such a thing."""

    def rule(f: Any) -> Any:
        overrides = f["overrides"]
        if overrides is None:
            return otherwise(f)
        those = [layer for layer, found in enumerate(f["layer_types"]) if found == kind]
        if overrides and sorted(overrides) != those:
            raise ValueError(f"'per_layer_config' has layers {sorted(overrides)}, but {kind} is in {those}")
        return f[alike] if not overrides else next(iter(overrides.values())).get(name, f[alike])

    return rule


def _global_kv_heads(f: Any) -> Any:
    return f["global_kv_heads"] if f["values_from_keys"] and f["global_kv_heads"] else f["window_kv_heads"]


def _experts(f: Any) -> list[int]:
    """In all layers or in none; the sizes of experts then have no defaults."""
    sizes = {"num_experts": "experts", "top_k_experts": "experts_active", "moe_intermediate_size": "expert_width"}
    for name, field in sizes.items():
        if f["mixes"] and not f[field]:
            raise ValueError(f"'enable_moe_block' is true, but there is no {name!r}")
    return [int(f["mixes"])] * f["layers"]


def _trimmed(written: str, otherwise: Any) -> Any:
    """A list with an entry a layer, and behind those maybe one for each layer that predicts further tokens."""

    def rule(f: Any) -> Any:
        found = f[written] or otherwise(f)
        return found[: f["layers"]] if len(found) == f["layers"] + f["further"] else found

    return rule


def _layers_named(value: Any) -> Any:
    """`3,4,5`, or the list."""
    if isinstance(value, str):
        named = [part.strip() for part in value.split(",") if part.strip()]
        return [int(part) for part in named] if all(part.isdigit() for part in named) else value
    return value


def _sparse_where_named(f: Any) -> list[int]:
    return [int(layer >= 3 if f["named"] is None else layer in f["named"]) for layer in range(f["layers"])]


def _turned(kind: str) -> Any:
    """The fraction of a head that turns in this kind of layer."""
    return key(f"rope_parameters.{kind}.partial_rotary_factor", default=lambda f: 1)


def _sliding_heads(f: Any) -> int:
    """Out of a list with an entry a layer, where it does not say of the others what the config says of all."""
    heads: int = f["heads"]
    if f["heads_listed"] is None:
        return heads
    found = {kind: set[int]() for kind in (FULL, SLIDING)}
    for many, kind in zip(f["heads_listed"], f["layer_types"], strict=False):
        found[kind].add(many)
    if len(f["heads_listed"]) != f["layers"] or len(found[SLIDING]) > 1 or not found[FULL] <= {heads}:
        raise ValueError(
            f"'num_attention_heads_per_layer' must have an entry a layer, 'num_attention_heads' ({heads}) where layers "
            "see everything and one other number where they slide: others are not counted"
        )
    return next(iter(found[SLIDING]), heads)


def _granularity(gating: Any) -> Any:
    found = {True: "head", "per-head": "head", False: "element", "per-element": "element"}
    if not isinstance(gating, bool | str) or gating not in found:
        raise ValueError("true, 'per-head' or 'per-element'")
    return found[gating]


HEADS = FieldType(
    lambda v: isinstance(v, list) and all(map(SIZE.accepts, v)), "a list of numbers of heads, one a layer"
)
TURNED_BY_KIND: dict[str, Any] = dict(
    rotary=_turned(FULL),
    window_rotary_dim=lambda f: int(f["window_head_dim"] * f["window_turned"]),
)
WINDOW_TURNED = {"window_turned": (FRACTION, _turned(SLIDING))}
GEMMA4 = GEMMA2.like(
    "Gemma4",
    classes={"ForCausalLM": LM, "TextModel": ()},
    config="Gemma4TextConfig",
    refuses=(),
    switches=dict(
        either_way=(EITHER_WAY, key("use_bidirectional_attention", default=None)),
        overrides=(OVERRIDES, key("per_layer_config", default=None, read=_alike)),
        global_head_dim=(SIZE, key("global_head_dim", default=512)),
        global_kv_heads=(SIZE, key("num_global_key_value_heads", default=None)),
        doubled=(FLAG, key("use_double_wide_mlp", default=False)),
        mixes=(FLAG, key("enable_moe_block", default=False)),
    ),
    kv_heads=_overridden(FULL, "num_key_value_heads", "window_kv_heads", _global_kv_heads),
    head_dim=_overridden(FULL, "head_dim", "window_head_dim", lambda f: f["global_head_dim"]),
    window_kv_heads=key("num_key_value_heads", default=4),
    window_head_dim=key("head_dim", default=256),
    rotary=1,  # a part of a full layer's heads turns by zero degrees, in the same kernel
    window=key("sliding_window", default=512),
    layer_types=key("layer_types", default=_one_full_in_six, read=_full_last),
    values_from_keys=key("attention_k_eq_v", default=False),
    qk_norm=True,
    value_norm=True,
    kv_shared_layers=key("num_kv_shared_layers", default=0),
    kv_shared_mlp_width=lambda f: (1 + f["doubled"]) * f["mlp_width"],
    mlp_width=key("intermediate_size", default=9216),
    experts=key("num_experts", default=None, null=0),
    experts_active=key("top_k_experts", default=None, null=0),
    expert_width=key("moe_intermediate_size", default=None, null=0),
    expert_layers=_experts,
    fused_experts=True,
    correction=True,  # it scales what the expert gives
    mlp_with_experts=True,
    per_layer_input=key("hidden_size_per_layer_input", default=256, null=0),
    per_layer_vocabulary=key("vocab_size_per_layer_input", default=262144),
    positions=key("max_position_embeddings", default=131072),
)

LAGUNA = LLAMA.like(
    "Laguna",
    classes=heads("ForCausalLM", "Model"),
    switches=dict(
        heads_listed=(HEADS, key("num_attention_heads_per_layer", default=None)),
        **WINDOW_TURNED,
    ),
    refuses=("moe_apply_router_weight_on_input",),
    window_heads=_sliding_heads,
    kv_heads=key("num_key_value_heads", default=8),
    head_dim=key("head_dim", default=128),
    rotary=key("rope_parameters.full_attention.partial_rotary_factor", default=0.5),
    window_rotary_dim=TURNED_BY_KIND["window_rotary_dim"],
    window=key("sliding_window", default=512),
    layer_types=key("layer_types", default=lambda f: [FULL] * f["layers"]),
    qk_norm=True,
    attention_gate=key("gating", default=True, read=_granularity),
    mlp_width=key("intermediate_size", default=8192),
    mlp_bias=False,
    experts=key("num_experts", "num_local_experts", default=256),
    experts_active=key(ACTIVE, default=8),
    expert_width=key("moe_intermediate_size", default=512),
    expert_layers=key("mlp_layer_types", default=sparse_after(lambda f: 1), read=SPARSE_LAYERS),
    fused_experts=True,
    correction=True,
    shared_width=key("shared_expert_intermediate_size", default=512),
    positions=key("max_position_embeddings", default=131072),
)

FAMILIES: dict[str, Family] = {
    "gemma4_text": GEMMA4,
    "gemma4_unified_text": GEMMA4.like(
        "Gemma4Unified",
        config="Gemma4UnifiedTextConfig",
        switches={**GEMMA4.switches, "either_way": (EITHER_WAY, key("use_bidirectional_attention", default="vision"))},
        window=key("sliding_window", default=1024),
        experts=0,
        experts_active=1,
        expert_width=1,
        expert_layers=lambda f: [0] * f["layers"],
        per_layer_input=0,
        per_layer_vocabulary=0,
        positions=key("max_position_embeddings", default=262144),
    ),
    "step3p5": LLAMA.like(
        "Step3p7",
        classes={"TextModel": ()},
        config="Step3p7TextConfig",
        refuses=("use_bidirectional_attention",),
        switches=dict(
            further=(COUNT, key("num_nextn_predict_layers", "num_mtp_layers", default=0)),
            types_written=(TYPES, key("layer_types", default=None)),
            sparse_written=(
                FieldType(lambda v: isinstance(v, list), ""),
                key("mlp_layer_types", default=None, read=SPARSE_LAYERS),
            ),
            named=(INDICES, key("moe_layers_enum", default=None, read=_layers_named)),
            overrides=(OVERRIDES, key("per_layer_config", default=None, read=_alike)),
            sliding_heads=(
                SIZE,
                key("num_sliding_attention_heads", "attention_other_setting.num_attention_heads", default=None),
            ),
            **WINDOW_TURNED,
        ),
        kv_heads=key("num_key_value_heads", "num_attention_groups", default=8),
        window_heads=_overridden(SLIDING, "num_attention_heads", "heads", lambda f: f["sliding_heads"] or f["heads"]),
        head_dim=key("head_dim", default=128),
        **TURNED_BY_KIND,
        window=key("sliding_window", default=None),
        layer_types=_trimmed("types_written", lambda f: [FULL] * f["layers"]),
        qk_norm=True,
        attention_gate="head",
        mlp_width=key("intermediate_size", default=11264),
        activation="silu",  # whatever the config says
        experts=key("n_routed_experts", "moe_num_experts", "num_local_experts", default=288),
        experts_active=key(ACTIVE, "moe_top_k", default=8),
        expert_width=key("moe_intermediate_size", default=1280),
        expert_layers=_trimmed("sparse_written", _sparse_where_named),
        fused_experts=True,
        shared_width=key("share_expert_dim", "share_expert_dims", default=1280),
        positions=key("max_position_embeddings", default=128000),
    ),
    "laguna": LAGUNA,
    "mellum": LAGUNA.like(
        "Mellum",
        switches=WINDOW_TURNED,
        window_heads=lambda f: f["heads"],
        kv_heads=key("num_key_value_heads", default=4, null=lambda f: f["heads"]),
        **TURNED_BY_KIND,
        window=key("sliding_window", default=1024, null=None),
        attention_gate="",
        mlp_width=key("intermediate_size", default=7168),
        experts=key(*EXPERTS, default=64),
        expert_width=key("moe_intermediate_size", default=896),
        expert_layers=key("mlp_layer_types", default=sparse_after(lambda f: 0), read=SPARSE_LAYERS),
        correction=False,
        shared_width=0,
    ),
    "afmoe": LLAMA.like(
        "Afmoe",
        classes=heads("ForCausalLM", "Model"),
        switches=dict(
            pattern=(SIZE, key("global_attn_every_n_layers", default=4)),
            n_shared=(COUNT, key("num_shared_experts", default=2)),
        ),
        head_dim=key("head_dim", default=128, null=lambda f: f["hidden"] // f["heads"]),
        window=key("sliding_window", default=1024, null=None),
        layer_types=key("layer_types", default=lambda f: one_full_in(f["pattern"])(f)),
        rotary_layers=lambda f: [int(kind == SLIDING) for kind in f["layer_types"]],
        out_norm=True,
        qk_norm=True,
        attention_gate="element",
        mlp_width=key("intermediate_size", default=6144),
        mlp_bias=False,
        experts=key("num_experts", default=64),
        experts_active=key(ACTIVE, default=6),
        expert_width=key("moe_intermediate_size", default=1408),
        fused_experts=True,
        correction=True,
        shared_width=shared_width,
        dense_first=key("num_dense_layers", default=1),
        positions=key("max_position_embeddings", default=16384),
    ),
}
