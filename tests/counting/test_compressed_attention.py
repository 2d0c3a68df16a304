"""DeepSeek-V4's attention by hand: a window, compressed entries with and without an indexer, residual streams."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import estimate

D, HEADS, H, INDEX_HEADS, INDEX_H, STREAMS = 32, 4, 8, 2, 6, 3
WINDOW, RATIO, HEAVY_RATIO, TOPK = 8, 4, 16, 5
CONFIG: dict[str, Any] = {
    "model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": D, "num_hidden_layers": 3,
    "num_attention_heads": HEADS, "vocab_size": 50, "head_dim": H, "partial_rotary_factor": 0.5, "q_lora_rank": 10,
    "sliding_window": WINDOW, "o_groups": 2, "o_lora_rank": 7, "index_n_heads": INDEX_HEADS, "index_head_dim": INDEX_H,
    "index_topk": TOPK, "hc_mult": STREAMS, "hc_sinkhorn_iters": 2, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
    "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
    "compress_rates": {"compressed_sparse_attention": RATIO, "heavily_compressed_attention": HEAVY_RATIO},
}  # fmt: skip
WINDOWED, SPARSE, HEAVY = range(3)


def _operators(**options: Any) -> dict[tuple[str, int], Operator]:
    """The operators of a pass, by name and layer."""
    found = estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), **options).phases[0].placed
    return {(p.operator.name, layer): p.operator for p in found for layer in p.operator.layers or ()}


@pytest.mark.parametrize("context", [2, 30, 63])
def test_a_decode_reads_the_window_and_the_selected_entries(context: int) -> None:
    found = _operators(phase="decode", context=context)
    window = min(context + 1, WINDOW)
    entries, heavy = (context + 1) // RATIO, (context + 1) // HEAVY_RATIO
    for layer, keys in ((WINDOWED, window), (SPARSE, window + min(entries, TOPK)), (HEAVY, window + heavy)):
        attention = found["attention.flash", layer]
        assert attention.cost.cache_bytes == keys * H * 2  # one head in fp16; keys are the values, read once
        assert attention.matmul_flops == 2 * 2 * HEADS * keys * H
    scores = found["attention.index_scores", SPARSE]
    assert scores.cost.cache_bytes == entries * INDEX_H * 2
    assert scores.matmul_flops == 2 * INDEX_HEADS * entries * INDEX_H
    assert ("attention.index_scores", HEAVY) not in found


def test_a_prefill_computes_the_pairs_that_the_masks_leave() -> None:
    tokens = 37
    found = _operators(phase="prefill", seq=tokens, attention="flash")
    window = sum(min(i, WINDOW) for i in range(1, tokens + 1))
    selected = sum(min(i // RATIO, TOPK) for i in range(1, tokens + 1))
    heavy = sum(i // HEAVY_RATIO for i in range(1, tokens + 1))
    for layer, pairs in ((WINDOWED, window), (SPARSE, window + selected), (HEAVY, window + heavy)):
        assert found["attention.flash", layer].matmul_flops == 2 * 2 * HEADS * pairs * H
    scored = sum(i // RATIO for i in range(1, tokens + 1))
    assert found["attention.index_scores", SPARSE].matmul_flops == 2 * INDEX_HEADS * scored * INDEX_H


def test_an_entry_is_written_when_its_last_token_arrives() -> None:
    written = {
        context: _operators(phase="decode", context=context)["attention.compress", SPARSE].cost.bytes_written
        for context in (6, 7, 8)
    }
    assert written == {6: 0, 7: H * 2, 8: 0}  # the token after 7 others is the fourth of its entry


def test_the_cache_has_the_window_the_entries_and_the_state_of_the_compression() -> None:
    arch = architecture(CONFIG, "x", "x")
    found = estimate(arch, Device.load("h100"), phase="decode", context=40)
    entries, heavy = 41 // RATIO, 41 // HEAVY_RATIO
    window = WINDOW * H
    state = 2 * (2 * RATIO) * (2 * H) + 2 * (2 * RATIO) * (2 * INDEX_H)  # content and weights; entries overlap
    sparse = window + entries * (H + INDEX_H) + state
    assert found.memory.kv_cache == 2 * (window + sparse + window + heavy * H + 2 * HEAVY_RATIO * H)


def test_streams_are_read_and_written_once_by_each_of_two_kernels_of_a_block() -> None:
    found = _operators(phase="prefill", seq=10)
    streams = 10 * STREAMS * D * 2
    collapse, expand = (found[name, WINDOWED] for name in ("residual.attention_collapse", "residual.attention"))
    weights = 10 * (STREAMS + STREAMS**2) * 2  # of the output in each stream, and of the mixing
    matrix = STREAMS * D * (2 * STREAMS + STREAMS**2) * 2
    further = (2 * STREAMS + STREAMS**2 + 3) * 2  # biases and factors of the weights
    assert collapse.cost.bytes == streams + matrix + further + weights + 10 * D * 2
    assert collapse.matmul_flops == 2 * 10 * STREAMS * D * (2 * STREAMS + STREAMS**2)
    assert expand.cost.bytes == 2 * streams + weights + 10 * D * 2
    assert expand.matmul_flops == 2 * 10 * STREAMS**2 * D


def test_heads_and_groups_of_the_output_are_sharded_and_the_cache_is_not() -> None:
    one, two = (_operators(phase="decode", context=30, tp=tp) for tp in (1, 2))
    for name, divided in (("q_up", 2), ("output_down", 2), ("output", 2), ("kv", 1), ("compress_content", 1)):
        whole, share = (found[f"attention.{name}", SPARSE].matmul_flops for found in (one, two))
        assert share * divided == whole, name
    caches = [found["attention.flash", SPARSE].cost.cache_bytes for found in (one, two)]
    assert caches[0] == caches[1]
