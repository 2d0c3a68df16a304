"""One row for each kernel: the operators that an engine computes inside other kernels, and the rows that carry them."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roofmodel
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import PACKAGED
from roofmodel.errors import RoofError
from roofmodel.options.values import AttentionMode, ComputeFormat, Phase

MODELS = (
    "gpt2",
    "llama-3.2-1b",
    "gemma-2-9b",
    "mixtral-8x7b-v0.1",
    "deepseek-v3",
    "qwen3.5-9b",
    "t5-small",
    "gpt-j-6b",
)
ENGINES = (*PACKAGED, "trtllm@0.9", "vllm@0.12")
LAYOUTS: tuple[dict[str, int], ...] = ({}, {"tp": 2}, {"tp": 8}, {"pp": 2}, {"tp": 2, "dp": 2, "ep": 4})


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(MODELS),
    hw=st.sampled_from(["a100", "h100", "v100"]),
    engine=st.sampled_from(ENGINES),
    phase=st.sampled_from(get_args(Phase)),
    attention=st.sampled_from(get_args(AttentionMode)),
    dtype=st.sampled_from(["fp16", "fp8", "fp32"]),
    layout=st.sampled_from(LAYOUTS),
    batch=st.sampled_from([4, 64]),
)
def test_no_kernel_is_faster_than_its_bound_and_all_of_them_take_the_total(
    model: str, hw: str, engine: str, phase: Phase, attention: AttentionMode, dtype: ComputeFormat,
    layout: dict[str, int], batch: int,
) -> None:  # fmt: skip
    options: dict[str, Any] = {"phase": phase, "attention": attention, "dtype": dtype, "batch": batch, **layout}
    try:
        report = roofmodel.estimate(model, hw, engine=engine, seq=128, **options)
    except RoofError:
        return  # the model has no such phase, the engine does not train, the device lacks the format
    (found,) = report.estimate.phases
    (document,) = report.to_dict()["phases"]
    rows = document["ops"]
    for row in rows:
        assert row["fused"] == bool(row["fused_into"]) == (row["expected_from"] == "fused")
        if row["fused"]:
            assert row["expected_seconds"] is row["kernel_bound_seconds"] is row["implementation"] is None
            mains = [other for other in rows if other["name"] in row["fused_into"] and other["stage"] == row["stage"]]
            assert not all(other["fused"] for other in mains)  # layers of two kinds may have the same names
        elif row["expected_seconds"] is not None:
            assert row["expected_seconds"] >= row["kernel_bound_seconds"] * (1 - 1e-9), row["name"]
    assert sum(row["count"] for row in rows) == found.kernels
    counted = sum(row["count"] * row["bound_seconds"] for row in rows)
    assert counted == pytest.approx(sum(placed.seconds for placed in found.placed))
    if found.kernel_seconds is not None:
        own = sum(row["count"] * row["expected_seconds"] for row in rows if not row["fused"])
        assert own == pytest.approx(sum(p.operator.count * p.expected.value for p in found.placed if p.expected))


def test_a_residual_add_is_in_the_row_of_the_norm_after_it() -> None:
    """12 layers: the add after attention is in the norm of the MLP, the add after the MLP in the first norm of the next
    layer, in the last layer in the final norm. The norm of the first layer has the add of positions.

    The kernel reads two tensors of 8 tokens × 768 in 16 bits and a gain and a bias, and writes two tensors.
    """
    rows = roofmodel.estimate("gpt2", "a100", phase="decode", batch=8).to_dict()["phases"][0]["ops"]
    assert {row["name"]: row["fused_into"] for row in rows if row["fused"]} == {
        "embedding.add_position": ["norm.attention"],
        "residual.attention": ["norm.mlp"],
        "residual.mlp": ["norm.attention", "norm.final"],
    }
    first, others = (row for row in rows if row["name"] == "norm.attention")
    assert (first["layers"], others["layers"]) == ([0], list(range(1, 12)))
    (norm,) = (row for row in rows if row["name"] == "norm.mlp")
    assert norm["kernel_bound_seconds"] == pytest.approx((4 * 8 * 768 * 2 + 2 * 768 * 2) / 2039e9)
    assert others["kernel_bound_seconds"] == norm["kernel_bound_seconds"]


def test_a_norm_in_an_all_reduce_carries_its_residual_add_there() -> None:
    rows = roofmodel.estimate("llama-3.2-1b", "h100", phase="decode", engine="trtllm", tp=2).to_dict()["phases"][0][
        "ops"
    ]
    into = {row["name"]: row["fused_into"] for row in rows if row["fused"]}
    assert into["residual.attention"] == into["norm.mlp"] == ["attention.all_reduce"]
    assert into["residual.mlp"] == ["mlp.all_reduce"]
    assert into["norm.attention"] == ["embedding.all_reduce", "mlp.all_reduce"]


def test_gemms_with_one_input_are_in_the_row_of_the_first() -> None:
    """Gate and up of 14336 columns each read 4096 rows of weights in 16 bits; the input of 4096 is read once."""
    rows = roofmodel.estimate("llama-3.1-8b", "h100", phase="decode").to_dict()["phases"][0]["ops"]
    by_name = {row["name"]: row for row in rows}
    assert by_name["mlp.up"]["fused_into"] == ["mlp.gate"]
    assert by_name["attention.k"]["fused_into"] == by_name["attention.v"]["fused_into"] == ["attention.q"]
    moved = 2 * (2 * 4096 * 14336 + 4096 + 2 * 14336)
    assert by_name["mlp.gate"]["kernel_bound_seconds"] == pytest.approx(moved / 3.35e12)


@pytest.mark.parametrize("engine", [name for name in PACKAGED if not Engine.load(name).fuses])
def test_without_fusion_each_operator_is_a_kernel(engine: str) -> None:
    rows = roofmodel.estimate("gpt2", "a100", phase="forward", engine=engine).to_dict()["phases"][0]["ops"]
    assert not any(row["fused"] for row in rows)
    assert all(row["kernel_bound_seconds"] == row["bound_seconds"] for row in rows)
