"""Add a model_type in one row and check its parameters and KV cache by hand.

    python examples/add_a_family.py

TinyChat is an invented model. It differs from Llama in four points: all query heads share one key-value head; queries,
keys and values have biases; a token attends to the last `attention_span` tokens only; the config key for the width of
the MLP is `ffn_dim`.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

import roofmodel
from roofmodel.models.families import FAMILIES
from roofmodel.models.fields import key

FAMILIES["tinychat"] = FAMILIES["llama"].like(
    "TinyChat",  # prefix of its classes: TinyChatForCausalLM
    kv_heads=1,  # fixed in the model's code
    head_dim=lambda f: f["hidden"] // f["heads"],  # derived from other fields
    qkv_bias=True,
    window=key("attention_span", default=None),  # optional config key
    mlp_width=key("ffn_dim"),  # required config key
)

report = roofmodel.estimate(Path(__file__).parent / "tinychat", "a100", phase="decode", context=1000)
Console(highlight=False).print(report)

D, L, V, H, F = 512, 8, 32000, 64, 1536  # hidden size, layers, vocabulary, head size, width of the MLP
attention = D * D + 2 * D * H + D + 2 * H + D * D  # queries, keys and values, their biases, output
by_hand = V * D + L * (attention + 3 * D * F + 2 * D) + D  # the embedding table is also the head; norms have a gain
counted = report.to_dict()["model"]["parameters"]
print(f"parameters by hand {by_hand:,}: {'right' if by_hand == counted else f'wrong, {counted:,}'}")

cache = 2 * 256 * H * 2 * L  # keys and values, the last 256 tokens, one head, fp16
print(f"bytes of KV cache by hand {cache:,}: {'right' if cache == report.estimate.memory.kv_cache else 'wrong'}")
