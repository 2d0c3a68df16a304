"""Experts that compute nothing, and experts beside two layers (LongCat-Flash, arXiv 2509.01322)."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from typing import Any

import pytest

from roofmodel.counting import phases
from roofmodel.counting.blocks import operators
from roofmodel.counting.expert_load import expert_load
from roofmodel.counting.operator import Collective, Operator
from roofmodel.counting.workload import UNIFORM, Parallel, Routing, Workload
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.models.layers import MLP, MoE

HIDDEN, WIDTH, MLPS, ZERO, ACTIVE = 16, 6, 4, 4, 3
MOE = MoE(MLPS, ACTIVE, MLP(WIDTH, "silu", gated=True), zero_experts=ZERO)


def model(**settings: Any) -> Architecture:
    config: dict[str, Any] = {
        "model_type": "longcat_flash", "hidden_size": HIDDEN, "num_layers": 2, "num_attention_heads": 4,
        "vocab_size": 50, "n_routed_experts": MLPS, "zero_expert_num": ZERO, "moe_topk": ACTIVE,
        "expert_ffn_hidden_size": WIDTH,
    }  # fmt: skip
    return architecture(config | settings, "drawn", "config.json")


def counted(arch: Architecture, work: Workload) -> dict[str, Operator]:
    return {op.name: op for op in operators(arch, work.steps()[0])}


def test_a_token_computes_its_share_of_the_experts_that_are_mlps() -> None:
    batch, tokens = 2, 5
    found = counted(model(), Workload(("prefill",), batch, tokens))
    assert found["mlp.router"].matmul_flops == 2 * batch * tokens * HIDDEN * (MLPS + ZERO)
    used = Fraction(ACTIVE * MLPS, MLPS + ZERO)  # 1.5 of 3
    assert found["mlp.expert_down"].matmul_flops == 2 * batch * tokens * used * WIDTH * HIDDEN
    assert sum(t.elements(found["mlp.expert_down"].sizes) for t in found["mlp.expert_down"].parameters) == (
        MLPS * WIDTH * HIDDEN  # no weights of the others
    )
    assert found["mlp.zero_experts"].vector_flops == 2 * batch * tokens * HIDDEN  # times their weight, and a sum


def test_the_experts_of_a_pair_of_layers_are_beside_its_first_mlp_and_added_after_its_second() -> None:
    every = operators(model(), Workload(("prefill",), 1, 5).steps()[0])
    assert [op.layers for op in every if op.name == "mlp.router"] == [(0, 2)]
    sums = {op.layers: [t.name for t in op.reads] for op in every if op.name == "residual.mlp"}
    assert sums == {(0, 2): ["x", "m"], (1, 3): ["x", "m", "e"]}


def test_a_backward_pass_reaches_the_experts() -> None:
    """Each GEMM of the experts has a gradient of its input and one of its weights."""
    forward_and_backward = phases.operators(model(), Workload(("train",), 1, 8).steps()[0])
    flops = [op.total.matmul_flops for op in forward_and_backward if op.kind == "grouped_gemm"]
    used = Fraction(ACTIVE * MLPS, MLPS + ZERO)
    assert sum(flops) == 3 * (2 * 8 * used * 3 * WIDTH * HIDDEN) * 2  # passes, three matrices, two layers with experts


def test_gpus_of_an_expert_parallel_group_share_the_mlps_only() -> None:
    uniform = expert_load(MOE, UNIFORM, tokens=8, gpus=2)
    assert uniform.pairs == Fraction(8 * ACTIVE * MLPS, MLPS + ZERO) / 2
    not_chosen = (1 - Fraction(ACTIVE, MLPS + ZERO)) ** 8
    assert float(uniform.touched) == pytest.approx(float(MLPS * (1 - not_chosen) / 2))
    # a token sends to the other GPU unless none of its experts is one of the two there
    exchange = Collective("alltoall", 2, experts=MLPS, zero_experts=ZERO, active=ACTIVE)
    reaches = 1 - comb(MLPS + ZERO - 2, ACTIVE) / comb(MLPS + ZERO, ACTIVE)
    rows = 10 * ACTIVE * MLPS / (MLPS + ZERO)  # of 10 tokens
    assert exchange.sent(rows) == pytest.approx(10 * reaches)


def test_the_last_shares_of_a_routing_file_are_those_of_experts_without_computation() -> None:
    zero_only = Routing("file", (0.1, 0.0, 0.0, 0.0, 0.3, 0.3, 0.3, 0.0))
    load = expert_load(MOE, zero_only, tokens=10, gpus=1)
    # 3 experts of a token, in proportion to 0.1 and three times 0.3: 0.3 and 0.9
    assert (load.pairs, load.touched) == (pytest.approx(10 * 0.3), pytest.approx(1 - 0.7**10))
    same = expert_load(MOE, Routing("same"), tokens=10, gpus=1)
    assert (same.pairs, same.touched) == (20, 2)  # 1.5 MLPs, rounded up


def test_tensor_parallel_gpus_sum_the_output_of_the_experts_before_it_joins_the_residual() -> None:
    every = operators(model(), Workload(("prefill",), 1, 8, parallel=Parallel(tp=2)).steps()[0])
    reduced = [(op.layers, op.reads[0].name) for op in every if op.name in ("mlp.all_reduce", "experts.all_reduce")]
    assert reduced == [((0, 2), "m"), ((0, 2), "e"), ((1, 3), "m")]
