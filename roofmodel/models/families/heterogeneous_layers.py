"""Decoders whose layer types differ in the number or size of heads or share keys and values, and decoders with gated
attention outputs: Gemma 3n and 4, Step 3.5, Laguna, Mellum, AFMoE.
"""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import LM, Family, heads
from roofmodel.models.families.latent_attention import ACTIVE, SPARSE_LAYERS, shared_width, sparse_from
from roofmodel.models.families.llama import GEMMA2, LLAMA, one_full_in
from roofmodel.models.families.mixture_of_experts import EXPERTS
from roofmodel.models.fields import (
    COUNT,
    FLAG,
    FRACTION,
    FULL,
    INDICES,
    LAYER_FLAGS,
    LAYER_TYPE_LIST,
    SIZE,
    SLIDING,
    FieldType,
    key,
)

OVERRIDES = FieldType(lambda v: isinstance(v, dict), "a mapping from layer indices to overridden fields")
HEAD_FIELDS = {"head_dim", "num_key_value_heads", "num_attention_heads"}
BIDIRECTIONAL = FieldType(lambda v: v == "vision", "null or 'vision'; other bidirectional attention is not supported")


def _full_last(types: Any) -> Any:
    """The class uses full attention in the last layer and ignores the config there."""
    return [*types[:-1], FULL] if isinstance(types, list) and types else types


def _one_full_in_six(f: Any) -> list[str]:
    return _full_last([FULL if (layer + 1) % 6 == 0 else SLIDING for layer in range(f["layers"])])  # type: ignore[no-any-return]


def _uniform_overrides(overrides: Any) -> Any:
    """`per_layer_config` in the class's form: layer index -> overridden head fields."""
    expected = f"the same {', '.join(map(repr, sorted(HEAD_FIELDS)))} in every layer of one type, no other layers"
    if not isinstance(overrides, dict) or not all(str(layer).isdigit() for layer in overrides):
        raise ValueError(expected)
    for fields in overrides.values():
        if not isinstance(fields, dict) or not HEAD_FIELDS.issuperset(fields):
            raise ValueError(expected)
        if fields != next(iter(overrides.values())) or not all(SIZE.accepts(size) for size in fields.values()):
            raise ValueError(expected)
    return {int(layer): fields for layer, fields in overrides.items()}


def _overridden_head_field(kind: str, name: str, full_field: str, default: Any) -> Any:
    """The head field of this layer type: from `per_layer_config` if the config has it, else from `default`."""

    def rule(f: Any) -> Any:
        overrides = f["overrides"]
        if overrides is None:
            return default(f)
        layers = [layer for layer, layer_type in enumerate(f["layer_types"]) if layer_type == kind]
        if overrides and sorted(overrides) != layers:
            raise ValueError(f"'per_layer_config' has layers {sorted(overrides)}, but {kind} is in {layers}")
        return f[full_field] if not overrides else next(iter(overrides.values())).get(name, f[full_field])

    return rule


def _global_kv_heads(f: Any) -> Any:
    return f["global_kv_heads"] if f["values_from_keys"] and f["global_kv_heads"] else f["window_kv_heads"]


def _experts(f: Any) -> list[int]:
    """Experts in all layers or in none; with experts, their sizes are required."""
    sizes = {"num_experts": "experts", "top_k_experts": "experts_active", "moe_intermediate_size": "expert_width"}
    for name, field in sizes.items():
        if f["moe_block"] and not f[field]:
            raise ValueError(f"'enable_moe_block' is true, but {name!r} is missing")
    return [int(f["moe_block"])] * f["layers"]


def _without_extra_layers(field: str, default: Any) -> Any:
    """A list with one entry per layer, without entries for multi-token-prediction layers at its end."""

    def rule(f: Any) -> Any:
        types = f[field] or default(f)
        return types[: f["layers"]] if len(types) == f["layers"] + f["extra_layers"] else types

    return rule


def _layer_list(value: Any) -> Any:
    """Layer indices from `3,4,5` or from a list."""
    if isinstance(value, str):
        indices = [part.strip() for part in value.split(",") if part.strip()]
        return [int(part) for part in indices] if all(part.isdigit() for part in indices) else value
    return value


