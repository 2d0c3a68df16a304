"""Decoders with a short causal convolution instead of attention in most layers (LFM2)."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import Family, heads
from roofmodel.models.families.latent_attention import ACTIVE, SPARSE_LAYERS, sparse_from
from roofmodel.models.families.llama import LLAMA
from roofmodel.models.families.llama_variants import MODEL
from roofmodel.models.fields import COUNT, FLAG, FULL, INDICES, SIZE, SLIDING, FieldType, key
from roofmodel.numbers.algebra import ceil_div

KINDS = ("conv", FULL, SLIDING)
FACTOR = FieldType(lambda v: type(v) in (int, float) and v > 0, "a factor, more than 0")


def _checked(types: Any) -> list[str]:
    if not isinstance(types, list) or not all(kind in list(KINDS) for kind in types):
        raise ValueError(f"a list of {', '.join(map(repr, KINDS))}, one per layer")
    return types


def _mixers(types: Any) -> list[str]:
    return ["convolution" if kind == "conv" else "attention" for kind in _checked(types)]


def _layer_types(types: Any) -> list[str]:
    """Layer types for attention; any value will do for a convolution layer."""
    return [FULL if kind == "conv" else kind for kind in _checked(types)]


def _listed_attention_layers(f: Any) -> list[str]:
    return [
        FULL if f["attention_layers"] is None or layer in f["attention_layers"] else "conv"
        for layer in range(f["layers"])
    ]


def _one_in_four(f: Any) -> list[str]:
    kinds = {0: SLIDING, 2: FULL}
    return [kinds.get(layer % 4, "conv") if layer else "conv" for layer in range(f["layers"])]


def _mlp_width(f: Any) -> int:
    """Two thirds of the config's width, times a factor, rounded up to a multiple."""
    width: int = f["width_in_config"]
    if not f["adjusts_width"]:
        return width
    multiple: int = f["width_multiple"]
    return multiple * ceil_div(int(f["width_factor"] * int(2 * width / 3)), multiple)  # type: ignore[no-any-return]


def _gate(gated: Any) -> str:
    if not isinstance(gated, bool):
        raise ValueError("true or false")
    return "head" if gated else ""


def _layer_fields(default: Any) -> dict[str, Any]:
    """The two fields that `layer_types` sets: the mixers, and the layer types of attention."""
    return dict(
        mixers=key("layer_types", default=default, read=_mixers),
        layer_types=key("layer_types", default=default, read=_layer_types),
    )


def _inkling_types(types: Any) -> list[str]:
    kinds = {"hybrid": FULL, "hybrid_sliding": SLIDING}
    if not isinstance(types, list) or not all(kind in list(kinds) for kind in types):
        raise ValueError(f"a list of {' and '.join(map(repr, kinds))}, one per layer")
    return [kinds[kind] for kind in types]


def _one_full_in_six(f: Any) -> list[str]:
    return ["hybrid_sliding" if (layer + 1) % 6 else "hybrid" for layer in range(f["layers"])]


def _listed_windows(f: Any) -> list[str]:
    """A window in the listed layers; else in all but every sixth."""
    listed = f["windowed_layers"]
    if listed is None:
        return _one_full_in_six(f)
    return ["hybrid_sliding" if layer in listed else "hybrid" for layer in range(f["layers"])]


TAPS = key("conv_kernel_size", "sconv_kernel_size", default=4)
INKLING_ATTENTION: dict[str, Any] = dict(
    head_dim=key("head_dim", default=128),
    window_head_dim=key("swa_head_dim", default=128),
    rotary=0,
    qkv_bias=False,
    out_bias=False,
    relative_logits_width=key("d_rel", default=16),
    relative_logits_rows=key("rel_extent", default=1024),
    window_relative_logits_rows=lambda f: f["window"],
    kv_taps=TAPS,
    out_taps=TAPS,
    embedding_norm=True,
    mlp_bias=False,
    tied=False,
)
LFM2 = LLAMA.like(
    "Lfm2",
    classes=MODEL,
    switches=dict(
        attention_layers=(INDICES, key("full_attn_idxs", default=None)),
        width_in_config=(SIZE, key("intermediate_size", "block_ff_dim", default=12288)),
        adjusts_width=(FLAG, key("block_auto_adjust_ff_dim", default=True)),
        width_factor=(FACTOR, key("block_ffn_dim_multiplier", default=1.0)),
        width_multiple=(COUNT, key("block_multiple_of", default=256)),
    ),
    **_layer_fields(_listed_attention_layers),
    kv_heads=key("num_key_value_heads", default=8),
    qkv_bias=False,
    out_bias=False,
    qk_norm=True,
    filter=key("conv_L_cache", default=3),
    filter_bias=key("conv_bias", default=False),
    mlp_width=_mlp_width,
    mlp_bias=False,
    activation="silu",
    positions=key("max_position_embeddings", default=128000),
    tied=key("tie_word_embeddings", "tie_embedding", default=True),
)

