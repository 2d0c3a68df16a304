"""Table, JSON, CSV, picture and page of `roof jitter`, on the ranks of the examples."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import roofmodel
from benchmarks.many_ranks import COLUMNS, Plant, Run, rows
from roofmodel.jitter import answer, picture
from tests.printing import printed

EXAMPLE = Path(__file__).parents[2] / "examples" / "four_ranks_by_hand.csv"
# contract: roofmodel.jitter/1
DOCUMENT = ["schema", "ranks", "alignment", "steps", "causes", "warnings"]
RANK = ["rank", "file", "process", "device", "kernels", "common_compute_seconds", "launch_to_start_median_seconds"]
ALIGNMENT = ["by", "common_kernels", "first_difference", "clock_error_seconds"]
STEP = ["step", "earliest_rank", "latest_rank", "deviation_seconds", "diverges_at_kernel", "kernel_name", "cause"]
CAUSE = ["kind", "ranks", "seconds_per_step", "evidence"]
ADDED_TO_CAUSE = ["evidence_values"]


@pytest.fixture(scope="module")
def report() -> roofmodel.JitterReport:
    return roofmodel.jitter(EXAMPLE)


def test_the_document_has_the_keys_of_the_contract(report: roofmodel.JitterReport) -> None:
    document = json.loads(report.text("json"))
    assert document["schema"] == "roofmodel.jitter/1"
    assert set(DOCUMENT) <= set(document)
    assert all(set(RANK) <= set(rank) for rank in document["ranks"])
    assert set(ALIGNMENT) <= set(document["alignment"])
    assert all(set(STEP) <= set(step) for step in document["steps"])
    assert all({*CAUSE, *ADDED_TO_CAUSE} == set(cause) for cause in document["causes"])
    assert document["alignment"]["first_difference"] is None


def test_the_example_has_one_rank_with_late_launches(report: roofmodel.JitterReport) -> None:
    document = report.to_dict()
    assert [(cause["kind"], cause["ranks"]) for cause in document["causes"]] == [("cpu", [2])]
    assert {(step["latest_rank"], step["cause"]) for step in document["steps"]} == {(2, "cpu")}
    assert document["alignment"]["common_kernels"] == 4 * 20  # steps x kernels
    assert any("kernels are not the cause" in finding for finding in report.findings)


def test_the_example_is_a_simulated_run() -> None:
    run = Run(4, 20, 4, [Plant("cpu", 2, 0.25)], mean=60_000, reduces=2, clocks=0, seed=3)
    tables: dict[int, list[tuple[object, ...]]] = {}
    for rank, table in rows(run, range(4)):
        tables.setdefault(rank, []).extend(table)
    expected = [COLUMNS, *(row for table in tables.values() for row in table)]
    with EXAMPLE.open(newline="") as file:
        assert [tuple(row) for row in csv.reader(file)] == [tuple(map(str, row)) for row in expected]


def test_the_table_answers_first(report: roofmodel.JitterReport) -> None:
    lines = printed(report, 80).splitlines()
    assert lines[0].startswith("four_ranks_by_hand.csv: 4 ranks, 4 steps")
    assert "rank 2 has later launches than the other ranks: 180 µs per step" in " ".join(" ".join(lines[1:5]).split())
    assert "rank 2 is the latest in 4 of 4 steps" in " ".join(" ".join(lines[1:9]).split())


@pytest.mark.parametrize(("cpu", "gpu"), [(0.10, 0.25), (0.25, 0.10)])
def test_findings_are_in_the_order_of_their_cost(tmp_path: Path, cpu: float, gpu: float) -> None:
    run = Run(4, 20, 4, [Plant("cpu", 2, cpu), Plant("gpu", 0, gpu)], mean=60_000, reduces=2, clocks=0, seed=3)
    path = tmp_path / "two_causes.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *(row for _, table in rows(run, range(4)) for row in table)])
    report = roofmodel.jitter(path)
    causes = report.to_dict()["causes"]
    assert [cause["kind"] for cause in causes] == (["gpu", "cpu"] if gpu > cpu else ["cpu", "gpu"])
    seconds = [cause["seconds_per_step"] for cause in causes]
    assert seconds == sorted(seconds, reverse=True)
    assert report.findings[:2] == [cause["evidence"] for cause in causes]
    assert " is the latest in " in report.findings[2]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_with_a_threshold_above_all_deviations_no_empty_column_is_printed(width: int) -> None:
    report = roofmodel.jitter(EXAMPLE, threshold="10s")
    (heading,) = (line for line in printed(report, width).splitlines() if line.startswith("step "))
    assert re.fullmatch("step +latest +late by( +earliest +early by)?", heading)
    text = " ".join(printed(report, 80).split())
    assert "from kernel" not in text
    assert "below the threshold of 10 s" in text
    assert "late by" in text


def test_the_table_names_the_kernel_from_which_a_rank_is_late_in_one_column(report: roofmodel.JitterReport) -> None:
    text = printed(report, 120)
    assert "from kernel" in text
    assert text.count("6 layer_norm") == 4


def test_csv_has_a_line_per_step(report: roofmodel.JitterReport) -> None:
    rows = list(csv.DictReader(io.StringIO(report.text("csv"))))
    assert [row["step"] for row in rows] == ["2000", "2001", "2002", "2003"]
    assert len(rows) == len(report.to_frame())


def test_frames_have_the_deviations_by_rank_and_by_kernel(report: roofmodel.JitterReport) -> None:
    steps, kernels = report.deviations_frame(), report.kernels_frame()
    assert len(steps) == 4 * 4
    assert steps.groupby("step")["deviation_seconds"].sum().abs().max() == pytest.approx(0, abs=1e-12)
    assert len(kernels) == 4 * 20
    worst = report.to_frame().sort_values("deviation_seconds").iloc[-1]
    latest = kernels[kernels["rank"] == worst["latest_rank"]].set_index("kernel")
    (*_, collective) = latest.index[latest["name"].str.contains("nccl")]
    assert latest["time_to_end_seconds"][collective - 1] == worst["deviation_seconds"]


def test_the_svg_names_the_ranks(report: roofmodel.JitterReport, tmp_path: Path) -> None:
    text = report.save(tmp_path / "jitter.svg").read_text(encoding="utf-8")
    for label in (
        "rank 2 (latest)",
        "deviation by rank and step",
        "time to the end of each kernel",
        "late by 100 µs",
        "1. rank 2 has later launches",
    ):
        assert label in text


def test_the_heat_map_of_many_ranks_shows_a_single_late_rank_and_a_single_early_one() -> None:
    deviations = np.zeros((960, 3))
    deviations[123, 1], deviations[126, 1], deviations[500, 2] = 0.5, -0.4, -0.7
    deviations[700:706] = np.nan
    rows = picture.largest_deviations(deviations, 6)
    assert rows.shape == (160, 3)
    assert rows[123 // 6, 1] == 0.5
    assert rows[126 // 6, 1] == -0.4
    assert rows[500 // 6, 2] == -0.7
    assert np.isnan(rows).sum() == 0  # 4 ranks of the row 696 to 701 have the steps, and 2 of the next row
    assert np.count_nonzero(rows) == 3
    assert np.isnan(picture.largest_deviations(deviations[690:710], 5)[2:3]).all()


def test_the_heat_map_is_white_at_no_deviation_and_has_the_values_of_few_ranks(report: roofmodel.JitterReport) -> None:
    figure = Figure()
    axes = figure.add_subplot()
    picture._heat_map(figure, axes, report.analyzed)
    (image,) = axes.images
    early, none, late = image.to_rgba(np.array([[-1e-4, 0, 1e-4]]))[0]
    assert min(none) > 0.95  # red, green, blue and alpha
    assert late[0] > late[2]
    assert early[0] < early[2]
    assert axes.texts[8].get_text() == "+136 µs"  # rank 2 in the first of 4 steps


def test_the_late_ranks_next_to_the_heat_map_are_few_and_do_not_cover_each_other() -> None:
    deviations = np.random.default_rng(1).normal(0, 1e-5, (960, 50))
    for rank in (17, 123, 392, 400, *range(640, 648)):
        deviations[rank] += 2.4e-4
    deviations[400] += 1e-4  # its name and that of 392 cover each other: the later rank is named
    assert sorted(picture.latest_ranks(deviations)) == [(17, 17), (123, 123), (400, 400), (640, 647)]
    noise = np.random.default_rng(2).normal(0, 1e-5, (960, 50))
    assert len(picture.latest_ranks(noise)) <= picture.MAX_LABELS
    assert picture.latest_ranks(np.zeros((4, 2))) == []


def test_the_caption_states_that_a_row_of_the_heat_map_shows_several_ranks(
    report: roofmodel.JitterReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report.save(tmp_path / "all.svg")
    assert "each row shows" not in (tmp_path / "all.svg").read_text()
    monkeypatch.setattr(picture, "MAX_MAP_ROWS", 2)
    report.save(tmp_path / "two.svg")
    text = (tmp_path / "two.svg").read_text()
    assert "each row shows 2 ranks by their deviation with the largest absolute value" in text
    assert "largest of 2 ranks" in text


def test_the_page_has_the_latest_ranks_if_it_cannot_have_all(
    report: roofmodel.JitterReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "MAX_PAGE_ROWS", 2)
    roofmodel.JitterReport(report.analyzed).save(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    table = text[text.index("<h2>Ranks</h2>") : text.index("<h2>Steps</h2>")]
    means = [rank["mean_deviation_seconds"] for rank in report.to_dict()["ranks"]]
    assert [rank for rank in range(4) if f">{rank}: GPU " in table] == sorted(np.argsort(means)[2:])
    assert text.count("and 2 more with smaller deviations") == 2  # ranks, and steps


def test_the_page_prints_each_finding_once(report: roofmodel.JitterReport, tmp_path: Path) -> None:
    """The page lists the findings; its picture has no second copy."""
    text = report.save(tmp_path / "a.html").read_text(encoding="utf-8")
    for finding in report.findings:
        assert text.count(finding[:40]) == 1, finding


def test_a_collective_does_not_flatten_the_cause_in_the_picture(report: roofmodel.JitterReport, tmp_path: Path) -> None:
    """Gaps of +18 us are the cause; the waits of about -140 us in collectives, which follow from it, are not drawn."""
    text = report.save(tmp_path / "a.svg").read_text(encoding="utf-8")
    title = text.index("(latest), by kernel")
    assert "+15 µs" in text[title - 20_000 : title]
    assert "-140 µs" not in text


def test_an_axis_of_zeros_spans_microseconds(report: roofmodel.JitterReport, tmp_path: Path) -> None:
    curves = report.analyzed.curves
    assert curves is not None
    zeros = curves.deviations._replace(launch_to_start=np.zeros_like(curves.deviations.gaps))
    analyzed = replace(report.analyzed, curves=curves._replace(deviations=zeros))
    picture.draw(analyzed, tmp_path / "a.svg", "svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "ms</text>" not in text  # the other deviations are below 200 µs
    assert "+1 µs</text>" in text


def test_the_picture_shows_the_parts_of_the_latest_and_of_the_earliest_rank(
    report: roofmodel.JitterReport, tmp_path: Path
) -> None:
    step = max(report.to_dict()["steps"], key=lambda step: step["deviation_seconds"])
    text = report.save(tmp_path / "a.svg").read_text(encoding="utf-8")
    for which in ("latest", "earliest"):
        assert f"rank {step[f'{which}_rank']} ({which}), by kernel" in text
