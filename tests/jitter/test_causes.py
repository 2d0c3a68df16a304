"""Causes of late ranks and clocks of files, on synthetic arrays."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.jitter_detection import count_false, count_found, detectable_delay
from roofmodel.jitter.alignment import StepLayout
from roofmodel.jitter.causes import (
    KINDS,
    LEVEL,
    Cause,
    excesses,
    find_causes,
    late_cells,
    late_ranks,
    student_tail,
)
from roofmodel.jitter.deviations import Floats, StepKernels
from roofmodel.jitter.lateness import CollectiveTimes, Lateness, align, end_tolerance, part_sums
from roofmodel.jitter.ranks import ComparedRank


def of_kernels(compute: Floats) -> dict[str, Floats]:
    """The parts of the lateness (steps x ranks) if ranks differ only in their kernel times."""
    return {name: compute if name == "compute" else np.zeros_like(compute) for name in Lateness._fields}


def compared_ranks(count: int) -> list[ComparedRank]:
    return [ComparedRank(number, f"rank{number}", None, None, None, 1) for number in range(count)]


def causes_of(parts: dict[str, Floats], step_seconds: float, transfers: Floats | None = None) -> list[Cause]:
    """The causes of a run with these parts of the lateness, steps x ranks."""
    steps, ranks = parts["compute"].shape
    transfers = np.zeros(steps) if transfers is None else transfers
    return find_causes(parts, compared_ranks(ranks), range(steps), step_seconds, transfers)


def noise(seed: int, steps: int, ranks: int, relative: float = 0.005, step_seconds: float = 0.1) -> Floats:
    """Kernel times that vary by a share of the step."""
    return step_seconds * (1 + np.random.default_rng(seed).normal(0, relative, (steps, ranks)))


# --- The rule -----------------------------------------------------------------------------------------

sizes = st.tuples(st.integers(1, 8), st.integers(2, 9))


@given(sizes, st.integers(0, 1000), st.floats(0, 0.5))
def test_an_excess_is_the_difference_to_the_median_of_the_other_ranks(
    size: tuple[int, int], seed: int, missing: float
) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(-5, 5, size).astype(float)  # with equal values
    values[random.random(size) < missing] = np.nan
    found = excesses(values)
    for step, rank in np.ndindex(*size):
        others = [value for value in np.delete(values[step], rank).tolist() if not math.isnan(value)]
        expected = values[step, rank] - statistics.median(others) if others else math.nan
        assert found[step, rank] == pytest.approx(expected, nan_ok=True)


def brute_force_excesses(values: Floats) -> list[list[float]]:
    """By rank, then by step."""
    return [
        [values[step, rank] - statistics.median(np.delete(values[step], rank).tolist()) for step in range(len(values))]
        for rank in range(values.shape[1])
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(2, 7), st.integers(0, 10_000), st.floats(3, 60))
def test_a_single_step_is_late_beyond_the_tail_of_exponential_noise_with_an_estimated_scale(
    steps: int, ranks: int, seed: int, delay: float
) -> None:
    """An exponential value / the mean of n others has the F distribution with 2 and 2 n degrees of freedom; half of
    the noise is late. The median of exponential values is log(2) means. The residual of a rank's median step is 0, or
    with an even number of steps those of the two next to it are equal: one of them is no estimate. The scale of the
    late side counts if it is larger."""
    f = pytest.importorskip("scipy.stats").f
    values = np.random.default_rng(seed).laplace(0, 1, (steps, ranks))
    values[seed % steps, seed % ranks] += delay
    residuals = [[each - statistics.median(of_rank) for each in of_rank] for of_rank in brute_force_excesses(values)]
    free = [each for of_rank in residuals for each in sorted(of_rank, key=abs)[1:]]
    quartile = sorted(free)[3 * (len(free) - 1) // 4]
    scale = max(statistics.median(map(abs, free)), quartile) / math.log(2)
    freedom = (steps - 1) * (ranks - 1)
    chances = np.array([[f.sf(max(each, 0) / scale, 2, 2 * freedom) / 2 for each in of_rank] for of_rank in residuals])
    assert late_cells(values).tolist() == (chances < LEVEL / (steps * ranks)).T.tolist()


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 20), st.integers(2, 6), st.integers(0, 10_000), st.floats(0.3, 8), st.booleans())
def test_the_latest_rank_is_late_by_students_t_test_or_by_the_sign_test(
    steps: int, ranks: int, seed: int, delay: float, long_tails: bool
) -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(seed)
    values = random.standard_cauchy((steps, ranks)) if long_tails else random.normal(0, 1, (steps, ranks))
    values[:, ranks // 2] += delay
    relative = values - np.median(values, axis=1, keepdims=True)
    medians, means = np.median(relative, axis=0), relative.mean(axis=0)
    latest = int(medians.argmax())
    others = [rank for rank in range(ranks) if rank != latest]
    by_rank = brute_force_excesses(values)
    variances = list(map(statistics.variance, by_rank))
    error = math.sqrt(max(variances[latest], statistics.fmean(variances)) / steps)
    mean = float(means[latest] - np.median(means[others]))
    level = 0.01 / ranks
    signs = sum(each > 0 for each in by_rank[latest])
    if 0.5**steps < level / 2:
        level /= 2
    late = stats.t.sf(mean / error, (steps - 1) * (ranks - 1)) < level or stats.binom.sf(signs - 1, steps, 0.5) < level
    least = float(medians[latest] - np.median(medians[others]))
    assert late_ranks(values, 0.99 * least)[latest] == late
    assert not late_ranks(values, 1.01 * least).any()


@pytest.mark.parametrize("shape", ["normal", "long tails", "skewed", "one rank varies more"])
@pytest.mark.parametrize(("steps", "ranks"), [(2, 4), (4, 2), (6, 4), (3, 16), (20, 8)])
def test_ranks_that_are_equal_but_for_noise_are_named_at_the_level(shape: str, steps: int, ranks: int) -> None:
    """Without the least effect. 9 or more of 300 runs have a probability of 0.4 % at a level of 1 %."""
    random = np.random.default_rng(1)

    def draw() -> Floats:
        if shape == "long tails":
            return random.standard_t(3, (steps, ranks))
        if shape == "skewed":
            return random.lognormal(0, 0.3, (steps, ranks))
        return random.normal(0, 1, (steps, ranks)) * np.where((np.arange(ranks) == 0) & (shape[:3] == "one"), 3, 1)

    assert sum(bool(late_ranks(draw(), 0.0).any()) for _ in range(300)) < 9
    if shape == "normal" or (shape == "skewed" and steps == 20):
        assert sum(bool(late_cells(draw()).any()) for _ in range(300)) < 9


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 12), st.integers(2, 12), st.integers(0, 10_000), st.sampled_from(sorted(KINDS)), st.floats(0, 0.3),
    st.booleans(), st.randoms(use_true_random=False),
)  # fmt: skip
def test_the_order_of_ranks_and_what_a_step_costs_all_of_them_change_no_cause(
    steps: int, ranks: int, seed: int, part: str, delay: float, single: bool, random: object
) -> None:
    parts = {name: noise(seed + place, steps, ranks, 0.002) for place, name in enumerate(Lateness._fields)}
    parts[part][: 1 if single else steps, ranks // 2] += delay * 0.1
    order = np.random.default_rng(seed).permutation(ranks)
    every = [ComparedRank(number, f"rank{number}", None, None, f"host{number}", 1) for number in range(ranks)]
    common = np.random.default_rng(seed).normal(0, 1e-3, (steps, 1))
    found = find_causes(parts, every, range(steps), 0.1, np.zeros(steps))
    moved = {name: values[:, order] + (common if name == "compute" else 0) for name, values in parts.items()}
    again = find_causes(moved, [every[place] for place in order], range(steps), 0.1, np.zeros(steps))
    assert [(cause.kind, set(cause.ranks)) for cause in again] == [(cause.kind, set(cause.ranks)) for cause in found]
    assert [cause.seconds_per_step for cause in again] == pytest.approx(
        [cause.seconds_per_step for cause in found], abs=1e-12
    )


# --- Single late steps --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 16), st.integers(2, 30), st.floats(1.2, 3),
    st.sampled_from(["compute", "launch", "input", "network"]), st.integers(0, 10_000), st.data(),
)  # fmt: skip
def test_one_slow_step_of_one_rank_is_named_with_rank_and_step(
    ranks: int, steps: int, factor: float, part: str, seed: int, data: st.DataObject
) -> None:
    """With 2 or 3 ranks, the slow step is in the excess of all ranks, so it needs 5 steps to be an exception."""
    if ranks < 4:
        steps = max(steps, 5)
    step, rank = data.draw(st.integers(0, steps - 1)), data.draw(st.integers(0, ranks - 1))
    parts = {name: np.zeros((steps, ranks)) for name in Lateness._fields} | {"compute": noise(seed, steps, ranks, 1e-3)}
    parts[part][step, rank] += 0.1 * (factor - 1)
    cause = causes_of(parts, 0.1)[0]
    assert (cause.kind, cause.ranks) == (KINDS[part] if part != "launch" else "cpu", (rank,))
    assert f"rank {rank} has " in cause.evidence
    assert f" in step {step}: " in cause.evidence
    assert cause.seconds_per_step == pytest.approx(0.1 * (factor - 1) / steps, rel=0.05)


def test_the_ranks_with_single_late_steps_beyond_the_first_three_have_one_cause() -> None:
    compute = noise(1, 20, 16, 0.001)
    compute[np.arange(5), np.arange(5)] += 0.1 * np.arange(5, 0, -1)
    found = causes_of(of_kernels(compute), 0.1)
    assert [(cause.kind, cause.ranks) for cause in found] == [
        ("gpu", (0,)), ("gpu", (1,)), ("gpu", (2,)), ("random", (3, 4)),
    ]  # fmt: skip
    assert found[3].seconds_per_step == pytest.approx((0.2 + 0.1) / 20, rel=0.01)


def test_a_late_rank_with_a_single_later_step_has_a_cause_for_both() -> None:
    compute = noise(2, 10, 4, 0.001)
    compute[:, 2] += 0.01
    compute[4, 2] += 0.05
    found = causes_of(of_kernels(compute), 0.1)
    assert [(cause.kind, cause.ranks) for cause in found] == [("gpu", (2,)), ("gpu", (2,))]
    assert [cause.seconds_per_step for cause in found] == pytest.approx([0.01, 0.05 / 10], rel=0.05)
    assert "median of 9 steps" in found[0].evidence
    assert "in step 4: 50" in found[1].evidence


# --- Late in all steps --------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [20, 2000, 20_000])
def test_the_rank_that_is_the_latest_in_most_steps_is_found_for_any_number_of_steps(steps: int) -> None:
    """Ranks differ persistently, by up to 3 ms: only the latest one is named, 4.95 - 1.5 ms after their median."""
    compute = 100e-3 + np.array([0, 0.5, 1, 1.5, 2, 2.5, 3, 4.95]) / 1e3
    compute = compute + np.random.default_rng(1).normal(0, 1.2e-3, (steps, 8))
    (cause,) = causes_of(of_kernels(compute), 100e-3)
    assert (cause.kind, cause.ranks) == ("gpu", (7,))


@pytest.mark.parametrize("late", [0.0, 0.4e-3])
def test_the_noise_of_2000_steps_is_no_persistent_cause_of_a_rank(late: float) -> None:
    for seed in range(20):
        compute = 50e-3 + np.random.default_rng(seed).normal(0, 5e-3, (2000, 4))
        compute[:, 2] += late
        found = causes_of(of_kernels(compute), 50e-3)
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
    found = causes_of(of_kernels(compute), 0.1)
    assert [(cause.kind, cause.ranks) for cause in found if "median of 19 steps" in cause.evidence] == [("gpu", (1,))]
    assert len(found) == 5  # the long steps of three ranks, and of the others together


def test_two_steps_of_two_ranks_do_not_exclude_chance() -> None:
    """One degree of freedom: Student's t of 9.5 +- 0.5 ms is 19 or less, and 64 has a chance of 0.5 %."""
    compute = np.array([[0.1, 0.11], [0.101, 0.11]])
    (cause,) = causes_of(of_kernels(compute), 0.1)
    assert (cause.kind, cause.ranks) == ("random", (1,))
    assert "the latest in 2 of 2 steps, by 9 ms to 10 ms, which does not exclude chance" in cause.evidence


