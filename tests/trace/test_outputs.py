"""Table, JSON, CSV and picture of `roof trace`, on the trace written by hand; two ranks on a real export."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.errors import ProfileError
from roofmodel.trace import timeline_page
from roofmodel.trace.parts import largest_part
from tests.printing import MAGIC, printed
from tests.profiles.samples import measured
from tests.trace.runs import event, launched, written

EXAMPLE = Path(__file__).parents[2] / "examples" / "training_by_hand.json"
# contract: roofmodel.trace/1
RANK = [
    "rank",
    "file",
    "process",
    "device",
    "kernels",
    "kernel_seconds",
    "busy_seconds",
    "span_seconds",
    "compute_seconds",
    "communication_seconds",
    "communication_exposed_seconds",
    "communication_overlap",
    "copies",
    "idle_seconds",
    "idle_by_cause",
    "launch_to_start_median_seconds",
]
COPIES = ["kind", "memory", "count", "bytes", "seconds", "bytes_per_second"]
STEP = ["rank", "step", "start_seconds", "seconds", "compute_only", "communication_exposed", "copies_exposed", "idle"]


@pytest.fixture(scope="module")
def report() -> roofmodel.TraceReport:
    return roofmodel.trace(EXAMPLE)


def test_the_document_has_the_keys_of_the_contract(report: roofmodel.TraceReport) -> None:
    document = report.to_dict()
    assert document["schema"] == "roofmodel.trace/1"
    (rank,) = document["ranks"]
    assert set(RANK) <= set(rank)
    assert set(COPIES) <= set(rank["copies"][0])
    assert all({"rank", "group", "kernels", "seconds", "share"} <= set(row) for row in document["groups"])
    assert all(set(STEP) <= set(row) for row in document["steps"])
    assert all({"kind", "seconds", "text"} == set(finding) for finding in document["findings"])
    assert [row["device"] for row in document["top"]] == ["0"] * 5


def test_the_figures_of_the_rank_follow_from_the_events(report: roofmodel.TraceReport) -> None:
    (rank,) = report.to_dict()["ranks"]
    # per step: GEMMs 1.4 and 2.5 ms, all-reduce 1.5 ms with 0.5 ms under a GEMM, optimizer 0.3 ms; four steps
    assert rank["kernel_seconds"] == pytest.approx(4 * 5.7e-3)
    assert rank["busy_seconds"] == pytest.approx(4 * 5.2e-3)
    assert rank["compute_seconds"] == pytest.approx(4 * 4.2e-3)
    assert rank["communication_exposed_seconds"] == pytest.approx(4 * 1e-3)
    assert rank["communication_overlap"] == pytest.approx(1 / 3)
    assert rank["span_seconds"] == pytest.approx(35.2e-3)  # 4.6 ms to 39.8 ms
    assert rank["compute_only_seconds"] == pytest.approx(4 * 3.7e-3)  # 4.2 ms without 0.5 ms under the all-reduce
    assert rank["overlap_seconds"] == pytest.approx(4 * 0.5e-3)
    (copies,) = rank["copies"]
    assert (copies["kind"], copies["memory"], copies["count"], copies["bytes"]) == ("HtoD", "pageable", 4, 20_000_000)
    assert copies["bytes_per_second"] == pytest.approx(10e9)
    # 16 M floats among four ranks: 64 MiB in 1.5 ms, of which 2 x 3/4 pass each link
    (reduce,) = rank["collectives"]
    assert reduce["bus_bytes_per_second"] == pytest.approx(1.5 * 2**26 / 1.5e-3)


@pytest.mark.parametrize("file", ["nsys/one_kernel_rtx_a4500.sqlite", "nsys/two_ranks_training_h100.sqlite"])
def test_the_parts_of_a_rank_sum_to_its_wall_time(file: str) -> None:
    for rank in roofmodel.trace(measured(f"traces/{file}")).to_dict()["ranks"]:
        parts = ("compute_only", "communication_exposed", "copies_exposed", "overlap", "idle")
        assert sum(rank[f"{part}_seconds"] for part in parts) == pytest.approx(rank["wall_seconds"])
        assert rank["span_seconds"] <= rank["wall_seconds"]
        gaps = (rank["mean_gap_seconds"] or 0) * (rank["kernels"] - 1)  # none with one kernel
        assert gaps + rank["busy_seconds"] == pytest.approx(rank["span_seconds"])


def test_without_gpu_work_the_page_says_so_and_a_picture_is_refused(tmp_path: Path) -> None:
    report = roofmodel.trace(written(tmp_path, event("cpu_op", "aten::mm", 0, 10)))
    assert "no GPU work" in printed(report, 80)
    page = report.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "No GPU work" in page
    assert "omputation takes most" not in page
    with pytest.raises(ProfileError, match="no GPU work"):
        report.save(tmp_path / "steps.png")
    assert not (tmp_path / "steps.png").exists()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_answers_first_and_fits_the_terminal(report: roofmodel.TraceReport, width: int) -> None:
    lines = printed(report, width).splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("training_by_hand.json: 1 rank on NVIDIA Tesla V100")
    findings = " ".join(lines[1:8])
    assert "the input pipeline limits the run" in findings
    assert "DataLoader(num_workers=1)" in findings


def test_the_table_names_the_ranks_of_a_run_with_several() -> None:
    text = printed(roofmodel.trace(measured("traces/nsys/two_ranks_training_h100.sqlite")), 120)
    assert "2 ranks" in text
    assert "0: GPU 0, process 144" in text
    assert "1: GPU 1, process 145" in text


def test_csv_has_a_line_per_group(report: roofmodel.TraceReport) -> None:
    rows = list(csv.DictReader(io.StringIO(report.text("csv"))))
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1)
    assert len(rows) == len(report.to_frame())


@pytest.mark.parametrize(("suffix", "magic"), MAGIC.items())
def test_the_picture_is_written(report: roofmodel.TraceReport, suffix: str, magic: bytes, tmp_path: Path) -> None:
    path = report.save(tmp_path / f"steps.{suffix}")
    assert path.read_bytes().startswith(magic)


def test_the_svg_names_its_parts_and_steps(report: roofmodel.TraceReport, tmp_path: Path) -> None:
    text = report.save(tmp_path / "steps.svg").read_text(encoding="utf-8")
    for label in ("compute alone", "communication exposed", "copies exposed", "idle", "step 0", "step 3"):
        assert label in text


def test_steps_are_rows_of_a_frame(report: roofmodel.TraceReport) -> None:
    frame = report.steps_frame()
    parts = frame[["compute_only", "communication_exposed", "copies_exposed", "overlap", "idle"]]
    assert parts.sum(axis=1).tolist() == pytest.approx(frame["seconds"].tolist())


# --- Runs without findings --------------------------------------------------------------------------


def summaries(found: Any) -> tuple[str, str]:
    """The terminal's text and the timeline page."""
    return " ".join(printed(found, 200).split()), timeline_page.html(found.analyzed)[0]


