"""Recomputation by module: its time and its memory."""

from __future__ import annotations

from typing import Any

import pytest

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models.hub import load
from roofmodel.options.values import RECOMPUTED_MODULES
from roofmodel.steps.estimate import Estimate, estimate

DEVICE = Device.load("h100")
LLAMA = "llama-3.2-1b"  # 16 layers, d 2048, q 2048, k and v 512, f 8192
TOKENS, LAYERS, WIDTH, INNER = 2 * 512, 16, 2048, 8192


def step(model: str, recompute: str, **options: Any) -> Estimate:
    sizes = {"phase": "train", "dtype": "bf16", "batch": 2, "seq": 512, "micro_batch": 1, "sustained": "off"}
    return estimate(load(model), DEVICE, **{**sizes, "recompute": recompute, **options})


def figures(found: Estimate) -> tuple[float, float, float]:
    """The bound, the expected time, and memory with the opposite sign: all grow with what is recomputed."""
    (phase,) = found.phases
    assert phase.expected
    return float(phase.bound_seconds), float(phase.expected.value), -float(found.memory.total)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (LLAMA, {}),
        (LLAMA, {"engine": "torchtitan", "dtype": "bf16", "dp": 2, "zero": 3}),
        (LLAMA, {"tp": 2, "sequence_parallel": "on", "dtype": "fp8"}),
        ("gpt2", {"attention": "eager"}),
        ("deepseek-v2-lite", {"ep": 2, "dp": 2}),
    ],
)
def test_more_recomputation_takes_longer_and_needs_less_memory(model: str, options: dict[str, Any]) -> None:
    none, full = (figures(step(model, name, **options)) for name in ("none", "full"))
    several = figures(step(model, "selective:norm+activation", **options))
    for name in RECOMPUTED_MODULES:
        one = figures(step(model, f"selective:{name}", **options))
        assert all(a <= b * (1 + 1e-9 * (b > 0)) for a, b in zip(none, one, strict=True)), name
        assert all(a <= b for a, b in zip(one, full, strict=True)), name
        if name in ("norm", "activation"):
            assert all(a <= b for a, b in zip(one, several, strict=True)), name
    assert none[2] < several[2] < full[2]
    assert none[1] < several[1] < full[1]


@pytest.mark.parametrize(
    ("module", "released"),
    [
        ("norm", 2 * WIDTH),  # of attention and of the MLP
        ("activation", INNER),  # its product with up
        ("mlp", 3 * INNER),  # gate, up and the product
        ("attention", 0),  # its result stays, because a GEMM reads it
        ("moe", 0),
    ],
)
def test_a_module_releases_the_tensors_that_it_writes(module: str, released: int) -> None:
    kept = [step(LLAMA, name, micro_batch=2).memory.activations for name in ("none", f"selective:{module}")]
    assert kept[0] - kept[1] == 2 * TOKENS * LAYERS * released  # 2 bytes each, while the loss needs more than a layer


def test_recomputation_by_operator_repeats_every_second_gemm() -> None:
    """Of q, k, v, output, gate, up and down: k, output and up, as torchtitan's policy counts them."""
    (phase,) = step(LLAMA, "selective:op").phases
    repeated = [each.operator for each in phase.placed if each.operator.stage == "recomputation"]
    assert [op.name for op in repeated if op.kind == "gemm"] == ["attention.k", "attention.output", "mlp.up"]
    flops = 2 * TOKENS * LAYERS * WIDTH * (512 + WIDTH + INNER)
    assert sum(op.count * op.matmul_flops for op in repeated) == flops
    assert not any(op.kind == "attention" for op in repeated)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("selective:nrom", "no module 'nrom' can be recomputed; did you mean 'norm'? known: attention, mlp, act"),
        ("selective:", "no module '' can be recomputed; known: attention, mlp, activation, norm, moe, op"),
        ("selective:norm+", "no module '' can be recomputed"),
        ("norm", "unknown value 'norm'; known: none, selective, full"),
    ],
)
def test_an_unknown_module_is_an_error_that_lists_the_modules(value: str, message: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        step("gpt2", value)
    assert message in str(raised.value)


def test_a_sweep_compares_modules() -> None:
    values = ["none", "selective:norm+activation", "full"]
    rows = roofmodel.sweep("gpt2", "a100", phase="train", batch=4, recompute=values).to_frame()
    assert list(rows.recompute) == values
    assert list(rows.expected_seconds) == sorted(rows.expected_seconds)


def test_experts_are_recomputed_with_the_exchange_of_their_tokens() -> None:
    """Replicas that share experts: tokens are permuted, sent and collected again. No MLP without experts is there."""
    repeated = {"moe": set[str](), "mlp": set[str]()}
    for module, names in repeated.items():
        (phase,) = step("mixtral-8x7b-v0.1", f"selective:{module}", batch=4, dp=4, ep=4, seq=64).phases
        names |= {each.operator.name for each in phase.placed if each.operator.stage == "recomputation"}
    assert {"mlp.permute", "mlp.dispatch", "mlp.collect", "mlp.expert_down", "mlp.router"} <= repeated["moe"]
    assert repeated["mlp"] == set()