def _listed_moe_layers(f: Any) -> list[int]:
    return [
        int(layer >= f["dense"] if f["moe_layers"] is None else layer in f["moe_layers"])
        for layer in range(f["layers"])
    ]


def _rotary_fraction(kind: str) -> Any:
    """The fraction of a head with rotary embedding in this layer type."""
    return key(f"rope_parameters.{kind}.partial_rotary_factor", default=lambda f: 1)


def _sliding_heads(f: Any) -> int:
    """The heads of sliding-window layers, from a list with one entry per layer."""
    heads: int = f["heads"]
    if f["heads_per_layer"] is None:
        return heads
    heads_by_type = {kind: set[int]() for kind in (FULL, SLIDING)}
    for heads_of_layer, kind in zip(f["heads_per_layer"], f["layer_types"], strict=False):
        heads_by_type[kind].add(heads_of_layer)
    uniform = len(heads_by_type[SLIDING]) <= 1 and heads_by_type[FULL] <= {heads}
    if len(f["heads_per_layer"]) != f["layers"] or not uniform:
        raise ValueError(
            f"'num_attention_heads_per_layer' must have one entry per layer: 'num_attention_heads' ({heads}) for "
            "full-attention layers and one number for all sliding-window layers; other patterns are not supported"
        )
    return next(iter(heads_by_type[SLIDING]), heads)


def _granularity(gating: Any) -> Any:
    granularities = {True: "head", "per-head": "head", False: "element", "per-element": "element"}
    if not isinstance(gating, bool | str) or gating not in granularities:
        raise ValueError("true, 'per-head' or 'per-element'")
    return granularities[gating]


def _first_ten(f: Any) -> list[float]:
    """The sparsity of the gates: in deep models, that of the first ten layers."""
    sparse = 10 if f["layers"] > 10 else 0
    return [0.95 if layer < sparse else 0.0 for layer in range(f["layers"])]


def _sparse_layers(fractions: Any) -> list[int]:
    if not isinstance(fractions, list) or not all(FRACTION.accepts(each) for each in fractions):
        raise ValueError("a list of numbers from 0 to 1, one per layer")
    return [int(each > 0) for each in fractions]


def _width_of_all(f: Any) -> int:
    """The widest MLP; without a list, the width of all."""
    return max(f["widths"]) if isinstance(f["widths"], list) else f["widths"]  # type: ignore[no-any-return]


def _mlp_fields(f: Any) -> list[dict[str, Any]]:
    """What the MLPs of the layers have of their own: a sparse gate, and a width if it differs."""
    widths = f["widths"] if isinstance(f["widths"], list) else [f["widths"]] * f["layers"]
    for name, values in (("intermediate_size", widths), ("activation_sparsity_pattern", f["sparse_layers"])):
        if len(values) != f["layers"]:
            raise ValueError(f"{name!r} has {len(values)} entries, but there are {f['layers']} layers")
    return [
        {"sparse_gate": bool(sparse)}
        | ({} if width == f["mlp_width"] else {"mlp_width": width, "kv_shared_mlp_width": width})
        for width, sparse in zip(widths, f["sparse_layers"], strict=True)
    ]


