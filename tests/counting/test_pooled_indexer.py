"""An indexer that selects pools of tokens (GLM-5.3), by hand."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import estimate

HEADS, LATENT, NOPE, VALUE, INDEX_HEADS, INDEX_H, POOL, TOPK = 4, 20, 8, 6, 2, 12, 4, 12
CONFIG: dict[str, Any] = {
    "model_type": "glm5_next_text", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "vocab_size": 50, "kv_lora_rank": LATENT, "q_lora_rank": 10, "qk_nope_head_dim": NOPE, "v_head_dim": VALUE,
    "index_n_heads": INDEX_HEADS, "index_head_dim": INDEX_H, "index_kpool": POOL, "index_topk": TOPK,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "hc_mult": 2,
    "linear_num_heads": 2, "linear_head_dim": 6, "layer_types": ["linear_attention", "indexed_attention"],
}  # fmt: skip


def _operators(**options: Any) -> dict[str, Operator]:
    found = estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), **options).phases[0].placed
    return {placed.operator.name: placed.operator for placed in found}


def _attended(tokens: int) -> int:
    """Tokens that the last of `tokens` attends to: at most TOPK in complete pools, and those of the incomplete one."""
    return min(tokens - tokens % POOL, TOPK) + tokens % POOL


@pytest.mark.parametrize("context", [2, 11, 12, 30, 63])
def test_a_decode_scores_pools_and_reads_the_selected_ones_and_the_incomplete_one(context: int) -> None:
    found, pools = _operators(phase="decode", context=context), (context + 1) // POOL
    assert found["attention.index_scores"].cost.cache_bytes == pools * INDEX_H * 2
    keys = _attended(context + 1)
    assert found["attention.flash"].cost.cache_bytes == keys * LATENT * 2  # keys are the values: read once
    assert found["attention.flash"].matmul_flops == 2 * 2 * HEADS * keys * LATENT


def test_a_prefill_computes_the_pairs_that_the_indexer_keeps() -> None:
    tokens = 37
    found = _operators(phase="prefill", seq=tokens, attention="flash")
    pairs = sum(_attended(n) for n in range(1, tokens + 1))
    assert found["attention.flash"].matmul_flops == 2 * 2 * HEADS * pairs * LATENT  # on latents, as a decode
    scored = sum(n // POOL for n in range(1, tokens + 1))
    assert found["attention.index_scores"].matmul_flops == 2 * INDEX_HEADS * scored * (INDEX_H + 1)


def test_the_cache_has_a_key_per_pool_and_the_tokens_of_an_incomplete_one() -> None:
    arch, tokens = architecture(CONFIG, "x", "x"), 41
    found = estimate(arch, Device.load("h100"), phase="decode", context=tokens - 1)
    indexer = tokens // POOL * INDEX_H + 2 * POOL * INDEX_H  # keys and weights of up to POOL tokens
    linear = 2 * 6 * 6 + 3 * 2 * 6 * 4  # a state per head, and the last four tokens of the filter
    assert found.memory.kv_cache == 2 * (tokens * LATENT + indexer + linear)
