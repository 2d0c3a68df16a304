"""More MoE decoders, with sliding-window attention."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import Family
from roofmodel.models.families.latent_attention import ACTIVE, SPARSE_LAYERS, shared_width
from roofmodel.models.families.llama import FAMILIES as LLAMA_FAMILIES
from roofmodel.models.families.llama_variants import EXAONE4, GRANITE_SWA, MODEL
from roofmodel.models.families.mixture_of_experts import EXPERTS
from roofmodel.models.families.mixture_of_experts import FAMILIES as MOE_FAMILIES
from roofmodel.models.fields import COUNT, FULL, SIZE, SLIDING, FieldType, key

EPSILON = FieldType(lambda v: type(v) in (int, float), "a small number")


def _cohere_types(f: Any) -> list[str]:
    """One full-attention layer per period; the leading dense layers have another period."""
    dense_layers, period = f["dense_first"], f["pattern"]
    dense = [FULL if (layer + 1) % f["dense_pattern"] == 0 else SLIDING for layer in range(dense_layers)]
    return dense + [FULL if (layer + 1) % period == 0 else SLIDING for layer in range(f["layers"] - dense_layers)]


def _cohere_rotary_layers(f: Any) -> list[int]:
    """Rotary embedding in sliding-window layers, and in leading dense layers if all of them have full attention."""
    return [
        int(kind == SLIDING or (f["dense_pattern"] == 1 and not sparse))
        for kind, sparse in zip(f["layer_types"], f["expert_layers"], strict=False)
    ]


def _flint_types(f: Any) -> list[str]:
    last = f["layers"] - 1
    return [FULL if layer < 2 or layer % 4 == 1 or layer == last else SLIDING for layer in range(f["layers"])]


FAMILIES: dict[str, Family] = {
    "granitemoe_swa": MOE_FAMILIES["granitemoeshared"].like(
        "GraniteMoeSWA",
        **{name: GRANITE_SWA.fields[name] for name in ("window", "layer_types", "rotary_layers", "sinks")},
    ),
    "cohere2_moe": LLAMA_FAMILIES["cohere2"].like(
        "Cohere2Moe",
        classes=MODEL,
        switches=dict(
            pattern=(SIZE, key("sliding_window_pattern", default=4)),
            dense_pattern=(SIZE, key("prefix_dense_sliding_window_pattern", default=1)),
            rms_epsilon=(EPSILON, key("rms_norm_eps", default=None)),
            n_shared=(COUNT, key("num_shared_experts", default=0)),
        ),
        head_dim=key("head_dim", default=128),
        norm=lambda f: "layernorm" if f["rms_epsilon"] is None else "rmsnorm",
        layer_types=key("layer_types", default=_cohere_types),
        rotary_layers=_cohere_rotary_layers,
        mlp_width=key("prefix_dense_intermediate_size", default=lambda f: f["expert_width"]),
        experts=key("num_experts", default=8),
        experts_active=key(ACTIVE, default=2),
        expert_width=key("intermediate_size", default=22528),
        fused_experts=True,
        shared_width=shared_width,
        dense_first=key("first_k_dense_replace", default=lambda f: 0),
        expert_layers=key(
            "mlp_layer_types",
            default=lambda f: ["dense" if layer < f["dense_first"] else "sparse" for layer in range(f["layers"])],
            read=SPARSE_LAYERS,
        ),
    ),
    "kolibri1": EXAONE4.like(
        "Kolibri1",
        classes=MODEL,
        switches={},
        kv_heads=key("num_key_value_heads", default=4),
        head_dim=key("head_dim", default=128),
        window=key("sliding_window", default=513, null=None),
        layer_types=key(
            "layer_types",
            default=lambda f: [FULL if (layer + 1) % 5 == 0 else SLIDING for layer in range(f["layers"])],
        ),
        pre_norm=True,
        mlp_width=1,  # no layer has a dense MLP
        experts=key(*reversed(EXPERTS), default=384),
        experts_active=key(ACTIVE, default=6),
        expert_width=key("moe_intermediate_size", default=512),
        fused_experts=True,
        shared_width=key("shared_expert_intermediate_size", default=512),
        positions=key("max_position_embeddings", default=262144),
    ),
    "flint": MOE_FAMILIES["qwen3_moe"].like(
        "Flint",
        classes=MODEL,
        switches={},
        head_dim=key("head_dim", default=128),
        sinks=True,
        window=key("sliding_window", default=513),
        layer_types=key("layer_types", default=_flint_types),
        rotary_layers=lambda f: [int(kind == SLIDING) for kind in f["layer_types"]],
        experts=key(*reversed(EXPERTS), default=256),
        experts_active=key(ACTIVE, default=6),
        expert_width=key("moe_intermediate_size", default=512),
        dense_layers=key("mlp_only_layers", default=lambda f: [0, 1]),
        shared_width=key("shared_expert_intermediate_size", default=1024),
        positions=key("max_position_embeddings", default=262144),
    ),
}
