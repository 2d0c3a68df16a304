"""Experts that take a limited number of tokens of a sequence (Switch Transformers)."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.workload import Workload
from roofmodel.models.config import architecture

D, F, EXPERTS, CAPACITY = 8, 10, 4, 3
CONFIG: dict[str, Any] = {
    "model_type": "switch_transformers", "d_model": D, "d_ff": F, "num_layers": 1, "num_decoder_layers": 1,
    "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "num_heads": 2, "vocab_size": 50,
    "num_experts": EXPERTS, "expert_capacity": CAPACITY,
}  # fmt: skip


@pytest.mark.parametrize(("tokens", "taken"), [(10, 10), (12, 12), (40, EXPERTS * CAPACITY)])
def test_a_sequence_has_at_most_the_capacity_of_all_experts(tokens: int, taken: int) -> None:
    batch = 2
    steps = Workload(("prefill",), batch, seq=tokens, decoder_seq=tokens).steps()
    found = {op.name: op for op in operators(architecture(CONFIG, "x", "x"), steps[0])}
    for name in ("mlp.expert_up", "encoder.mlp.expert_up"):
        # all experts are touched but for a share of (1 - 1/4)^20 at 10 tokens of each of two sequences
        assert found[name].matmul_flops == pytest.approx(2 * batch * taken * D * F, rel=0.004)
