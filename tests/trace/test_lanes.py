"""The lanes of a run: every event once, with the call that launches it; copies between ranks; where findings are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from roofmodel.trace import intervals, lanes
from roofmodel.trace.lanes import COPIES, IDLE, NO_TIME, PEERS, STEPS, STREAM, THREAD, Lane
from roofmodel.trace.tables import OUTSIDE
from roofmodel.trace.trace import RunAnalysis, trace
from tests.profiles.samples import measured
from tests.trace.runs import MAIN, analyzed, event, launched, written

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "training_by_hand.json")


@pytest.fixture(scope="module")
def two_ranks() -> RunAnalysis:
    return trace([str(measured("traces/nsys/two_ranks_training_h100.sqlite"))])


def lanes_of(found: RunAnalysis, *kinds: str) -> list[Lane]:
    return [lane for section in lanes.sections(found) for lane in section.lanes if lane.kind in kinds]


def length(lane: Lane) -> int:
    return int((lane.spans["end"] - lane.spans["start"]).sum())


def test_the_lanes_have_each_event_of_the_run_once(two_ranks: RunAnalysis) -> None:
    work = sum(len(report.rank.work) for report in two_ranks.ranks)
    assert sum(len(lane.spans) for lane in lanes_of(two_ranks, STREAM, COPIES)) == work
    timeline = two_ranks.ranks[0].rank.timeline
    cpu = len(timeline.calls) + len(timeline.operators) + len(timeline.ranges)
    assert sum(len(lane.spans) for lane in lanes_of(two_ranks, THREAD)) == cpu
    for report, lane in zip(two_ranks.ranks, lanes_of(two_ranks, IDLE), strict=True):
        assert length(lane) == intervals.length(report.rank.idle)  # its steps do not extend beyond the GPU work


def test_spans_are_sorted_by_start_and_enclosing_ones_come_first(two_ranks: RunAnalysis) -> None:
    for lane in lanes_of(two_ranks, STEPS, IDLE, STREAM, COPIES, THREAD):
        order = [*zip(lane.spans["start"], -lane.spans["end"], strict=True)]
        assert order == sorted(order)


def test_each_launched_kernel_has_the_call_of_its_launch(two_ranks: RunAnalysis) -> None:
    calls = {
        number: start
        for lane in lanes_of(two_ranks, THREAD)
        for number, start in zip(lane.spans["call"], lane.spans["start"], strict=True)
        if number >= 0
    }
    launches = 0
    for lane in lanes_of(two_ranks, STREAM, COPIES):
        known = lane.spans[lane.spans["launch"] != NO_TIME]
        launches += len(known)
        assert [calls[number] for number in known["call"]] == known["launch"].tolist()
    assert launches == sum(int((report.rank.launches >= 0).sum()) for report in two_ranks.ranks)


def test_calls_of_two_files_have_different_numbers(tmp_path: Path) -> None:
    paths = [written(tmp_path, launched("k", 100, 200, 50), name=f"{name}.json") for name in ("a", "b")]
    assert [lane.spans["call"].tolist() for lane in lanes_of(trace(paths), STREAM)] == [[0], [1]]


def test_threads_that_launch_come_first(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path,
        event("cpu_op", "fetch", 0, 500, thread=1),
        event("cpu_op", "aten::mm", 40, 60),
        launched("gemm", 100, 200, 50),
    )
    threads = lanes_of(found, THREAD)
    assert [(lane.label, (lane.spans["call"] >= 0).any()) for lane in threads] == [
        (f"thread {MAIN}", True), ("thread 1", False),
    ]  # fmt: skip


def test_copies_have_lanes_of_their_own_and_collectives_their_kind(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path,
        launched("a", 100, 200, 50),
        launched("Memcpy HtoD (Pinned -> Device)", 160, 170, 70, category="gpu_memcpy", bytes=1000),
        launched("ncclDevKernel_AllReduce_Sum_f32", 100, 200, 55, stream=20),
    )
    work = lanes_of(found, STREAM, COPIES)
    assert [(lane.label, *lane.spans["kind"]) for lane in work] == [
        ("stream 7", "compute"), ("stream 20", "communication"), ("copies host to GPU", "copy"),
    ]  # fmt: skip
    assert work[2].spans["bytes"].tolist() == [1000]


def test_selected_steps_leave_out_cpu_events_of_other_steps(tmp_path: Path) -> None:
    steps = [event("user_annotation", f"ProfilerStep#{i}", 1000 * i, 1000 * i + 990) for i in range(4)]
    kernels = [launched("k", 1000 * i + 100, 1000 * i + 300, 1000 * i + 50) for i in range(4)]
    path = written(tmp_path, *steps, *kernels)
    (thread,) = lanes_of(trace([path], steps_range="1:2"), THREAD)
    assert len(thread.spans) == 2  # the mark of step 1, and its launch


def test_idle_time_of_a_step_beyond_the_gpu_work_has_no_cause(tmp_path: Path) -> None:
    """The mark is from 0 to 2000 us, the GPU works from 100 to 300 us and from 400 to 1500 us."""
    marked = event("user_annotation", "ProfilerStep#1", 0, 2000)
    found = analyzed(tmp_path, marked, launched("a", 100, 300, 50), launched("b", 400, 1500, 60))
    (idle,) = lanes_of(found, IDLE)
    outside = idle.spans[idle.spans["kind"] == OUTSIDE]
    assert outside[["start", "end"]].to_numpy().tolist() == [[-100_000, 0], [1_400_000, 1_900_000]]  # ns from 100 us
    assert length(idle) == 2_000_000 - 200_000 - 1_100_000


# --- Copies between ranks ---------------------------------------------------------------------------


def peer_copy(source: int, destination: int, recorded_on: int, start: float) -> list[dict[str, object]]:
    return launched(
        "Memcpy PtoP (Device -> Device)", start, start + 10, start - 5, device=recorded_on, category="gpu_memcpy",
        bytes=64, fromDevice=source, toDevice=destination,
    )  # fmt: skip


@pytest.mark.parametrize("recorded_on", [0, 1])
def test_a_copy_between_two_ranks_is_in_the_lanes_of_both(recorded_on: int, tmp_path: Path) -> None:
    """From GPU 0 to GPU 1; a tool records it on either of them."""
    kernels = [launched("k", 100, 200, 50, device=device) for device in (0, 1)]
    found = analyzed(tmp_path, *kernels, peer_copy(0, 1, recorded_on, 300))
    by_rank = {
        section.report.rank.device: {lane.kind: lane.spans for lane in section.lanes}
        for section in lanes.sections(found) if section.report is not None
    }  # fmt: skip
    recorded, other = by_rank[str(recorded_on)][COPIES], by_rank[str(1 - recorded_on)][PEERS]
    assert recorded["peer"].tolist() == other["peer"].tolist() == [0]
    assert (
        recorded[["start", "end", "bytes"]].to_numpy().tolist() == other[["start", "end", "bytes"]].to_numpy().tolist()
    )
    assert {str(recorded_on): recorded, str(1 - recorded_on): other}["0"]["sends"].tolist() == [True]
    assert {str(recorded_on): recorded, str(1 - recorded_on): other}["1"]["sends"].tolist() == [False]
    assert (other["call"] < 0).all()  # the launch is that of the recorded one


def test_a_copy_to_a_gpu_without_a_rank_is_in_one_lane_only(tmp_path: Path) -> None:
    found = analyzed(tmp_path, launched("k", 100, 200, 50), peer_copy(0, 3, 0, 300))
    (copies,) = lanes_of(found, COPIES, PEERS)
    assert (copies.kind, copies.spans["peer"].tolist()) == (COPIES, [-1])


# --- Findings ---------------------------------------------------------------------------------------


def test_a_finding_is_at_the_longest_interval_that_it_is_about(tmp_path: Path) -> None:
    """Of three gaps, in which the CPU fetches batches, the second one is the longest: from 400 to 900 us."""
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    gaps = ((200, 300), (400, 900), (1000, 1050))
    events = [launched("k", 100, 200, 90)]
    for start, end in gaps:
        events += [event("user_annotation", loader, start, end - 3), launched("k", end, end + 100, end - 3)]
    (marker,) = lanes.markers(analyzed(tmp_path, *events))
    assert (marker.kind, marker.number, marker.has_interval) == ("input_bound", 1, True)
    assert marker.time == (400 - 100) * 1000


def test_a_finding_on_kernels_is_at_the_start_of_its_rank() -> None:
    found = trace([str(measured("traces/torch/kineto_resnet50_v100_no_workers.json.gz"))])
    markers = {marker.kind: marker for marker in lanes.markers(found)}
    assert len(markers) == len(found.findings)
    assert (markers["no_tensor_cores"].time, markers["no_tensor_cores"].has_interval) == (0, False)


def test_a_finding_belongs_to_the_rank_that_it_names(two_ranks: RunAnalysis, tmp_path: Path) -> None:
    slow = [launched("k", 1000 * i + 5, 1000 * i + 300, 1000 * i) for i in range(5)]
    busy = [launched("k", 1000 * i + 5, 1000 * i + 1004, 1000 * i, device=1) for i in range(5)]
    for marker in lanes.markers(analyzed(tmp_path, *slow, *busy)):
        assert marker.text.startswith(marker.rank.label)
        assert marker.rank.device == "0"
    assert np.all([each.rank in [report.rank for report in two_ranks.ranks] for each in lanes.markers(two_ranks)])
