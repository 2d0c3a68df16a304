"""Model types that look like a known shape and are not: the work in them that no block here counts.

Their keys fit other families, whose count would be wrong: they are refused with the reason, and no family is offered.
"""

from __future__ import annotations

_COMPRESSED = "attention to compressed keys beside a window, and hyper-connections between layers"

REFUSED: dict[str, str] = {
    "bigbird_pegasus": "attention to blocks of tokens, some of them chosen at random",
    "big_bird": "attention to blocks of tokens, some of them chosen at random",
    "deepseek_ref": _COMPRESSED,
    "deepseek_v4": _COMPRESSED,
    "led": "attention in windows, with a few tokens that see everything",
    "longformer": "attention in windows, with a few tokens that see everything",
    "longt5": "attention in windows, and to summaries of blocks",
    "minimax": "linear attention (lightning attention)",
    "minimax_m3": "attention to blocks of tokens that an indexer chooses",
    "nllb-moe": "experts of which each takes a limited number of tokens",
    "recurrent_gemma": "recurrent blocks (RG-LRU)",
    "rwkv": "recurrent blocks (WKV) instead of attention",
    "switch_transformers": "experts of which each takes a limited number of tokens",
}
