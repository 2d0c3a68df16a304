"""The lanes as axes of a picture: shares of columns, which steps, ranks and lanes are drawn, and how many artists."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from roofmodel.trace import lanes, timeline_axes
from roofmodel.trace.timeline_axes import TimelineView, view
from roofmodel.trace.trace import trace
from tests.profiles.samples import measured
from tests.trace.runs import Event, analyzed, event, launched, written

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "training_by_hand.json")
KINDS = (lanes.WAITING, lanes.LOADER, lanes.CALL, lanes.OPERATOR)  # the first one hides the others


def shown(found: Any) -> TimelineView:
    result = view(found, listed=3)
    assert result is not None
    return result


def labels(found: TimelineView) -> list[str]:
    return [row.label for row in found.rows]


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.sampled_from(KINDS)), max_size=12)


@given(spans)
def test_the_shares_of_columns_are_those_of_a_count_of_every_nanosecond(found: list[tuple[int, int, str]]) -> None:
    kind_at = [
        next(
            (kind for kind in KINDS if any(start <= at < start + size and kind == k for start, size, k in found)), None
        )
        for at in range(90)
    ]
    times = np.array([(start, start + size) for start, size, _ in found], np.int64).reshape(-1, 2)
    edges = np.arange(0, 91, 9)
    shares = timeline_axes._shares(times, np.array([kind for *_, kind in found], object), edges)
    for kind in KINDS:
        counted = [sum(at == kind for at in kind_at[low : low + 9]) / 9 for low in edges[:-1]]
        assert shares.get(kind, np.zeros(10)) == pytest.approx(counted)


# --- What is drawn ----------------------------------------------------------------------------------


def steps_of(*microseconds: float) -> list[Event | list[Event]]:
    """Steps of these lengths with a kernel of half their length."""
    events: list[Event | list[Event]] = []
    start = 0.0
    for number, length in enumerate(microseconds):
        events.append(event("user_annotation", f"ProfilerStep#{number}", start, start + length))
        events.append(launched("k", start + length / 4, start + length * 3 / 4, start + 1))
        start += length
    return events


def test_without_steps_option_two_steps_around_the_median_are_drawn(tmp_path: Path) -> None:
    # steps 0 and 5 extend beyond the GPU work; of 1 to 4, with 900, 100, 500 and 600 us, step 3 is the lower median
    found = shown(analyzed(tmp_path, *steps_of(300, 900, 100, 500, 600, 300)))
    assert found.title == "timeline of steps 3 and 4"
    assert found.across == "time from the start of step 3"
    assert found.length == (500 + 600) * 1000
    assert [name for row in found.rows for *_, name in row.steps] == ["step 3", "step 4"]
    # a quarter of step 3 later its kernel starts, and takes 250 us; the columns have 1100 us / COLUMNS each
    (stream,) = (row for row in found.rows if row.label == "stream 7")
    busy = stream.shares[lanes.COMPUTE] * found.length / timeline_axes.COLUMNS
    assert busy.sum() == pytest.approx((250 + 300) * 1000, rel=1e-3)
    assert np.flatnonzero(busy)[0] == int(125 / 1100 * timeline_axes.COLUMNS)


def test_the_selected_steps_are_drawn(tmp_path: Path) -> None:
    path = written(tmp_path, *steps_of(300, 900, 100, 500))
    found = shown(trace([path], steps_range="0:3"))
    assert found.title == "timeline of steps 0 to 2"
    assert found.length == (300 + 900 + 100) * 1000


def test_a_run_without_steps_is_drawn_as_a_whole(tmp_path: Path) -> None:
    found = shown(analyzed(tmp_path, launched("a", 100, 200, 50), launched("b", 450, 500, 440)))
    assert (found.title, found.across) == ("timeline of the run", "time from the first GPU activity")
    assert found.length == 400_000
    assert labels(found) == [
        "rank 0: GPU 0, process 42", "idle, by cause", "stream 7", "CPU, process 42", "thread 42",
    ]  # fmt: skip


def test_another_file_has_the_same_steps_if_it_has_them(tmp_path: Path) -> None:
    paths = [written(tmp_path, *steps_of(*each), name=f"{n}.json")
             for n, each in enumerate([(300, 900, 100, 500, 600, 300), (100, 110, 120, 200, 130, 100)])]  # fmt: skip
    found = shown(trace(paths))
    assert found.title == "timeline of steps 3 and 4"
    assert Counter(name for row in found.rows for *_, name in row.steps) == {"step 3": 2, "step 4": 2}


def test_of_many_ranks_and_streams_the_first_and_the_most_active_are_drawn(tmp_path: Path) -> None:
    """Stream n of each GPU works n us: 40 lanes of streams, of which the longest are drawn."""
    events = [
        launched(f"k{stream}", 100 * stream, 100 * stream + stream, 100 * stream - 5, device=device, stream=stream)
        for device in range(6) for stream in range(1, 41)
    ]  # fmt: skip
    found = shown(analyzed(tmp_path, *events))
    assert "not drawn: 2 ranks, " in found.title
    assert len([label for label in labels(found) if label.startswith("rank")]) == timeline_axes.MAX_RANKS
    assert "stream 40" in labels(found)
    assert "stream 1" not in labels(found)
    drawn = len([row for row in found.rows if row.kind])
    assert drawn == 28 + 1  # 7 lanes of each of 4 ranks, and the thread
    # of 4 ranks 40 streams and a lane of idle time each, and the launching thread
    assert found.title.endswith(f"{4 * 41 + 1 - drawn} less active lanes")


def test_a_kind_of_lanes_is_drawn_even_if_all_streams_are_more_active(tmp_path: Path) -> None:
    streams = [launched(f"k{n}", 10, 900, n / 100, stream=n) for n in range(60)]
    memset = launched("Memset (Device)", 950, 951, 940, category="gpu_memset", bytes=4)
    found = shown(analyzed(tmp_path, *streams, memset))
    assert labels(found)[-3] == "memsets"  # in the order of the lanes, before the CPU thread and its heading
    assert "idle, by cause" in labels(found)


def test_threads_that_launch_nothing_are_not_drawn(tmp_path: Path) -> None:
    fetch = event("cpu_op", "fetch", 0, 500, thread=77)
    assert "thread 77" not in labels(shown(analyzed(tmp_path, fetch, launched("a", 100, 200, 50))))


def test_findings_are_marked_in_their_rank() -> None:
    found = shown(trace([EXAMPLE]))
    assert [row.markers for row in found.rows if not row.kind] == [[(1, 0)], []]  # step 1 begins with the loader


# --- Artists ----------------------------------------------------------------------------------------


def test_a_hundred_thousand_kernels_are_a_few_artists(tmp_path: Path) -> None:
    few, many = (
        analyzed(tmp_path, *(launched("k", 10 * i + 5, 10 * i + 9, 10 * i, stream=i % 3) for i in range(number)))
        for number in (30, 20_000)
    )
    artists = []
    for found in (few, many):
        axes = Figure().add_axes((0, 0, 1, 1))
        drawn = shown(found)
        timeline_axes.draw(axes, drawn, pad=0)
        artists.append(len(axes.patches) + len(axes.collections) + len(axes.texts) + len(axes.lines))
        assert all(len(share) == timeline_axes.COLUMNS for row in drawn.rows for share in row.shares.values())
    assert artists[0] == artists[1] < 20


def test_a_real_run_is_drawn_with_hatches_that_differ() -> None:
    found = shown(trace([str(measured("traces/nsys/two_ranks_training_h100.sqlite"))]))
    styles = [(style.hatch, style.color) for style in found.styles if not style.label.startswith("CPU")]
    assert len({hatch for hatch, _ in styles}) == len({color for _, color in styles}) == len(styles) >= 6
