"""Models of several parts, whose text part is counted: the `model_type` of the whole config -> of its `text_config`."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Composite(NamedTuple):
    """What the whole config says about its text part, by the defaults of its class.

    `tied_by`: whose `tie_word_embeddings` holds: the whole's, the text part's, or either one's.
    """

    text: str  # the text part's model_type, where its config does not name it
    tied: bool = False  # the whole's default
    tied_by: Literal["whole", "text", "either"] = "whole"


COMPOSITES: dict[str, Composite] = {
    "cohere2_vision": Composite("cohere2", tied=True),
    "gemma3": Composite("gemma3_text", tied=True),
    "gemma4": Composite("gemma4_text", tied=True),
    "gemma4_unified": Composite("gemma4_unified_text", tied=True),
    "idefics2": Composite("mistral"),
    "idefics3": Composite("llama"),
    "internvl": Composite("qwen2", tied=True),
    "kimi_k25": Composite("deepseek_v3", tied=True),
    "lfm2_vl": Composite("lfm2", tied=True),
    "lfm3_vl": Composite("lfm3", tied=True),
    "llama4": Composite("llama4_text", tied_by="text"),
    "llava": Composite("llama", tied_by="either"),
    "llava_next": Composite("llama"),
    "llava_onevision": Composite("qwen2", tied_by="either"),
    "mistral3": Composite("mistral", tied=True),
    "paligemma": Composite("gemma", tied=True),
    "qwen3_5": Composite("qwen3_5_text"),
    "qwen3_5_moe": Composite("qwen3_5_moe_text"),
    "qwen3_vl": Composite("qwen3_vl_text"),
    "qwen3_vl_moe": Composite("qwen3_vl_moe_text"),
    "smolvlm": Composite("llama"),
    "step3p7": Composite("step3p5"),
}

# The core sizes by default, of the text parts that are often written without them.
SIZES: dict[str, dict[str, int]] = {
    "gemma3_text": dict(vocab_size=262208, hidden_size=2304, num_hidden_layers=26, num_attention_heads=8),
    "llama": dict(vocab_size=32000, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32),
    "mistral": dict(vocab_size=32000, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32),
}
# Names that checkpoints use for a family of another name; transformers reads them so too (Kimi_K25Config).
ALIASES = {"gpt-sw3": "gpt2", "kimi_k2": "deepseek_v3"}
