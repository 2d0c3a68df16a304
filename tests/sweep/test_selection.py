"""Selection and order of the rows of a sweep."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofmodel
from roofmodel.errors import WorkloadError
from roofmodel.models.hub import load
from roofmodel.steps.estimate import estimate, phase_totals
from roofmodel.sweep import selection
from roofmodel.sweep.case import COLUMNS
from roofmodel.sweep.selection import TYPES, order
from roofmodel.sweep.sweep import Order

GRID: dict[str, Any] = {
    "hw": ["a100", "h100"],
    "phase": "decode",
    "engine": "vllm",
    "batch": [1, 16, 256],
    "tp": [1, 2],
}


@pytest.fixture(scope="module")
def all_rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = roofmodel.sweep("gpt2-medium", **GRID).to_dict()["rows"]
    return found


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("tpot<1ms", lambda row: row["tpot_seconds"] < 1e-3),
        ("TPOT >= 1500us", lambda row: row["tpot_seconds"] >= 1.5e-3),
        ("memory<=3GiB", lambda row: row["memory_total"] <= 3 * 2**30),
        ("tokens/s>1k", lambda row: row["tokens_per_second"] > 1000),
        ("tokens/s/gpu>2.5e3", lambda row: row["tokens_per_second_per_gpu"] > 2500),
        ("mbu>20%", lambda row: row["mbu"] > 0.2),
        ("fits=no", lambda row: row["fits"] is False),
        ("tp!=1", lambda row: row["tp"] != 1),
        ("device=h100-sxm", lambda row: row["hardware"] == "h100-sxm"),
        ("model=GPT2-Medium", lambda row: True),
        ("bound=memory", lambda row: row["bound"] == "memory"),
        ("bound<1ms", lambda row: row["bound_seconds"] < 1e-3),
        ("time>1ms and tp=2", lambda row: row["expected_seconds"] > 1e-3 and row["tp"] == 2),
        ("model~medium", lambda row: True),
        ("hw!~h100", lambda row: row["hardware"] != "h100-sxm"),
    ],
)
def test_a_condition_keeps_exactly_the_rows_that_satisfy_it(
    text: str, holds: Any, all_rows: list[dict[str, Any]]
) -> None:
    kept = roofmodel.sweep("gpt2-medium", **GRID, where=text).to_dict()
    assert kept["rows"] == [row for row in all_rows if holds(row)]
    assert kept["where"] == [text]
    assert kept["points"] == len(all_rows)


def test_a_row_must_satisfy_all_conditions(all_rows: list[dict[str, Any]]) -> None:
    kept = roofmodel.sweep("gpt2-medium", **GRID, where=["batch>1", "tp=2", "hw=h100-sxm"]).to_dict()["rows"]
    assert [row["batch"] for row in kept] == [16, 256]


@pytest.mark.parametrize(
    ("sort", "key", "backwards"),
    [
        ("tpot", "tpot_seconds", False),
        ("-tokens/s/gpu", "tokens_per_second_per_gpu", True),
        ("device", "hardware", False),
        ("-batch", "batch", True),
    ],
)
def test_rows_are_sorted_and_equal_ones_stay_in_order(
    sort: str, key: str, backwards: bool, all_rows: list[dict[str, Any]]
) -> None:
    found = roofmodel.sweep("gpt2-medium", **GRID, sort=sort)
    assert found.to_dict()["rows"] == sorted(all_rows, key=lambda row: row[key], reverse=backwards)
    assert list(found.to_frame()[key]) == [row[key] for row in found.to_dict()["rows"]]


def test_unknown_values_fail_conditions_and_come_last() -> None:
    """A prefill has no TPOT, and neither phase has an expected time on a device without calibration."""
    both = {"hw": ["h100", "mi300x"], "batch": [1, 4]}
    kept = roofmodel.sweep("gpt2", **both, where="tpot>0ms")
    assert [(row["phase"], row["hardware"]) for row in kept.to_dict()["rows"]] == [("decode", "h100-sxm")] * 2
    assert "tpot_seconds is unknown at 6 of 8 points; where leaves them out" in kept.to_dict()["notes"]
    for sort in ("tpot", "-tpot"):
        values = [row["tpot_seconds"] for row in roofmodel.sweep("gpt2", **both, sort=sort).to_dict()["rows"]]
        assert None not in values[:2]
        assert values[2:] == [None] * 6


def test_time_is_the_bound_where_no_time_is_expected() -> None:
    """The MI300X is not calibrated."""
    grid: dict[str, Any] = {"hw": ["h100", "mi300x"], "phase": "decode", "batch": [1, 64]}
    rows = roofmodel.sweep("gpt2", **grid).to_dict()["rows"]
    times = [row["bound_seconds"] if row["expected_seconds"] is None else row["expected_seconds"] for row in rows]
    assert {row["expected_seconds"] is None for row in rows} == {True, False}
    assert roofmodel.sweep("gpt2", **grid, where="time>0s").to_dict()["rows"] == rows
    ordered = roofmodel.sweep("gpt2", **grid, sort="time").to_dict()["rows"]
    assert ordered == [rows[times.index(time)] for time in sorted(times)]


def test_a_sweep_without_rows_is_a_result_with_a_note(tmp_path: Any) -> None:
    none = roofmodel.sweep("gpt2", "h100", batch=[1, 2], where="mfu>99%")
    assert none.to_dict()["rows"] == []
    assert "none of 4 points satisfies mfu>99%" in none.to_dict()["notes"]
    assert none.to_frame().empty
    assert none.save(tmp_path / "none.csv").read_text() == ",".join(COLUMNS) + "\n"
    with pytest.raises(WorkloadError, match="nothing to draw"):
        none.save(tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


@pytest.mark.parametrize("phase", ["generate", "decode", "prefill"])
@pytest.mark.parametrize("options", [{}, {"tp": 2, "dp": 2}, {"pp": 2, "batch": 4}])
def test_latencies_and_rates_are_those_of_the_estimate(phase: Any, options: dict[str, int]) -> None:
    asked = {"batch": 8, "new_tokens": 16, **options} if phase == "generate" else {"batch": 8, **options}
    (row,) = roofmodel.sweep("gpt2", "h100", phase=phase, **asked).to_dict()["rows"]  # type: ignore[arg-type]
    (found,) = estimate(load("gpt2"), roofmodel.Device.load("h100"), phase=phase, **asked).phases
    totals, gpus = phase_totals(found), found.step.parallel.gpus
    if phase == "generate":
        names = [name for name in totals if re.search("ttft|tpot_seconds|e2e|per_gpu|per_user", name)]
        assert len(names) == 10  # expected and bound
        for name in names:
            assert row[name] == pytest.approx(totals[name], rel=1e-12), name
        return
    latency = {"prefill": "ttft", "decode": "tpot"}[phase]
    for kind, seconds in (("", totals["expected_seconds"]), ("bound_", totals["bound_seconds"])):
        outside = 0 if kind or phase == "decode" else found.outside_steps
        assert row[f"{kind}{latency}_seconds"] == pytest.approx(seconds + outside, rel=1e-12)
        assert row[f"{kind}tokens_per_second_per_gpu"] * gpus == pytest.approx(row[f"{kind}tokens_per_second"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": ["batch<2", "tpot<20"]}, "where: 'tpot<20': '20' has no unit; write it as in '2.5 us'"),
        ({"where": "gpus>1"}, "the column gpus needs scaling"),
        ({"sort": "speed"}, "sort: unknown column 'speed'; did you mean 'speedup' or 'expected'? known: time, bound"),
    ],
)
def test_an_invalid_condition_or_order_is_quoted_with_what_would_work(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        roofmodel.sweep("gpt2", "h100", **options)
    assert message in str(error.value)


def test_too_many_rows_to_sort_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MAX_POINTS_IN_MEMORY", 3)
    with pytest.raises(WorkloadError, match="more than 3 rows remain"):
        roofmodel.sweep("gpt2", "h100", batch=[1, 2], sort="tpot")
    assert len(roofmodel.sweep("gpt2", "h100", batch=[1, 2], sort="tpot", where="batch=1").to_dict()["rows"]) == 2


@given(st.sampled_from(COLUMNS))
def test_each_column_has_a_unique_name(column: str) -> None:
    assert order(column, TYPES) == Order(("bound_seconds" if column == "bound" else column,), False, column)
