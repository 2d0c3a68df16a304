"""Table, JSON, CSV and picture of `roof trace`, on the trace written by hand; two ranks on a real export."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

import roofmodel
from roofmodel.errors import ProfileError
from roofmodel.report.html import html
from roofmodel.trace.answer import largest_part
from tests.browser import opened
from tests.printing import printed
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


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that is saved."""
    found: list[Figure] = []
    save = Figure.savefig

    def kept(self: Figure, *arguments: Any, **options: Any) -> None:
        found.append(self)
        save(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", kept)
    return found


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
    written_page = report.save(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "no GPU work" in written_page
    assert "omputation takes most" not in written_page
    with pytest.raises(ProfileError, match="no GPU work"):
        report.save(tmp_path / "steps.png")
    assert not (tmp_path / "steps.png").exists()


def test_the_table_answers_first(report: roofmodel.TraceReport) -> None:
    lines = printed(report, 80).splitlines()
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


def test_the_svg_names_its_parts_and_steps(report: roofmodel.TraceReport, tmp_path: Path) -> None:
    text = report.save(tmp_path / "steps.svg").read_text(encoding="utf-8")
    for label in (
        "compute alone",
        "communication exposed",
        "copies exposed",
        "idle",
        "step 0",
        "step 3",
        "1. the input pipeline",
    ):
        assert label in text


def test_the_bar_of_a_step_is_as_long_as_its_label_says(figures: list[Figure], tmp_path: Path) -> None:
    """The first step begins 4 ms before the GPU work of the file: its bar has them too."""
    found = roofmodel.trace(EXAMPLE)
    found.save(tmp_path / "steps.png")
    axes = figures[0].axes[0]
    ends = {text.get_text().split(",")[0].strip(): text.get_position()[0] for text in axes.texts}
    assert ends == {"10 ms": pytest.approx(10e-3)}
    lengths = [sum(bar.get_width() for bar in axes.patches if abs(bar.get_y() + 0.36 - place) < 0.1)  # type: ignore[attr-defined]
               for place in range(4)]  # fmt: skip
    assert lengths == pytest.approx(found.steps_frame()["seconds"].tolist())


def test_a_step_that_is_longer_than_its_gpu_work_has_one_length_in_text_and_picture(tmp_path: Path) -> None:
    """A step of 10 ms with one kernel from 2 to 8 ms: the GPU works 60% of the step, all of its own wall time."""
    mark = event("user_annotation", "ProfilerStep#0", 0, 10_000)
    found = roofmodel.trace(written(tmp_path, mark, launched("k", 2_000, 8_000, 1_990)))
    text = " ".join(printed(found, 120).split())
    assert "6 ms of 6 ms (100%). The steps last 4 ms longer, before the first or after the last GPU work" in text
    picture = found.save(tmp_path / "trace.svg").read_text(encoding="utf-8")
    assert "10 ms, 60% active" in picture
    assert "6 ms, " not in picture.replace("6 ms, 100%", "")  # only the group of the kernel has this length


def test_axes_of_time_start_at_zero_without_a_unit(figures: list[Figure], tmp_path: Path) -> None:
    roofmodel.trace(EXAMPLE).save(tmp_path / "steps.png")
    for axes in figures[0].axes:
        ticks = [label.get_text() for label in axes.get_xticklabels()]
        assert ticks[0] == "0"
        assert all(tick.endswith("ms") for tick in ticks[1:])


def test_the_picture_has_the_lanes_below_the_parts(figures: list[Figure], tmp_path: Path) -> None:
    roofmodel.trace(EXAMPLE).save(tmp_path / "steps.png")
    parts, timeline, groups = figures[0].axes
    assert timeline.get_title(loc="left") == "timeline of steps 1 and 2"
    shown = [label.get_text() for label in timeline.get_yticklabels() if label.get_text()]
    assert shown == ["steps", "idle, by cause", "stream 7", "stream 20", "copies host to GPU", "thread 100"]
    legend = timeline.get_legend()
    assert legend is not None
    meanings = {text.get_text() for each in (parts.get_legend(), legend) if each for text in each.get_texts()}
    assert {"computation", "communication", "copy", "idle: data loader", "CPU: data loader"} <= meanings
    assert groups.get_title(loc="left").startswith("GPU work by group")


def test_an_svg_has_a_role_and_a_text_for_screen_readers(report: roofmodel.TraceReport, tmp_path: Path) -> None:
    root = ElementTree.parse(report.save(tmp_path / "steps.svg")).getroot()
    assert root.get("role") == "img"
    assert (root.get("aria-label") or "").startswith("Where the time goes: training_by_hand.json on NVIDIA Tesla V100")
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text == "Where the time goes: training_by_hand.json on NVIDIA Tesla V100 SXM2 32 GB"


# --- Page -------------------------------------------------------------------------------------------

RUNS = {"one run": 1, "before and after": 2, "side by side": 3}


@pytest.mark.parametrize("number", RUNS.values(), ids=list(RUNS))
def test_a_page_has_findings_picture_and_tables_of_all_runs(number: int, chromium: Any, tmp_path: Path) -> None:
    for name in "abc"[:number]:
        (tmp_path / f"{name}.json").write_bytes(EXAMPLE.read_bytes())
    found = roofmodel.trace(*(tmp_path / f"{name}.json" for name in "abc"[:number]))
    path = found.save(tmp_path / "trace.html")
    with opened(chromium, path.as_uri()):
        (image,) = chromium.find_elements("css selector", "svg[role=img][aria-label]")
        assert "a.json" in image.get_attribute("aria-label")
        text = chromium.find_element("css selector", "body").text
        assert "the input pipeline limits the run" in text
        headings = [each.text for each in chromium.find_elements("css selector", "h2")]
        assert any(heading.startswith("GPU work by group") for heading in headings)
        rows = [row.text for row in chromium.find_elements("css selector", "tbody tr")]
        gemm = [row for row in rows if row.startswith("GEMM")]
        assert "15.6 ms" in gemm[0]  # 8 GEMMs: four times 1.4 ms + 2.5 ms
        assert not chromium.find_elements("css selector", "script")


def test_marks_have_the_numbers_of_the_listed_findings(figures: list[Figure], tmp_path: Path) -> None:
    """The last of three runs does other work, which has no number; the loader limits all of them."""
    document = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    fewer = [each for each in document["traceEvents"] if each.get("name") != "backward_gemm"]
    paths = [tmp_path / f"{name}.json" for name in "abc"]
    for path, events in zip(paths, (document["traceEvents"], document["traceEvents"], fewer), strict=True):
        path.write_text(json.dumps({**document, "traceEvents": events}), encoding="utf-8")
    found = roofmodel.trace(*paths)
    found.save(tmp_path / "trace.png")
    listed = [text.get_text() for text in figures[0].texts]
    assert len([text for text in listed if "do not do the same work" in text]) == 1
    numbered = [text for text in listed if text[:1].isdecimal()]
    assert sorted(text[:14] for text in numbered) == ["1. run 3, GPU ", "2. run 2, GPU "]  # of three lines
    marks = [text.get_text() for text in figures[0].axes[1].texts if text.get_text().startswith("▼")]
    assert sorted(marks) == ["▼ 1", "▼ 2"]
    lines = [line for line in printed(found, 200).splitlines() if line[:2] in ("1.", "2.")]
    assert [line[:14] for line in lines] == ["1. run 3, GPU ", "2. run 2, GPU "]


def test_steps_are_rows_of_a_frame(report: roofmodel.TraceReport) -> None:
    frame = report.steps_frame()
    parts = frame[["compute_only", "communication_exposed", "copies_exposed", "overlap", "idle"]]
    assert parts.sum(axis=1).tolist() == pytest.approx(frame["seconds"].tolist())


# --- Runs without findings --------------------------------------------------------------------------


def summaries(found: Any) -> tuple[str, str]:
    """The terminal's text and the page."""
    return " ".join(printed(found, 200).split()), html(found.complete())


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
