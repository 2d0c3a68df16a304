"""FLOPs of kernels that the user states."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofmodel
from roofmodel.errors import WorkloadError
from roofmodel.plot.stated_flops import evaluated, stated_flops

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "ncu_by_hand.csv")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2*4096^3", 137_438_953_472),
        ("2 * 4096^2 * (1024 + 1)", 2 * 4096**2 * 1025),
        ("-2^2 + 10", 6),  # a power has precedence over a sign
        ("2^3^2", 512),  # from the right
        ("2^-1", 0.5),
        ("12/2/3", 2),  # from the left
        ("10-2-3", 5),
        ("1.5e3*2", 3000),
        ("((7))", 7),
    ],
)
def test_an_expression_has_its_arithmetic_value(text: str, value: float) -> None:
    assert evaluated(text) == value


@given(st.recursive(
    st.integers(1, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda parts: f"({''.join(parts)})"),
    max_leaves=12,
))  # fmt: skip
def test_expressions_have_the_value_that_python_gives_them(text: str) -> None:
    assert evaluated(text) == eval(compile(ast.parse(text, mode="eval"), "", "eval"))


@given(st.text(max_size=30))
def test_any_other_text_is_a_clear_error(text: str) -> None:
    try:
        value = evaluated(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        return
    assert isinstance(value, float)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gemm*", "'gemm*' is not PATTERN=FLOPS; try 'gemm*=2*4096^3'"),
        ("=2*4", "'=2*4' is not PATTERN=FLOPS"),
        ("gemm*=2*", "the expression ends too early"),
        ("gemm*=2*(4", "a ')' is missing"),
        ("gemm*=2 4", "'4' is not expected there"),
        ("gemm*=__import__(os)", "'__import__(os)' is neither a number nor one of + - * / ^ ( )"),
        ("gemm*=0", "0 is not a number of FLOPs"),
        ("gemm*=1-2", "-1 is not a number of FLOPs"),
        ("gemm*=1/0", "the expression divides by zero; try"),
        ("gemm*=9^9^9^9", "the value is too large; try 'gemm*=2*4096^3'"),
        ("gemm*=(-8)^0.5", "a root of a negative number"),
        ("gemm*=" + "(" * 150 + "1" + ")" * 150, "at most 200 characters"),
    ],
)
def test_an_invalid_statement_is_quoted_with_one_that_works(text: str, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        stated_flops([text])
    assert error.value.option == "flops"
    assert message in str(error.value)


def points(**options: Any) -> dict[str, dict[str, Any]]:
    report = roofmodel.plot(EXAMPLE, hw="a100", by="base", **options)
    return {point["name"]: point for point in report.to_dict()["points"] if point["level"] == "dram"}


def test_stated_flops_give_the_point_of_measured_flops() -> None:
    """The GEMM of the example file has 2 × 4096³ measured FLOPs on the tensor cores."""
    measured, stated = points(), points(flops="gemm*=2*4096^3")
    assert stated["gemm_fp16_4096"]["flops_per_second"] == pytest.approx(2 * 4096**3 / 550e-6)
    assert stated["gemm_fp16_4096"]["pipe"] == measured["gemm_fp16_4096"]["pipe"] == "tensor_fp16"
    assert stated["saxpy"] == measured["saxpy"]


def test_a_pipe_can_be_stated() -> None:
    found = points(flops=["saxpy=1e9:fp64", "s*=2e9"])  # the first matching statement applies
    assert (found["saxpy"]["pipe"], found["saxpy"]["flops_per_second"]) == ("fp64", pytest.approx(1e9 / 120e-6))
    assert (found["softmax_rows"]["pipe"], found["softmax_rows"]["flops_per_second"]) == (
        "fp32",
        pytest.approx(2e9 / 90e-6),
    )


def test_a_profile_without_flops_gets_points(tmp_path: Path) -> None:
    """Two launches; the stated FLOPs are per launch."""
    file = tmp_path / "no_flops.csv"
    header = '"ID","Kernel Name","Device","CC","dram__bytes.sum","gpu__time_duration.sum"'
    rows = [f'"{i}","my_gemm(float *)","0","8.0","2000000","50"' for i in range(2)]
    file.write_text("\n".join([header, '"","","","","byte","us"', *rows]) + "\n")
    report = roofmodel.plot(str(file), hw="a100", by="base", flops="my_gemm=2*512^3")
    (point,) = [point for point in report.to_dict()["points"] if point["level"] == "dram"]
    assert point["intensity"] == pytest.approx(2 * 512**3 / 2e6)
    assert point["flops_per_second"] == pytest.approx(2 * 512**3 / 50e-6)
    assert (point["pipe"], point["incomplete"]) == ("fp32", False)
    assert any("fp32 (assumed; state a pipe" in note for note in report.remarks())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gemx*=3", "no kernel matches 'gemx*'; known: saxpy, gemm_fp16_4096, softmax_rows"),
        ("gemm*=3:tensor_fp9", "a100-sxm-80gb has no pipe 'tensor_fp9'; did you mean"),
    ],
)
def test_a_statement_that_matches_nothing_is_an_error(text: str, message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        points(flops=text)
    assert message in str(error.value)
