"""`roof jitter` on a real export, on the numbers of a lecture, and on runs with planted delays."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.many_ranks import NCCL, PER_HOST, Run
from roofmodel.errors import RoofError
from roofmodel.jitter.alignment import align_kernels, rank_sequences
from roofmodel.jitter.deviations import (
    Deviations,
    StepKernels,
    deviations,
    first_gaps,
    kernel_gaps,
    last_collective_ends,
    stacked,
    times_to_end,
)
from roofmodel.jitter.jitter import Jitter, _kernels_finding, jitter
from roofmodel.jitter.kernels import NO_STEP, table_of
from roofmodel.jitter.lateness import RankClocks
from roofmodel.jitter.ranks import ComparedRank
from roofmodel.jitter.reduced_steps import ReducedSteps, batches, read_steps
from roofmodel.jitter.sequences import match_sequences
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines.reading import read_file
from tests.jitter.runs import Row, analyzed, of_step, planted, tables, write, written
from tests.profiles.samples import measured
from tests.trace.runs import Event, event, launched
from tests.trace.runs import written as torch_trace

KINDS = ("gpu", "cpu", "input", "node", "network")


# --- A real export ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def training() -> Jitter:
    return jitter([str(measured("traces/nsys/two_ranks_training_h100.sqlite"))])


def test_the_sequences_of_two_training_ranks_agree_for_1993_kernels(training: Jitter) -> None:
    assert training.common_kernels == 1993
    difference = training.difference
    assert difference is not None
    assert (difference.kernel, difference.rank, difference.expected) == (1993, 1, None)
    assert difference.kernels - difference.expected_kernels == 24
    assert [rank.rank.kernels for rank in training.ranks] == [1993, 2017]
    assert any("rank 1 has 24 more" in str(warning) for warning in training.warnings)


def test_two_training_ranks_compute_for_the_same_time(training: Jitter) -> None:
    seconds = [rank.common_compute_seconds for rank in training.ranks]
    assert [round(s * 1e3, 3) for s in seconds if s] == [253.703, 254.514]
    assert [round(rank.compute_seconds * 1e3, 3) for rank in training.ranks if rank.compute_seconds] == [
        253.703,
        256.096,
    ]
    assert any("kernels are not the cause" in finding for finding in training.findings)


def test_collectives_of_two_training_ranks_start_at_different_times_and_end_together(training: Jitter) -> None:
    clocks = training.clocks
    assert clocks.start_skew_seconds == pytest.approx((-1.56e-3, 3.34e-3), abs=5e-6)
    assert clocks.error_seconds == pytest.approx(26.6e-6, abs=5e-8)
    assert clocks.offsets.tolist() == [0, 0]  # one file, one clock


def test_the_late_training_rank_is_late_because_of_its_launches(training: Jitter) -> None:
    delays = [rank.launch_to_start_median_seconds for rank in training.ranks]
    assert [round(delay * 1e6, 1) for delay in delays if delay] == [296.2, 225.8]
    (cause,) = training.causes
    assert (cause.kind, cause.ranks) == ("cpu", (1,))
    assert {step.cause for step in training.steps} <= {"cpu", None}


# --- The lecture's numbers ------------------------------------------------------------------------------


def kernels(starts: list[int], ends: list[int], collective: list[bool]) -> KernelTable:
    """Kernels of one rank; collectives are on another stream."""
    is_collective, start = np.array(collective), np.array(starts, np.int64)
    count = len(starts)
    columns = {
        "start": start, "end": np.array(ends, np.int64), "launch_start": start - 5, "communicates": is_collective,
        "main": ~is_collective, "step": np.full(count, NO_STEP),
    }  # fmt: skip
    table = table_of(columns, count)
    table.set("name", [f"kernel {number}" for number in range(count)])
    return table


def step_of(*tables: KernelTable) -> StepKernels:
    """The only step of ranks with these kernels."""
    ranks = [
        ComparedRank(number, f"rank{number}", None, None, None, len(each), sources=(each,))
        for number, each in enumerate(tables)
    ]
    sequences = [rank_sequences(rank, False, 0, 1) for rank in ranks]
    alignment = align_kernels(ranks, sequences, lambda selections: np.zeros(len(selections[0].order), np.int64))
    (batch,) = batches(alignment, len(ranks))
    return stacked([step for rank in read_steps(batch) for step in rank.steps.values()])


def lecture() -> StepKernels:
    """Kernels 0 and 1 of GPUs 0, 1 and 959, then an all-reduce that all leave at 10 ms. The first gap of GPU 959 is 0.

    The slide's first gaps need a rank that starts first, so the gaps of kernel 0 are relative to GPU 959's 9813 ns.
    """
    durations = [(9176, 3451), (10575, 6456), (8234, 4401)]
    gaps = [(12921, 80124), (11034, 94890), (9813, 91209)]
    ranks = []
    for (d0, d1), (g0, g1) in zip(durations, gaps, strict=True):
        start = 1_000_000 + g0
        second = start + d0 + g1
        ranks.append(kernels([start, second, second + d1], [start + d0, second + d1, 10_000_000], [False, False, True]))
    return step_of(*ranks)


def gaps_before(step: StepKernels) -> NDArray[np.int64]:
    """The gap before the first kernel of each rank."""
    found = first_gaps(step.starts[:, 0], last_collective_ends(step))
    assert found is not None
    return found


def test_gaps_and_times_to_the_end_are_the_sums_of_the_lecture() -> None:
    step = lecture()
    gaps = kernel_gaps(step, gaps_before(step) + 9813)
    assert gaps[:, 1].tolist() == [80124, 94890, 91209]
    assert gaps[:, 0].tolist() == [12921, 11034, 9813]
    times = times_to_end(step, gaps)
    # 12921 + 9176 = 22097 and + 80124 + 3451 = 105672; the slide's 122415 of GPU 1 is 122955: 11034+10575+94890+6456
    assert times[:, 1].tolist() == [105672, 122955, 113657]
    assert times[:, 0].tolist() == [22097, 21609, 18047]
    assert times[:, 2].tolist() == times[:, 1].tolist()  # the all-reduce has gap and duration 0


def test_deviations_are_from_the_mean_over_ranks_and_the_latest_is_found_before_the_collective() -> None:
    step = lecture()
    found = deviations(step, gaps_before(step))
    mean = (9176 + 10575 + 8234) / 3
    assert (found.durations[:, 0] * 1e9).tolist() == pytest.approx([9176 - mean, 10575 - mean, 8234 - mean])
    assert found.last == 1
    assert (found.latest, found.earliest) == (1, 0)
    assert np.allclose(found.times_to_end.sum(axis=0), 0)
    assert found.diverges_at(1, 2e-6) == 1  # 1.0 us late at kernel 0, 8.9 us at kernel 1
    assert found.diverges_at(1, 1) is None


def curves(times_to_end: NDArray[np.float64], last: int) -> Deviations:
    """Deviations with only times to the end."""
    return Deviations(np.zeros_like(times_to_end), np.zeros_like(times_to_end), times_to_end, None, last)


def test_a_rank_diverges_at_the_kernel_at_which_it_is_late_and_not_if_it_is_early() -> None:
    late = np.array([-200e-6, -150e-6, 300e-6, 250e-6])
    found = curves(np.stack([late, -late]), last=2)
    assert found.diverges_at(0, 100e-6) == 2
    assert found.diverges_at(1, 100e-6) is None  # early before the last collective
    assert curves(np.stack([late, -late]), last=1).diverges_at(0, 100e-6) is None


def test_the_first_gap_does_not_depend_on_the_clock() -> None:
    step = lecture()
    shift = np.array([[0], [10**9], [-(10**9)]])
    same = gaps_before(step)
    assert same.tolist() == gaps_before(step._replace(starts=step.starts + shift, ends=step.ends + shift)).tolist()
    assert same.tolist() == [12921 - 9813, 11034 - 9813, 0]  # 0 for the first rank to start, more for later ranks


def test_the_gap_from_the_previous_step_is_the_time_since_its_last_collective() -> None:
    step = lecture()
    found = first_gaps(step.starts[:, 0], last_collective_ends(step), "previous-step", np.array([1_000_000] * 3))
    assert found is not None
    assert found.tolist() == [12921, 11034, 9813]


# --- Sequences --------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 5), max_size=60), st.lists(st.integers(0, 5), max_size=60))
def test_matched_kernels_have_equal_names_in_order(a: list[int], b: list[int]) -> None:
    left, right = np.array(a, np.int64), np.array(b, np.int64)
    places = match_sequences(left, right)
    assert len(places[0]) == len(places[1])
    assert left[places[0]].tolist() == right[places[1]].tolist()
    assert all((np.diff(each) > 0).all() for each in places)


@given(st.lists(st.integers(0, 50), min_size=30, max_size=200), st.data())
def test_kernels_after_inserted_ones_still_match(sequence: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(sequence)))
    longer = [*sequence[:place], *range(100, 125), *sequence[place:]]
    found, _ = match_sequences(np.array(sequence), np.array(longer))
    assert len(found) >= len(sequence) - 8  # the window after the difference


# --- Planted delays -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("amount", [0.01, 0.04, 0.3])
def test_only_the_planted_delay_is_found(kind: str, amount: float, tmp_path: Path) -> None:
    found = analyzed(tmp_path, (kind, 5, amount))
    (cause,) = found.causes
    assert cause.kind == kind
    assert cause.ranks == (tuple(range(PER_HOST)) if kind == "node" else (5,))
    # the step in the file also has collectives and waits, so it is longer than the step without delays
    assert 0.5 * amount < cause.seconds_per_step / found.step_seconds < 1.2 * amount


def test_a_slow_link_is_found_in_short_steps_whose_collectives_end_together(tmp_path: Path) -> None:
    """1 % of the step are 14 us; the ranks leave the collectives within 1 us."""
    (cause,) = analyzed(tmp_path, ("network", 5, 0.01), kernels=60).causes
    assert (cause.kind, cause.ranks) == ("network", (5,))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(KINDS), st.integers(0, 15), st.floats(0.012, 0.2), st.integers(0, 1000))
def test_planted_delays_are_found_for_any_rank_and_noise(
    tmp_path: Path, kind: str, rank: int, amount: float, seed: int
) -> None:
    causes = analyzed(tmp_path, (kind, rank, amount), seed=seed).causes
    assert [cause.kind for cause in causes] == [kind]
    assert rank in causes[0].ranks


def test_two_planted_delays_are_both_found(tmp_path: Path) -> None:
    causes = analyzed(tmp_path, ("gpu", 2, 0.05), ("input", 11, 0.04)).causes
    assert {(cause.kind, cause.ranks) for cause in causes} == {("gpu", (2,)), ("input", (11,))}


def test_a_run_without_delays_has_no_cause(tmp_path: Path) -> None:
    assert not analyzed(tmp_path).causes


def test_the_latest_rank_of_each_step_has_the_planted_cause(tmp_path: Path) -> None:
    found = analyzed(tmp_path, ("gpu", 5, 0.2))
    assert {(step.latest_rank, step.cause) for step in found.steps} == {(5, "gpu")}
    # only in the second half is the GPU the limit, so the rank is late only there
    assert all(step.diverges_at_kernel is not None and step.diverges_at_kernel >= 48 for step in found.steps)


def test_the_cause_of_a_late_rank_without_launches_in_the_file_is_the_rank(tmp_path: Path) -> None:
    """Without launches, the causes on the CPU cannot be distinguished."""
    header = (
        '"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread",'
        '"Static SMem","Dynamic SMem","Size","Throughput","Device","Context","Stream","Name"\n'
        "us,us,,,,,,,,B,B,,,,,,\n"
    )
    for rank in range(3):
        rows, now = [], 0.0
        for step in range(5):
            for kernel in range(12):
                now += 3 + (40 if rank == 1 and kernel == 4 else 0)
                rows.append(f'{now},{50 + step % 2},1,1,1,1,1,1,8,0,0,,,"GPU ({rank})","1","7","kernel_{kernel}"')
                now += 50 + step % 2
            now = (step + 1) * 800.0  # all ranks leave the collective together
            rows.append(f'{now - 20},20,1,1,1,1,1,1,8,0,0,,,"GPU ({rank})","1","9","ncclAllReduce"')
        (tmp_path / f"{rank}.csv").write_text(f"==7== Profiling result:\n{header}" + "\n".join(rows) + "\n")
    found = jitter([str(tmp_path / f"{rank}.csv") for rank in range(3)])
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("rank", (1,))]


TIMES = (1, 2, 5, 6, 9, 10)  # columns of a row


def in_one_file(folder: Path, run: Run, shifted: int, shift: int) -> Jitter:
    """The comparison of the ranks of one file, with the times of one rank shifted by nanoseconds."""
    found = tables(run)
    found[shifted] = [
        tuple(value + shift if column in TIMES else value for column, value in enumerate(row))  # type: ignore[operator]
        for row in found[shifted]
    ]
    return jitter([write(folder / "ranks.csv", [row for table in found.values() for row in table])])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([(), ("cpu", 2, 0.1), ("gpu", 1, 0.1), ("network", 3, 0.05)]),
    st.integers(0, 3),
    st.one_of(st.integers(-10_000_000, 10_000_000), st.integers(-2_000_000_000, 2**44)),  # offsets beyond are rounded
)
def test_the_clock_of_a_rank_in_a_table_of_all_ranks_changes_no_finding(
    tmp_path: Path, plant: tuple[str, int, float] | tuple[()], shifted: int, shift: int
) -> None:
    run = planted(*filter(None, [plant]), ranks=4, kernels=60, steps=6)._replace(clocks=0)
    found, moved = (in_one_file(tmp_path, run, shifted, by) for by in (0, shift))
    assert [(cause.kind, *cause.ranks) for cause in found.causes] == [plant[:2]] * bool(plant)
    assert (moved.causes, moved.findings, moved.steps) == (found.causes, found.findings, found.steps)
    assert moved.clocks.error_seconds == found.clocks.error_seconds
    assert (moved.clocks.offsets - found.clocks.offsets).tolist() == [
        shift * ((rank == shifted) - (shifted == 0)) for rank in range(4)
    ]


@pytest.mark.parametrize("factor", [1.2, 1.6, 3])
@pytest.mark.parametrize("slow", [0, 3, 5])
def test_a_rank_with_longer_kernels_in_one_step_is_named_with_the_step(
    tmp_path: Path, factor: float, slow: int
) -> None:
    """The kernels of rank 1, and its waits for them, are longer; the other ranks wait in the collectives."""
    rows: list[Row] = []
    random = np.random.default_rng(slow)
    now = 1_000_000_000
    for step in range(6):
        durations = random.normal(50_000, 500, (4, 8))
        durations[1] *= factor if step == slow else 1
        starts = now + 10_000 + np.cumsum(durations + 1000, axis=1) - durations
        together = int((starts + durations).max()) + 50_000
        for rank in range(4):
            label = (f"epoch1_step{step}-rank{rank}-640_8-640_8", now, together + 5000, rank, "cudaLaunchKernel_v7000")
            for kernel, (start, length) in enumerate(zip(starts[rank].tolist(), durations[rank].tolist(), strict=True)):
                launch, begin, end = now + 100 * kernel, int(start), int(start + length)
                rows.append((*label, launch, launch + 50, f"gemm_{kernel}", "7", begin, end, end - begin))
            begin = int(starts[rank, -1] + durations[rank, -1]) + 2000
            rows.append((*label, now + 5000, now + 5050, NCCL, "33", begin, together, together - begin))
        now = together + 10_000
    found = jitter([write(tmp_path / "ranks.csv", rows)])
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("gpu", (1,))]
    assert found.findings[0].startswith(f"rank 1 has longer kernels than the other ranks in step {slow}: ")
    assert "kernels are not the cause" not in " ".join(found.findings)
    mean = 8 * 50e-6 * (factor - 1)
    assert found.causes[0].seconds_per_step == pytest.approx(mean / 6, rel=0.1)


# --- Damaged and incomplete input ---------------------------------------------------------------------------


def test_a_truncated_file_is_named_and_the_rest_analyzed(tmp_path: Path) -> None:
    files = written(tmp_path, planted(("gpu", 1, 0.1), ranks=6, steps=3))
    text = Path(files[4]).read_text()
    Path(files[4]).write_text(text[: len(text) // 2])
    found = jitter(files)
    assert len(found.ranks) == 5
    assert any("rank004.csv" in str(warning) and "damaged" in str(warning) for warning in found.warnings)
    assert any("1 rank without a file: 4" in str(warning) for warning in found.warnings)
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("gpu", (1,))]


def test_a_damaged_database_is_named_and_the_rest_analyzed(tmp_path: Path) -> None:
    export = measured("traces/nsys/two_ranks_training_h100.sqlite")
    part = tmp_path / "part.sqlite"
    part.write_bytes(export.read_bytes()[:500_000])
    found = jitter([str(export), str(part)])
    assert found.common_kernels == 1993
    assert any("part.sqlite" in str(warning) for warning in found.warnings)
    with pytest.raises(RoofError, match=r"part\.sqlite"):
        jitter([str(part)])


def test_a_rank_with_one_step_less_is_compared_in_the_other_steps(tmp_path: Path) -> None:
    def without_a_step(found: dict[int, list[Row]]) -> None:
        missing = of_step(found[2], 1)
        found[2] = [row for row in found[2] if row not in missing]

    found = jitter(written(tmp_path, planted(ranks=4, steps=4), without_a_step))
    assert [step.step for step in found.steps] == [2000, 2001, 2002, 2003]
    assert np.isnan(found.lateness[1]).tolist() == [False, False, True, False]
    assert any("rank 2 does not have 1 step" in str(warning) and "2001" in str(warning) for warning in found.warnings)


def test_files_of_one_step_each_are_joined_to_ranks(tmp_path: Path) -> None:
    run = planted(("input", 1, 0.1), ranks=4, steps=4)
    files = [
        write(tmp_path / f"{rank}_{step}.csv", of_step(table, step))
        for rank, table in tables(run).items()
        for step in range(4)
    ]
    found = jitter(files)
    assert [rank.rank.number for rank in found.ranks] == [0, 1, 2, 3]
    assert len(found.steps) == 4
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("input", (1,))]


@pytest.mark.parametrize("copied", [True, False])
def test_a_file_given_twice_counts_once(tmp_path: Path, copied: bool) -> None:
    files = list(map(os.path.relpath, written(tmp_path, planted(ranks=3, steps=3))))
    again = str(shutil.copy(files[1], tmp_path / "copy.csv")) if copied else files[1]
    found = jitter([*files, again])
    assert len(found.ranks) == 3
    expected = "copy.csv: the same run as rank001.csv" if copied else "rank001.csv: given 2 times"
    assert f"{expected}; it counts once" in map(str, found.warnings)


def test_one_rank_is_refused(tmp_path: Path) -> None:
    files = written(tmp_path, planted(ranks=2, steps=2))
    with pytest.raises(RoofError, match="1 rank with kernels, and a comparison needs at least two"):
        jitter(files[:1])
    with pytest.raises(RoofError, match=r"1 rank with kernels.*rank000\.csv: given 2 times; it counts once"):
        jitter([files[0], files[0]])


def test_the_error_about_one_rank_has_no_warning_about_another_subject(tmp_path: Path) -> None:
    unusable: Event = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": "soon", "dur": 1}
    files = [
        torch_trace(tmp_path, *launched("gemm", 1, 2, 0), unusable, name="rank.json"),
        torch_trace(tmp_path, event("cpu_op", "aten::add", 1, 2), name="cpu.json"),
    ]
    assert any("without a" in warning for warning in read_file(files[0]).warnings)
    for given_files, end in ((files[:1], "of all ranks"), (files, f"{files[1]}: no kernels; this file is left out")):
        with pytest.raises(RoofError) as error:
            jitter(given_files)
        assert str(error.value).endswith(end)


def test_files_without_kernels_are_refused(tmp_path: Path) -> None:
    path = torch_trace(tmp_path, event("cpu_op", "aten::add", 1, 2))
    with pytest.raises(RoofError, match="0 ranks with kernels"):
        jitter([path])
    kernels_of_two = [
        torch_rank(tmp_path, rank, 1e7, 200) for rank in range(2)
    ]  # two ranks with equal times are not copies
    assert any("no kernels" in str(warning) for warning in jitter([path, *kernels_of_two]).warnings)


def test_a_rank_with_other_kernels_is_not_compared_and_named(tmp_path: Path) -> None:
    def renamed(found: dict[int, list[Row]]) -> None:
        found[3] = [(*row[:7], f"other {n % 7}" if "nccl" not in str(row[7]) else row[7], *row[8:])
                    for n, row in enumerate(found[3])]  # fmt: skip

    found = jitter(written(tmp_path, planted(ranks=4, steps=3), renamed))
    assert found.common_kernels == 3 * 120
    assert found.ranks[3].common_compute_seconds is None
    assert any("rank 3 is not compared in 3 steps" in str(warning) for warning in found.warnings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": "100"}, "has no unit"),
        ({"threshold": "0us"}, "it must be a time above 0 and at most 3600 s"),
        ({"steps_range": "7:9"}, r"at least two ranks must have such a step; the files have 2 steps \(2000, 2001\)"),
        ({"steps_range": "7:7"}, r"7:7\"? is empty; did you mean 7:8\?"),
        ({"steps_range": "x"}, "not a range of steps"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(RoofError, match=message):
        jitter(written(tmp_path, planted(ranks=2, steps=2)), **options)  # type: ignore[arg-type]


def test_steps_restrict_the_analysis(tmp_path: Path) -> None:
    files = written(tmp_path, planted(("cpu", 1, 0.1), ranks=3, steps=5))
    found = jitter(files, steps_range="2002:2004")
    assert [step.step for step in found.steps] == [2002, 2003]
    assert found.common_kernels == 2 * 120


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("cut", [0, 3])
def test_steps_restrict_kernels_and_computation_with_and_without_marks(tmp_path: Path, marks: bool, cut: int) -> None:
    """Six steps of three kernels of 80 us and an all-reduce; `cut` kernels of a seventh step follow."""
    files = []
    for rank in range(2):
        events: list[object] = []
        for step in range(7 if cut else 6):
            begin = 1e7 + 2000.0 * step
            for kernel in range(cut if step == 6 else 3):
                events += launched(f"gemm_{kernel}", begin + 100 * kernel, begin + 100 * kernel + 80, begin - 10)
            if step < 6:
                events += launched("ncclDevKernel_AllReduce", begin + 400, begin + 500, begin + 390)
            if marks:
                events.append(event("user_annotation", f"ProfilerStep#{step}", begin - 20, begin + 1900))
        document = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
        files.append(torch_trace(tmp_path, *events, name=f"{rank}.json", **document))  # type: ignore[arg-type]
    whole, part = jitter(files), jitter(files, steps_range="2:3")
    assert [step.step for step in part.steps] == [2]
    assert part.common_kernels == 4
    assert [rank.common_compute_seconds for rank in part.ranks] == pytest.approx([3 * 80e-6] * 2)
    assert whole.common_kernels == 6 * 4 + cut
    assert [rank.common_compute_seconds for rank in whole.ranks] == pytest.approx([(6 * 3 + cut) * 80e-6] * 2)
    every = jitter(files, steps_range="0:100")
    assert every.common_kernels == (
        whole.common_kernels if marks else 6 * 4
    )  # without marks, the remaining kernels are not a step


@pytest.mark.parametrize("common", [True, False])
def test_ranks_with_different_numbers_of_steps_are_compared_by_step(tmp_path: Path, common: bool) -> None:
    """Ranks 2 and 3 lack the first five of ten steps; with no step in common, ranks 0 and 1 lack the last five."""

    def halved(found: dict[int, list[Row]]) -> None:
        for rank in found:
            absent = range(5) if rank >= 2 else range(0) if common else range(5, 10)
            if absent:
                found[rank] = [row for row in found[rank] if not any(row in of_step([row], step) for step in absent)]

    found = jitter(written(tmp_path, planted(ranks=4), halved))
    assert len(found.steps) == 10
    (text,) = [finding for finding in found.findings if "kernels are not the cause" in finding]
    longer = re.search(r"longer than the median \(([\d.]+)% of the step\)", text)
    assert longer is not None
    assert float(longer[1]) < 1


# --- PyTorch traces ---------------------------------------------------------------------------------------------


def torch_rank(folder: Path, rank: int, clock: float, fetch: float, marks: bool = True, steps: int = 6) -> str:
    """Steps of 20 kernels of 100 us and an all-reduce that all ranks leave together, after a data loader.

    `fetch` is the time in the data loader; other ranks wait up to 300 us longer in the all-reduce. Times in us.
    """
    events: list[object] = []
    for step in range(steps):
        begin = clock + step * 4000.0
        load = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        events.append(event("user_annotation", load, begin, begin + fetch))
        now = begin + fetch + 20
        for kernel in range(20):
            events += launched(f"gemm_{kernel % 7}", now + 5, now + 105, now - 8 + (step % 3) / 10)
            now += 106
        reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        events += launched(reduce, now, begin + 3900, now - 5, stream=20)
        events += launched("optimizer", begin + 3905, begin + 3960, begin + 3880)
        if marks:
            events.append(event("user_annotation", f"ProfilerStep#{step + 5}", begin - 10, begin + 3985))
    document = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4}}
    return torch_trace(folder, *events, name=f"{9 - rank}.json", **document)  # type: ignore[arg-type]


@pytest.mark.parametrize("marks", [True, False])
def test_a_rank_that_waits_for_its_data_loader_is_found_on_any_clock(tmp_path: Path, marks: bool) -> None:
    clocks, fetches = [0.0, 5e6, -3e6 + 1e7, 17.0], [200, 200, 500, 200]
    files = [torch_rank(tmp_path, rank, 1e7 + clocks[rank], fetches[rank], marks) for rank in range(4)]
    found = jitter(files)
    assert [rank.rank.number for rank in found.ranks] == [
        0,
        1,
        2,
        3,
    ]  # ranks stated in the files, not the order of the files
    (cause,) = found.causes
    assert (cause.kind, cause.ranks) == ("input", (2,))
    assert cause.seconds_per_step == pytest.approx(300e-6, rel=0.02)
    assert "fetches a batch" in cause.evidence
    assert found.clocks.offsets.tolist() == pytest.approx([1e3 * (clock - clocks[0]) for clock in clocks])
    assert found.clocks.error_seconds == pytest.approx(0, abs=1e-9)
    assert {step.cause for step in found.steps[1:]} == {"input"}  # the first step has no earlier kernel


def test_ranks_that_are_matched_at_different_steps_are_reported(tmp_path: Path) -> None:
    """Without marks, the only sign of the missing first step of the second file are collectives that end separately."""
    files = [torch_rank(tmp_path, rank, 1e7, 200, marks=False) for rank in range(2)]
    document = json.loads(Path(files[1]).read_text())
    document["traceEvents"] = [each for each in document["traceEvents"] if each["ts"] > 1e7 + 3990]
    for each in document["traceEvents"]:
        each["ts"] += 500 * (each["ts"] > 1e7 + 4000 * 3)
    Path(files[1]).write_text(json.dumps(document))
    assert any("do not end together" in str(warning) for warning in jitter(files).warnings)


# --- Folders ---------------------------------------------------------------------------------------------


def test_a_folder_stands_for_all_its_files(tmp_path: Path) -> None:
    files = written(tmp_path, planted(ranks=4, steps=4))
    (tmp_path / ".hidden").write_text("not a table")
    assert [rank.rank.kernels for rank in jitter([str(tmp_path)]).ranks] == [
        rank.rank.kernels for rank in jitter(files).ranks
    ]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RoofError, match="the folder contains no files"):
        jitter([str(tmp_path)])


@pytest.mark.parametrize(
    ("step_seconds", "text"),
    [
        # ranks compute for 50, 50 and 60 ms; the median is 50 ms
        (0.1, "kernels are not excluded as a cause: the computation of rank 2, the slowest, is 10 ms per step longer "
              "than the median (10.0% of the step)"),
        (10.0, "kernels are not the cause: the computation of rank 2, the slowest, is 10 ms per step longer than the "
               "median (0.1% of the step)"),
    ],
)  # fmt: skip
def test_kernels_are_only_excluded_as_a_cause_if_they_differ_by_a_small_part_of_the_step(
    step_seconds: float, text: str
) -> None:
    compute = np.array([[50e-3, 50e-3, 60e-3]])
    clocks = RankClocks(np.zeros(3), None, None)
    reduced = ReducedSteps(clocks, step_seconds, 1e-3, (), np.zeros((0, 3)), compute, None, [], ())
    ranks = [ComparedRank(number, f"rank{number}", None, None, None, 1) for number in range(3)]
    assert _kernels_finding(reduced, ranks) == text
