"""`roof trace A B`: recognition of two runs, sums of differences, and different work as the first finding."""

from __future__ import annotations

import csv
import io
import json
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roofmodel
from roofmodel.errors import RoofError
from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines.timeline import (
    COPY,
    KERNEL,
    RANGES,
    UNKNOWN,
    Timeline,
)
from roofmodel.report.checks import judge
from roofmodel.trace import steps
from roofmodel.trace.groups import GROUPINGS
from roofmodel.trace.ranks import Rank, ranks
from roofmodel.trace.several_runs.comparison import GroupChange, RunComparison, compare
from roofmodel.trace.trace import trace
from tests.printing import printed
from tests.profiles.samples import measured
from tests.trace.runs import STEP_TABLE, Event, event, launched, written

EXAMPLE = Path(__file__).parents[2] / "examples" / "training_by_hand.json"
NAMES = ("gemm_a", "gemm_b", "elementwise", "ncclDevKernel_AllReduce_Sum_f32", "[CUDA memcpy HtoD]")
Launch = tuple[int, str, int, int, bool]  # GPU, name, idle time before the launch, duration, on a second stream
LAUNCHES: st.SearchStrategy[list[Launch]] = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(NAMES), st.integers(0, 30), st.integers(0, 50), st.booleans()),
    max_size=25,
)


