"""Inkling by hand: filters on keys, values and outputs, and terms of the scores by distance."""

from __future__ import annotations

from typing import Any

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import estimate

D, HEADS, KV_HEADS, H, TAPS, REL, ROWS, WINDOW = 32, 4, 2, 6, 3, 5, 11, 8
CONFIG: dict[str, Any] = {
    "model_type": "inkling_text", "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": H, "swa_num_attention_heads": HEADS, "swa_num_key_value_heads": 1,
    "swa_head_dim": H, "vocab_size": 50, "conv_kernel_size": TAPS, "d_rel": REL, "rel_extent": ROWS,
    "sliding_window_size": WINDOW, "layer_types": ["hybrid", "hybrid_sliding"], "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 12,
}  # fmt: skip
FULL, SLIDING = 0, 1


def _operators(**options: Any) -> dict[tuple[str, int], Operator]:
    found = estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), **options).phases[0].placed
    return {(p.operator.name, layer): p.operator for p in found for layer in p.operator.layers or ()}


def test_the_cache_has_the_last_tokens_of_each_filter() -> None:
    tokens = 41
    found = estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), phase="decode", context=tokens - 1)
    outputs = 2 * D * TAPS  # of attention and experts
    full, sliding = 2 * KV_HEADS * H, 2 * H  # keys and values of a token
    assert found.memory.kv_cache == 2 * (full * (tokens + TAPS) + sliding * (WINDOW + TAPS) + 2 * outputs)


def test_attention_reads_a_term_for_each_query_and_distance() -> None:
    tokens = 20
    found = _operators(phase="prefill", seq=tokens)
    for layer, rows, kv_heads in ((FULL, ROWS, KV_HEADS), (SLIDING, WINDOW, 1)):
        terms = found["attention.relative_logits", layer]
        assert terms.matmul_flops == 2 * tokens * HEADS * REL * rows
        assert terms.cost.bytes_written == 2 * tokens * HEADS * rows
        heads = 2 * HEADS + 2 * kv_heads  # queries, outputs, keys and values
        assert found["attention.flash", layer].cost.bytes == 2 * tokens * (heads * H + HEADS * rows)


def test_a_filter_reads_its_input_and_its_last_tokens_once() -> None:
    found = _operators(phase="decode", context=30)
    for name, width in (("attention.k_filter", KV_HEADS * H), ("convolution.mlp_filter", D)):
        # input, output, the filter, and its state, which is read and written
        assert found[name, FULL].cost.bytes == 2 * width * (1 + 1 + TAPS + 2 * TAPS)
        assert found[name, FULL].sizes["c"] == width


def test_heads_are_sharded_and_the_filters_of_outputs_are_not() -> None:
    one, two = (_operators(phase="decode", context=30, tp=tp) for tp in (1, 2))
    names = {"attention.k_filter": 2, "attention.relative_logits": 2, "convolution.attention_filter": 1}
    for name, divided in names.items():
        assert two[name, FULL].matmul_flops * divided == one[name, FULL].matmul_flops, name
