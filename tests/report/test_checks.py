"""`--fail-if`: a check in CI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofmodel
from roofmodel.report.checks import judge
from tests.command_line import Roof, run

ROWS = [
    {"name": "gemm", "seconds": 2e-3, "bytes": 4096, "fraction": 0.5, "bound": "memory", "fused": False, "flops": None},
    {"name": "norm", "seconds": 1e-4, "bytes": 1024, "fraction": 0.9, "bound": "memory", "fused": True, "flops": 10.0},
]
PLAN = ("plan", "gpt2", "--hw", "a100", "--gpus", "1", "--isl", "64", "--osl", "8")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def roof(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Roof:
    """Runs the command line with these arguments."""
    return lambda *arguments: run(arguments, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("seconds>1ms", ["gemm"]),
        ("time <= 100us", ["norm"]),
        ("bytes>=1KiB", ["gemm", "norm"]),
        ("achieved<50.1%", ["gemm"]),
        ("fraction>0.5", ["norm"]),
        ("bound=memory and fused=true", ["norm"]),
        ("name!=gemm", ["norm"]),
        ("seconds>1s", []),
    ],
)
def test_the_rows_that_satisfy_an_expression_are_named(expression: str, names: list[str]) -> None:
    assert [line.split()[0] for line in judge(ROWS, [expression]).failed] == names


def test_names_of_kernels_are_compared_as_a_profile_has_them() -> None:
    rows = [{"name": "void add<float>(int, float const*)", "seconds": 1.0}, {"name": "saxpy(int)", "seconds": 2.0}]
    assert len(judge(rows, ["name=void add<float>(int, float const*)"]).failed) == 1
    assert len(judge(rows, ["name=saxpy and seconds>1s"]).failed) == 1
    assert len(judge(rows, ["name~add"]).failed) == 1
    assert judge(rows, ["name=axpy and seconds>1s"]).warnings == ["warning: --fail-if: no row has name=axpy"]


def test_a_column_that_no_row_knows_cannot_be_judged_and_no_rows_pass() -> None:
    assert judge([{"name": "a", "x": None}], ["x=b", "x>2"]).failed == ["a: x unknown: cannot be judged"] * 2
    assert judge([], ["gpus>1"]).failed == []
    with pytest.raises(roofmodel.WorkloadError, match="'gpus' is not a comparison"):  # also without rows
        judge([], ["gpus"])


def test_an_unknown_value_that_would_decide_cannot_be_judged() -> None:
    assert judge(ROWS, ["flops>20"]).failed == ["gemm memory: flops unknown: cannot be judged"]
    assert judge(ROWS, ["flops>20 and seconds>1s"]).failed == []  # the time decides


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3), st.sampled_from(["<", ">", "<=", ">="]))
def test_a_comparison_is_that_of_python(value: float, limit: float, sign: str) -> None:
    expected = {"<": value < limit, ">": value > limit, "<=": value <= limit, ">=": value >= limit}[sign]
    assert bool(judge([{"name": "a", "ratio": value}], [f"ratio{sign}{limit!r}"]).failed) == expected


@pytest.mark.parametrize(
    ("arguments", "expression", "passes"),
    [
        (("estimate", "gpt2", "--hw", "a100"), "tpot<1ms", "tpot>1s"),
        (("estimate", "gpt2", "--hw", "a100"), "time>1us and bound=memory and fits=yes", "fits=no"),
        (("estimate", "gpt2", "--hw", "mi300x"), "time>1us", "time>1s"),
        (("estimate", "gpt2", "--hw", "a100"), "op.time>1us and op.bound>1ps", "op.time>1s"),
        (("estimate", "gpt2", "--hw", "a100"), "memory_fits=true and largest_batch>1", "memory_largest_batch<1"),
        (("estimate", "gpt2", "--hw", "a100"), "op.name=mlp.up and op.bound>1ps", "op.expected>1s"),
        (("kernels", "ncu_by_hand.csv"), "seconds>1ns", "seconds>1s"),
        (("kernels", "ncu_by_hand.csv"), "time>1ns and bytes_dram>1MB", "time>1s"),
        (("kernels", "ncu_by_hand.csv", "--before", "ncu_by_hand.csv"), "time>1ns", "time>1s"),
        (("plot", "ncu_by_hand.csv", "--hw", "v100", "-o", "OUT.png"), "achieved<100%", "achieved<0.01%"),
        (("trace", "training_by_hand.json", "--hw", "a100"), "seconds>1ns", "time>1s"),
        (("jitter", "four_ranks_by_hand.csv"), "deviation>1ns", "deviation>1s"),
        (PLAN, "gpus>=1", "gpus>1k"),
        (PLAN, "fits=yes and bound=compute and memory>1GiB", "fits=no"),
    ],
)
def test_a_command_ends_with_3_if_a_row_fails_and_prints_its_result_in_any_case(
    arguments: tuple[str, ...], expression: str, passes: str, roof: Roof, tmp_path: Path
) -> None:
    line = [
        str(EXAMPLES / word) if (EXAMPLES / word).is_file() else word.replace("OUT", f"{tmp_path}/out")
        for word in arguments
    ]
    plain, passed, failed = roof(*line), roof(*line, "--fail-if", passes), roof(*line, "--fail-if", expression)
    assert (plain.status, passed.status, failed.status) == (0, 0, 3)
    assert plain.out == passed.out == failed.out
    assert "failed: " in failed.err
    assert "failed: " not in passed.err


@pytest.mark.parametrize("options", [{"batch": 64}, {"tp": 12}, {"engine": "torch"}, {"pp": 2, "batch": 2}])
def test_what_bounds_a_phase_is_that_of_a_sweep(options: dict[str, Any]) -> None:
    rows = roofmodel.sweep("gpt2", "h100", **options).to_dict()["rows"]
    phases = [row for row in roofmodel.estimate("gpt2", "h100", **options).rows_to_check() if "phase" in row]
    assert [(row["phase"], row["bound"]) for row in phases] == [(row["phase"], row["bound"]) for row in rows]
    assert phases[0]["bound"] == (
        "overhead" if "engine" in options else "communication" if "tp" in options else "compute"
    )


def test_a_level_without_a_ceiling_fails_no_check_of_what_is_achieved() -> None:
    """The H100's file has no L2 bandwidth: the kernels' L2 traffic has a FLOP/B and no share of a ceiling."""
    report = roofmodel.plot(EXAMPLES / "ncu_by_hand.csv", hw="h100-sxm")
    rows = report.rows_to_check()
    assert {row["level"] for row in rows} == {"dram", "l2"}
    assert judge(rows, ["achieved<1%"]).failed == []
    failed = judge(rows, ["achieved<100%"], report.naming, report.identifying).failed
    assert len(failed) == 3  # kernels, each above 1 % of the bandwidth or peak
    assert all("level dram" in line for line in failed)


def test_a_check_at_a_level_without_a_ceiling_cannot_be_judged(roof: Roof, tmp_path: Path) -> None:
    plot = ("plot", EXAMPLES / "ncu_by_hand.csv", "--hw", "h100", "-o", tmp_path / "a.png", "--fail-if")
    found = roof(*map(str, plot), "level=l2 and achieved<99%")
    failed = [line for line in found.err.splitlines() if line.startswith("failed: ")]
    assert (found.status, len(failed)) == (3, 3)
    assert all("level l2" in line and line.endswith("achieved unknown: cannot be judged") for line in failed)
    rows = roofmodel.plot(EXAMPLES / "ncu_by_hand.csv", hw="h100").rows_to_check()
    assert judge(rows, ["level=l2 and time>1s"]).failed == []


def test_an_invalid_expression_ends_with_2_and_prints_no_result(roof: Roof) -> None:
    result = roof("estimate", "gpt2", "--hw", "a100", "--fail-if", "tpott>1ms")
    assert (result.status, result.out) == (2, "")
    assert "did you mean" in result.err


def test_the_errors_of_a_table_of_measurements_can_be_limited(roof: Roof, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("op,dtype,m,n,k,latency_us\ngemm,fp16,4096,4096,4096,600\n")
    assert roofmodel.validate(tmp_path / "table.csv", "a100").rows_to_check()[0]["op"] == "all"
    result = roof("validate", str(tmp_path / "table.csv"), "--hw", "a100", "--fail-if", "expected_mape>1%")
    assert result.status == 3
