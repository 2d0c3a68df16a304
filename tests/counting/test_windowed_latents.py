"""Latent attention with other sizes in sliding-window layers, and a norm on the shared rotary key (Dots 3 Note)."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.workload import Workload
from roofmodel.errors import ModelError
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.models.layers import LatentAttention

SLIDING, INDEXED = "sliding_attention", "indexed_attention"
WINDOW, LATENT, ROTARY, INDEX = 8, 20, 4, 12  # of the layers with an indexer, but for the window
WINDOW_LATENT, WINDOW_HEADS, WINDOW_NOPE, WINDOW_VALUE, WINDOW_ROTARY = 10, 3, 6, 5, 2


def model(**settings: Any) -> Architecture:
    config: dict[str, Any] = {
        "model_type": "dots3_note_text", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 50, "kv_lora_rank": LATENT, "qk_rope_head_dim": ROTARY, "index_head_dim": INDEX,
        "n_routed_experts": 8, "sliding_window": WINDOW, "layer_types": [INDEXED, SLIDING],
        "swa_num_attention_heads": WINDOW_HEADS, "swa_kv_lora_rank": WINDOW_LATENT, "swa_v_head_dim": WINDOW_VALUE,
        "swa_qk_nope_head_dim": WINDOW_NOPE, "swa_head_dim": WINDOW_NOPE + WINDOW_ROTARY,
    }  # fmt: skip
    return architecture(config | settings, "drawn", "config.json")


def test_the_cache_has_all_latents_of_a_layer_with_an_indexer_and_those_in_the_window_of_another_one() -> None:
    indexed, sliding = (part for part in model().stack.parts if isinstance(part, LatentAttention))
    for tokens in (5, 100):
        assert sum(indexed.cached(tokens, 0)) == tokens * (LATENT + ROTARY + INDEX)
        assert sum(sliding.cached(tokens, 0)) == min(tokens, WINDOW) * (WINDOW_LATENT + WINDOW_ROTARY)


def test_a_decode_reads_the_latents_in_the_window_and_normalizes_the_new_rotary_key() -> None:
    work = Workload(("decode",), 1, 1, 100, mla="absorbed")
    sliding = {op.name: op for op in operators(model(), work.steps()[0]) if op.layers == (1,)}
    core = sliding["attention.flash"]
    read = {t.name: t.elements(core.parts[0].sizes) for t in core.reads}
    assert read["cache.latent"] == WINDOW * WINDOW_LATENT
    assert read["cache.k_rotary"] == WINDOW * WINDOW_ROTARY
    scores, mix = WINDOW_LATENT + WINDOW_ROTARY, WINDOW_LATENT
    assert core.matmul_flops == 2 * WINDOW_HEADS * WINDOW * (scores + mix)
    assert sum(t.elements(core.sizes) for t in sliding["attention.k_rotary_norm"].parameters) == WINDOW_ROTARY


def test_sizes_by_layer_mean_those_of_the_other_layers_where_they_are_missing() -> None:
    sizes = {"kv_lora_rank": WINDOW_LATENT, "num_attention_heads": WINDOW_HEADS}
    sliding = model(per_layer_config={"1": sizes}).stack.parts[2]
    assert isinstance(sliding, LatentAttention)
    assert (sliding.heads, sliding.latent, sliding.rotary_dim) == (WINDOW_HEADS, WINDOW_LATENT, ROTARY)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"per_layer_config": {"0": {"v_head_dim": 3}, "1": {}}}, "the same in all of them"),
        ({"layer_types": [INDEXED, "full_attention"]}, "either 'indexed_attention' or 'full_attention'"),
        ({"layer_types": [INDEXED]}, "one entry per layer"),
    ],
)
def test_layers_that_the_family_does_not_read_are_an_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model(**settings)
