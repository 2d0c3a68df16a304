"""The rows of a timeline: every event of the run once, in lanes without overlap, with the calls that launch it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.trace import intervals
from roofmodel.trace.timeline_rows import COPIES, IDLE, NO_TIME, STREAM, THREAD, TimelineRow, lanes, timeline_rows
from roofmodel.trace.trace import RunAnalysis, trace
from tests.profiles.samples import measured
from tests.trace.runs import MAIN, analyzed, event, launched, written


@pytest.fixture(scope="module")
def two_ranks() -> RunAnalysis:
    return trace([str(measured("traces/nsys/two_ranks_training_h100.sqlite"))])


def rows_of(rows: list[TimelineRow], *kinds: str) -> list[TimelineRow]:
    return [row for row in rows if row.kind in kinds]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=30))
def test_events_of_one_lane_do_not_overlap(events: list[tuple[int, int]]) -> None:
    events.sort(key=lambda each: (each[0], -each[1]))
    starts = np.array([start for start, _ in events], np.int64)
    ends = starts + np.array([length for _, length in events], np.int64)
    found = lanes(starts, ends)
    for lane in set(found.tolist()):
        in_lane = found == lane
        assert (ends[in_lane][:-1] <= starts[in_lane][1:]).all()
    concurrent = [int(((starts <= time) & (np.maximum(ends, starts + 1) > time)).sum()) for time in starts.tolist()]
    assert max(found, default=-1) + 1 == max(concurrent, default=0)  # no more lanes than events at one time


def test_the_lane_of_a_nested_call_is_its_depth() -> None:
    # one call from 0 to 100, in it 10 to 40 with 10 to 20, and 50 to 90
    starts, ends = np.array([0, 10, 10, 50, 100]), np.array([100, 40, 20, 90, 110])
    assert lanes(starts, ends).tolist() == [0, 1, 2, 1, 0]


def test_the_rows_have_each_event_of_the_run_once(two_ranks: RunAnalysis) -> None:
    found, rows = two_ranks, timeline_rows(two_ranks).rows
    work = sum(len(report.rank.work) for report in found.ranks)
    assert sum(len(row.events.start) for row in rows_of(rows, STREAM, COPIES)) == work
    timeline = found.ranks[0].rank.timeline
    cpu = len(timeline.calls) + len(timeline.operators) + len(timeline.ranges)
    assert sum(len(row.events.start) for row in rows_of(rows, THREAD)) == cpu
    for report, row in zip(found.ranks, rows_of(rows, IDLE), strict=True):
        assert (row.events.end - row.events.start).sum() == intervals.length(report.rank.idle)


def test_each_launched_kernel_has_the_call_of_its_launch(two_ranks: RunAnalysis) -> None:
    found, rows = two_ranks, timeline_rows(two_ranks).rows
    calls = {
        number: start
        for row in rows_of(rows, THREAD)
        for number, start in zip(row.events.call.tolist(), row.events.start.tolist(), strict=True)
        if number >= 0
    }
    launched_work = 0
    for row in rows_of(rows, STREAM, COPIES):
        known = row.events.launch != NO_TIME
        launched_work += int(known.sum())
        assert [calls[number] for number in row.events.call[known].tolist()] == row.events.launch[known].tolist()
    assert launched_work == sum(int((report.rank.work["launch_start"] >= 0).sum()) for report in found.ranks)


def test_threads_that_launch_come_first_and_others_are_marked(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path,
        event("cpu_op", "fetch", 0, 500, thread=1),
        event("cpu_op", "aten::mm", 40, 60),
        launched("gemm", 100, 200, 50),
    )
    threads = rows_of(timeline_rows(found).rows, THREAD)
    assert [(row.label, row.launches) for row in threads] == [(f"thread {MAIN}", True), ("thread 1", False)]


def test_concurrent_kernels_of_one_stream_have_two_lanes_and_copies_their_own_row(tmp_path: Path) -> None:
    found = analyzed(
        tmp_path,
        launched("a", 100, 200, 50),
        launched("b", 150, 250, 60),
        launched("Memcpy HtoD (Pinned -> Device)", 160, 170, 70, category="gpu_memcpy", bytes=1000),
        launched("c", 100, 200, 55, stream=20),
    )
    rows = [row for row in timeline_rows(found).rows if row.kind in (STREAM, COPIES)]
    assert [(row.label, row.events.lane.tolist()) for row in rows] == [
        ("stream 7", [0, 1]), ("stream 20", [0]), ("copies host to GPU", [0]),
    ]  # fmt: skip
    assert rows[2].events.bytes.tolist() == [1000]


def test_a_limit_keeps_the_longest_events_and_counts_the_others(tmp_path: Path) -> None:
    kernels = [launched(f"k{i}", 100 * i + 50, 100 * i + 60 + i, 100 * i) for i in range(8)]  # 10 to 17 us
    found = analyzed(tmp_path, *kernels)
    # 8 kernels and 7 stretches of idle time of more than 80 us between them, then the CUDA calls
    rows = timeline_rows(found, max_events=12)
    gpu = rows_of(rows.rows, STREAM)[0].events
    assert (gpu.end - gpu.start).tolist() == [13_000, 14_000, 15_000, 16_000, 17_000]
    assert rows.short == 3 + 8  # three kernels, and all calls, of 2 us
    assert rows.longest_short == 12_000
    assert timeline_rows(found, max_events=23).short == 0


def test_selected_steps_leave_out_cpu_events_of_other_steps(tmp_path: Path) -> None:
    steps = [event("user_annotation", f"ProfilerStep#{i}", 1000 * i, 1000 * i + 990) for i in range(4)]
    kernels = [launched("k", 1000 * i + 100, 1000 * i + 300, 1000 * i + 50) for i in range(4)]
    path = written(tmp_path, *steps, *kernels)
    (thread,) = rows_of(timeline_rows(trace([path], steps_range="1:2")).rows, THREAD)
    assert len(thread.events.start) == 2  # the mark of step 1, and its launch


def test_calls_of_two_files_have_different_numbers(tmp_path: Path) -> None:
    paths = [written(tmp_path, launched("k", 100, 200, 50), name=f"{name}.json") for name in ("a", "b")]
    rows = rows_of(timeline_rows(trace(paths)).rows, STREAM)
    assert [row.events.call.tolist() for row in rows] == [[0], [1]]