def test_the_delay_of_the_only_step_is_reported_and_said_to_be_untested() -> None:
    (cause,) = causes_of(of_kernels(np.array([[0.1, 0.11]])), 0.1)
    assert (cause.kind, cause.ranks) == ("gpu", (1,))
    assert "in the only step, which does not exclude chance" in cause.evidence


def test_a_rank_that_is_the_latest_in_all_of_few_steps_is_not_an_alternating_workload() -> None:
    """Delays of 3, 10 and 5 % in three steps are not persistent, but all are of the same rank."""
    compute = np.array([[0.1, 0.103], [0.1, 0.11], [0.1, 0.105]])
    (cause,) = causes_of(of_kernels(compute), 0.1)
    assert (cause.kind, cause.ranks) == ("random", (1,))


@pytest.mark.parametrize("freedom", [1, 2, 3, 6, 9, 30, 135, 999])
@pytest.mark.parametrize("value", [0.5, 3, 7, 15])
def test_the_tail_of_students_t_equals_that_of_scipy(freedom: int, value: float) -> None:
    expected = pytest.importorskip("scipy.stats").t.sf(value, freedom)
    assert student_tail(2 * value, 2, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-14)


def named(**parts: Floats) -> list[tuple[str, tuple[int, ...], float]]:
    """The causes of runs of 1 s per step in which only these parts of the lateness differ: kind, ranks, seconds."""
    (shape,) = {values.shape for values in parts.values()}
    whole = {name: parts.get(name, np.zeros(shape)) for name in Lateness._fields}
    return [(cause.kind, cause.ranks, round(cause.seconds_per_step, 9)) for cause in causes_of(whole, 1.0)]


