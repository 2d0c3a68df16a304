"""Mixtures of experts: decoders in which a router chooses the MLPs that a token passes through. A row each."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families.llama import CLASSIFIERS, LLAMA, LLAMAS, OLMO2, QWEN2, one_full_in
from roofmodel.models.family import Family, heads
from roofmodel.models.fields import FLAG, FULL, SLIDING, key

EXPERTS = ("num_local_experts", "num_experts")
ACTIVE = "num_experts_per_tok"
SPARSE: dict[str, Any] = dict(
    experts=key(*reversed(EXPERTS), default=128),
    experts_active=key(ACTIVE, default=8),
    expert_width=key("moe_intermediate_size", default=768),
    moe_every=key("decoder_sparse_step", default=1),
    dense_layers=key("mlp_only_layers", default=None, null=[]),
    fused_gate=True,
)
MIXTRAL = LLAMAS["mistral"].like(
    "Mixtral",
    window=key("sliding_window", default=None),
    experts=key(*EXPERTS, default=8),
    experts_active=key(ACTIVE, default=2),
    fused_gate=True,
)

MIXTURES: dict[str, Family] = {
    "mixtral": MIXTRAL,
    "phimoe": MIXTRAL.like(
        "Phimoe",
        classes=heads("ForCausalLM", "ForSequenceClassification", "Model"),
        head_dim=lambda f: f["hidden"] // f["heads"],
        qkv_bias=key("attention_bias", default=False),
        out_bias=key("attention_bias", default=False),
        norm="layernorm",
        mlp_width=key("intermediate_size", default=6400),
        experts=key(*EXPERTS, default=16),
        experts_active=2,  # whatever the config says: its router takes the best and the next
        head_bias=key("lm_head_bias", default=False),
    ),
    "qwen2_moe": QWEN2.like(
        "Qwen2Moe",
        kv_heads=key("num_key_value_heads", default=16, null=lambda f: f["heads"]),
        qkv_bias=key("qkv_bias", default=True),
        layer_types=key(
            "layer_types",
            default=lambda f: [
                SLIDING if f["window_used"] and layer % 2 == 0 and layer < f["window_from"] else FULL
                for layer in range(f["layers"])
            ],
        ),
        mlp_width=key("intermediate_size", default=5632),
        **SPARSE
        | dict(
            experts=key(*reversed(EXPERTS), default=60),
            experts_active=key(ACTIVE, default=4),
            expert_width=key("moe_intermediate_size", default=1408),
        ),
        shared_width=key("shared_expert_intermediate_size", default=5632),
        shared_gate=True,
    ),
    "qwen3_moe": QWEN2.like(
        "Qwen3Moe",
        switches=dict(window_used=(FLAG, key("use_sliding_window", default=False))),
        kv_heads=key("num_key_value_heads", default=4),
        head_dim=key("head_dim", default=lambda f: f["hidden"] // f["heads"]),
        qkv_bias=key("attention_bias", default=False),
        out_bias=key("attention_bias", default=False),
        qk_norm=True,
        layer_types=lambda f: [SLIDING if f["window_used"] and f["window"] else FULL] * f["layers"],
        mlp_width=key("intermediate_size", default=6144),
        **SPARSE,
    ),
    "olmoe": OLMO2.like(
        "Olmoe",
        classes=heads("ForCausalLM", "Model"),
        pre_norm=True,
        out_norm=False,
        mlp_width=key("intermediate_size", default=2048),
        experts=key(*EXPERTS, default=64),
        experts_active=key(ACTIVE, default=8),
        fused_gate=True,
        positions=key("max_position_embeddings", default=4096),
    ),
    "granitemoe": LLAMA.like(
        "GraniteMoe",
        classes=heads("ForCausalLM", "Model"),
        head_dim=lambda f: f["hidden"] // f["heads"],
        mlp_bias=False,
        experts=key(*EXPERTS, default=8),
        experts_active=key(ACTIVE, default=2),
        fused_gate=True,
    ),
    "gpt_oss": LLAMA.like(
        "GptOss",
        classes=CLASSIFIERS,
        kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
        head_dim=key("head_dim", default=64, null=lambda f: f["hidden"] // f["heads"]),
        qkv_bias=key("attention_bias", default=True),
        out_bias=key("attention_bias", default=True),
        sinks=True,
        window=key("sliding_window", default=128, null=None),
        layer_types=key("layer_types", default=one_full_in(2)),
        mlp_width=key("intermediate_size", default=2880),
        mlp_bias=False,
        experts=key(*EXPERTS, default=128),
        experts_active=key(ACTIVE, default=4),
        expert_bias=True,
        router_bias=True,
        fused_gate=True,
        positions=key("max_position_embeddings", default=131072),
    ),
}
