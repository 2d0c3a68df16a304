"""Latent attention whose layers share latents (Mistral Large 4)."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.workload import Workload
from roofmodel.errors import ModelError
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.numbers.algebra import quotient

ROTARY, NOPE = 1, 0


def model(sources: list[int], rotary: list[int]) -> Architecture:
    config: dict[str, Any] = {
        "model_type": "mistral_large4_text", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
        "vocab_size": 50, "kv_lora_rank": 20, "qk_rope_head_dim": 4, "index_head_dim": 12, "n_routed_experts": 4,
        "kv_source_layers": sources, "no_rope_layers": rotary,
        "indexer_types": ["full", "full", "shared", "full"],
    }  # fmt: skip
    return architecture(config, "drawn", "config.json")


def test_the_cache_has_the_latents_of_the_source_and_the_keys_of_each_indexer() -> None:
    arch = model([0, 1, 0, 0], [ROTARY, NOPE, ROTARY, ROTARY])
    tokens = 100
    own = (20 + 4 + 12) + (20 + 12)  # the first layer, and the second one, whose keys have no rotary part
    reused = 0 + 12  # of the last one its indexer's keys
    elements = [sum(part.cached(tokens, 0)) for layer in arch.stack.layers for part in (layer[0].branches[0].part,)]  # type: ignore[union-attr]
    assert sum(elements) == tokens * (own + reused)
    written = [
        quotient(tensor.elements(op.sizes), 1)
        for op in operators(arch, Workload(("prefill",), 1, tokens).steps()[0])
        for _ in op.layers or ()
        for tensor in op.writes
        if tensor.name.startswith("cache.")
    ]
    assert sum(written) == tokens * (own + reused)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([0, 2, 2, 3], "layer 1 has the source 2; it must be 1 or an earlier layer that is its own source"),
        ([0, 0, 1, 3], "layer 2 has the source 1; it must be 2 or an earlier layer"),
        ([0, 9, 2, 3], "layer 1 has the source 9"),
        ([0, 1, 2, 0], "layer 3 has the source 0; only one of the two has rotary embedding"),
        ([0, 1, 2], "'kv_source_layers' has 3 entries"),
    ],
)
def test_a_source_that_the_class_refuses_is_an_error(sources: list[int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model(sources, [ROTARY, ROTARY, ROTARY, NOPE])
