"""Qwen4-Exp by hand: gated residual streams, an indexer over means of blocks, tables of hashed n-grams."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.errors import ModelError, WorkloadError
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import estimate

D, STREAMS, RANK, INDEX_HEADS, INDEX_DIM, BLOCK, BUDGET = 32, 3, 5, 2, 8, 4, 8
HASHES, WIDTH, TAPS, NGRAM = 4, 12, 4, 3
CONFIG: dict[str, Any] = {
    "model_type": "qwen4_exp_text", "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 50, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 12, "shared_expert_intermediate_size": 12, "hc_count": STREAMS, "hc_lowrank": RANK,
    "layer_types": ["linear_attention", "indexed_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "indexer_n_heads": INDEX_HEADS, "indexer_kv_heads": 1,
    "indexer_head_dim": INDEX_DIM, "indexer_budget": BUDGET, "indexer_compress_ratio": BLOCK, "ple_layer_ids": [1],
    "ple_embed_dim": WIDTH, "ple_conv_kernel_size": TAPS, "ngram_size": NGRAM, "heads_per_ngram": HASHES // 2,
    "ngram_vocab_size_base": 10, "make_ngram_vocab_size_divisible_by": 16,
}  # fmt: skip
LINEAR, INDEXED = 0, 1


def _operators(**options: Any) -> dict[tuple[str, int | None], Operator]:
    found = estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), **options).phases[0].placed
    return {(p.operator.name, layer): p.operator for p in found for layer in p.operator.layers or (None,)}


def test_a_table_has_a_prime_number_of_rows_for_each_hash() -> None:
    lookup = _operators(phase="prefill", seq=20)["ngrams.lookup", LINEAR]
    rows = 11 + 13 + 17 + 19  # the smallest primes from 10
    (table,) = lookup.parameters
    assert table.elements(lookup.sizes) == (rows + 4) * WIDTH // HASHES  # the sum, rounded up to a multiple of 16
    assert lookup.cost.weight_bytes == 2 * 20 * WIDTH  # a row per hash and token
    assert ("ngrams.lookup", INDEXED) not in _operators(phase="prefill", seq=20)


def test_the_filter_of_n_grams_covers_distant_tokens_of_all_streams() -> None:
    found = _operators(phase="decode", context=30)
    channels, reach = STREAMS * D, (TAPS - 1) * NGRAM
    filtered = found["ngrams.filter", LINEAR]
    assert filtered.matmul_flops == 2 * channels * TAPS
    # input, output, the filter, and its state, which is read and written
    assert filtered.cost.bytes == 2 * channels * (1 + 1 + TAPS + 2 * reach)


def test_each_element_of_the_streams_has_a_gate() -> None:
    tokens, elements = 20, STREAMS * D
    found = _operators(phase="prefill", seq=tokens)
    for place, layer in (("linear", LINEAR), ("attention", INDEXED), ("mlp", LINEAR), ("streams", None)):
        for name in ("down", "up"):
            assert found[f"residual.{place}_{name}", layer].matmul_flops == 2 * tokens * elements * RANK
        assert found[f"residual.{place}_collapse", layer].vector_flops == tokens * elements * (3 + 2)
    assert found["residual.mlp_weights", INDEXED].matmul_flops == 2 * tokens * elements * STREAMS
    assert ("residual.streams_weights", None) not in found


def test_the_indexer_scores_complete_blocks_and_attention_reads_those_that_it_selects() -> None:
    context = 29  # 30 tokens: 7 complete blocks of 4, and 2 tokens more
    found = _operators(phase="decode", context=context)
    assert found["attention.index_scores", INDEXED].matmul_flops == 2 * 7 * INDEX_HEADS * INDEX_DIM
    assert found["attention.flash", INDEXED].sizes["s"] == BUDGET + 2
    tokens = 11
    scores = _operators(phase="prefill", seq=tokens)["attention.index_scores", INDEXED]
    complete = sum(n // BLOCK for n in range(1, tokens + 1))
    assert scores.matmul_flops == 2 * complete * INDEX_HEADS * INDEX_DIM


def test_the_cache_has_keys_of_blocks_and_states() -> None:
    found = estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), phase="decode", context=39)
    attention = (
        40 * 2 * 2 * 8 + 10 * INDEX_DIM + BLOCK * INDEX_DIM
    )  # keys and values, keys of blocks, of the last tokens
    linear = 4 * 8 * 8 + (2 * 2 * 8 + 4 * 8) * 4
    assert found.memory.kv_cache == 2 * (attention + linear + STREAMS * D * (TAPS - 1) * NGRAM)


def test_what_the_class_refuses_is_an_error() -> None:
    for change, message in (
        ({"ple_layer_ids": [2]}, "linear attention"),
        ({"ple_layer_ids": [3]}, "from 1 to 2"),
        ({"ple_embed_dim": 13}, "not divisible by the 4 hashes"),
        ({"indexer_budget": 9}, "not divisible by 'indexer_compress_ratio'"),
        ({"indexer_n_heads": None}, "'indexer_n_heads' is missing"),
    ):
        with pytest.raises(ModelError, match=message):
            architecture(CONFIG | change, "x", "x")
    with pytest.raises(WorkloadError, match="tables of n-grams"):
        _operators(tp=2)
