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


CONFIG_2 = {name: value for name, value in CONFIG.items() if name != "n_shared_experts"} | {
    "model_type": "inkling2_text", "num_hidden_layers": 3, "n_layers_per_attn_res_block": 2,
    "layer_types": ["hybrid_sliding", "hybrid", "hybrid"],
}  # fmt: skip
LAST = 2  # a full layer that starts the second sum


def _operators_2(**options: Any) -> dict[tuple[str, int], Operator]:
    found = estimate(architecture(CONFIG_2, "x", "x"), Device.load("h100"), **options).phases[0].placed
    return {(p.operator.name, layer): p.operator for p in found for layer in p.operator.layers or ()}


def test_computed_taps_are_added_to_learned_ones_in_full_layers() -> None:
    tokens, width = 20, KV_HEADS * H
    found = _operators_2(phase="prefill", seq=tokens)
    assert found["attention.k_taps", LAST].matmul_flops == 2 * tokens * D * KV_HEADS * TAPS
    filtered = found["attention.k_filter", LAST]
    assert filtered.matmul_flops == 0
    assert filtered.vector_flops == tokens * width * (3 * TAPS + 1)  # add, multiply, sum for each tap; add the input
    # input, output, learned and computed taps, and the state that is written
    assert filtered.cost.bytes == 2 * (2 * tokens * width + width * TAPS + tokens * KV_HEADS * TAPS + width * TAPS)
    assert ("attention.k_taps", 0) not in found
    assert found["attention.k_filter", 0].matmul_flops > 0


def test_queries_keys_and_values_of_full_layers_have_means_of_the_sums_and_norms_of_their_own() -> None:
    tokens, sums = 20, 2  # the finished sum of two layers, and the running one
    found = _operators_2(phase="prefill", seq=tokens)
    for layer, means in ((LAST, 3), (1, 3)):
        mean = found["residual.attention_mean", layer]
        assert mean.matmul_flops == 2 * (2 * tokens * sums * means * D)  # scores, and the mean itself
        assert [tensor.name for tensor in mean.writes] == ["c", "ck", "cv"]
        assert sum(tensor.elements(mean.sizes) for tensor in mean.parameters) == means * D
    reads = [found[f"attention.{name}", LAST].reads[0].name for name in "qkv"]
    assert reads == ["n", "nk", "nv"]
    assert found["residual.mlp_mean", LAST].matmul_flops == 2 * (2 * tokens * 3 * D)  # two finished sums, and one mean


def test_attention_reads_a_sink_for_each_token_and_head() -> None:
    tokens = 20
    found = _operators_2(phase="prefill", seq=tokens)
    heads = 2 * HEADS + 2 * KV_HEADS
    assert found["attention.flash", LAST].cost.bytes == 2 * tokens * (heads * H + HEADS * ROWS + HEADS)


def test_gpus_share_taps_and_sinks_by_heads() -> None:
    one, two = (_operators_2(phase="train", seq=20, tp=tp) for tp in (1, 2))
    for name in ("attention.k_taps", "attention.sinks"):
        assert 2 * two[name, LAST].matmul_flops == one[name, LAST].matmul_flops


def test_a_pipeline_stage_has_the_gradients_of_the_sums_that_it_receives() -> None:
    config = CONFIG_2 | {"num_hidden_layers": 4, "layer_types": ["hybrid_sliding", *["hybrid"] * 3]}
    found = estimate(architecture(config, "x", "x"), Device.load("h100"), phase="train", batch=2, seq=20, pp=2)
    operators = [p.operator for p in found.phases[0].placed for _ in p.operator.layers or ()]
    means = [op for op in operators if op.stage == "forward" and op.name.endswith("_mean")]
    gradients = [op for op in operators if "grad.sums" in {tensor.name for tensor in op.writes}]
    assert means
    assert len(gradients) >= len(means)