HEADS = FieldType(lambda v: isinstance(v, list) and all(map(SIZE.accepts, v)), "a list of head counts, one per layer")
MLP_WIDTHS = FieldType(
    lambda v: SIZE.accepts(v) or (isinstance(v, list) and bool(v) and all(map(SIZE.accepts, v))),
    "a whole number from 1, or a list of them, one per layer",
)
SEVERAL = FieldType(lambda v: SIZE.accepts(v) and 1 < v <= 64, "a whole number from 2 to 64")
ROTARY_BY_LAYER_TYPE: dict[str, Any] = dict(
    rotary=_rotary_fraction(FULL),
    window_rotary_dim=lambda f: int(f["window_head_dim"] * f["window_rotary"]),
)
WINDOW_ROTARY = {"window_rotary": (FRACTION, _rotary_fraction(SLIDING))}
GEMMA4 = GEMMA2.like(
    "Gemma4",
    classes={"ForCausalLM": LM, "TextModel": ()},
    config="Gemma4TextConfig",
    refuses=(),
    switches=dict(
        bidirectional=(BIDIRECTIONAL, key("use_bidirectional_attention", default=None)),
        overrides=(OVERRIDES, key("per_layer_config", default=None, read=_uniform_overrides)),
        global_head_dim=(SIZE, key("global_head_dim", default=512)),
        global_kv_heads=(SIZE, key("num_global_key_value_heads", default=None)),
        double_wide_mlp=(FLAG, key("use_double_wide_mlp", default=False)),
        moe_block=(FLAG, key("enable_moe_block", default=False)),
    ),
    kv_heads=_overridden_head_field(FULL, "num_key_value_heads", "window_kv_heads", _global_kv_heads),
    head_dim=_overridden_head_field(FULL, "head_dim", "window_head_dim", lambda f: f["global_head_dim"]),
    window_kv_heads=key("num_key_value_heads", default=4),
    window_head_dim=key("head_dim", default=256),
    rotary=1,  # in full-attention layers part of a head is rotated by an angle of 0, in the same kernel
    window=key("sliding_window", default=512),
    layer_types=key("layer_types", default=_one_full_in_six, read=_full_last),
    values_from_keys=key("attention_k_eq_v", default=False),
    qk_norm=True,
    value_norm=True,
    kv_shared_layers=key("num_kv_shared_layers", default=0),
    kv_shared_mlp_width=lambda f: (1 + f["double_wide_mlp"]) * f["mlp_width"],
    mlp_width=key("intermediate_size", default=9216),
    experts=key("num_experts", default=None, null=0),
    experts_active=key("top_k_experts", default=None, null=0),
    expert_width=key("moe_intermediate_size", default=None, null=0),
    expert_layers=_experts,
    fused_experts=True,
    correction=True,  # it scales the expert's output
    mlp_with_experts=True,
    per_layer_input=key("hidden_size_per_layer_input", default=256, null=0),
    per_layer_vocabulary=key("vocab_size_per_layer_input", default=262144),
    positions=key("max_position_embeddings", default=131072),
)

LAGUNA = LLAMA.like(
    "Laguna",
    classes=heads("ForCausalLM", "Model"),
    switches=dict(
        heads_per_layer=(HEADS, key("num_attention_heads_per_layer", default=None)),
        **WINDOW_ROTARY,
    ),
    refuses=("moe_apply_router_weight_on_input",),
    window_heads=_sliding_heads,
    kv_heads=key("num_key_value_heads", default=8),
    head_dim=key("head_dim", default=128),
    rotary=key("rope_parameters.full_attention.partial_rotary_factor", default=0.5),
    window_rotary_dim=ROTARY_BY_LAYER_TYPE["window_rotary_dim"],
    window=key("sliding_window", default=512),
    layer_types=key("layer_types", default=lambda f: [FULL] * f["layers"]),
    qk_norm=True,
    attention_gate=key("gating", default=True, read=_granularity),
    mlp_width=key("intermediate_size", default=8192),
    mlp_bias=False,
    experts=key("num_experts", "num_local_experts", default=256),
    experts_active=key(ACTIVE, default=8),
    expert_width=key("moe_intermediate_size", default=512),
    expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: 1), read=SPARSE_LAYERS),
    fused_experts=True,
    correction=True,
    shared_width=key("shared_expert_intermediate_size", default=512),
    positions=key("max_position_embeddings", default=131072),
)