def timeline(launches: list[Launch], marks: int = 0) -> Timeline:
    """Consecutive launches with marks of steps; a launch on the second stream overlaps with the next one."""
    work, marked = KernelTable(), ColumnTable(RANGES)
    now = 0
    for gpu, name, idle, duration, second in launches:
        now += idle
        work.add(
            kind=COPY if "memcpy" in name else KERNEL, start=now, end=now + duration, device=str(gpu), name=name,
            stream="13" if second else "7", launch_start=UNKNOWN, bytes=1, direction="HtoD",
        )  # fmt: skip
        now += 0 if second else duration
    for number in range(marks):
        marked.add(name=f"step {number}", start=number * now // marks, end=(number + 1) * now // marks)
    return Timeline("nvprof", "file", work, range_table=marked)


def sides(before: Timeline, after: Timeline) -> tuple[list[tuple[Rank, steps.Steps]], list[tuple[Rank, steps.Steps]]]:
    first, second = ([(rank, steps.find(rank)) for rank in ranks([each])] for each in (before, after))
    return first, second


@settings(max_examples=30, deadline=None)
@given(LAUNCHES, LAUNCHES, st.integers(0, 3), st.integers(0, 3), st.sampled_from(sorted(GROUPINGS)))
def test_changes_of_the_parts_sum_to_the_difference_of_the_runs(
    old: list[Launch], new: list[Launch], marks_old: int, marks_new: int, by: str
) -> None:
    found = compare(*sides(timeline(old, marks_old), timeline(new, marks_new)), by)
    work = [sum(duration for *_, duration, _ in run) for run in (old, new)]  # nanoseconds, from the input
    assert [found.before.work, found.after.work] == work
    for rows in (found.groups, found.kernels):
        assert sum(row.change for row in rows) == work[1] - work[0]
        assert sum(row.matched + row.appeared - row.vanished for row in rows) == work[1] - work[0]
        assert all(row.matched + row.appeared - row.vanished == row.after - row.before for row in rows)
        assert sum(row.launches_before for row in rows) == len(old)
        assert sum(row.launches_after for row in rows) == len(new)
        assert len({row.group for row in rows}) == len(rows)
    for run in (found.before, found.after):
        assert sum(run.parts.values()) == run.wall


@settings(max_examples=30, deadline=None)
@given(LAUNCHES)
def test_a_run_compared_with_itself_has_no_changes(launches: list[Launch]) -> None:
    found = compare(*sides(timeline(launches), timeline(launches)), "group")
    assert {row.verdict for row in (*found.groups, *found.kernels)} <= {"unchanged"}
    assert found.different_work is None


@settings(max_examples=30, deadline=None)
@given(LAUNCHES, LAUNCHES)
def test_the_opposite_comparison_has_the_opposite_changes(old: list[Launch], new: list[Launch]) -> None:
    first = compare(*sides(timeline(old), timeline(new)), "group")
    second = compare(*sides(timeline(new), timeline(old)), "group")
    changes = {row.group: (row.matched, row.appeared, row.vanished) for row in first.kernels}
    assert changes == {row.group: (-row.matched, row.vanished, row.appeared) for row in second.kernels}


# --- Changes ----------------------------------------------------------------------------------------


def kernels(*launches: tuple[str, float]) -> list[Event]:
    """Consecutive kernels with these names and durations (us)."""
    now, events = 100.0, []
    for name, duration in launches:
        events += launched(name, now, now + duration, now - 50)
        now += duration
    return events


def compared(folder: Path, old: list[Event], new: list[Event]) -> RunComparison:
    found = trace([written(folder, old, name="old.json"), written(folder, new, name="new.json")])
    assert found.comparison
    return found.comparison


def row(rows: list[GroupChange], name: str) -> GroupChange:
    return next(each for each in rows if each.group == name)


def test_faster_slower_new_and_removed_kernels_are_named(tmp_path: Path) -> None:
    old = kernels(("quick", 50), ("slow", 10), ("same", 5), ("gone", 7), ("quick", 50))
    new = kernels(("quick", 40), ("slow", 12), ("same", 5), ("extra", 3), ("other", 1), ("quick", 30))
    found = compared(tmp_path, old, new)
    assert {each.group: (each.verdict, each.change) for each in found.kernels} == {
        "quick": ("faster", -30_000), "slow": ("slower", 2_000), "same": ("unchanged", 0),
        "gone": ("vanished", -7_000), "extra": ("appeared", 3_000), "other": ("appeared", 1_000),
    }  # fmt: skip
    assert row(found.kernels, "gone").counterpart is None  # one launch removed, two added


def test_a_kernel_with_fewer_launches_is_not_reported_as_faster(tmp_path: Path) -> None:
    found = compared(tmp_path, kernels(*[("k", 10)] * 10), kernels(*[("k", 11)] * 5))
    change = row(found.kernels, "k")
    assert (change.verdict, change.matched, change.vanished) == ("fewer_launches", 5_000, 50_000)


def test_a_kernel_with_more_but_shorter_launches_has_more_launches(tmp_path: Path) -> None:
    """In another data type a name of a group has other launches: more of them in less time."""
    old = kernels(*[("gemm_a", 10)] * 10)
    found = compared(tmp_path, old, kernels(*[("gemm_b", 1)] * 20))
    assert row(found.groups, "GEMM").verdict == "more_launches"  # 100 us -> 20 us


def test_launches_match_in_the_order_of_their_steps(tmp_path: Path) -> None:
    def step(number: int, *durations: float) -> list[Event]:
        start = 1000.0 * number
        events = [event("user_annotation", f"ProfilerStep#{number}", start, start + 1000)]
        for place, duration in enumerate(durations):
            events += launched("k", start + 100 * (place + 1), start + 100 * (place + 1) + duration, start + 1)
        return events

    # without the second launch of the first step, matching by order alone would mismatch all later launches
    found = compared(tmp_path, step(0, 10, 20) + step(1, 50, 60), step(0, 10) + step(1, 50, 60))
    change = row(found.kernels, "k")
    assert (change.matched, change.vanished) == (0, 20_000)


def test_a_kernel_that_replaces_another_one_is_named(tmp_path: Path) -> None:
    old = kernels(("volta_sgemm", 50), ("relu", 1), ("volta_sgemm", 50))
    found = compared(tmp_path, old, kernels(("sm80_xmma_gemm", 20), ("relu", 1), ("sm80_xmma_gemm", 20)))
    assert row(found.kernels, "volta_sgemm").counterpart == "sm80_xmma_gemm"
    assert row(found.kernels, "sm80_xmma_gemm").counterpart == "volta_sgemm"
    group = row(found.groups, "GEMM")
    assert (group.verdict, group.change) == ("faster", -60_000)


# --- Different work ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ([("gemm", 100.0)], [("gemm", 110.0)], None),  # the limit is more than 10 %
        ([("gemm", 100.0)], [("gemm", 110.1)], "GEMM"),
        ([("gemm", 100.0)], [("gemm", 89.0)], "GEMM"),
        ([("gemm", 100.0), ("relu", 10.0)], [("gemm", 100.0), ("relu", 90.0)], None),  # slower, but the same kernels
        ([("relu", 10.0)] * 10, [("relu", 10.0)] * 11, None),
        ([("relu", 10.0)] * 10, [("relu", 10.0)] * 12, "kernels"),
        ([("relu", 10.0)] * 10, [("relu", 10.0)] * 10 + [("ncclDevKernel_AllReduce", 1.0)] * 5, None),
        ([("relu", 10.0)], [("relu", 10.0), ("gemm", 1.0)], "GEMM"),
    ],
)
def test_other_numbers_of_kernels_or_gemm_times_are_different_work(
    old: list[tuple[str, float]], new: list[tuple[str, float]], reported: str | None, tmp_path: Path
) -> None:
    found = compared(tmp_path, kernels(*old), kernels(*new)).different_work
    if reported is None:
        assert found is None
    else:
        assert found
        assert reported in found.text


