"""`--kernels`: all compared kernels of all ranks and steps as CSV."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import roofmodel
from roofmodel.errors import RoofError
from roofmodel.jitter import kernel_tables
from roofmodel.jitter.command import COMMAND
from roofmodel.report.command import typer_app

pandas = pytest.importorskip("pandas")
FILE = "examples/four_ranks_by_hand.csv"
QUANTITIES = ("duration", "gap", "time_to_end", "launch_to_start")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory):
    """The table, and the report of the same run."""
    path = tmp_path_factory.mktemp("kernels") / "kernels.csv"
    report = roofmodel.jitter(FILE, kernels=path)
    return pandas.read_csv(path), report


def test_the_command_says_which_file_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    found = CliRunner().invoke(typer_app(COMMAND), [FILE, "--kernels", str(path)])
    assert f"wrote {path}" in found.stderr.replace("\n", "")
    assert path.exists()


def test_each_kernel_of_each_step_has_a_row_for_each_rank(kernels) -> None:
    table, _ = kernels
    assert len(table) == 4 * 20 * 4  # steps, kernels, ranks
    assert table.groupby(["step", "kernel"])["rank"].apply(list).map(lambda ranks: ranks == [0, 1, 2, 3]).all()


def test_raw_durations_are_those_of_the_profile(kernels) -> None:
    table, _ = kernels
    raw = pandas.read_csv(FILE)
    expected = (raw["kernel_end"] - raw["kernel_start"]).sum() / 1e9
    assert table["duration_seconds"].sum() == pytest.approx(expected)
    launch = (raw["kernel_start"] - raw["crt_start"]).sum() / 1e9
    assert table["launch_to_start_seconds"].sum() == pytest.approx(launch)


def test_a_time_to_the_end_sums_gaps_and_durations_without_collectives(kernels) -> None:
    table, _ = kernels
    part = table[(table["step"] == 2001) & (table["rank"] == 2)]
    times = (part["gap_seconds"] + part["duration_seconds"].where(part["collective"] == 0, 0)).cumsum()
    assert part["time_to_end_seconds"].tolist() == pytest.approx(times.tolist())


def test_deviations_are_from_the_mean_over_ranks_and_give_the_lateness(kernels) -> None:
    table, report = kernels
    for quantity in QUANTITIES:
        means = table.groupby(["step", "kernel"])[f"{quantity}_seconds"].transform("mean")
        deviations = (table[f"{quantity}_seconds"] - means).tolist()
        assert table[f"{quantity}_deviation_seconds"].tolist() == pytest.approx(deviations, abs=1e-12)
    last = table[table["collective"] == 1].groupby("step")["kernel"].max() - 1  # the kernel before the last collective
    late = table[table["kernel"] == table["step"].map(last)]
    expected = report.deviations_frame().set_index(["step", "rank"])["deviation_seconds"]
    found = late.set_index(["step", "rank"])["time_to_end_deviation_seconds"]
    assert found.to_dict() == pytest.approx(expected.to_dict(), abs=1e-12)


def test_small_groups_of_steps_and_stored_kernels_give_the_same_table(
    kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(kernel_tables, "MAX_KERNELS", 1)
    roofmodel.jitter(FILE, kernels=tmp_path / "kernels.csv", cache=tmp_path / "cache")
    pandas.testing.assert_frame_equal(pandas.read_csv(tmp_path / "kernels.csv"), kernels[0])


def test_another_suffix_is_refused_before_the_analysis(tmp_path: Path) -> None:
    with pytest.raises(RoofError, match="csv"):
        roofmodel.jitter(FILE, kernels=tmp_path / "kernels.xlsx")
