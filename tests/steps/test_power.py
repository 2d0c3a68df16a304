"""Power and energy of whole steps, and their times under long load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import roofmodel

PREFILL: dict[str, Any] = {"phase": "prefill", "batch": 16, "seq": 4096, "dtype": "bf16"}


def totals(phase: str = "prefill", **options: Any) -> dict[str, Any]:
    return roofmodel.estimate("llama-3.1-8b", "h100", **PREFILL | {"phase": phase} | options).totals[phase]


def test_a_long_prefill_takes_the_energy_that_the_limit_allows() -> None:
    """At high clock it would draw more than 700 W; under load its power is the limit and its bound stays."""
    short, long = totals(), totals(sustained="on")
    assert short["power_watts"] > 700
    assert long["power_watts"] == pytest.approx(700)
    work = short["energy_joules"] - 134 * short["expected_seconds"]
    assert long["expected_seconds"] == pytest.approx(work / (700 - 134))
    assert long["bound_seconds"] == short["bound_seconds"]
    assert long["expected_low_seconds"] < long["expected_seconds"] < long["expected_high_seconds"]


def test_the_rows_of_operators_add_up_to_time_and_energy_of_the_phase() -> None:
    document = roofmodel.estimate("llama-3.1-8b", "h100", **PREFILL, sustained="on").to_dict()["phases"][0]
    for key in ("expected_seconds", "energy_joules"):
        rows = sum(row["count"] * row[key] for row in document["ops"] if not row["fused"])
        assert rows == pytest.approx(document["totals"][key])
    limited = {row["name"] for row in document["ops"] if row["expected_bound"] == "power"}
    assert "mlp.gate_up" in limited or any("mlp" in name for name in limited)
    assert not any("norm" in name for name in limited)


def test_a_decode_that_waits_for_dram_does_not_get_slower() -> None:
    short, long = (totals("decode", sustained=each) for each in ("off", "on"))
    assert long["expected_seconds"] == short["expected_seconds"]
    assert long["joules_per_token"] == pytest.approx(long["energy_joules"] / 16)


def test_training_is_long_load_by_default_and_energy_of_a_token_counts_all_gpus() -> None:
    training: dict[str, Any] = {"batch": 64, "micro_batch": 2, "seq": 4096, "pp": 2, "dp": 4, "zero": 1}
    long = totals("train", **training)
    assert long["expected_seconds"] == totals("train", **training, sustained=True)["expected_seconds"]
    assert long["expected_seconds"] > totals("train", **training, sustained=False)["expected_seconds"]
    two = totals("decode", tp=2)
    assert two["joules_per_token"] == pytest.approx(2 * two["energy_joules"] / 16)


def test_a_card_without_evidence_has_no_power() -> None:
    found = roofmodel.estimate("gpt2", "a100", phase="decode").totals["decode"]
    assert found["power_watts"] is found["energy_joules"] is found["joules_per_token"] is None


def test_a_note_says_where_the_limit_would_matter() -> None:
    notes = [str(note) for note in roofmodel.estimate("llama-3.1-8b", "h100", **PREFILL).estimate.notes]
    assert any("limit of 700 W" in note and "sustained" in note for note in notes)
    notes = [str(note) for note in roofmodel.estimate("gpt2", "h100").estimate.notes]
    assert not any("sustained" in note for note in notes)


def test_a_sweep_over_power_limits_has_the_times_of_each() -> None:
    rows = roofmodel.sweep("llama-3.1-8b", "h100", **PREFILL, power_limit="300W:700W:200W").to_dict()["rows"]
    assert [row["power_limit_watts"] for row in rows] == [300, 500, 700]
    for row in rows:
        limited = totals(power_limit=row["power_limit_watts"])
        assert row["expected_seconds"] == pytest.approx(limited["expected_seconds"])
        assert row["power_watts"] == pytest.approx(row["power_limit_watts"])


@pytest.mark.parametrize("limits", ["300:700W:100W", "700W:300W:100W", "300W:700W", "300W:700W:0W", "1W:9W:1W"])
def test_an_invalid_range_of_limits_is_refused(limits: str) -> None:
    with pytest.raises(roofmodel.RoofError, match="power"):
        roofmodel.sweep("llama-3.1-8b", "h100", **PREFILL, power_limit=limits).to_dict()


def test_a_training_plan_states_the_energy_of_the_run() -> None:
    options: dict[str, Any] = {"gpus": 2, "tokens": "1T", "batch": 64, "seq": 2048, "tp": 2, "recompute": "none"}
    plan = roofmodel.plan_training("llama-3.2-1b", "h100", **options).to_dict()["candidates"][0]
    assert plan["kwh"] == pytest.approx(plan["power_watts"] * 2 * 24 * plan["days"] / 1000)
    assert 134 < plan["power_watts"] <= 700.001
    short = roofmodel.plan_training("llama-3.2-1b", "h100", **options, sustained="off").to_dict()["candidates"][0]
    assert short["step_seconds"] <= plan["step_seconds"]


def test_explain_derives_the_energy_and_the_time_that_the_limit_allows() -> None:
    text = roofmodel.explain("llama-3.1-8b", hw="h100", **PREFILL, sustained="on").text("markdown")
    work = totals(sustained="on")["energy_joules"] - 134 * totals(sustained="on")["expected_seconds"]
    assert f"{work:.4g} J" in text
    assert "(limit - idle)" in text
    assert "(limit - idle)" not in roofmodel.explain("llama-3.1-8b", hw="h100", phase="decode").text("markdown")


def test_a_sweep_over_power_limits_draws_rate_and_energy_against_the_limit(tmp_path: Path) -> None:
    swept = roofmodel.sweep("llama-3.1-8b", "h100", **PREFILL, power_limit="400W,700W")
    text = swept.save(tmp_path / "power.svg").read_text(encoding="utf-8")
    assert "Rate and energy by power limit" in text
    assert "J per token" in text
    with pytest.raises(roofmodel.RoofError, match="power limit"):
        roofmodel.sweep("gpt2", "a100", phase="decode", batch=[1, 2]).save(tmp_path / "none.svg", picture="power")