def late(seconds: float, steps: int = 20, of: slice = slice(None)) -> Floats:
    """Rank 2 of 8 is late by these seconds in these steps."""
    values = np.zeros((steps, 8))
    values[of, 2] = seconds
    return values


def test_a_second_part_is_a_cause_from_a_quarter_of_the_delay_on() -> None:
    assert named(compute=late(0.076), launch=late(0.024)) == [("gpu", (2,), 0.076)]
    assert named(compute=late(0.074), launch=late(0.026)) == [("gpu", (2,), 0.074), ("cpu", (2,), 0.026)]


def test_the_evidence_does_not_deny_another_part_that_is_late() -> None:
    """The kernels of the rank are longer by 24 % of its delay, and then by nothing."""
    for longer, denied in ((0.024, False), (0.0, True)):
        parts = {name: np.zeros((20, 8)) for name in Lateness._fields}
        (cause,) = causes_of(parts | {"launch": late(0.076), "compute": late(longer)}, 1.0)
        assert cause.kind == "cpu"
        assert ("the kernels are not longer" in cause.evidence) == denied
    for later, denied in ((0.024, False), (0.0, True)):
        parts = {name: np.zeros((20, 8)) for name in Lateness._fields}
        (cause,) = causes_of(parts | {"compute": late(0.076), "launch": late(later)}, 1.0)
        assert ("Its launches and its gaps are not longer" in cause.evidence) == denied


