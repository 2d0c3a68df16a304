"""Model types that look like a known shape and are not: the work in them that no block here counts.

Their keys fit other families, whose count would be wrong: they are refused with the reason, and no family is offered.
"""

from __future__ import annotations

_COMPRESSED = "attention to compressed keys beside a window, and hyper-connections between layers"

UNSUPPORTED: dict[str, str] = {
    "axk1": "a norm behind experts that other layers lack",
    "axk2": "gates within latent attention and within norms",
    "big_bird": "attention to blocks of tokens, some of them chosen at random",
    "bigbird_pegasus": "attention to blocks of tokens, some of them chosen at random",
    "bitnet": "norms between attention or MLP and the matrices that close them",
    "blt": "bytes that are gathered into patches of any length",
    "deepseek_ref": _COMPRESSED,
    "deepseek_v4": _COMPRESSED,
    "diffllama": "the difference of two softmaxes in each head",
    "doge": "masks that values decide, and experts found by products of keys",
    "dots3_note_text": "latent attention, of other sizes where layers slide",
    "gemma3n_text": "several streams of activations side by side (AltUp), of which each layer predicts the others",
    "gemma4_assistant": "the keys and values of another model",
    "gemma4_unified_assistant": "the keys and values of another model",
    "glm5_next_text": "linear attention beside latents, and hyper-connections between layers",
    "hrm_text": "layers that run in cycles of cycles",
    "hy_v4": "hyper-connections between layers",
    "inkling2_text": "short filters on keys and values, and relative positions that queries make",
    "inkling_text": "short filters on keys and values, and relative positions that queries make",
    "jetmoe": "queries and outputs of attention that a router chooses",
    "led": "attention in windows, with a few tokens that see everything",
    "longcat_flash": "two attentions a layer with experts beside the second, some of which do nothing",
    "longformer": "attention in windows, with a few tokens that see everything",
    "longt5": "attention in windows, and to summaries of blocks",
    "minimax_m3": "attention to blocks of tokens that an indexer chooses",
    "minimax_m3_vl_text": "attention to blocks of tokens that an indexer chooses",
    "minimax_m3_vl": "attention to blocks of tokens that an indexer chooses",
    "mistral_large4_text": "an indexer, with keys and values that layers share",
    "mllama": "layers that attend to an image, between the others",
    "mllama_text_model": "layers that attend to an image, between the others",
    "molmo": "a second table of tokens, and keys that say which of several decoders it is",
    "muse_spark_text": "learned gates on residual sums",
    "nemotron-nas": "layers each of a size of its own, some without attention or MLP",
    "nllb-moe": "experts of which each takes a limited number of tokens",
    "qwen4_exp_text": "linear attention, an indexer, and several streams that gates mix between layers",
    "recurrent_gemma": "recurrent blocks (RG-LRU)",
    "reformer": "attention to tokens that hashes bring together",
    "rwkv": "recurrent blocks (WKV) instead of attention",
    "switch_transformers": "experts of which each takes a limited number of tokens",
    "xlstm": "recurrent blocks (xLSTM)",
    "zamba": "one layer of attention that stands in several places",
    "zamba2": "one layer of attention that stands in several places",
    "zaya": "filters over tokens within attention's projections",
}