def test_equal_names_numbers_and_grids_of_launches_are_the_same_work_whatever_they_take(tmp_path: Path) -> None:
    def gemms(time: float, grid: list[int]) -> list[Event]:
        starts = range(0, 400, 100)
        return [each for start in starts for each in launched("gemm", start, start + time, start - 9, grid=grid)]

    assert compared(tmp_path, gemms(20, [64, 1, 1]), gemms(30, [64, 1, 1])).different_work is None
    other = compared(tmp_path, gemms(20, [64, 1, 1]), gemms(30, [96, 1, 1])).different_work
    assert other
    assert "GEMM" in other.text


def test_a_check_of_two_runs_judges_the_relative_change_of_their_duration(tmp_path: Path) -> None:
    files = [written(tmp_path, kernels(("relu", t)), name=f"{t}.json") for t in (100.0, 130.0)]
    rows = roofmodel.trace(*files).rows_to_check()
    assert judge(rows, ["relative_change>5%"]).failed == ["wall time: relative_change 30.0%: relative_change>5%"]
    assert judge(rows, ["relative_change>31%"]).failed == []


@pytest.mark.parametrize("after", [20.0, 300.0])
def test_a_check_cannot_judge_two_runs_of_different_work(after: float, tmp_path: Path) -> None:
    files = [written(tmp_path, kernels(("gemm", t), ("relu", 5)), name=f"{t}.json") for t in (100.0, after)]
    rows = roofmodel.trace(*files).rows_to_check()
    assert judge(rows, ["relative_change>5%"]).failed == ["wall time: relative_change unknown: cannot be judged"]


def test_different_work_is_the_first_finding_and_precedes_any_speedup(tmp_path: Path) -> None:
    files = [written(tmp_path, kernels(("gemm", t), ("relu", 5)), name=f"{t}.json") for t in (100.0, 20.0)]
    report = roofmodel.trace(*files)
    assert report.to_dict()["findings"][0]["kind"] == "different_work"
    text = printed(report, 120)
    assert text.index("The runs do not do the same work") < text.index("wall time")
    assert "times as fast" not in text
    same = roofmodel.trace(files[0], written(tmp_path, kernels(("gemm", 99), ("relu", 2)), name="c.json"))
    assert "105 µs → 101 µs: 1.04 times as fast" in printed(same, 120)


def test_runs_with_different_numbers_of_steps_state_both_numbers(tmp_path: Path) -> None:
    def run(number: int) -> list[Event]:
        marks = [event("user_annotation", f"ProfilerStep#{n}", 100 * n, 100 * n + 100) for n in range(number)]
        return marks + [each for n in range(number) for each in launched("gemm", 100 * n + 5, 100 * n + 50, 100 * n)]

    found = compared(tmp_path, run(4), run(8))
    assert found.different_work
    assert "4 and 8 complete steps" in found.different_work.text


# --- One run or two ---------------------------------------------------------------------------------


def files_of(folder: Path, *devices: int, **document: object) -> list[str]:
    numbers = count()
    return [
        written(folder, launched("k", 100, 200, 50, device=device), name=f"run{next(numbers)}.json", **document)
        for device in devices
    ]


@pytest.mark.parametrize("devices", [(0, 0), (0, 1)])
def test_two_files_without_ranks_are_before_and_after_a_change(devices: tuple[int, int], tmp_path: Path) -> None:
    """The second run may use another GPU."""
    found = trace(files_of(tmp_path, *devices))
    assert found.comparison
    assert [each.rank.run for each in found.ranks] == ["before", "after"]
    assert "two runs, because not all files state a rank" in str(found.reading)
    assert "one_run" in str(found.reading)


