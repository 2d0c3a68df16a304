"""Runs side by side, and the groups over all ranks of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import roofmodel
from roofmodel.trace.command import TraceReport
from tests.printing import printed
from tests.trace.runs import Event, launched, written

DATA = Path(__file__).parents[1] / "data" / "gpu" / "h100"


def run_on(gpus: int, step: float, gemm: float, folder: Path, per_gpu: int = 4) -> str:
    """A run of one step: on each GPU `per_gpu` GEMMs of `gemm` us, and a collective until `step` us."""
    events: list[list[Event]] = []
    for device in range(gpus):
        starts = [10 + number * (gemm + 1) for number in range(per_gpu)]
        events += [launched("gemm", start, start + gemm, 1, device=device) for start in starts]
        events += [launched("ncclDevKernel_AllReduce", starts[-1] + gemm, 10 + step, 2, device=device)]
    return written(folder, *events, name=f"{gpus}-{step}-{per_gpu}.json")


def test_more_gpus_with_as_much_work_each_are_compared_by_throughput(tmp_path: Path) -> None:
    files = [run_on(1, 1000, 200, tmp_path), run_on(2, 1250, 200, tmp_path), run_on(4, 1600, 200, tmp_path)]
    runs = roofmodel.trace(*files).to_dict()["runs"]
    assert [run["ranks"] for run in runs] == [1, 2, 4]
    assert [run["work"] for run in runs] == ["first", "same_per_gpu", "same_per_gpu"]
    assert [run["speedup"] for run in runs] == pytest.approx([1, 2 * 1000 / 1250, 4 * 1000 / 1600])


def test_the_same_work_divided_among_more_gpus_is_compared_by_time(tmp_path: Path) -> None:
    files = [run_on(1, 1000, 200, tmp_path), run_on(2, 600, 200, tmp_path, 2), run_on(4, 400, 200, tmp_path, 1)]
    runs = roofmodel.trace(*files).to_dict()["runs"]
    assert [run["work"] for run in runs] == ["first", "same", "same"]
    assert [run["speedup"] for run in runs] == pytest.approx([1, 1000 / 600, 1000 / 400])


def test_a_run_with_other_work_has_no_speedup_and_is_the_first_finding(tmp_path: Path) -> None:
    files = [run_on(1, 1000, 200, tmp_path), run_on(1, 1100, 200, tmp_path), run_on(1, 500, 200, tmp_path, 2)]
    report = roofmodel.trace(*files)
    assert [run["work"] for run in report.to_dict()["runs"]] == ["first", "same", "different"]
    assert report.to_dict()["runs"][2]["speedup"] is None
    assert report.findings[0].startswith("run 3 against run 1: the runs do not do the same work")
    lines = printed(report, 120).splitlines()
    assert next(i for i, line in enumerate(lines) if "same work" in line) < 6


def test_the_groups_of_the_runs_sum_to_their_work(tmp_path: Path) -> None:
    files = [run_on(gpus, 1000 + gpus, 200, tmp_path) for gpus in (1, 2, 4)]
    for run in roofmodel.trace(*files, by="name").to_dict()["runs"]:
        assert sum(group["seconds"] for group in run["groups"]) == pytest.approx(run["work_seconds"])
        assert sum(run["parts"].values()) == pytest.approx(run["wall_seconds"])


@pytest.fixture(scope="module")
def loaders() -> TraceReport:
    """Steps of ResNet-50 with 0, 1 and 4 workers of the data loader."""
    return roofmodel.trace(*(DATA / f"trace-loader-{workers}.json.gz" for workers in (0, 1, 4)))


def test_more_workers_do_the_same_work_in_less_idle_time(loaders: TraceReport) -> None:
    runs = loaders.to_dict()["runs"]
    assert [run["work"] for run in runs] == ["first", "same", "same"]
    step = [run["step_seconds"] for run in runs]
    assert [run["speedup"] for run in runs] == pytest.approx([step[0] / each for each in step])
    waiting = [run["idle_by_cause"]["input"] for run in runs]
    assert waiting == sorted(waiting, reverse=True)


def test_formats_and_kernels_may_differ_where_the_flops_are_equal() -> None:
    settings = ("fp32-NCHW", "fp16-NCHW", "fp16-NHWC")
    report = roofmodel.trace(*(DATA / f"trace-resnet50-{each}.json.gz" for each in settings))
    assert [run["work"] for run in report.to_dict()["runs"]] == ["first", "same", "same"]


def test_findings_of_three_runs_are_in_the_order_of_their_seconds(loaders: TraceReport) -> None:
    seconds = [finding["seconds"] for finding in loaders.to_dict()["findings"]]
    assert len(seconds) > 2
    assert seconds == sorted(seconds, reverse=True)


def test_names_of_one_run_do_not_hide_those_of_the_others(tmp_path: Path) -> None:
    """Six names in each run, all other ones; those of the first two runs are longer than those of the third."""
    files = []
    for run, time in enumerate((300, 200, 10)):
        starts = [100 + 400 * place for place in range(6)]
        events = [launched(f"run{run}_name{place}", at, at + time, at - 9) for place, at in enumerate(starts)]
        files.append(written(tmp_path, *events, name=f"{run}.json"))
    for top, each in ((6, 2), (1, 1)):  # a column for each run, if only one name is wanted
        text = printed(roofmodel.trace(*files, top=top), 120)
        table = text[text.index("GPU work by name") :]
        assert all(table.count(f"run{run}_name") == each for run in range(3))
        assert "run 3" in table.splitlines()[1]


def test_the_picture_has_a_bar_for_each_run_and_group(loaders: TraceReport, tmp_path: Path) -> None:
    text = loaders.save(tmp_path / "runs.svg").read_text(encoding="utf-8")
    title = "trace-loader-0.json.gz, trace-loader-1.json.gz, trace-loader-4.json.gz"
    labels = "run 1: trace-loader-0", "run 3: trace-loader-4", "GPU work by group, time per GPU", "copy HtoD"
    for label in (title, "3 runs", *labels):
        assert label in text


# --- Groups over the ranks of a run -----------------------------------------------------------------


def test_the_groups_of_all_ranks_come_before_a_line_for_each_rank() -> None:
    report = roofmodel.trace("examples/four_ranks_by_hand.csv")
    text = printed(report, 120)
    assert text.index("GPU work by group, all ranks") < text.index("0: GPU 0")
    assert len(text.splitlines()) < 50
    gemm = [row["seconds"] for row in report.to_dict()["groups"] if row["group"] == "GEMM"]
    (run,) = report.analyzed.runs
    merged = next(row for row in run.groups if row.group == "GEMM")
    assert merged.seconds == pytest.approx(sum(gemm))
    assert (merged.least[0], merged.most[0]) == (min(gemm), max(gemm))


def test_the_late_rank_is_not_the_one_that_waits() -> None:
    """By hand: rank 2 launches its last kernels 180 us late, see the README of the examples."""
    findings = [each for each in roofmodel.trace("examples/four_ranks_by_hand.csv").findings if "last" in each]
    (text,) = (each for each in findings if "starts 4 of 8 collectives last" in each)
    assert text.startswith("GPU 2, process rank 2 starts")
    assert "GPU 1, process rank 1 waits" in text
