"""Text models that exist only within multimodal models, each similar to a decoder family."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import LM, Family
from roofmodel.models.families.latent_attention import SPARSE_LAYERS, sparse_from
from roofmodel.models.families.llama import FAMILIES as LLAMA_FAMILIES
from roofmodel.models.families.llama import GLM, LLAMA, PARTIAL, QWEN2
from roofmodel.models.families.llama_variants import FAMILIES as LLAMA_VARIANTS
from roofmodel.models.families.llama_variants import HUNYUAN
from roofmodel.models.families.mixture_of_experts import FAMILIES as MOE_FAMILIES
from roofmodel.models.families.mixture_of_experts import GLM4_MOE
from roofmodel.models.fields import COUNT, FLAG, FULL, INDICES, SLIDING, WIDTHS, FieldType, key

TEXT_MODEL = {"TextModel": ()}  # the multimodal class holds the head

NORM_OF_QUERIES = FieldType(lambda v: v in ("olmo", "qwen3"), "olmo or qwen3")


def _every_fourth_from_the_last(f: Any, chosen: Any, other: Any) -> list[Any]:
    return [other if (f["layers"] - 1 - layer) % 4 else chosen for layer in range(f["layers"])]


def _with_rotary(bases: Any) -> Any:
    """Layers whose base is 0 have no rotary embedding."""
    return [int(base != 0) for base in bases] if isinstance(bases, list) else bases


def _image_experts(f: Any) -> Any:
    """Parameters of the experts, routers and corrections that only image tokens use."""
    return sum(f["expert_layers"]) * f["experts"] * (3 * f["hidden"] * f["widths"][1] + f["hidden"] + 1)


QWEN2_VL = QWEN2.like(
    "Qwen2VL",
    classes=TEXT_MODEL,
    config="Qwen2VLTextConfig",
    switches={**QWEN2.switches, "first_window_layer": (COUNT, key("max_window_layers", default=80))},
    kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
    head_dim=lambda f: f["hidden"] // f["heads"],
    mlp_width=key("intermediate_size", default=29568),
    tied=False,
)
GLM4V = GLM.like(
    "Glm4v",
    classes=TEXT_MODEL,
    config="Glm4vTextConfig",
    head_dim=lambda f: f["hidden"] // f["heads"],
    qkv_bias=True,
    rotary=key(*PARTIAL, default=lambda f: 1),
    out_norm=True,
    positions=key("max_position_embeddings", default=32768),
    tied=False,
)
MUSE = LLAMA.like(
    "MuseGlimmer",
    classes=TEXT_MODEL,
    config="MuseGlimmerTextConfig",
    kv_heads=key("num_key_value_heads", default=2),
    head_dim=key("head_dim", default=128),
    window=key("sliding_window", default=2048, null=None),
    layer_types=key("layer_types", default=lambda f: _every_fourth_from_the_last(f, FULL, SLIDING)),
    rotary_layers=key("layer_rope_theta", default=lambda f: _every_fourth_from_the_last(f, 0, 1), read=_with_rotary),
    out_norm=True,
    qk_norm=True,
    qk_norm_gains="none",
    attention_gate="element",
    mlp_width=key("intermediate_size", default=19968),
    mlp_bias=False,
    activation=key("hidden_activation", default="silu"),
    embedding_norm=True,
    embedding_norm_gain=False,
    positions=key("max_position_embeddings", default=131072),
    tied=False,
)


def _image_layers(f: Any) -> int:
    """Parameters of the layers that attend to an image, and of the token table's rows for eight tokens of images.

    Such a layer has attention with norms of queries and keys, an MLP, two norms and two gates, one number each.
    """
    hidden, query, kv = f["hidden"], f["heads"] * f["head_dim"], f["kv_heads"] * f["head_dim"]
    layer = 2 * hidden * (query + kv) + 2 * f["head_dim"] + 3 * hidden * f["mlp_width"] + 2 * hidden + 2
    if not any(f["mixers"]):
        raise ValueError("'cross_attention_layers' has all layers; a prompt without an image would run none")
    return int(f["mixers"].count("") * layer + 8 * hidden)


FAMILIES: dict[str, Family] = {
    "qwen2_vl_text": QWEN2_VL,
    "qwen2_5_vl_text": QWEN2_VL.like("Qwen2_5_VL", config="Qwen2_5_VLTextConfig"),
    "qwen2_5_omni_text": QWEN2.like(
        "Qwen2_5OmniThinker",
        classes=TEXT_MODEL,
        config="Qwen2_5OmniTextConfig",
        kv_heads=key("num_key_value_heads", default=4, null=lambda f: f["heads"]),
        window=key("sliding_window", default=32768, null=None),
        mlp_width=key("intermediate_size", default=18944),
        tied=key("tie_word_embeddings", default=True),
    ),
    "qwen3_omni_moe_text": MOE_FAMILIES["qwen3_vl_moe_text"].like(
        "Qwen3OmniMoeThinker",
        classes=TEXT_MODEL,
        config="Qwen3OmniMoeTextConfig",
        kv_heads=key("num_key_value_heads", default=4),
        mlp_width=key("intermediate_size", default=18944),
        experts=key("num_experts", "num_local_experts", default=128),
        experts_active=key("num_experts_per_tok", default=8),
        expert_width=key("moe_intermediate_size", default=768),
        positions=key("max_position_embeddings", default=32768),
        tied=False,
    ),
    "cohere_compass_text": LLAMA_FAMILIES["cohere2"].like(
        "CohereCompass",
        classes={"ForCausalLM": LM, "TextModel": ()},
        config="CohereCompassTextConfig",
        switches={},
        head_dim=lambda f: f["hidden"] // f["heads"],
        layer_types=key("layer_types", default=lambda f: [FULL] * f["layers"]),
        rotary_layers=None,
    ),
    "muse_glimmer_text": MUSE,
    "muse_spark_text": MUSE.like(
        "MuseSpark",
        config="MuseSparkTextConfig",
        kv_heads=key("num_key_value_heads", default=16),
        head_dim=key("head_dim", default=64),
        mixer_out_norm_gain=False,
        gated_sum=True,
        heads_norm=True,
        mlp_width=key("intermediate_size", default=16384),
        activation=key("hidden_act", default="silu"),
        experts=key("num_local_experts", default=256),
        experts_active=key("num_experts_per_tok", default=8),
        expert_width=key("moe_intermediate_size", default=4096),
        expert_latent=key("moe_hidden_size", default=4096),
        expert_latent_input_norm=True,
        expert_norm=True,
        fused_experts=True,
        expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: 0), read=SPARSE_LAYERS),
        positions=key("max_position_embeddings", default=1048576),
    ),
    "cosmos3_edge_text": LLAMA.like(
        "Cosmos3Edge",
        classes=TEXT_MODEL,
        config="Cosmos3EdgeTextConfig",
        kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
        head_dim=key("head_dim", default=128, null=lambda f: f["hidden"] // f["heads"]),
        mlp_width=key("intermediate_size", default=9216),
        gated=False,
        activation=key("hidden_act", default="relu2"),
        positions=key("max_position_embeddings", default=131072),
        tied=False,
    ),
    "molmo2_text": LLAMA.like(
        "Molmo2",
        classes=TEXT_MODEL,
        config="Molmo2TextConfig",
        switches=dict(
            norm_kind=(NORM_OF_QUERIES, key("qk_norm_type", default="qwen3")),
            norm_after=(FLAG, key("norm_after", default=False)),
            extra_rows=(COUNT, key("additional_vocab_size", default=128)),
        ),
        kv_heads=key("num_key_value_heads", default=8),
        head_dim=key("head_dim", default=128),
        out_bias=False,
        pre_norm=lambda f: not f["norm_after"],
        out_norm=lambda f: f["norm_after"],
        final_norm=True,
        qk_norm=True,
        qk_norm_gains=lambda f: "each" if f["norm_kind"] == "olmo" else "shared",
        unused_parameters=lambda f: f["extra_rows"] * f["hidden"],  # rows of the tokens that mark images
        mlp_width=key("intermediate_size", default=12288),
        mlp_bias=False,
        positions=key("max_position_embeddings", default=36864),
        tied=False,
    ),
    # a prompt without an image skips the layers that attend to one
    "mllama_text_model": LLAMA.like(
        "Mllama",
        classes={"ForCausalLM": LM, "TextModel": ()},
        config="MllamaTextConfig",
        switches=dict(
            image_layers=(INDICES, key("cross_attention_layers", default=lambda f: [3, 8, 13, 18, 23, 28, 33, 38])),
        ),
        kv_heads=key("num_key_value_heads", default=8),
        head_dim=lambda f: f["hidden"] // f["heads"],
        qkv_bias=False,
        out_bias=False,
        mixers=lambda f: ["" if layer in f["image_layers"] else "attention" for layer in range(f["layers"])],
        layer_fields=lambda f: [{"mlp": bool(mixer)} for mixer in f["mixers"]],
        unused_parameters=_image_layers,
        mlp_width=key("intermediate_size", default=14336),
        mlp_bias=False,
        attention_dropout=key("dropout", default=0.0, null=0.0),
        dropout=0.0,
        positions=key("max_position_embeddings", default=131072),
        tied=False,
    ),
    "ernie4_5_vl_moe_text": MOE_FAMILIES["ernie4_5_moe"].like(
        "Ernie4_5_VLMoe",
        classes=TEXT_MODEL,
        config="Ernie4_5_VLMoeTextConfig",
        switches=dict(
            n_shared=(COUNT, key("moe_num_shared_experts", default=2)),
            widths=(WIDTHS, key("moe_intermediate_size", default=lambda f: [1536, 512])),
        ),
        expert_width=lambda f: f["widths"][0],
        unused_parameters=_image_experts,
        moe_every=1,
        dense_first=1,
        expert_layers=key("mlp_layer_types", default=sparse_from(lambda f: 1), read=SPARSE_LAYERS),
        tied=False,
    ),
    "glm4v_text": GLM4V,
    "glm_ocr_text": GLM4V.like(
        "GlmOcr",
        config="GlmOcrTextConfig",
        kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
        head_dim=key("head_dim", default=lambda f: f["hidden"] // f["heads"]),
        qkv_bias=False,
        mlp_width=key("intermediate_size", default=4096),
        positions=key("max_position_embeddings", default=131072),
    ),
    "glm4v_moe_text": GLM4_MOE.like(
        "Glm4vMoe",
        classes=TEXT_MODEL,
        config="Glm4vMoeTextConfig",
        qkv_bias=key("attention_bias", default=True),
        qk_norm=False,
        positions=key("max_position_embeddings", default=65536),
    ),
    "hunyuan_vl_text": HUNYUAN.like(
        "HunYuanVL",
        classes=TEXT_MODEL,
        config="HunYuanVLTextConfig",
        tied=key("tie_word_embeddings", default=True),
    ),
    "paddleocr_vl_text": LLAMA_VARIANTS["ernie4_5"].like("PaddleOCR", classes=TEXT_MODEL, config="PaddleOCRTextConfig"),
    "granite4_vision_text": LLAMA_FAMILIES["granite"].like(
        "Granite4Vision", classes=TEXT_MODEL, config="Granite4VisionTextConfig"
    ),
    "granite_docling_text": LLAMA_FAMILIES["granite"].like(
        "GraniteDocling",
        classes=TEXT_MODEL,
        config="GraniteDoclingTextConfig",
        kv_heads=key("num_key_value_heads", default=4, null=lambda f: f["heads"]),
        mlp_width=key("intermediate_size", default=2048),
        positions=key("max_position_embeddings", default=32768),
        tied=key("tie_word_embeddings", default=True),
    ),
}