def test_two_files_of_different_ranks_are_one_run_with_the_option_for_two(tmp_path: Path) -> None:
    names = ("rank0.json", "rank1.json")
    found = trace([written(tmp_path, launched("k", 100, 200, 50), name=name) for name in names])
    assert found.comparison is None
    assert "different ranks" in str(found.reading)
    assert "before" in str(found.reading)


def test_stated_ranks_take_precedence_over_gpus(tmp_path: Path) -> None:
    def file(name: str, device: int, **info: object) -> str:
        return written(
            tmp_path, launched("k", 100, 200, 50, device=device), name=name, distributedInfo={"backend": "nccl", **info}
        )

    first, second, other = (file("a.json", 0, rank=0), file("b.json", 0, rank=1), file("c.json", 1, rank=0))
    assert trace([first, second]).comparison is None  # two nodes, or one visible GPU per process
    assert trace([first, other]).comparison


def test_ranks_in_file_names_are_used_if_the_files_state_none(tmp_path: Path) -> None:
    names = ("new_rank0.json", "new_rank1.json", "old_rank0.json")
    files = [written(tmp_path, launched("k", 100, 200, 50), name=name) for name in names]
    assert trace(files[:2]).comparison is None
    assert trace([files[2], files[0]]).comparison


def test_options_select_one_run_or_two(tmp_path: Path) -> None:
    first, second = files_of(tmp_path, 0, 0)
    assert trace([first, second], one_run=True).comparison is None
    assert trace([second], before=[first]).comparison
    with pytest.raises(RoofError, match="contradicts"):
        trace([second], before=[first], one_run=True)


