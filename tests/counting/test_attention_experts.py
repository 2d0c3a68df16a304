"""Query and output projections that a router selects, by hand (JetMoe)."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.blocks import operators as operators_of
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import active_parameters, parameters
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models.config import architecture
from roofmodel.models.symbols import symbolic
from roofmodel.steps.estimate import Estimate, estimate

D, KV, HEAD, EXPERTS, ACTIVE, WIDTH = 24, 4, 8, 6, 2, 16
CONFIG: dict[str, Any] = {
    "model_type": "jetmoe", "hidden_size": D, "num_hidden_layers": 1, "num_key_value_heads": KV, "kv_channels": HEAD,
    "num_local_experts": EXPERTS, "num_experts_per_tok": ACTIVE, "intermediate_size": WIDTH, "vocab_size": 50,
}  # fmt: skip
PROJECTION = D * KV * HEAD  # parameters of the query matrix, or of the output matrix, of one expert


def estimated(**options: Any) -> Estimate:
    return estimate(architecture(CONFIG, "x", "x"), Device.load("h100"), **options)


def operators(**options: Any) -> dict[str, Operator]:
    return {p.operator.name: p.operator for p in estimated(**options).phases[0].placed}


@pytest.mark.parametrize("name", ["attention.q", "attention.output"])
def test_a_token_computes_with_the_matrices_of_its_experts(name: str) -> None:
    prefill = operators(phase="prefill", batch=3, seq=10)[name]
    assert prefill.matmul_flops == 3 * 10 * ACTIVE * 2 * PROJECTION
    assert sum(tensor.elements(prefill.sizes) for tensor in prefill.parameters) == EXPERTS * PROJECTION


@pytest.mark.parametrize("name", ["attention.q", "attention.output"])
@pytest.mark.parametrize(
    ("batch", "routing", "touched"),
    [(1, "uniform", ACTIVE), (3, "uniform", EXPERTS * (1 - (1 - ACTIVE / EXPERTS) ** 3)), (3, "same", ACTIVE)],
)
def test_a_decode_reads_only_the_matrices_that_a_token_chose(
    name: str, batch: int, routing: str, touched: float
) -> None:
    decode = operators(phase="decode", batch=batch, context=30, routing=routing)[name]
    assert decode.cost.weight_bytes == pytest.approx(2 * touched * PROJECTION)


def test_the_cache_has_the_keys_and_values_that_all_experts_share() -> None:
    assert estimated(phase="decode", context=30).memory.kv_cache == 2 * 31 * 2 * KV * HEAD  # fp16


def test_active_parameters_have_the_chosen_experts_of_attention_and_mlp() -> None:
    arch = architecture(CONFIG, "x", "x")
    counted = operators_of(arch, Workload(("forward",)).steps()[0])
    idle = (EXPERTS - ACTIVE) * (2 * PROJECTION + 3 * D * WIDTH)
    assert active_parameters(arch, counted) == parameters(arch, counted) - idle


def test_two_gpus_have_half_of_the_heads_of_each_expert() -> None:
    one, two = (operators(phase="prefill", seq=10, tp=tp) for tp in (1, 2))
    for name in ("attention.q", "attention.k_v", "attention.output"):
        assert 2 * two[name].matmul_flops == one[name].matmul_flops, name
        assert 2 * two[name].cost.weight_bytes == pytest.approx(one[name].cost.weight_bytes), name


def test_more_gpus_than_key_value_heads_are_an_error() -> None:
    with pytest.raises(WorkloadError, match=rf"tp=8: x has {KV} key-value heads"):
        operators(tp=8)


def test_expert_parallelism_leaves_attention_experts_on_all_gpus() -> None:
    one, spread = (operators(phase="train", batch=2, seq=10, dp=2, ep=ep) for ep in (1, 2))
    for op in (one["attention.q"], spread["attention.q"]):
        assert op.matmul_flops == 10 * ACTIVE * 2 * PROJECTION  # one sequence per replica
    reduced = (each["gradients.all_reduce"].sizes["W"] for each in (one, spread))
    assert next(reduced) - next(reduced) == EXPERTS * 3 * D * WIDTH  # the experts of the MLP


def test_a_derivation_has_the_parameters_of_the_model() -> None:
    arch = architecture(CONFIG, "x", "x")
    symbols, step = symbolic(arch), Workload(("forward",)).steps()[0]
    formula = parameters(symbols, operators_of(symbols, step))
    values = {name: source.value for name, source in (symbols.sources or {}).items()}
    assert formula.subs(values) == parameters(arch, operators_of(arch, step))
