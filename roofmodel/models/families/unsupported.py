"""Model types that are refused, with the reason: operators that no block counts.

Their keys also fit other families, whose count would be wrong. So no other family is suggested for them.
"""

from __future__ import annotations

UNSUPPORTED: dict[str, str] = {
    "big_bird": "attention to blocks of tokens, some of them chosen at random",
    "bigbird_pegasus": "attention to blocks of tokens, some of them chosen at random",
    "blt": "bytes that are grouped into patches of variable length",
    "cpmant": "a bias for pairs of segments, and learned tokens for each task",
    "doge": "attention masks computed from values, and experts selected by product keys",
    "gemma4_assistant": "the keys and values of another model",
    "gemma4_unified_assistant": "the keys and values of another model",
    "hrm_text": "layers that run in nested loops",
    "led": "a source padded to whole windows, and tokens with global attention by projections of their own",
    "longformer": "a sequence padded to whole windows, and tokens with global attention by projections of their own",
    "longt5": "windowed attention, and attention to block summaries",
    "molmo": "a second token table, and several kinds of decoders",
    "nllb-moe": "experts with a token capacity, of which transformers 5.23 runs two on all tokens",
    "reformer": "attention to tokens grouped by hashing (LSH)",
    "zamba": "one attention layer at several depths, which also reads the token embeddings",
    "zamba2": "one attention layer at several depths, which also reads the token embeddings",
    "zaya": "token convolutions within the attention projections",
}
