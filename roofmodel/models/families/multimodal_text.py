"""Text models that exist only within multimodal models, each similar to a decoder family."""

from __future__ import annotations

from roofmodel.models.families import Family
from roofmodel.models.families.llama import FAMILIES as LLAMA_FAMILIES
from roofmodel.models.families.llama import GLM, PARTIAL, QWEN2
from roofmodel.models.families.llama_variants import FAMILIES as LLAMA_VARIANTS
from roofmodel.models.families.llama_variants import HUNYUAN
from roofmodel.models.families.mixture_of_experts import FAMILIES as MOE_FAMILIES
from roofmodel.models.families.mixture_of_experts import GLM4_MOE
from roofmodel.models.fields import COUNT, key

TEXT_MODEL = {"TextModel": ()}  # the multimodal class holds the head

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
