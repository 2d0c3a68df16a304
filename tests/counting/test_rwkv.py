"""RWKV-4 by hand."""

from __future__ import annotations

from typing import Any

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import estimate

D, C, F = 8, 12, 20
CONFIG: dict[str, Any] = {
    "model_type": "rwkv", "hidden_size": D, "num_hidden_layers": 2, "vocab_size": 50, "attention_hidden_size": C,
    "intermediate_size": F,
}  # fmt: skip


def operators(**options: Any) -> dict[str, Operator]:
    found = estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), **options).phases[0].placed
    return {p.operator.name: p.operator for p in found}


def test_the_cache_has_two_tokens_and_three_numbers_per_channel() -> None:
    for context in (1, 1000):
        found = estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), phase="decode", batch=3, context=context)
        assert found.memory.kv_cache == 2 * 2 * 3 * (2 * D + 3 * C)  # fp16, two layers, three sequences
    found = operators(phase="decode", batch=3, context=9)
    assert {name for name, op in found.items() if op.cost.cache_bytes} == {"linear.mix", "linear.scan", "mlp.mix"}


def test_a_scan_reads_keys_values_and_states_once() -> None:
    scan = operators(phase="decode", batch=3, context=9)["linear.scan"]
    assert scan.cost.bytes_read == 2 * (3 * (2 * C + 3 * C) + 2 * C)  # decay and the weight of the new token
    assert scan.cost.bytes_written == 2 * 3 * (C + 3 * C)


def test_two_gpus_have_half_of_the_channels_and_the_whole_gate_of_the_mlp() -> None:
    one, two = (operators(phase="decode", context=9, tp=tp) for tp in (1, 2))
    halved = {name for name, op in one.items() if op.kind == "gemm" and 2 * two[name].matmul_flops == op.matmul_flops}
    assert halved == {
        "linear.key",
        "linear.value",
        "linear.receptance",
        "linear.output",
        "mlp.up",
        "mlp.down",
        "head.logits",
    }
    assert two["mlp.gate"].matmul_flops == one["mlp.gate"].matmul_flops == 2 * D * D
