"""Count the FLOPs of a transformer block by hand and compare them with roofmodel.

    python examples/block_by_hand.py

GPT-2 XL, batch B = 1, S = 1024 tokens, hidden size D = 1600, vocabulary V = 50257, L = 48 layers, eager attention.
The multiplication of an (M x K) by a (K x N) matrix takes M N K multiply-adds, which are 2 M N K FLOPs.
"""

from __future__ import annotations

import roofmodel

B, S, D, V, L = 1, 1024, 1600, 50257, 48

by_hand = {
    "attention.qkv": 2 * (B * S) * (3 * D) * D,  # one matrix for queries, keys and values
    "attention.scores": 2 * B * S * S * D,  # every query with every key; all heads together have size D
    "attention.mix": 2 * B * S * S * D,  # probabilities times values
    "attention.output": 2 * (B * S) * D * D,
    "mlp.up": 2 * (B * S) * (4 * D) * D,
    "mlp.down": 2 * (B * S) * D * (4 * D),
}

report = roofmodel.estimate("gpt2-xl", "a100", phase="prefill", attention="eager", logits="all")
ops = {op["name"]: op for op in report.to_dict()["phases"][0]["ops"]}

for name, flops in by_hand.items():
    verdict = "right" if flops == ops[name]["matmul_flops"] else f"wrong: {ops[name]['matmul_flops']:,}"
    print(f"{name:<18} {flops:>18,}  {verdict:<6}  {ops[name]['spec']}")

total = L * sum(by_hand.values()) + 2 * (B * S) * V * D
print(f"{'model':<18} {total:>18,}  {'right' if total == report.totals['prefill']['matmul_flops'] else 'wrong'}")
print(f"which is 2BSD(12DL + 2SL + V) = {2 * B * S * D * (12 * D * L + 2 * S * L + V):,}")