def test_a_gap_at_the_start_of_a_step_is_another_cause_from_three_times_the_other_gaps_on() -> None:
    assert named(first=late(0.028), launch=late(0.01)) == [("cpu", (2,), 0.038)]
    assert named(first=late(0.032), launch=late(0.01)) == [("input", (2,), 0.032)]


def test_the_late_steps_of_a_rank_are_counted_and_listed() -> None:
    assert named(compute=late(0.08, steps=40, of=slice(4))) == [("gpu", (2,), 0.08 * 4 / 40)]
    parts = of_kernels(late(0.08, steps=40, of=slice(3, 7)))
    assert " in 4 of 40 steps (3, 4, 5, 6): 80 ms longer " in causes_of(parts, 1.0)[0].evidence


def test_of_two_ranks_the_later_one_is_late_by_the_whole_difference() -> None:
    """The median of two ranks is half-way between them. They are late in turn, by 40 ms of 1 s."""
    compute = np.zeros((10, 2))
    compute[0::2, 0] = compute[1::2, 1] = 0.04
    assert [(kind, seconds) for kind, _, seconds in named(compute=compute)] == [("workload", 0.04)]


def slow_steps(transfers: list[float]) -> list[int]:
    """The number of steps with slow transfers, of steps that take 1 s on four equal ranks."""
    causes = causes_of(of_kernels(np.full((len(transfers), 4), 0.5)), 1.0, np.array(transfers))
    assert {cause.kind for cause in causes} <= {"network"}
    return [int(cause.evidence.removeprefix("in ").split()[0]) for cause in causes]


def test_a_transfer_is_slow_from_half_a_hundredth_of_the_step_on() -> None:
    assert slow_steps([0.2] * 8 + [0.2049, 0.26]) == [1]
    assert slow_steps([0.2] * 8 + [0.2051, 0.26]) == [2]


def test_a_transfer_is_slow_beyond_exponential_noise() -> None:
    """Most residuals are 10 ms, so their scale is 10 / log(2) ms; of 10 values, 9 are free."""
    usual = [0.19, 0.2, 0.21] * 3
    limit = 0.010 / math.log(2) * pytest.importorskip("scipy.stats").f.isf(2 * LEVEL / 10, 2, 2 * 9)
    assert slow_steps([*usual, 0.2 + 0.99 * limit]) == []
    assert slow_steps([*usual, 0.2 + 1.01 * limit]) == [1]


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