def test_folders_are_runs_of_several_ranks(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        files_of(tmp_path / name, 0, 1)
    found = trace([str(tmp_path / "old"), str(tmp_path / "new")])
    assert [(each.rank.run, each.rank.device) for each in found.ranks] == [
        ("before", "0"), ("before", "1"), ("after", "0"), ("after", "1"),
    ]  # fmt: skip
    assert trace([str(tmp_path / "new")]).comparison is None
    empty_folder = tmp_path / "empty"
    empty_folder.mkdir()
    with pytest.raises(RoofError, match="contains no files"):
        trace([str(empty_folder)])


@pytest.mark.parametrize("devices", [(0, 0, 0), (0, 1, 2)])
def test_three_files_without_ranks_are_three_runs_in_the_order_given(devices: tuple[int, ...], tmp_path: Path) -> None:
    """They were read as one run of three ranks, without a word."""
    files = files_of(tmp_path, *devices)
    found = trace(files)
    assert [(each.rank.number, each.rank.run) for each in found.ranks] == [(0, 1), (1, 2), (2, 3)]
    assert found.comparison is None
    assert str(found.reading).startswith("3 runs, in the order given, because not all files state a rank; ")
    one = trace(files, one_run=True)
    assert ([each.rank.run for each in one.ranks], one.reading) == ([None] * 3, None)


def test_a_file_that_is_given_twice_and_counted_once_is_named(tmp_path: Path) -> None:
    first, second = (written(tmp_path, launched("k", 5, 6, 1), name=name) for name in ("a.json", "b.json"))
    assert any(
        "a.json is given 2 times; the copies are ignored" in str(text)
        for text in trace([first, first, second]).warnings
    )
    for files in ([first, second], [first, first]):  # the second are two runs, which are compared
        assert not any("copies are ignored" in str(text) for text in trace(files).warnings)


def test_files_that_state_a_rank_but_not_the_number_of_ranks_are_one_run(tmp_path: Path) -> None:
    """`0 ranks` was a size, so a file without a number was one of another run."""
    sizes = ({"world_size": 3}, {"world_size": 3}, {})
    files = [
        written(
            tmp_path, launched("k", 100, 200, 50), name=f"g{rank}.json",
            distributedInfo={"backend": "nccl", "rank": rank, **size},
        )
        for rank, size in enumerate(sizes)
    ]  # fmt: skip
    assert [each.rank.run for each in trace(files).ranks] == [None] * 3


def test_ranks_of_runs_of_different_sizes_are_no_one_run(tmp_path: Path) -> None:
    """Strong scaling: rank 0 of 1, rank 1 of 2, rank 2 of 4."""
    files = [
        written(
            tmp_path, launched("k", 100, 200, 50), name=f"g{size}.json",
            distributedInfo={"backend": "nccl", "rank": rank, "world_size": size},
        )
        for rank, size in enumerate((1, 2, 4))
    ]  # fmt: skip
    found = trace(files)
    assert [each.rank.run for each in found.ranks] == [1, 2, 3]
    assert "runs of different sizes (1 and 2 and 4 ranks)" in str(found.reading)


def test_ranks_have_the_numbers_that_their_files_state(tmp_path: Path) -> None:
    """A shell sorts rank10 before rank2; `roof jitter` has always read the numbers."""

    def file(name: str, duration: int, **document: object) -> str:
        return written(tmp_path, launched("k", 100, 100 + duration, 50), name=name, **document)

    world = {"backend": "nccl", "world_size": 2}
    stated = [
        file("a.json", 30, distributedInfo=world | {"rank": 1}),
        file("b.json", 10, distributedInfo=world | {"rank": 0}),
    ]
    named = [file("rank10.json", 30), file("rank2.json", 10)]
    for files, numbers in ((stated, [0, 1]), (named, [2, 10])):
        found = trace(files)
        seconds = [(each.rank.number, each.rank.kernel_seconds) for each in found.ranks]
        assert seconds == [(numbers[0], 10e-6), (numbers[1], 30e-6)]
        assert [row.rank for row in found.groups] == numbers


def test_a_file_compared_with_itself_has_no_difference() -> None:
    found = trace([str(EXAMPLE), str(EXAMPLE)]).comparison
    assert found
    assert found.speedup == 1
    assert not any(each.change for each in found.kernels)


def test_tables_of_two_steps_are_one_run_and_of_the_same_step_two(tmp_path: Path) -> None:
    def table(name: str, step: int) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(STEP_TABLE.split(","))
        base = 10_000 * step
        writer.writerow([f"step {step}", base, base + 9000, 0, "cudaLaunchKernel", base, base + 9, "k", 7,
                         base + 500, base + 900, 400])  # fmt: skip
        path = tmp_path / name
        path.write_text(out.getvalue())
        return str(path)

    assert trace([table("a.csv", 1), table("b.csv", 2)]).comparison is None
    assert trace([table("a.csv", 1), table("b.csv", 1)]).comparison


def test_runs_of_different_tools_are_refused(tmp_path: Path) -> None:
    file = files_of(tmp_path, 0)[0]
    with pytest.raises(RoofError, match="tools"):
        trace([file], before=[str(measured("traces/nsys/one_kernel_rtx_a4500.sqlite"))])


# --- Outputs ----------------------------------------------------------------------------------------


def test_the_document_of_two_runs_keeps_the_contract_and_adds_the_comparison(tmp_path: Path) -> None:
    events = json.loads(EXAMPLE.read_text())
    for each in events["traceEvents"]:
        if each["name"] == "sgd_update":
            each["dur"] *= 2
    after = tmp_path / "after.json"
    after.write_text(json.dumps(events))
    report = roofmodel.trace(EXAMPLE, after)
    document = report.to_dict()
    assert document["schema"] == "roofmodel.trace/1"
    assert [each["run"] for each in document["ranks"]] == ["before", "after"]
    found = document["comparison"]
    # four optimizer kernels of 0.3 ms take 0.6 ms
    assert found["slower_seconds"] == found["work_change_seconds"] == pytest.approx(4 * 0.3e-3)
    assert sum(part["change_seconds"] for part in found["parts"]) == pytest.approx(found["wall_change_seconds"])
    assert found["kernels"][0]["name"] == "sgd_update"
    rows = list(csv.DictReader(io.StringIO(report.text("csv"))))
    assert sum(float(each["change_seconds"]) for each in rows) == pytest.approx(4 * 0.3e-3)
    assert len(report.to_frame()) == len(rows)
    assert report.save(tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_of_two_runs_fits_the_terminal(width: int) -> None:
    lines = printed(roofmodel.trace(EXAMPLE, EXAMPLE), width).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(" ".join(lines).split()).startswith(
        "before: training_by_hand.json, 1 rank; after: training_by_hand.json"
    )


def test_different_flops_from_shapes_are_different_work() -> None:
    found = trace(
        [
            str(measured(f"traces/torch/{name}.json.gz"))
            for name in ("gaunernst_bert-small-uncased__1016001", "Falconsai_nsfw_image_detection__1016002")
        ]
    )
    assert found.findings[0].kind == "different_work"
    assert "FLOPs counted from shapes" in found.findings[0].text