FAMILIES: dict[str, Family] = {
    "gemma3n_text": GEMMA2.like(
        "Gemma3n",
        classes={"ForCausalLM": LM, "TextModel": ()},
        config="Gemma3nTextConfig",
        switches=dict(
            widths=(MLP_WIDTHS, key("intermediate_size", default=16384)),
            sparse_layers=(
                LAYER_FLAGS,
                key("activation_sparsity_pattern", default=_first_ten, read=_sparse_layers),
            ),
            streams_in_config=(SEVERAL, key("altup_num_inputs", default=4)),
            width_of_inputs=(SIZE, key("hidden_size_per_layer_input", default=256)),
        ),
        mixers=lambda f: ["attention+laurel"] * f["layers"],
        kv_heads=key("num_key_value_heads", default=2),
        head_dim=key("head_dim", default=256),
        window=key("sliding_window", default=512),
        layer_types=key("layer_types", default=one_full_in(5)),
        qk_norm=True,
        value_norm=True,
        kv_shared_layers=key("num_kv_shared_layers", default=15),
        mlp_width=_width_of_all,
        layer_fields=_mlp_fields,
        laurel_rank=key("laurel_rank", default=64),
        altup_streams=lambda f: f["streams_in_config"],
        altup_scale=key("altup_correct_scale", default=True),
        unused_parameters=lambda f: 0 if f["altup_scale"] else f["layers"] * f["hidden"],  # its factors
        per_layer_input=lambda f: f["width_of_inputs"],
        per_layer_vocabulary=key("vocab_size_per_layer_input", default=262144),
        positions=key("max_position_embeddings", default=32768),
    ),
    "gemma4_text": GEMMA4,
    "gemma4_unified_text": GEMMA4.like(
        "Gemma4Unified",
        config="Gemma4UnifiedTextConfig",
        switches={
            **GEMMA4.switches,
            "bidirectional": (BIDIRECTIONAL, key("use_bidirectional_attention", default="vision", null=None)),
        },
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
            extra_layers=(COUNT, key("num_nextn_predict_layers", "num_mtp_layers", default=0)),
            types_in_config=(LAYER_TYPE_LIST, key("layer_types", default=None)),
            sparse_written=(
                FieldType(lambda v: isinstance(v, list), ""),
                key("mlp_layer_types", default=None, read=SPARSE_LAYERS),
            ),
            moe_layers=(INDICES, key("moe_layers_enum", default=None, read=_layer_list)),
            dense=(COUNT, key("first_k_dense_replace", default=3)),
            overrides=(OVERRIDES, key("per_layer_config", default=None, read=_uniform_overrides)),
            sliding_heads=(
                SIZE,
                key("num_sliding_attention_heads", "attention_other_setting.num_attention_heads", default=None),
            ),
            **WINDOW_ROTARY,
        ),
        kv_heads=key("num_key_value_heads", "num_attention_groups", default=8),
        window_heads=_overridden_head_field(
            SLIDING, "num_attention_heads", "heads", lambda f: f["sliding_heads"] or f["heads"]
        ),
        head_dim=key("head_dim", default=128),
        **ROTARY_BY_LAYER_TYPE,
        window=key("sliding_window", default=None),
        layer_types=_without_extra_layers("types_in_config", lambda f: [FULL] * f["layers"]),
        qk_norm=True,
        attention_gate="head",
        mlp_width=key("intermediate_size", default=11264),
        activation="silu",  # the class ignores the config
        experts=key("n_routed_experts", "moe_num_experts", "num_local_experts", "num_experts", default=288),
        experts_active=key(ACTIVE, "moe_top_k", default=8),
        expert_width=key("moe_intermediate_size", default=1280),
        expert_layers=_without_extra_layers("sparse_written", _listed_moe_layers),
        fused_experts=True,
        shared_width=key("share_expert_dim", "share_expert_dims", default=1280),
        positions=key("max_position_embeddings", default=128000),
    ),
    "laguna": LAGUNA,
    "mellum": LAGUNA.like(
        "Mellum",
        switches=WINDOW_ROTARY,
        window_heads=lambda f: f["heads"],
        kv_heads=key("num_key_value_heads", default=4, null=lambda f: f["heads"]),
        **ROTARY_BY_LAYER_TYPE,
        window=key("sliding_window", default=1024, null=None),
        attention_gate="",
        mlp_width=key("intermediate_size", default=7168),
        experts=key(*EXPERTS, default=64),
        expert_width=key("moe_intermediate_size", default=896),
        expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: 0), read=SPARSE_LAYERS),
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