def test_the_largest_part_of_an_idle_run_has_its_main_cause_and_is_a_finding() -> None:
    """By hand: nvprof's kernels of the Tegra X1 run 0.25 s of 6.7797 s (10.042346 s to 16.822047 s)."""
    text = "idle time takes most of the wall time: 6.53 s of 6.78 s (96%), main cause: unknown"
    found = roofmodel.trace(measured("traces/nvprof/nvprof_gputrace_tegraX1.csv"))
    assert largest_part(found.analyzed.ranks) == text
    for summary in summaries(found):
        assert "the GPU idles 6.53 s of 6.78 s (96%) for an unknown reason" in summary


def test_a_run_that_only_computes_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, launched("a", 100, 200, 10), launched("b", 201, 300, 20))
    for text in summaries(roofmodel.trace(path)):
        assert "omputation takes most of the wall time: 199 us of 200 us (100%)" in text.replace("µ", "u")


def test_wall_time_of_selected_steps_leaves_out_the_time_between_them(tmp_path: Path) -> None:
    marks = [event("user_annotation", f"ProfilerStep#{i}", 1000 * i, 1000 * i + 500) for i in range(3)]
    work = [launched("gemm", 1000 * i + 100, 1000 * i + 300, 1000 * i + 50) for i in range(3)]
    (rank,) = roofmodel.trace(written(tmp_path, *marks, *work), steps="0:2").to_dict()["ranks"]
    assert rank["wall_seconds"] == pytest.approx(1e-3)  # two steps of 500 us; 500 us between them
    assert rank["compute_only_seconds"] + rank["idle_seconds"] == pytest.approx(rank["wall_seconds"])


def test_a_step_without_gpu_work_does_not_claim_computation(tmp_path: Path) -> None:
    marks = [event("user_annotation", f"ProfilerStep#{i}", 1000 * i, 1000 * (i + 1)) for i in range(3)]
    path = written(tmp_path, *marks, launched("a", 100, 900, 10), launched("b", 2100, 2900, 2010))
    for text in summaries(roofmodel.trace(path, steps="1:2")):
        assert "omputation takes most" not in text


@pytest.mark.parametrize("by", ["group", "stream", "name"])
def test_the_picture_has_idle_time_by_cause_and_gpu_work_by_the_given_grouping(by: Any, tmp_path: Path) -> None:
    report = roofmodel.trace("examples/training_by_hand.json", by=by)
    text = report.save(tmp_path / "a.svg").read_text(encoding="utf-8")
    assert f"GPU work by {by}" in text
    assert "idle: data loader" in text
    longest = report.to_dict()["groups"][0]["group"]
    assert longest[:20] in text


# --- Words ------------------------------------------------------------------------------------------


def test_one_cut_step_and_one_kernel_are_in_the_singular(tmp_path: Path) -> None:
    found = roofmodel.trace(
        written(tmp_path, *(launched("k", 100 * n, 100 * n + 90, 100 * n - 5) for n in range(1, 13)))
    )
    text = printed(found, 120)
    assert "11 steps of rank 0" in text  # the end of the trace cuts the twelfth
    assert "mean 100 µs, 1 kernel\n" in text
    assert any("1 step is cut" in str(warning) for warning in found.warnings)


@pytest.mark.parametrize(("gaps", "is_set_up"), [(1, True), (5, False)])
def test_one_long_gap_inside_an_operator_is_probably_set_up(gaps: int, is_set_up: bool, tmp_path: Path) -> None:
    """Kernels of 10 us, then for each gap an operator that works 900 us before it launches."""
    events = [launched("k", 10, 20, 5)]
    for start in range(20, 20 + 1000 * gaps, 1000):
        events += [
            [event("cpu_op", "my::op", start, start + 910)],
            launched("k", start + 905, start + 1000, start + 900),
        ]
    (text,) = roofmodel.trace(written(tmp_path, *events)).findings
    assert "my::op" in text
    assert ("Probably set-up at its first call: start the profiler after a warm-up" in text) == is_set_up
    assert ("in another thread" in text) != is_set_up