FAMILIES: dict[str, Family] = {
    "lfm2": LFM2,
    "lfm2_moe": LFM2.like(
        "Lfm2Moe",
        switches={},
        **_layer_fields(lambda f: [FULL] * f["layers"]),
        mlp_width=key("intermediate_size", default=7168),
        experts=key("num_experts", default=32),
        experts_active=key(ACTIVE, default=4),
        expert_width=key("moe_intermediate_size", default=1792),
        fused_experts=True,
        dense_first=key("num_dense_layers", default=2),
    ),
    "lfm3": LFM2.like(
        "Lfm3",
        switches={},
        **_layer_fields(_one_in_four),
        kv_heads=key("num_key_value_heads", default=4),
        head_dim=key("head_dim", default=128),
        qkv_bias=key("attention_bias", default=False),
        out_bias=key("attention_bias", default=False),
        window=key("sliding_window", default=256, null=None),
        attention_gate=key("use_attention_gate", default=True, read=_gate),
        out_norm=key("use_sandwich_norm", default=True),
        filter=key("conv_L_cache", default=7),
        mlp_width=key("intermediate_size", default=7680),
    ),
    "inkling_text": LLAMA.like(
        "Inkling",
        classes=heads("ForCausalLM") | {"TextModel": ()},
        config="InklingTextConfig",
        switches=dict(
            windowed_layers=(INDICES, key("local_layer_ids", default=None)),
            leading_dense=(COUNT, key("dense_mlp_idx", default=0)),
            # published configs have the width of the experts there, and that of dense MLPs apart
            stated_width=(SIZE, key("intermediate_size", default=24576)),
            dense_width=(SIZE, key("dense_intermediate_size", default=None)),
            stated_expert_width=(SIZE, key("moe_intermediate_size", default=3072)),
            n_shared=(SIZE, key("n_shared_experts", default=2)),
        ),
        **INKLING_ATTENTION,
        kv_heads=key("num_key_value_heads", default=8),
        window_heads=key("swa_num_attention_heads", default=64),
        window_kv_heads=key("swa_num_key_value_heads", default=16),
        window=key("sliding_window_size", "sliding_window", default=512),
        layer_types=key("layer_types", default=_listed_windows, read=_inkling_types),
        qk_norm=True,
        mlp_width=lambda f: f["dense_width"] or f["stated_width"],
        mlp_scale=True,
        experts=key("n_routed_experts", "num_local_experts", default=256),
        experts_active=key(ACTIVE, default=6),
        expert_width=lambda f: f["stated_width"] if f["dense_width"] else f["stated_expert_width"],
        fused_experts=True,
        shared_width=lambda f: f["n_shared"] * f["expert_width"],
        weighted_shared=lambda f: f["n_shared"],
        router_scale=True,
        expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: f["leading_dense"]), read=SPARSE_LAYERS),
        positions=key("max_position_embeddings", "model_max_length", default=131072),
    ),
    "inkling2_text": LLAMA.like(
        "Inkling2",
        classes=heads("ForCausalLM") | {"TextModel": ()},
        config="Inkling2TextConfig",
        **INKLING_ATTENTION,
        kv_heads=key("num_key_value_heads", default=8),
        window_heads=key("swa_num_attention_heads", default=48),
        window_kv_heads=key("swa_num_key_value_heads", default=8),
        window=key("sliding_window_size", "sliding_window", default=1024),
        layer_types=key("layer_types", default=_one_full_in_six, read=_inkling_types),
        qk_norm=True,  # limits on the lengths of heads cost as much as norms
        qk_norm_gains="queries",
        relative_logits_norm=True,
        value_norm=True,
        computed_sinks=True,
        attention_gate="element",
        computed_taps=True,
        window_computed_taps=False,
        separate_inputs=True,
        layers_per_sum=key("n_layers_per_attn_res_block", default=6),
        normed_sums=True,
        activation="situ",
        experts=key("n_routed_experts", "num_local_experts", default=384),
        experts_active=key(ACTIVE, default=8),
        mlp_width=lambda f: f["expert_width"],  # no layer has a dense MLP
        expert_width=key("moe_intermediate_size", "intermediate_size", default=2304),
        fused_experts=True,
        positions=key("max_position_embeddings", "model_max_length", default=1048576),
    ),
}
