"""Attention to selected blocks of keys, compared with explicit masks and with the indexer in transformers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.counting.blocks import operators
from roofmodel.counting.selected_keys import attended_blocks, pairs_in_blocks
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.device import Device
from roofmodel.models.config import architecture
from roofmodel.options.values import AttentionMode, Phase
from roofmodel.steps.estimate import estimate

WIDTHS = Workload(("prefill",)).widths
# Batch 1, 4 query heads of 8 elements for 2 key-value heads, indexer with 2 heads of 6 elements, 4 layers.
CONFIG = {
    "model_type": "minimax_m3_vl_text", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "rotary_dim": 4, "vocab_size": 50, "intermediate_size": 5,
    "dense_intermediate_size": 20, "shared_intermediate_size": 9, "num_local_experts": 4, "num_experts_per_tok": 2,
    "index_n_heads": 2, "index_head_dim": 6, "index_block_size": 4, "index_topk_blocks": 2,
    "layer_types": ["full_attention", *["minimax_m3_sparse"] * 3],
}  # fmt: skip

sizes = st.tuples(st.integers(1, 40), st.integers(0, 60), st.integers(1, 9), st.integers(1, 6))


def step(
    tokens: int, context: int, phase: Phase = "prefill", attention: AttentionMode = "flash", passes: int = 1
) -> Step:
    return Step(phase, 1, tokens, context, attention, 1, WIDTHS, passes)


def keys_of(query: int, size: int, kept: int) -> int:
    """Keys up to `query` in its own block and in up to `kept` - 1 earlier ones."""
    own = query // size
    return query - own * size + 1 + size * min(own, kept - 1)


@given(sizes)
def test_each_query_attends_to_its_own_block_and_to_earlier_ones(sizes: tuple[int, int, int, int]) -> None:
    tokens, context, size, kept = sizes
    expected = sum(keys_of(query, size, kept) for query in range(context, context + tokens))
    assert pairs_in_blocks(step(tokens, context), size, kept) == expected
    everything = tokens * context + tokens * (tokens + 1) // 2
    assert pairs_in_blocks(step(tokens, context), size, blocks=100) == everything


@given(sizes)
def test_a_decode_reads_the_keys_that_its_query_selects(sizes: tuple[int, int, int, int]) -> None:
    passes, context, size, kept = sizes
    assert attended_blocks(step(1, context, "decode"), size, kept) == keys_of(context, size, kept)
    total = sum(keys_of(query, size, kept) for query in range(context, context + passes))
    several = step(1, context, "decode", passes=passes)
    assert attended_blocks(several, size, kept) * passes == total
    assert pairs_in_blocks(several, size, kept) * passes == total


@given(sizes)
def test_eager_attention_computes_all_pairs(sizes: tuple[int, int, int, int]) -> None:
    tokens, context, size, kept = sizes
    eager = step(tokens, context, "decode", attention="eager")
    assert attended_blocks(eager, size, kept) == context + tokens
    assert pairs_in_blocks(eager, size, kept) == tokens * (context + tokens)


@pytest.mark.parametrize(("size", "kept", "tokens"), [(4, 2, 23), (3, 3, 30), (5, 1, 17), (8, 4, 9)])
def test_the_pairs_are_those_that_the_indexer_in_transformers_leaves_unmasked(
    size: int, kept: int, tokens: int
) -> None:
    torch = pytest.importorskip("torch", reason="the real indexer needs torch: pip install 'roofmodel[dev]'")
    pytest.importorskip("transformers", reason="the real indexer needs transformers: pip install 'roofmodel[dev]'")
    from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as real

    config = real.MiniMaxM3VLTextConfig(
        **{**CONFIG, "index_block_size": size, "index_topk_blocks": kept, "layer_types": None}
    )
    torch.manual_seed(0)
    indexer = real.MiniMaxM3VLIndexer(config, 0)
    positions = torch.arange(tokens)[None]
    rotary = torch.ones(1, tokens, 4), torch.zeros(1, tokens, 4)
    selected = indexer(torch.randn(1, tokens, 32), rotary, None, positions)
    mask = indexer.build_block_mask(selected, None, tokens, torch.float32, "cpu", positions)
    unmasked = (mask == 0).sum(dim=(2, 3))
    assert unmasked.shape == (1, 4)
    assert set(unmasked.flatten().tolist()) == {pairs_in_blocks(step(tokens, 0), size, kept)}


def test_flops_and_bytes_of_a_decode_by_hand() -> None:
    arch = architecture(CONFIG, "x", "x")
    work = Workload(("decode",), batch=1, context=30, logits="all")
    found = {(op.name, op.layers): op for op in operators(arch, work.steps()[0])}
    selected = range(1, 4)
    scores = found["attention.index_scores", tuple(selected)]
    assert scores.matmul_flops == 2 * 2 * 31 * 6  # 2 heads, 31 keys of 6 elements
    assert scores.cost.bytes_read == (2 * 6 + 31 * 6) * 2  # queries and cached keys, fp16
    assert scores.cost.bytes_written == 2 * 8 * 2  # the largest score of 8 blocks of 4 keys, for 2 heads
    assert scores.vector_flops == 2 * 31  # a comparison per score
    rotary = found["attention.index_rotary", tuple(selected)]
    assert rotary.vector_flops == 3 * (2 + 1) * 4  # queries of 2 heads and a key, 4 rotated elements each
    keys = 4 + 3  # token 30 is the third of its block; and one earlier block
    attention = found["attention.flash", tuple(selected)]
    assert attention.matmul_flops == 2 * 2 * 4 * keys * 8  # scores and weighted sum, 4 heads of 8 elements
    assert attention.cost.cache_bytes == 2 * 2 * keys * 8 * 2  # keys and values of 2 heads
    dense = found["attention.flash", (0,)]
    assert dense.matmul_flops == 2 * 2 * 4 * 31 * 8
    per_layer = [sum(part.cached(1, 0)) for part in arch.stack.parts if hasattr(part, "cached")]
    assert per_layer == [2 * 2 * 8, *[2 * 2 * 8 + 6] * 3]  # keys and values of 2 heads; the indexer's key


@pytest.mark.parametrize("tp", [2, 4])
def test_heads_of_the_indexer_are_sharded_like_key_value_heads(tp: int) -> None:
    """With 4 GPUs, two of them have the same of the 2 heads; the keys of the indexer are on all GPUs."""
    arch = architecture(CONFIG | {"intermediate_size": 8, "shared_intermediate_size": 8}, "x", "x")
    found = estimate(arch, Device.load("h100"), phase="decode", context=30, tp=tp)
    (scores,) = [p.operator for p in found.phases[0].placed if p.operator.name == "attention.index_scores"]
    assert scores.matmul_flops == 2 * 1 * 31 * 6
    assert scores.cost.cache_bytes == 31 * 6 * 2
