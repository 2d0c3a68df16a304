"""Scaling tables: speed-up, efficiency, fitted laws, measured runs."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofmodel
from roofmodel.errors import WorkloadError
from roofmodel.sweep.scaling_laws import fit, read_runs


def scaled(model: str = "gpt2", **options: Any) -> Any:
    asked = {"phase": "train", "scaling": "weak", "gpus": [1, 2, 4], **options}
    return roofmodel.sweep(model, "a100", **asked)


@given(st.floats(0, 1), st.lists(st.integers(2, 1024), min_size=2, unique=True))
def test_the_serial_fraction_of_amdahls_law_is_recovered_from_its_speedups(fraction: float, gpus: list[int]) -> None:
    found = fit("amdahl", gpus, [1 / (fraction + (1 - fraction) / n) for n in gpus])
    assert found is not None
    assert found.serial_fraction == pytest.approx(fraction, abs=1e-9)
    assert found.low == pytest.approx(fraction, abs=1e-6)


@given(st.floats(0, 1), st.lists(st.integers(2, 1024), min_size=2, unique=True))
def test_the_serial_fraction_of_gustafsons_law_is_recovered_from_its_speedups(fraction: float, gpus: list[int]) -> None:
    found = fit("gustafson", gpus, [n - fraction * (n - 1) for n in gpus])
    assert found is not None
    assert found.serial_fraction == pytest.approx(fraction, abs=1e-9)
    assert found.speedup(8) == pytest.approx(8 - fraction * 7)


def test_the_interval_of_the_serial_fraction_uses_students_t_distribution() -> None:
    # x = 1/2 and 3/4; y = 1/1.6 - 1/2 = 0.125 and 1/2 - 1/4 = 0.25; f = (0.0625 + 0.1875) / 0.8125 = 4/13
    found = fit("amdahl", [1, 2, 4], [1.0, 1.6, 2.0])
    assert found is not None
    assert found.serial_fraction == pytest.approx(4 / 13)
    residuals = (0.125 - 4 / 26) ** 2 + (0.25 - 12 / 52) ** 2
    margin = 12.706 * (residuals / 0.8125) ** 0.5  # one degree of freedom
    assert (found.low, found.high) == pytest.approx((4 / 13 - margin, 4 / 13 + margin))
    assert found.points == 2


def test_one_point_has_no_interval_and_none_has_no_fit() -> None:
    found = fit("gustafson", [1, 2], [1.0, 1.8])
    assert found is not None
    assert (found.serial_fraction, found.low, found.high) == (pytest.approx(0.2), None, None)
    assert fit("amdahl", [1], [1.0]) is None


def test_weak_scaling_multiplies_the_batch_and_compares_rates() -> None:
    rows = scaled(batch=8).to_dict()["rows"]
    assert [row["batch"] for row in rows] == [8, 16, 32]
    assert [row["dp"] for row in rows] == [row["gpus"] for row in rows] == [1, 2, 4]
    for row in rows:
        rate = row["batch"] / row["expected_seconds"] / (8 / rows[0]["expected_seconds"])
        assert row["speedup"] == pytest.approx(rate)
        assert row["efficiency"] == pytest.approx(rate / row["gpus"])
        exposed = row["expected_communication_exposed_seconds"]
        assert row["communication_share"] == pytest.approx(exposed / row["expected_seconds"])
        assert row["communication_hidden_seconds"] == pytest.approx(row["expected_communication_seconds"] - exposed)


def test_strong_scaling_keeps_the_batch() -> None:
    rows = scaled(scaling="strong").to_dict()["rows"]
    assert [row["batch"] for row in rows] == [4, 4, 4]  # the smallest batch divisible by 1, 2 and 4 replicas
    assert [row["speedup"] for row in rows] == pytest.approx(
        [rows[0]["expected_seconds"] / row["expected_seconds"] for row in rows]
    )


def test_the_default_wrapper_and_the_same_wrapper_given_have_the_same_efficiency() -> None:
    default, given_wrapper = (
        scaled(batch=8, **options).to_dict()
        for options in ({"engine": "torch"}, {"engine": "torch", "data_parallel": "ddp"})
    )
    assert [row["data_parallel"] for row in given_wrapper["rows"]] == [None, "ddp", "ddp"]
    assert given_wrapper["rows"] == default["rows"]
    assert given_wrapper["scaling"]["fits"] == default["scaling"]["fits"]
    with pytest.raises(WorkloadError, match="data_parallel"):
        scaled(gpus=1, data_parallel="fsdp9")


def test_a_note_names_the_baseline_if_it_is_not_one_gpu(tmp_path: Path) -> None:
    runs = measured(tmp_path, "gpus,seconds\n2,5\n4,5\n16,5\n")
    notes = scaled(batch=8, gpus=[2, 4], measured=runs).to_dict()["notes"]
    for of, option in (("model", "gpus"), ("measured", "measured")):
        start = f"{of}: speed-up and efficiency are relative to 2 GPUs (speed-up 2.00); no law is fitted"
        assert [option in note for note in notes if note.startswith(start)] == [True]
    assert "measured runs on 16 GPUs have no row in the table; add 16 to gpus" in notes
    unmarked = scaled(batch=8, measured=measured(tmp_path, "gpus,seconds\n1,5\n4,5\n")).to_dict()["notes"]
    assert not [note for note in unmarked if "relative to" in note or "no row" in note]


@pytest.mark.parametrize(("share", "sizes"), [("tp", {"tp": 2}), ("pp", {"pp": 2}), ("ep", {"dp": 2, "ep": 2})])
def test_the_gpus_are_divided_as_given(share: str, sizes: dict[str, int]) -> None:
    report = roofmodel.sweep("mixtral-8x7b-v0.1", "h100", phase="decode", scaling="weak", gpus=[1, 2], share=share)
    row = report.to_dict()["rows"][1]
    assert {name: row[name] for name in sizes} == sizes


def test_an_impossible_number_of_gpus_has_a_note() -> None:
    report = scaled(scaling="strong", batch=8, gpus=[1, 3, 4])
    assert [row["gpus"] for row in report.to_dict()["rows"]] == [1, 4]
    assert any(note.startswith("3 GPUs: ") for note in report.notes)


def test_the_tables_of_a_scaling_sweep_have_its_columns(tmp_path: Path) -> None:
    report = scaled(batch=8)
    assert {"gpus", "speedup", "efficiency"} <= set(report.to_frame().columns)
    for suffix in ("csv", "png", "svg"):
        assert report.save(tmp_path / f"scaling.{suffix}").stat().st_size > 100
    assert "speedup" in (tmp_path / "scaling.csv").read_text().splitlines()[0]
    fits = report.to_dict()["scaling"]["fits"]
    assert [(each["of"], each["law"]) for each in fits] == [("model", "amdahl"), ("model", "gustafson")]


def measured(folder: Path, text: str) -> str:
    path = folder / "measured.csv"
    path.write_text(text)
    return str(path)


def test_measured_runs_are_medians_relative_to_the_fewest_gpus(tmp_path: Path) -> None:
    path = measured(tmp_path, "model,GPUs,seconds\nx,1,0.10\nx,2,0.125\nx,2,0.125\nx,2,9\n")
    weak, strong = read_runs(path, "weak")[1], read_runs(path, "strong")[1]
    assert (weak.seconds, weak.speedup, weak.efficiency) == (0.125, pytest.approx(1.6), pytest.approx(0.8))
    assert strong.speedup == pytest.approx(0.8)
    rates = read_runs(measured(tmp_path, "gpus,throughput\n2,300\n8,1080\n"), "weak")
    assert [run.speedup for run in rates] == pytest.approx([2, 7.2])
    assert rates[0].seconds is None


def test_measured_runs_are_rows_next_to_expected_ones(tmp_path: Path) -> None:
    report = scaled(batch=8, measured=measured(tmp_path, "gpus,time_ms\n1,100\n2,105\n4,110\n"))
    found = report.to_dict()["scaling"]
    assert [run["seconds"] for run in found["measured"]] == pytest.approx([0.1, 0.105, 0.11])
    assert {each["of"] for each in found["fits"]} == {"model", "measured"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no header"), ("n,t\n1,2\n", "it has 'n', 't'"), ("gpus,seconds\n", "no rows"),
        ("gpus,seconds\n1,fast\n", "measured.csv:2: seconds is 'fast'"),
        ("gpus,seconds\n\n1.5,1\n", "measured.csv:3: gpus is '1.5'"), ("gpus,seconds\n1\n", "seconds is ''"),
        ("gpus,seconds\n-1,1\n", "gpus is '-1'"), ("gpus,seconds\n1,inf\n", "seconds is 'inf'"),
    ],
)  # fmt: skip
def test_an_invalid_table_is_refused_with_place_and_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        scaled(measured=measured(tmp_path, text))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tp": 2, "share": "tp"}, "tp=2 is set by gpus"), ({"tp": [1, 2]}, "must have one value"),
        ({"tp": 2, "gpus": [1, 2]}, "gpus=1 is not divisible by the 2 GPUs"), ({"cluster": "local"}, "does not apply"),
        ({"scaling": "linear"}, "unknown value"), ({"share": "cp"}, "unknown value"), ({"gpus": "0"}, "gpus"),
    ],
)  # fmt: skip
def test_options_that_contradict_scaling_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        scaled(**options)
    assert message in str(caught.value)


def test_options_of_scaling_need_scaling() -> None:
    for options in ({"gpus": [1, 2]}, {"share": "dp"}, {"where": "efficiency>0.5"}, {"sort": "speedup"}):
        with pytest.raises(WorkloadError, match='needs scaling="strong"'):
            roofmodel.sweep("gpt2", "a100", **options)
