"""Teach roofmodel a model_type that it does not know, in one row, and check the row by hand.

    python examples/add_a_family.py

TinyChat is made up. It is a Llama, but all heads share one key-value head, queries, keys and values have biases, each
token sees the last `attention_span` only, and its config.json calls the width of the MLP `ffn_dim`.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

import roofmodel
from roofmodel.models.families import FAMILIES
from roofmodel.models.fields import key

FAMILIES["tinychat"] = FAMILIES["llama"].like(
    "TinyChat",  # what its classes start with: TinyChatForCausalLM
    kv_heads=1,  # built into its code
    head_dim=lambda f: f["hidden"] // f["heads"],  # follows from other fields
    qkv_bias=True,
    window=key("attention_span", default=None),  # from its config, where the key may be missing
    mlp_width=key("ffn_dim"),  # must be there
)

report = roofmodel.estimate(Path(__file__).parent / "tinychat", "a100", phase="decode", context=1000)
Console(highlight=False).print(report)

D, L, V, H, F = 512, 8, 32000, 64, 1536  # hidden size, layers, words, size of a head, width of the MLP
attention = D * D + 2 * D * H + D + 2 * H + D * D  # queries, keys and values, their biases, output
by_hand = V * D + L * (attention + 3 * D * F + 2 * D) + D  # the table, which is also the head; norms have a gain only
counted = report.to_dict()["model"]["parameters"]
print(f"parameters by hand {by_hand:,}: {'right' if by_hand == counted else f'wrong, {counted:,}'}")

cache = 2 * 256 * H * 2 * L  # keys and values, the last 256 tokens, one head, fp16
print(f"bytes of KV cache by hand {cache:,}: {'right' if cache == report.estimate.memory.kv_cache else 'wrong'}")
