"""Decoders with a short causal convolution instead of attention in most layers (LFM2)."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import Family
from roofmodel.models.families.latent_attention import ACTIVE
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
}
