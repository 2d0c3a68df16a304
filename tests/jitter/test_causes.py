"""Causes of late ranks and clocks of files, on synthetic arrays."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.jitter_detection import count_false, count_found, detectable_delay
from roofmodel.jitter.alignment import StepLayout
from roofmodel.jitter.causes import _exceed_noise, _is_no_chance, _student_tail, find_causes
from roofmodel.jitter.clocks import CollectiveTimes, align
from roofmodel.jitter.deviations import Floats
from roofmodel.jitter.lateness import Lateness, end_tolerance, part_sums
from roofmodel.jitter.ranks import ComparedRank
from roofmodel.jitter.step_kernels import StepKernels


def of_kernels(compute: Floats) -> dict[str, Floats]:
    """The parts of the lateness (steps x ranks) if ranks differ only in their kernel times."""
    return {name: compute if name == "compute" else np.zeros_like(compute) for name in Lateness._fields}


def compared_ranks(count: int) -> list[ComparedRank]:
    return [ComparedRank(number, f"rank{number}", None, None, None, 1) for number in range(count)]


@pytest.mark.parametrize(
    ("ranks", "steps", "latest"), [(2, 16, 13), (2, 16, 14), (2, 20, 18), (4, 50, 30), (4, 5, 5), (960, 50, 3)]
)
def test_the_chance_of_a_rank_being_the_latest_follows_the_binomial_distribution(
    ranks: int, steps: int, latest: int
) -> None:
    values = np.zeros((steps, ranks))
    values[:latest, 0] = 1
    values[np.arange(latest, steps), 1 + np.arange(steps - latest) % (ranks - 1)] = 1
    others = ranks - 1
    outcomes = sum(math.comb(steps, times) * others ** (steps - times) for times in range(latest, steps + 1))
    assert _is_no_chance(values, 0) == (ranks * Fraction(outcomes, ranks**steps) < Fraction(1, 200))


@pytest.mark.parametrize("steps", [20, 2000, 20_000])
def test_the_rank_that_is_the_latest_in_most_steps_is_found_for_any_number_of_steps(steps: int) -> None:
    """Rank 7 is late by 3.8 standard deviations of the ranks: below 4.5, but it is the latest in 3 of 4 steps."""
    compute = 100e-3 + np.array([0, 0.5, 1, 1.5, 2, 2.5, 3, 4.95]) / 1e3
    compute = compute + np.random.default_rng(1).normal(0, 1.2e-3, (steps, 8))
    (cause,) = find_causes(of_kernels(compute), compared_ranks(8), 100e-3, np.zeros(steps))
    assert (cause.kind, cause.ranks) == ("gpu", (7,))


@pytest.mark.parametrize("late", [0.0, 0.4e-3])
def test_the_noise_of_2000_steps_is_no_persistent_cause_of_a_rank(late: float) -> None:
    for seed in range(20):
        compute = 50e-3 + np.random.default_rng(seed).normal(0, 5e-3, (2000, 4))
        compute[:, 2] += late
        found = find_causes(of_kernels(compute), compared_ranks(4), 50e-3, np.zeros(2000))
        # kernel times vary on all ranks; in some runs, the delay exceeds the threshold
        assert {(cause.kind, cause.ranks) for cause in found} <= {("workload", ())} | (
            {("gpu", (2,))} if late else set()
        )


@pytest.mark.parametrize(("ranks", "steps"), [(2, 3), (2, 10), (4, 3), (16, 3), (16, 10)])
def test_the_noise_of_few_steps_is_not_a_cause(ranks: int, steps: int) -> None:
    """Kernel times of a step vary by 0.5 %, which is the smallest persistent delay that is reported."""
    assert count_false(ranks, steps, 0.005, 100) <= 1


@pytest.mark.parametrize(("ranks", "steps", "delay"), [(2, 4, 0.08), (2, 10, 0.02), (4, 5, 0.02), (16, 3, 0.02)])
def test_a_delay_of_few_steps_is_found_above_the_detectable_delay(ranks: int, steps: int, delay: float) -> None:
    assert detectable_delay(ranks, steps, 0.005) < delay
    assert count_found(ranks, steps, 0.005, delay, 50) >= 45


def test_a_delay_of_every_step_is_found_despite_single_long_steps() -> None:
    """Rank 1 is late by 2 %; each rank has one step that is 60 % longer."""
    compute = 0.1 * (1 + np.random.default_rng(3).normal(0, 0.003, (20, 8)))
    compute[:, 1] += 2e-3
    compute[np.arange(8) * 2, np.arange(8)] += 60e-3
    found = find_causes(of_kernels(compute), compared_ranks(8), 0.1, np.zeros(20))
    assert [(cause.kind, cause.ranks) for cause in found] == [("gpu", (1,))]


def test_two_ranks_with_two_steps_have_a_cause_although_their_noise_is_unknown() -> None:
    compute = np.array([[0.1, 0.11], [0.101, 0.11]])
    (cause,) = find_causes(of_kernels(compute), compared_ranks(2), 0.1, np.zeros(2))
    assert (cause.kind, cause.ranks) == ("gpu", (1,))
    assert "too few" in cause.evidence


def test_a_rank_that_is_the_latest_in_all_of_few_steps_is_not_an_alternating_workload() -> None:
    """Delays of 3, 10 and 5 % in three steps are not persistent, but all are of the same rank."""
    compute = np.array([[0.1, 0.103], [0.1, 0.11], [0.1, 0.105]])
    (cause,) = find_causes(of_kernels(compute), compared_ranks(2), 0.1, np.zeros(3))
    assert (cause.kind, cause.ranks) == ("random", (1,))


@pytest.mark.parametrize("freedom", [1, 2, 3, 6, 9, 30, 135, 999])
@pytest.mark.parametrize("value", [0.5, 3, 7, 15])
def test_the_tail_of_students_t_equals_that_of_scipy(freedom: int, value: float) -> None:
    expected = pytest.importorskip("scipy.stats").t.sf(value, freedom)
    assert _student_tail(2 * value, 2, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(("ranks", "usual"), [(2, 1), (4, 2), (16, 8)])
def test_the_mean_of_a_rank_is_compared_with_that_of_half_of_the_ranks(ranks: int, usual: int) -> None:
    """Each rank deviates by +1 and -1 from its mean in turn, the last rank's mean is higher than 0.

    The deviations are from the mean over ranks, so the variance of a rank is n / (n - 1) times their variance. The
    difference of two means, of one rank and of `usual` ranks, has the variance (1 + 1 / usual) / steps. One of the
    ranks passes the test by chance with a probability of 0.7 %.
    """
    steps = 10
    variance = steps / (steps - 1) * ranks / (ranks - 1)
    error = math.sqrt(variance * (1 + 1 / usual) / steps)
    student = pytest.importorskip("scipy.stats").t
    least = student.isf(0.007 / ranks, (steps - 1) * (ranks - 1)) * error
    relative = np.tile([[1.0], [-1.0]], (steps // 2, ranks))
    for delay, late in ((0.99 * least, False), (1.01 * least, True)):
        found = _exceed_noise(relative + delay * (np.arange(ranks) == ranks - 1), 0.0, 0.007)
        assert found.tolist() == [False] * (ranks - 1) + [late]


def named(**parts: Floats) -> list[tuple[str, tuple[int, ...], float]]:
    """The causes of runs of 1 s per step in which only these parts of the lateness differ: kind, ranks, seconds."""
    (shape,) = {values.shape for values in parts.values()}
    whole = {name: parts.get(name, np.zeros(shape)) for name in Lateness._fields}
    causes = find_causes(whole, compared_ranks(shape[1]), 1.0, np.zeros(shape[0]))
    return [(cause.kind, cause.ranks, round(cause.seconds_per_step, 9)) for cause in causes]


def late(seconds: float, steps: int = 20, of: slice = slice(None)) -> Floats:
    """Rank 2 of 8 is late by these seconds in these steps."""
    values = np.zeros((steps, 8))
    values[of, 2] = seconds
    return values


def test_a_second_part_is_a_cause_from_two_fifths_of_the_delay_on() -> None:
    assert named(compute=late(0.062), launch=late(0.038)) == [("gpu", (2,), 0.062)]
    assert named(compute=late(0.058), launch=late(0.042)) == [("gpu", (2,), 0.058), ("cpu", (2,), 0.042)]


def test_a_gap_at_the_start_of_a_step_is_another_cause_from_three_times_the_other_gaps_on() -> None:
    assert named(first=late(0.028), launch=late(0.01)) == [("cpu", (2,), 0.038)]
    assert named(first=late(0.032), launch=late(0.01)) == [("input", (2,), 0.032)]


def test_a_rank_is_frequently_late_from_a_tenth_of_the_steps_on() -> None:
    later = 0.08 * 7 / 8  # than the mean of the 8 ranks, in 4 of 40 steps
    assert named(compute=late(0.08, steps=40, of=slice(4))) == [("gpu", (2,), round(later * 4 / 40, 9))]
    assert all(ranks == () for _, ranks, _ in named(compute=late(0.4, steps=40, of=slice(3))))


def test_of_two_ranks_the_later_one_is_late_by_the_whole_difference() -> None:
    """The median of two ranks is half-way between them. They are late in turn, by 40 ms of 1 s."""
    compute = np.zeros((10, 2))
    compute[0::2, 0] = compute[1::2, 1] = 0.04
    assert [(kind, seconds) for kind, _, seconds in named(compute=compute)] == [("workload", 0.04)]


def slow_steps(transfers: list[float]) -> list[int]:
    """The number of steps with slow transfers, of steps that take 1 s on four equal ranks."""
    steps = len(transfers)
    causes = find_causes(of_kernels(np.full((steps, 4), 0.5)), compared_ranks(4), 1.0, np.array(transfers))
    assert {cause.kind for cause in causes} <= {"network"}
    return [int(cause.evidence.removeprefix("in ").split()[0]) for cause in causes]


def test_a_transfer_is_slow_from_a_hundredth_of_the_step_on() -> None:
    """Of 10 steps, one is longer by 6 %, which alone is 0.6 % of the run and so a cause."""
    assert slow_steps([0.2] * 8 + [0.2 + 0.0099, 0.26]) == [1]
    assert slow_steps([0.2] * 8 + [0.2 + 0.0101, 0.26]) == [2]


def test_a_transfer_is_slow_from_nine_standard_deviations_on() -> None:
    """Most steps are 10 ms from the median: the median absolute deviation, 1 / 1.4826 standard deviations."""
    usual = [0.19, 0.2, 0.21] * 3
    longer = 0.010 * 1.4826 * 9
    assert slow_steps([*usual, 0.2 + 0.99 * longer]) == []
    assert slow_steps([*usual, 0.2 + 1.01 * longer]) == [1]


@pytest.mark.parametrize(
    ("least", "delay", "gap", "part"),
    [(15, 45, 30, "launch"), (15, 45, 29, "queued"), (90, 100, 80, "launch"), (90, 100, 79, "queued")],
)
def test_a_gap_that_begins_up_to_a_launch_latency_after_the_launch_is_a_late_launch(
    least: int, delay: int, gap: int, part: str
) -> None:
    """The second kernel starts `delay` µs after its launch and `gap` µs after the first one. The launch latency is the
    least delay of a kernel of the step, but at most 20 µs: with more, all of them waited in the queue."""
    starts, net_gaps = np.array([[1_000_000, 2_000_000]]), np.array([[0, 1000 * gap]])
    nothing = np.zeros_like(starts)
    layout = StepLayout(np.arange(2), np.zeros(2, bool), np.ones(2, bool))
    launches = starts - 1000 * np.array([[least, delay]])
    found = part_sums(StepKernels(layout, starts, starts + 1000, launches, nothing, net_gaps, nothing, nothing))
    sums = {name: int(found[f"inside_{name}"][0]) for name in ("launch", "queued")}
    assert sums == {"launch": 0, "queued": 0} | {part: 1000 * gap}


# --- Clocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("seed", range(5))
def test_clocks_agree_if_half_of_the_ranks_are_missing_in_most_steps(ranks: int, seed: int) -> None:
    """All ranks leave a collective within 1 us, and each file has a separate clock."""
    random = np.random.default_rng(seed)
    clocks = random.integers(-500_000, 500_000, ranks)
    steps = []
    for number in range(10):
        present = range(ranks) if number < 2 else sorted(random.choice(ranks, ranks // 2, replace=False).tolist())
        places = list(present)
        left = 1_700_000_000_000_000_000 + number * 10**8 + np.arange(1, 11) * 10**6
        ends = left + clocks[places][:, None] + random.integers(0, 1000, (len(places), 10))
        steps.append(CollectiveTimes(tuple(places), ends - 5000, ends))
    found = align(steps, [f"rank{number}" for number in range(ranks)])
    assert found.offsets == pytest.approx(clocks - clocks[0], abs=1000)
    assert found.error_seconds is not None
    assert found.error_seconds < 2e-6


def test_the_clock_of_a_rank_without_a_common_step_with_the_first_rank_is_found_through_another() -> None:
    clocks = np.array([0, 300_000, -800_000, 50_000])
    steps = []
    for number, places in enumerate([(0, 1), (1, 2), (2, 3), (1, 2)]):
        ends = number * 10**8 + np.arange(1, 11) * 10**6 + clocks[list(places)][:, None]
        steps.append(CollectiveTimes(places, ends - 5000, ends))
    found = align(steps[::-1], [f"rank{number}" for number in range(4)])
    assert found.offsets.tolist() == clocks.tolist()
    assert found.error_seconds == 0


def test_the_offset_of_a_clock_is_the_median_difference_to_the_median_over_ranks() -> None:
    """The median over ranks depends on the offsets; here, the second refinement is still wrong by 190 ns.

    Three collectives of three ranks, then two that rank 1 does not have. The aligned ends of each rank differ from
    their medians by 0 in the median.
    """
    of_all = 1000 * np.array([[0, 6, 5], [0, 9, 2], [2, 1, 3]])
    of_two = 1000 * np.array([[1, 3, 8], [4, 9, 4]])
    steps = [CollectiveTimes((0, 1, 2), of_all - 500, of_all), CollectiveTimes((0, 2), of_two - 500, of_two)]
    offsets = align(steps, ["a", "b", "c"]).offsets
    ends = np.array([[0, 0, 2], [6, 9, 1], [5, 2, 3], [1, np.nan, 4], [3, np.nan, 9], [8, np.nan, 4]]) * 1000 - offsets
    differences = ends - np.nanmedian(ends, axis=1, keepdims=True)
    assert np.nanmedian(differences, axis=0).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("distance", "tolerance"),
    [(100, 2e3), (300, 6 * 1.4826 * 300), (2000, 6 * 1.4826 * 2000), (3000, 20e3)],
)
def test_ranks_leave_a_collective_together_within_six_standard_deviations_between_2_and_20_us(
    distance: int, tolerance: float
) -> None:
    """Two of four ranks leave `distance` ns before the median, two after: this is the median absolute deviation."""
    ends = 10**9 + np.arange(5) * 10**6 + distance * np.array([[-1], [-1], [1], [1]])
    step = CollectiveTimes((0, 1, 2, 3), ends - 5000, ends)
    assert end_tolerance([step], np.zeros(4)) == pytest.approx(tolerance)


def test_ranks_of_no_collective_leave_it_within_20_us() -> None:
    assert end_tolerance([], np.zeros(2)) == 20e3


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ([10e-3, 10e-3], "rank 2 is the latest in 2 of 4 steps, by 10 ms: too few steps to exclude chance"),
        ([4e-3, 20e-3], "rank 2 is the latest in 2 of 4 steps, by 4 ms to 20 ms: the delays vary too much"),
    ],
)
def test_equal_amounts_are_not_said_to_vary(amounts: list[float], text: str) -> None:
    late = np.zeros((4, 4))
    late[:2, 2] = amounts
    parts = {name: late if name == "launch" else np.zeros((4, 4)) for name in Lateness._fields}
    (cause,) = find_causes(parts, compared_ranks(4), 100e-3, np.zeros(4))
    assert (cause.kind, cause.ranks) == ("random", (2,))
    assert text in cause.evidence
