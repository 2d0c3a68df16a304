"""RG-LRU by hand (RecurrentGemma)."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.blocks import operators as operators_of
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import parameters
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.errors import ModelError
from roofmodel.models.config import architecture
from roofmodel.models.symbols import symbolic
from roofmodel.steps.estimate import estimate

D, C, HEADS, TAPS, WINDOW = 24, 32, 4, 3, 8
CONFIG: dict[str, Any] = {
    "model_type": "recurrent_gemma", "hidden_size": D, "num_hidden_layers": 3, "num_attention_heads": HEADS,
    "num_key_value_heads": 1, "vocab_size": 50, "lru_width": C, "conv1d_width": TAPS, "attention_window_size": WINDOW,
    "intermediate_size": 20,
}  # fmt: skip


def operators(**options: Any) -> dict[str, Operator]:
    found = estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), **options).phases[0].placed
    return {p.operator.name: p.operator for p in found}


def test_the_cache_of_a_recurrent_layer_does_not_grow_with_the_context() -> None:
    for context in (WINDOW, 100):
        found = estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), phase="decode", context=context)
        keys_and_values = 2 * WINDOW * D // HEADS
        assert found.memory.kv_cache == 2 * (2 * (C + C * TAPS) + keys_and_values)  # two layers; fp16


def test_each_gate_has_a_square_matrix_per_head() -> None:
    gate = operators(phase="prefill", seq=10)["ssm.enter"]
    assert gate.matmul_flops == 2 * 10 * C * C // HEADS
    assert sum(tensor.elements(gate.sizes) for tensor in gate.parameters) == C * C // HEADS + C


def test_the_fused_recurrence_reads_two_gates_the_input_and_the_gate_on_its_output() -> None:
    scan = operators(phase="decode", context=30)["ssm.scan"]
    # enter, forget, u, gate; y; the decay of each channel; the state, which is read and written
    assert scan.cost.bytes == 2 * C * (4 + 1 + 1 + 2)


def test_two_gpus_have_half_of_the_heads_of_the_recurrence() -> None:
    one, two = (operators(phase="decode", context=30, tp=tp) for tp in (1, 2))
    for name in ("ssm.input", "ssm.filter", "ssm.enter", "ssm.output"):
        assert 2 * two[name].matmul_flops == one[name].matmul_flops, name
    assert 2 * two["ssm.scan"].cost.bytes == one["ssm.scan"].cost.bytes


def test_a_derivation_has_the_parameters_of_the_model() -> None:
    arch = architecture(CONFIG, "x", "x")
    symbols, step = symbolic(arch), Workload(("forward",)).steps()[0]
    formula = parameters(symbols, operators_of(symbols, step))
    values = {name: source.value for name, source in (symbols.sources or {}).items()}
    assert formula.subs(values) == parameters(arch, operators_of(arch, step))


def test_heads_that_do_not_divide_the_channels_are_an_error() -> None:
    with pytest.raises(ModelError, match="lru_width 30 is not divisible by num_attention_heads 4"):
        architecture(CONFIG | {"lru_width": 30}, "x", "x")
