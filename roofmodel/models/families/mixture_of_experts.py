"""MoE decoders: a router selects the experts of each token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roofmodel.models.families import LM, Family, heads
from roofmodel.models.families.latent_attention import (
    ACTIVE,
    ROUTED,
    SHARED,
    SPARSE_LAYERS,
    layer_flags,
    shared_width,
    sparse_from,
)
from roofmodel.models.families.llama import CLASSIFIERS, LLAMA, OLMO2, PARTIAL, QWEN2, one_full_in
from roofmodel.models.families.llama import FAMILIES as LLAMA_FAMILIES
from roofmodel.models.families.llama_variants import EXAONE4, HUNYUAN
from roofmodel.models.families.llama_variants import FAMILIES as LLAMA_VARIANTS
from roofmodel.models.fields import COUNT, FLAG, FRACTION, FULL, INDICES, SIZE, SLIDING, FieldType, key

EXPERTS = ("num_local_experts", "num_experts")
SPARSE_ATTENTION = "sparse_attention_config"
LAST = FieldType(lambda v: type(v) is int and v >= -1, "a layer by number, or -1 for the last")


def _rotary_layers(f: Any) -> list[int]:
    return [int((layer + 1) % f["nope_every"] != 0) for layer in range(f["layers"])]


def _chunked_if_rotary(f: Any) -> list[str]:
    return ["chunked_attention" if is_rotary else FULL for is_rotary in f["rotary_layers"]]


def _chunked(types: Any) -> Any:
    """Chunked attention is counted as a sliding window."""
    return [SLIDING if kind == "chunked_attention" else kind for kind in types] if isinstance(types, list) else types


def _llama4_experts(f: Any) -> list[int]:
    listed = f["sparse_layers"]
    if listed is None:
        listed = range(f["sparse_every"] - 1, f["layers"], f["sparse_every"])
    return [int(layer in listed) for layer in range(f["layers"])]


def _ernie_experts(f: Any) -> list[int]:
    last = f["layers"] - 1 if f["sparse_to"] == -1 else f["sparse_to"]
    return [
        int((layer + 1) % f["moe_every"] == 0 and f["sparse_from"] <= layer <= last) for layer in range(f["layers"])
    ]


def _mimo_types(f: Any) -> list[str]:
    return [FULL if layer == 0 or (layer + 1) % 6 == 0 else SLIDING for layer in range(f["layers"])]


def _read_mimo_types(types: Any) -> Any:
    """Layer types from `hybrid_layer_pattern`, where 1 means sliding window."""
    if not isinstance(types, list):
        return types
    return [FULL if kind == 0 else SLIDING if kind == 1 else kind for kind in types]


def _flags_or(read_words: Callable[[Any], list[int]]) -> Callable[[Any], list[int]]:
    """A list of 0 and 1 as it is, and a list of words by `read_words`."""

    def read(values: Any) -> list[int]:
        are_flags = isinstance(values, list) and all(value in (0, 1) for value in values)
        return values if are_flags else read_words(values)

    return read


READ_SPARSE_LAYERS = _flags_or(SPARSE_LAYERS)  # from `moe_layer_freq` or `mlp_layer_types`


def read_uniform(value: Any) -> Any:
    """A size, given once or once per layer."""
    if isinstance(value, list):
        if len(set(map(str, value))) != 1:
            raise ValueError("the same in all layers; sizes that differ from layer to layer are not counted")
        return value[0]
    return value


SPARSE: dict[str, Any] = dict(
    experts=key(*reversed(EXPERTS), default=128),
    experts_active=key(ACTIVE, default=8),
    expert_width=key("moe_intermediate_size", default=768),
    moe_every=key("decoder_sparse_step", default=1),
    dense_layers=key("mlp_only_layers", default=None, null=[]),
    fused_experts=True,
)
MIXTRAL = LLAMA_FAMILIES["mistral"].like(
    "Mixtral",
    window=key("sliding_window", default=None),
    experts=key(*EXPERTS, default=8),
    experts_active=key(ACTIVE, default=2),
    fused_experts=True,
)
GLM4_MOE = LLAMA.like(
    "Glm4Moe",
    classes=heads("ForCausalLM", "Model"),
    switches=SHARED,
    kv_heads=key("num_key_value_heads", default=8),
    out_bias=False,
    rotary=key(*PARTIAL, default=0.5),
    qk_norm=key("use_qk_norm", default=False),
    mlp_width=key("intermediate_size", default=10944),
    mlp_bias=False,
    experts=key(*ROUTED, default=128),
    experts_active=key(ACTIVE, default=8),
    expert_width=key("moe_intermediate_size", default=1408),
    fused_experts=True,
    shared_width=shared_width,
    dense_first=key("first_k_dense_replace", default=1),
    positions=key("max_position_embeddings", default=131072),
)

MINIMAX_M2 = LLAMA.like(
    "MiniMaxM2",
    classes=heads("ForCausalLM", "Model"),
    kv_heads=key("num_key_value_heads", default=8),
    head_dim=key("head_dim", default=128),
    qkv_bias=False,
    out_bias=False,
    rotary_dim=key("rotary_dim", default=lambda f: int(f["head_dim"] * f["rotary_fraction"])),
    switches=dict(rotary_fraction=(FRACTION, key(*PARTIAL, default=1))),
    qk_norm=True,
    qk_norm_gains="each",
    mlp_width=key("intermediate_size", default=1536),
    mlp_bias=False,
    experts=key(*EXPERTS, default=256),
    experts_active=key(ACTIVE, default=8),
    fused_experts=True,
    positions=key("max_position_embeddings", default=196608),
)

FAMILIES: dict[str, Family] = {
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
        experts_active=2,  # the class ignores the config: its router is top-2
        head_bias=key("lm_head_bias", default=False),
    ),
    "qwen2_moe": QWEN2.like(
        "Qwen2Moe",
        kv_heads=key("num_key_value_heads", default=16, null=lambda f: f["heads"]),
        qkv_bias=key("qkv_bias", default=True),
        layer_types=key(
            "layer_types",
            default=lambda f: [
                SLIDING if f["uses_window"] and layer % 2 == 0 and layer < f["first_window_layer"] else FULL
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
        switches=dict(uses_window=(FLAG, key("use_sliding_window", default=False))),
        kv_heads=key("num_key_value_heads", default=4),
        head_dim=key("head_dim", default=lambda f: f["hidden"] // f["heads"]),
        qkv_bias=key("attention_bias", default=False),
        out_bias=key("attention_bias", default=False),
        qk_norm=True,
        layer_types=lambda f: [SLIDING if f["uses_window"] and f["window"] else FULL] * f["layers"],
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
        fused_experts=True,
        positions=key("max_position_embeddings", default=4096),
    ),
    "granitemoe": LLAMA.like(
        "GraniteMoe",
        classes=heads("ForCausalLM", "Model"),
        head_dim=lambda f: f["hidden"] // f["heads"],
        mlp_bias=False,
        experts=key(*EXPERTS, default=8),
        experts_active=key(ACTIVE, default=2),
        fused_experts=True,
    ),
    "dbrx": LLAMA.like(
        "Dbrx",
        classes=heads("ForCausalLM", "Model"),
        hidden=key("d_model", "hidden_size"),
        layers=key("n_layers", "num_hidden_layers"),
        heads=key("n_heads", "num_attention_heads"),
        kv_heads=key("attn_config.kv_n_heads", default=1),
        head_dim=lambda f: f["hidden"] // f["heads"],
        fused_qkv=True,
        qkv_bias=False,
        out_bias=False,
        norm="layernorm",
        norm_bias=False,
        mlp_width=1,  # no layer has a dense MLP
        mlp_bias=False,
        activation=key("ffn_config.ffn_act_fn.name", default="silu"),
        experts=key("ffn_config.moe_num_experts", default=4),
        experts_active=key("ffn_config.moe_top_k", default=1),
        expert_width=key("ffn_config.ffn_hidden_size", default=3584),
        dropout=key("resid_pdrop", default=0.0, null=0.0),
        attention_dropout=key("attn_config.attn_pdrop", default=0.0, null=0.0),
        positions=key("max_seq_len", "max_position_embeddings", default=2048),
        tied=False,  # the class rejects tied embeddings
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
        fused_experts=True,
        positions=key("max_position_embeddings", default=131072),
    ),
    "granitemoeshared": LLAMA.like(
        "GraniteMoeShared",
        classes=heads("ForCausalLM", "Model"),
        head_dim=lambda f: f["hidden"] // f["heads"],
        mlp_bias=False,
        experts=key(*EXPERTS, default=8),
        experts_active=key(ACTIVE, default=2),
        fused_gate=True,
        shared_width=key("shared_intermediate_size", default=0),
    ),
    "flex_olmo": OLMO2.like(
        "FlexOlmo",
        classes=heads("ForCausalLM", "Model"),
        experts=key(*EXPERTS, default=7),
        experts_active=key(ACTIVE, default=5),
        fused_experts=True,
        positions=key("max_position_embeddings", default=4096),
    ),
    "qwen3_vl_moe_text": LLAMA.like(
        "Qwen3VLMoe",
        classes={"TextModel": ()},
        config="Qwen3VLMoeTextConfig",
        kv_heads=key("num_key_value_heads", default=16, null=lambda f: f["heads"]),
        out_bias=key("attention_bias", default=False),
        qk_norm=True,
        mlp_width=key("intermediate_size", default=5632),
        mlp_bias=False,
        **SPARSE
        | dict(
            experts=key(*EXPERTS, default=60),
            experts_active=key(ACTIVE, default=4),
            expert_width=key("moe_intermediate_size", default=1408),
        ),
        positions=key("max_position_embeddings", default=128000),
        tied=key("tie_word_embeddings", default=True),
    ),
    "llama4_text": LLAMA.like(
        "Llama4",
        classes={"ForCausalLM": LM, "TextModel": ()},
        config="Llama4TextConfig",
        switches=dict(
            nope_every=(SIZE, key("no_rope_layer_interval", default=4)),
            sparse_every=(SIZE, key("interleave_moe_layer_step", default=1)),
            sparse_layers=(INDICES, key("moe_layers", default=None)),
        ),
        kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
        head_dim=key("head_dim", default=128, null=lambda f: f["hidden"] // f["heads"]),
        rotary_layers=key("no_rope_layers", default=_rotary_layers),
        qk_norm=key("use_qk_norm", default=True),
        qk_norm_gains="none",
        qk_norm_rotary_only=True,
        window=key("attention_chunk_size", default=8192, null=None),
        chunked=True,
        layer_types=key("layer_types", default=_chunked_if_rotary, read=_chunked),
        mlp_width=key("intermediate_size_mlp", default=16384),
        mlp_bias=False,
        experts=key(*EXPERTS, default=16),
        experts_active=key(ACTIVE, default=1),
        expert_width=key("intermediate_size", default=8192),
        expert_layers=_llama4_experts,
        fused_experts=True,
        shared_width=lambda f: f["expert_width"],
        positions=key("max_position_embeddings", default=131072),
    ),
    "minimax_m2": MINIMAX_M2,
    "minimax_m3_vl_text": MINIMAX_M2.like(
        "MiniMaxM3VL",
        config="MiniMaxM3VLTextConfig",
        classes={"ForCausalLM": LM, "TextModel": ()},
        switches={},
        kv_heads=key("num_key_value_heads", default=4),
        rotary_dim=key("rotary_dim", default=64),
        qk_norm_gains="shared",
        index_layers=key(
            "layer_types",
            f"{SPARSE_ATTENTION}.sparse_attention_freq",
            default=lambda f: [0] * f["layers"],
            read=_flags_or(layer_flags(minimax_m3_sparse=1, full_attention=0)),
        ),
        index_heads=key("index_n_heads", f"{SPARSE_ATTENTION}.sparse_num_index_heads", default=4),
        index_head_dim=key("index_head_dim", f"{SPARSE_ATTENTION}.sparse_index_dim", default=128),
        index_block_size=key("index_block_size", f"{SPARSE_ATTENTION}.sparse_block_size", default=128),
        index_blocks=key("index_topk_blocks", f"{SPARSE_ATTENTION}.sparse_topk_blocks", default=16),
        mlp_width=key("dense_intermediate_size", default=12288),
        activation="silu",  # the class ignores the config
        fused_gate=True,
        experts=key(*EXPERTS, default=128),
        experts_active=key(ACTIVE, default=4),
        expert_width=key("intermediate_size", default=3072),
        expert_layers=key(
            "mlp_layer_types", "moe_layer_freq", default=lambda f: [1] * f["layers"], read=READ_SPARSE_LAYERS
        ),
        shared_width=key("shared_intermediate_size", default=3072),
        positions=key("max_position_embeddings", default=524288),
    ),
    "glm4_moe": GLM4_MOE,
    "solar_open": GLM4_MOE.like(
        "SolarOpen",
        rotary=key(*PARTIAL, default=lambda f: 1),
        head_dim=key("head_dim", default=128),
        qk_norm=False,
        mlp_width=1,  # no layer has a dense MLP
        expert_width=key("moe_intermediate_size", default=1280),
        dense_first=0,
    ),
    "dots1": GLM4_MOE.like(
        "Dots1",
        switches=SHARED | dict(first_window_layer=(COUNT, key("max_window_layers", default=62))),
        kv_heads=key("num_key_value_heads", default=32, null=lambda f: f["heads"]),
        out_bias=key("attention_bias", default=False),
        rotary=1,
        window=key("sliding_window", default=4096, null=None),
        layer_types=key(
            "layer_types",
            default=lambda f: [
                SLIDING if f["window"] and layer >= f["first_window_layer"] else FULL for layer in range(f["layers"])
            ],
        ),
        qk_norm=True,
        experts=key(*ROUTED),
        experts_active=key(ACTIVE),
        dense_first=key("first_k_dense_replace", default=0),
        positions=key("max_position_embeddings", default=2048),
    ),
    "hy_v3": GLM4_MOE.like(
        "HYV3",
        switches=dict(n_shared=(COUNT, key("num_shared_experts", default=1))),
        kv_heads=key("num_key_value_heads", default=8),
        head_dim=key("head_dim", default=128),
        out_bias=key("attention_bias", default=False),
        rotary=1,
        qk_norm=True,
        mlp_width=key("intermediate_size", default=13312),
        mlp_bias=key("mlp_bias", default=False),
        experts=key(*EXPERTS, default=192),
        expert_width=key("moe_intermediate_size", default=1536),
        dense_first=0,
        expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: 1), read=SPARSE_LAYERS),
    ),
    "exaone_moe": EXAONE4.like(
        "ExaoneMoe",
        classes=heads("ForCausalLM", "Model"),
        switches={**EXAONE4.switches, "n_shared": (COUNT, key("num_shared_experts", default=1))},
        pre_norm=True,
        out_norm=False,
        experts=key("num_experts", default=64),
        experts_active=key(ACTIVE, default=8),
        expert_width=key("moe_intermediate_size", default=1024),
        fused_experts=True,
        shared_width=shared_width,
        dense_first=key("first_k_dense_replace", default=1),
        expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: f["dense_first"]), read=SPARSE_LAYERS),
    ),
    "mimo_v2_flash": GLM4_MOE.like(
        "MiMoV2Flash",
        switches=dict(
            window_in_config=(SIZE, key("sliding_window", default=129)),
            window_size=(SIZE, key("sliding_window_size", default=None)),
        ),
        kv_heads=key("num_key_value_heads", default=4),
        head_dim=key("head_dim", default=192),
        value_dim=key("v_head_dim", default=128),
        rotary=key(*PARTIAL, "rope_parameters.full_attention.partial_rotary_factor", default=0.334),
        # the class adds one token to the window of early configs
        window=lambda f: f["window_size"] + 1 if f["window_size"] else f["window_in_config"],
        window_kv_heads=key("swa_num_key_value_heads", default=lambda f: 2 * f["kv_heads"]),
        window_sinks=True,
        layer_types=key("layer_types", "hybrid_layer_pattern", default=_mimo_types, read=_read_mimo_types),
        qk_norm=False,
        mlp_width=key("intermediate_size", default=16384),
        experts=key(*ROUTED, default=256),
        expert_width=key("moe_intermediate_size", default=2048),
        shared_width=0,
        dense_first=0,
        expert_layers=key(
            "mlp_layer_types", "moe_layer_freq", default=sparse_from(lambda f: 1), read=READ_SPARSE_LAYERS
        ),
    ),
    "ernie4_5_moe": LLAMA_VARIANTS["ernie4_5"].like(
        "Ernie4_5_Moe",
        switches=dict(
            n_shared=(COUNT, key("moe_num_shared_experts", default=2)),
            sparse_from=(COUNT, key("moe_layer_start_index", default=1)),
            sparse_to=(LAST, key("moe_layer_end_index", default=-1)),
        ),
        kv_heads=key("num_key_value_heads", default=4, null=lambda f: f["heads"]),
        head_dim=key("head_dim", default=lambda f: f["hidden"] // f["heads"]),
        mlp_width=key("intermediate_size", default=12288),
        experts=key("moe_num_experts", "num_experts", default=64),
        experts_active=key("moe_k", ACTIVE, default=6),
        expert_width=key("moe_intermediate_size", default=1536),
        fused_experts=True,
        correction=True,
        shared_width=shared_width,
        moe_every=key("moe_layer_interval", default=1),
        head_bias=key("use_bias", default=False),
        expert_layers=_ernie_experts,
    ),
    "hunyuan_v1_moe": HUNYUAN.like(
        "HunYuanMoEV1",
        experts=key("num_experts", "num_local_experts", default=1, read=read_uniform),
        experts_active=key("moe_topk", ACTIVE, default=1, read=read_uniform),
        fused_experts=True,
        shared_width=lambda f: f["mlp_width"],
    ),
    "jetmoe": LLAMA.like(
        "JetMoe",
        classes=heads("ForCausalLM", "ForSequenceClassification", "Model"),
        heads=lambda f: f["kv_heads"] * f["experts_active"],
        kv_heads=key("num_key_value_heads", default=16),
        head_dim=key("kv_channels", "head_dim", default=128),
        attention_experts=True,
        qkv_bias=False,
        out_bias=True,
        mlp_width=key("intermediate_size", default=5632),
        mlp_bias=False,
        activation=key("activation_function", default="silu"),
        experts=key("num_local_experts", default=8),
        experts_active=key(ACTIVE, default=2),
        fused_experts=True,
        expert_sum_bias=True,
        positions=key("max_position_embeddings", default=4096),
        tied=key("tie_word_embeddings", default=True),
    ),
    "aria_text": LLAMA.like(
        "AriaText",
        classes={"ForCausalLM": LM, "Model": ()},
        switches=dict(n_shared=(COUNT, key("moe_num_shared_experts", default=2))),
        mlp_width=1,  # no layer has a dense MLP
        experts=key("moe_num_experts", default=8),
        experts_active=key("moe_topk", default=2),
        expert_width=key("intermediate_size", default=4096),
        fused_experts=True,
        shared_width=shared_width,
    ),
}
