"""Muse Spark by hand: learned weights of residual sums, and norms on heads and experts."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import estimate

D, HEADS, KV_HEADS, H, LATENT, EXPERTS, ACTIVE, TOKENS = 32, 4, 2, 8, 10, 4, 2, 20
CONFIG: dict[str, Any] = {
    "model_type": "muse_spark_text", "hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": H, "vocab_size": 50, "num_local_experts": EXPERTS,
    "num_experts_per_tok": ACTIVE, "moe_intermediate_size": 12, "moe_hidden_size": LATENT,
}  # fmt: skip


def _operators(**options: Any) -> dict[str, Operator]:
    found = estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), phase="prefill", seq=TOKENS, **options)
    return {placed.operator.name: placed.operator for placed in found.phases[0].placed}


def test_a_gated_sum_multiplies_both_summands_and_adds_them() -> None:
    found = _operators()
    for place in ("attention", "mlp"):
        operator = found[f"residual.{place}"]
        assert operator.vector_flops == 3 * TOKENS * D
        assert operator.cost.bytes == 2 * (3 * TOKENS * D + D)  # two inputs, the sum, and a number per channel


def test_norms_are_on_each_head_before_its_gate_and_on_the_output_of_each_expert() -> None:
    found = _operators()
    names = list(found)
    heads = found["attention.inner_norm"]
    assert names.index("attention.inner_norm") < names.index("attention.gate") < names.index("attention.output")
    assert heads.vector_flops == 3 * TOKENS * HEADS * H  # square, sum, scale; no gain
    assert not heads.parameters
    experts = found["norm.expert_output"]
    assert experts.vector_flops == 4 * TOKENS * ACTIVE * LATENT
    assert sum(gain.elements(experts.sizes) for gain in experts.parameters) == LATENT  # one norm for all experts


def test_an_expert_with_a_norm_is_not_sharded() -> None:
    assert _operators(tp=2, ep=2)["norm.expert_output"].vector_flops == 4 * TOKENS * ACTIVE * LATENT / 2
    with pytest.raises(WorkloadError, match="experts with a norm on their output"):
        _operators(tp=2)
