"""Multimodal models, whose text model is counted: `model_type` of the config -> `model_type` of its text part."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Composite(NamedTuple):
    """Where a multimodal config has its text part, and the defaults of its class.

    `tied_by`: the config whose `tie_word_embeddings` applies: the whole config, the text part, either, or neither if
    the class never ties.
    """

    text: str  # the text part's model_type, if its config has none
    tied: bool = False  # the default of the whole config
    tied_by: Literal["whole", "text", "either", "neither"] = "whole"
    inside: str = ""  # the part that contains the text part and replaces the whole config, if present
    named: str = "text_config"  # key of the text part
    flat: bool = False  # whether older configs have the text part's keys at the top level


COMPOSITES: dict[str, Composite] = {
    "aria": Composite("aria_text"),
    "audioflamingo3": Composite("qwen2", tied_by="neither"),
    "aya_vision": Composite("cohere2", tied=True),
    "blip-2": Composite("opt", tied_by="text"),
    "cohere2_vision": Composite("cohere2", tied=True),
    "cohere_compass": Composite("cohere_compass_text"),
    "cosmos3_edge": Composite("cosmos3_edge_text", tied_by="neither"),
    "cosmos3_omni": Composite("qwen3_vl_text"),
    "deepseek_vl": Composite("llama", tied=True),
    "deepseek_vl_hybrid": Composite("llama", tied=True),
    "dots3_note": Composite("dots3_note_text", flat=True),
    "ernie4_5_vl_moe": Composite("ernie4_5_vl_moe_text", tied=True),
    "exaone4_5": Composite("exaone4"),
    "fun_asr_nano": Composite("qwen3", tied=True),
    "fuyu": Composite("persimmon"),
    "gemma3": Composite("gemma3_text", tied=True),
    "gemma4": Composite("gemma4_text", tied=True),
    "gemma4_unified": Composite("gemma4_unified_text", tied=True),
    "glm5_next": Composite("glm5_next_text", flat=True),
    "glm46v": Composite("glm4v_text"),
    "glm4v": Composite("glm4v_text", tied_by="either", flat=True),
    "glm4v_moe": Composite("glm4v_moe_text", tied_by="either"),
    "glm_ocr": Composite("glm_ocr_text", tied_by="either"),
    "glmasr": Composite("llama", tied=True),
    "glmga": Composite("glm4v_text"),
    "got_ocr2": Composite("qwen2", tied=True),
    "granite4_vision": Composite("granite4_vision_text"),
    "granite_docling": Composite("granite_docling_text", tied=True),
    "granite_speech": Composite("granite", tied=True),
    "granite_speech_plus": Composite("granite", tied=True),
    "hunyuan_vl": Composite("hunyuan_vl_text", tied=True, tied_by="either", flat=True),
    "hyperclovax_vision_v2": Composite("hyperclovax", tied=True),
    "idefics2": Composite("mistral"),
    "idefics3": Composite("llama"),
    "inkling2": Composite("inkling2_text", tied_by="neither"),
    "inkling_mm_model": Composite("inkling_text", tied_by="neither"),
    "instructblip": Composite("opt", tied_by="text"),
    "internvl": Composite("qwen2", tied=True),
    "internvl_chat": Composite("internlm2", tied_by="text", named="llm_config"),
    "janus": Composite("llama", tied=True),
    "kimi_k25": Composite("deepseek_v3", tied=True),
    "lfm2_vl": Composite("lfm2", tied=True),
    "lfm3_vl": Composite("lfm3", tied=True),
    "lighton_ocr": Composite("qwen3", tied=True),
    "llama4": Composite("llama4_text", tied_by="text"),
    "llava": Composite("llama", tied_by="either"),
    "llava_next": Composite("llama"),
    "llava_next_video": Composite("llama", tied_by="either"),
    "llava_onevision": Composite("qwen2", tied_by="either"),
    "minimax_m3_vl": Composite("minimax_m3_vl_text", tied_by="either"),
    "minicpm_ocr": Composite("qwen3_5_text", tied=True),
    "minicpmv4_6": Composite("qwen3_5_text"),
    "minicpmv4_7": Composite("qwen3_5_text"),
    "mistral_large4": Composite("mistral_large4_text"),
    "mistral3": Composite("mistral", tied=True),
    "mllama": Composite("mllama_text_model", tied_by="neither"),
    "molmo2": Composite("molmo2_text", tied_by="neither"),
    "moss_transcribe_diarize": Composite("qwen3", tied=True),
    "muse_glimmer": Composite("muse_glimmer_text"),
    "muse_spark": Composite("muse_spark_text", tied_by="neither"),
    "musicflamingo": Composite("qwen2", tied_by="neither"),
    "paddleocr_vl": Composite("paddleocr_vl_text", tied=True, tied_by="either", flat=True),
    "paligemma": Composite("gemma", tied=True),
    "phi4_multimodal": Composite("phi3", tied_by="text", flat=True),
    "phi4mm": Composite("phi3", tied=True, tied_by="text", flat=True),
    "pp_chart2table": Composite("qwen2", tied=True),
    "qianfan_ocr": Composite("qwen3"),
    "qwen2_5_omni": Composite("qwen2_5_omni_text", inside="thinker_config"),
    "qwen2_5_omni_thinker": Composite("qwen2_5_omni_text"),
    "qwen2_5_vl": Composite("qwen2_5_vl_text", tied_by="either", flat=True),
    "qwen2_audio": Composite("qwen2", tied_by="neither"),
    "qwen2_vl": Composite("qwen2_vl_text", tied_by="either", flat=True),
    "qwen3_5": Composite("qwen3_5_text"),
    "qwen3_5_moe": Composite("qwen3_5_moe_text"),
    "qwen3_asr": Composite("qwen3", tied=True, inside="thinker_config"),
    "qwen3_omni_moe": Composite("qwen3_omni_moe_text", inside="thinker_config"),
    "qwen3_omni_moe_thinker": Composite("qwen3_omni_moe_text"),
    "qwen3_vl": Composite("qwen3_vl_text"),
    "qwen3_vl_moe": Composite("qwen3_vl_moe_text"),
    "qwen4_exp": Composite("qwen4_exp_text"),
    "smolvlm": Composite("llama"),
    "step3p7": Composite("step3p5", flat=True),
    "vibevoice_asr": Composite("qwen2", tied_by="neither"),
    "video_llama_3": Composite("qwen2", tied_by="either"),
    "video_llava": Composite("llama"),
    "vipllava": Composite("llama"),
    "voxtral": Composite("llama", tied_by="neither"),
}

# The core sizes by default, of the text parts that are often written without them.
SIZES: dict[str, dict[str, int]] = {
    "gemma3_text": dict(vocab_size=262208, hidden_size=2304, num_hidden_layers=26, num_attention_heads=8),
    "llama": dict(vocab_size=32000, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32),
    "mistral": dict(vocab_size=32000, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32),
    "opt": dict(vocab_size=50272, hidden_size=768, num_hidden_layers=12, num_attention_heads=12),
    "qwen2": dict(vocab_size=151936, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32),
}
