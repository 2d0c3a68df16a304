"""Expected times: equal for ints and arrays, never below the bound, and equal to values derived by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.counting.number_formats import FORMATS, Widths
from roofmodel.counting.operator import Builder, Operator
from roofmodel.devices.calibration import (
    Calibration,
    ElementwiseTiming,
    Fit,
    GemmTiming,
)
from roofmodel.devices.device import Device
from roofmodel.measure.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.timing import elementwise, gemm
from roofmodel.timing.formula import Chip
from roofmodel.timing.gemm import GemmWork
from roofmodel.timing.roofline import place
from roofmodel.timing.timing import Expected, Formula, clamp_to_bound, expect, formula, independent_sum

A100, H100 = Device.load("a100"), Device.load("h100")
TOY = Device.load(Path(__file__).parents[2] / "examples" / "toy-gpu.yaml")
PLAIN = Chip(multiprocessors=100, peak=100e12, bandwidth=1e12, l2=0.0, port=1e12)
SIZES = st.integers(1, 20000)


def gemm_operator(m: int, n: int, k: int) -> Operator:
    form = FORMATS["fp16"]
    build = Builder({"M": m, "N": n, "K": k}, Widths(form, form, form))
    return build.operator("gemm", "gemm", "x[M K] W[K N] -> y[M N]")


def test_the_time_of_a_gemm_of_whole_tiles_is_its_number_of_waves() -> None:
    """Compute only: 100 SMs of 1 TFLOP/s and 150 x 100 tiles of 256 x 128, so 150 waves.

    A wave is 2 x 256 x 128 x 4096 FLOP at 1 TFLOP/s = 268.4 us. No smaller tile is faster.
    """
    free = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1e9, 0)
    m, n, k = 256 * 150, 128 * 100, 4096
    seconds = gemm.seconds(GemmWork(1, m, n, k, 2 * (m * k + k * n + m * n)), PLAIN, free)
    assert seconds == pytest.approx(150 * 2 * 256 * 128 * 4096 / 1e12, rel=1e-9)


def test_one_tile_more_than_a_wave_takes_a_second_wave() -> None:
    """A split of K costs a second here, so none is chosen. The smallest tiles of 1600 x 64 are 100 of 16 x 64."""
    free = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1e9, 0)
    full, one_row_more = (gemm.seconds(GemmWork(1, m, 64, 4096, 0), PLAIN, free) for m in (1600, 1601))
    assert full == pytest.approx(2 * 16 * 64 * 4096 / 1e12, rel=1e-9)
    assert one_row_more == pytest.approx(2 * full, rel=1e-9)


def test_a_gemm_of_one_row_streams_its_weights() -> None:
    """2 MB at half of 1 TB/s take 4 us, plus 3 us of latency."""
    timing = GemmTiming(3e-6, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 0.5, 0)
    fast = PLAIN._replace(peak=1e18)  # compute takes no time
    assert gemm.seconds(GemmWork(1, 1, 1000, 1000, 2e6), fast, timing) == pytest.approx(7e-6, rel=1e-6)


def test_a_row_is_quantized_by_one_sm() -> None:
    """200 rows on 100 SMs, 5 us each: 10 us more. Without that time, 2 MB read and written at 1 TB/s take 2 us more."""
    timing = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1.0, 0, row=5e-6)
    unquantized = gemm.seconds(GemmWork(1, 200, 1000, 1000, 0), PLAIN, timing)
    assert gemm.seconds(GemmWork(1, 200, 1000, 1000, 0, quantized=2e6), PLAIN, timing) == pytest.approx(
        unquantized + 10e-6
    )
    streamed = gemm.seconds(GemmWork(1, 200, 1000, 1000, 0, quantized=2e6), PLAIN, timing._replace(row=0))
    assert streamed == pytest.approx(unquantized + 2e-6)


def test_rows_that_exceed_l2_are_quantized_more_slowly() -> None:
    """2 MB at 1 TB/s take 2 us, and three times as long if they exceed 0.7 of L2."""
    timing = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1.0, 0, spill=2.0)
    unquantized = gemm.seconds(GemmWork(1, 200, 1000, 1000, 0), PLAIN, timing)
    for l2, quantizing in ((3e6, 2e-6), (2.8e6, 6e-6)):
        chip = PLAIN._replace(l2=l2)
        found = gemm.seconds(GemmWork(1, 200, 1000, 1000, 0, quantized=2e6), chip, timing)
        assert found == pytest.approx(unquantized + quantizing)


def test_an_element_is_quantized_by_one_sm() -> None:
    """200 rows of 1000 elements on 100 SMs, 5 ns each: 10 us more, instead of 2 us for 2 MB at 1 TB/s."""
    timing = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1.0, 0)
    work = GemmWork(1, 200, 1000, 1000, 0, quantized=2e6)
    unquantized = gemm.seconds(work._replace(quantized=0), PLAIN, timing)
    assert gemm.seconds(work, PLAIN, timing._replace(cast=5e-9)) == pytest.approx(unquantized + 10e-6)
    assert gemm.seconds(work, PLAIN, timing._replace(cast=0.5e-9)) == pytest.approx(unquantized + 2e-6)


def test_a_that_stays_in_l2_is_quantized_without_dram() -> None:
    """A has 4 MB, and 2 MB when quantized; B and C have 1 MB each. 7 of 14 MB keep A and C, 4.9 MB keep nothing.

    Without L2, 6 MB at 1 TB/s quantize A, and the GEMM moves 6 MB. With it, only B comes from DRAM.
    """
    timing = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1.0, 0, written=0)
    work = GemmWork(1, 2000, 250, 1000, 6e6, a=1, b=4, c=2, quantized=6e6)
    chip = PLAIN._replace(peak=1e18, l2=14e6)
    assert gemm.seconds(work, chip, timing._replace(resident=0.35)) == pytest.approx(6e-6 + 6e-6)
    assert gemm.seconds(work, chip, timing._replace(resident=0.5)) == pytest.approx(1e-6)


def test_bytes_in_l2_take_a_share_of_the_time_of_dram() -> None:
    """A and C of 1 MB each stay in L2, B of 1 MB does not: 1 us at 1 TB/s for B, 0.25 us for A, 0.75 us for C."""
    timing = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1.0, 0, resident=0.5, cached=0.25, written=0.75)
    work, chip = GemmWork(1, 500, 500, 1000, 3e6, a=2, b=2, c=4), PLAIN._replace(peak=1e18, l2=14e6)
    assert gemm.seconds(work, chip, timing) == pytest.approx(2e-6)


def test_a_library_may_not_split_a_short_k() -> None:
    """One tile of 128 x 128 with K = 1024 is not split, with K = 1025 it is."""
    timing = GemmTiming(1e-6, 0, 4e-9, 1e-6, 1.0, 0, 1e9, 1e9, 1.0, 0)

    def slowdown(k: int) -> float:
        work = GemmWork(1, 128, 128, k, 2 * 128 * k)
        return float(gemm.seconds(work, PLAIN, timing._replace(unsplit=1)) / gemm.seconds(work, PLAIN, timing))

    assert slowdown(1024) > 1.2
    assert slowdown(1025) == 1


def test_a_library_may_compute_few_rows_in_whole_tiles_of_128_columns() -> None:
    """8 x 4096 with K = 2048: 32 tiles, and 64 bytes per clock load 128 columns of 2 bytes per element of K into an SM.

    With 9 rows, 4097 columns, K = 2080 or a batch, the library may choose as for any other GEMM. With 513 to 1024
    columns, the same applies up to 16 rows.
    """
    timing = GemmTiming(0, 0, 1e-9, 0, 1.0, 0, 1e9, 1e9, 1e9, 0)
    few_rows = timing._replace(unsplit=2)
    port_of_an_sm = PLAIN.port / PLAIN.multiprocessors

    def seconds(m: int, n: int, k: int, chosen: GemmTiming, batch: int = 1) -> float:
        return float(gemm.seconds(GemmWork(batch, m, n, k, 0), PLAIN, chosen))

    assert seconds(8, 4096, 2048, few_rows, batch=2) == seconds(8, 4096, 2048, timing, batch=2)
    assert seconds(8, 4096, 2048, few_rows) == pytest.approx(2048 * 128 * 2 / port_of_an_sm)
    assert seconds(8, 4096, 2048, few_rows) > 1.5 * seconds(8, 4096, 2048, timing)
    for shape in ((16, 1024, 2048), (16, 513, 2048), (8, 1025, 2048)):
        assert seconds(*shape, few_rows) > 1.5 * seconds(*shape, timing)
    for shape in (
        (9, 4096, 2048),
        (8, 4097, 2048),
        (8, 4096, 2080),
        (17, 1024, 2048),
        (16, 512, 2048),
        (9, 1025, 2048),
    ):
        assert seconds(*shape, few_rows) == seconds(*shape, timing)


def test_a_library_may_not_split_k_of_few_rows() -> None:
    """64 x 2048: with `unsplit` = 3, K is not split below 2048 elements, with 4 below 8192; with 4, also 2048 x 64.

    With 65 rows, 1535 columns or a batch, K is split as with `unsplit` = 1.
    """
    timing = GemmTiming(1e-6, 0, 4e-8, 1e-6, 1.0, 0, 1e9, 1e9, 1.0, 0)

    def unsplit(m: int, n: int, k: int, rule: int, batch: int = 1) -> bool:
        work = GemmWork(batch, m, n, k, 0)
        return bool(gemm.seconds(work, PLAIN, timing._replace(unsplit=rule)) > gemm.seconds(work, PLAIN, timing))

    assert [unsplit(64, 2048, k, 3) for k in (1024, 2047, 2048)] == [True, True, False]
    assert [unsplit(64, 2048, k, 4) for k in (2048, 8191, 8192)] == [True, True, False]
    assert [unsplit(64, 1024, k, 1) for k in (1024, 2047)] == [True, False]
    assert [unsplit(2048, 64, k, 3) for k in (1024, 2047)] == [True, False]
    assert [unsplit(2048, 64, k, 4) for k in (2048, 8191, 8192)] == [True, True, False]
    for rule in (3, 4):
        others = unsplit(65, 2048, 2047, rule), unsplit(64, 1535, 1534, rule), unsplit(64, 2048, 2047, rule, batch=2)
        assert not any(others), (rule, others)
    assert not any((unsplit(2048, 65, 2047, 4), unsplit(1535, 64, 1534, 4)))


def test_the_thread_blocks_of_many_tiles_start_later() -> None:
    """`late` adds half of its time with 32 tiles of 128 x 128, in one GEMM or in a batch, and almost all with many."""
    timing = GemmTiming(1e-6, 0, 0, 1e-6, 1.0, 0, 1e9, 1e9, 1e9, 0, late=1e-6)

    def later(batch: int, m: int, n: int) -> float:
        work, chip = GemmWork(batch, m, n, 64, 0), PLAIN._replace(peak=1e30)
        without = gemm.seconds(work, chip, timing._replace(late=0))
        return float((gemm.seconds(work, chip, timing) - without) / timing.late)

    assert [later(1, 1, 128 * 32), later(4, 128 * 2, 128 * 4)] == pytest.approx([0.5, 0.5])
    assert later(1, 128, 128) == pytest.approx(1 / 33)
    assert later(1, 12800, 12800) > 0.99


def test_a_library_may_have_tiles_between_the_powers_of_two() -> None:
    """100 SMs compute 192 x 12800 elements in one wave with tiles of 192 x 128, else in two with 128 x 128 (1.33 times
    as much work), or with 128 x 64 and 64 x 128 in more waves of less work. Powers of two lose nothing."""
    timing = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1e9, 0, tall=128)
    intermediate = timing._replace(intermediate=1)
    wave = 2 * 192 * 128 * 4096 / (PLAIN.peak / PLAIN.multiprocessors)
    work = GemmWork(1, 192, 12800, 4096, 0)
    assert gemm.seconds(work, PLAIN, intermediate) == pytest.approx(wave)
    assert gemm.seconds(work, PLAIN, timing) == pytest.approx(wave * 4 / 3)
    power_of_two = work._replace(m=256)
    assert gemm.seconds(power_of_two, PLAIN, intermediate) == gemm.seconds(power_of_two, PLAIN, timing)


def test_a_library_may_not_split_k_of_a_small_gemm() -> None:
    """7 x 64 x 4096 is less than 2^21, 8 x 64 x 4096 is not; at k = 8192 the limit is 4 rows. Beyond, K is split."""
    timing = GemmTiming(1e-6, 0, 4e-9, 1e-6, 1.0, 0, 1e9, 1e9, 1.0, 0)
    unsplit = timing._replace(unsplit=1)

    def slower(m: int, k: int) -> bool:
        work = GemmWork(1, m, 64, k, 2 * 64 * k)
        return gemm.seconds(work, PLAIN, unsplit) > 2 * gemm.seconds(work, PLAIN, timing)

    assert [slower(m, 4096) for m in (7, 8)] == [True, False]
    assert [slower(m, 8192) for m in (3, 4)] == [True, False]
    assert not slower(1, 16384)


def test_a_balanced_last_wave_takes_as_long_as_its_tiles() -> None:
    """101 tiles on 100 SMs take two waves, or 1.01 waves where the SMs share the last tile; one tile takes one wave."""
    timing = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1e9, 0)

    def waves(tiles: int, balanced: float) -> float:
        work, chosen = GemmWork(1, 256 * tiles, 128, 4096, 0), timing._replace(balanced=balanced)
        wave = 2 * 256 * 128 * 4096 / (PLAIN.peak / PLAIN.multiprocessors)
        return float(gemm.candidate_seconds(work, (256, 128, 1), PLAIN, chosen)) / wave

    assert [waves(tiles, 0) for tiles in (1, 100, 101)] == pytest.approx([1, 1, 2])
    assert [waves(tiles, 1) for tiles in (1, 100, 101)] == pytest.approx([1, 1, 1.01])


def test_tall_tiles_waste_work_on_few_rows() -> None:
    """129 rows need two tiles of 128 rows, like 256 rows. If shorter tiles are available, those are used."""
    any_height = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1e9, 0)
    only_128 = any_height._replace(tall=128)
    few, many = (GemmWork(1, m, 64 * 10000, 4096, 0) for m in (129, 256))
    assert gemm.seconds(few, PLAIN, only_128) == pytest.approx(gemm.seconds(many, PLAIN, only_128))
    assert gemm.seconds(few, PLAIN, any_height) < 0.7 * gemm.seconds(many, PLAIN, any_height)


def test_launch_overhead_hides_shorter_kernels() -> None:
    timing = GemmTiming(3e-6, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 0.5, 0, host=80e-6)
    fast = PLAIN._replace(peak=1e18)
    assert gemm.seconds(GemmWork(1, 1, 1000, 1000, 2e6), fast, timing) == 80e-6
    assert gemm.seconds(GemmWork(1, 1, 10000, 10000, 2e8), fast, timing) == pytest.approx(403e-6, rel=1e-6)


def test_a_repeated_gemm_reads_from_l2_what_fits_there() -> None:
    """A, C and B have 1, 2 and 3 MB. 6 MB pass between two uses of A; C counts half again for itself, so 7 MB must fit.
    With 5 copies of B, 18 MB pass between two uses of B; with 6 copies of A and B, 26 MB between two uses of both. Half
    of an operand stays in L2 if these bytes exceed L2 by 10 %."""
    work = GemmWork(1, 1000, 1500, 1000, 6_000_000, 1.0, 2.0, 4 / 3)
    for l2, copies, streamed in (
        (5e6, (1, 1), 6e6), (6e6, (1, 1), 2e6 / 1.2), (7e6 / 1.1, (1, 1), 1e6), (7e6, (1, 1), 0), (9e6, (1, 0), 3e6),
        (15e6, (1, 5), 3e6), (18e6 / 1.1, (1, 5), 1.5e6), (18e6, (1, 5), 0), (21e6, (6, 6), 4e6), (26e6, (6, 6), 0),
    ):  # fmt: skip
        timing = GemmTiming(0, 0, 0, 0, 1e9, 0, 1e9, 1e9, 1.0, 0, resident=1.0, written=0)
        chip = PLAIN._replace(l2=l2)
        found = gemm.seconds(work._replace(copies_a=copies[0], copies_b=copies[1]), chip, timing)
        assert found == pytest.approx(streamed / 1e12, abs=1e-8)


def test_few_rows_use_dot_products_if_these_are_faster() -> None:
    """Tiles take 41 us for K = 1024. Dot products take 5 us for 1000 columns on 100 SMs (0.5 us per column), or 8 us
    for K = 4000 (2 ns per element). Both add 3 us of latency. Five rows are too many for dot products."""
    tiles = GemmTiming(3e-6, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1.0, 0, parts=1)
    slow_tiles = tiles._replace(step=40e-9)
    with_dot_products = slow_tiles._replace(few=4, column=0.5e-6, dot=2e-9)

    def seconds(m: int, k: int, timing: GemmTiming) -> float:
        return float(gemm.seconds(GemmWork(1, m, 1000, k, 0), PLAIN, timing))

    assert seconds(4, 1024, slow_tiles) == pytest.approx(3e-6 + 40e-9 * 1024)
    assert seconds(4, 1024, with_dot_products) == pytest.approx(3e-6 + 5e-6)
    assert seconds(4, 4000, with_dot_products) == pytest.approx(3e-6 + 8e-6)
    assert seconds(5, 1024, with_dot_products) == seconds(5, 1024, slow_tiles)
    assert seconds(4, 1024, with_dot_products._replace(step=0)) == pytest.approx(
        seconds(4, 1024, tiles)
    )  # tiles are faster


def test_a_library_that_splits_k_into_few_parts_or_none_takes_longer() -> None:
    """One tile with K = 64 000 at 10 ns per element takes 640 us. The 6 or 32 parts of a split run at the same time."""
    free = GemmTiming(0, 0, 10e-9, 0, 1.0, 0, 1e9, 1e9, 1e9, 0)
    fast = PLAIN._replace(peak=1e18, port=1e24)
    times = [gemm.seconds(GemmWork(1, 16, 64, 64000, 0), fast, free._replace(parts=n)) for n in (1, 7, 32)]
    assert times == pytest.approx([10e-9 * k for k in (64000, 10688, 2016)], rel=1e-9)  # in whole slices of 32


def test_narrow_weights_are_converted_before_the_gemm() -> None:
    """K = 1024 at 2 ns per element: 2.048 us more."""
    timing = GemmTiming(3e-6, 1e-6, 4e-9, 1.0, 1.0, 0, 1e9, 1e9, 1.0, 0)
    unconverted, converted = (
        gemm.seconds(GemmWork(1, 16, 1000, 1024, 1e6), PLAIN, timing._replace(convert=seconds))
        for seconds in (0.0, 2e-9)
    )
    assert converted == pytest.approx(unconverted + 2.048e-6)


QUANTIZED = [
    (dtype, kernel)
    for dtype, form in (("sq", "int8/int8"), ("int8_wo", "fp16/int8"), ("int4_wo", "fp16/int4"))
    for kernel, sets in (A100.calibration or Calibration("none")).gemm.items()
    if form in sets
]


@pytest.mark.parametrize(("dtype", "kernel"), QUANTIZED)
@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 40), SIZES, SIZES), min_size=1, max_size=8))
def test_expected_times_of_few_rows_as_arrays_equal_those_as_ints(
    dtype: str, kernel: str, shapes: list[tuple[int, int, int]]
) -> None:
    m, n, k = (np.array(column, dtype=float) for column in zip(*shapes, strict=True))
    precision = PRECISIONS[dtype]
    build = OPERATIONS["gemm"].operator

    def formula_of(columns: dict[str, Any]) -> Formula:
        operator = build(columns, widths(precision))
        chosen = formula(operator, place(operator.cost, A100, precision.compute), A100, precision.compute, kernel)
        assert chosen is not None
        return chosen

    many = formula_of({"m": m, "n": n, "k": k})
    singles = [formula_of({"m": m, "n": n, "k": k}) for m, n, k in shapes]
    assert many.seconds == pytest.approx([one.seconds for one in singles], rel=1e-12)


def test_data_that_fit_in_l2_move_at_its_bandwidth() -> None:
    timing = ElementwiseTiming(1e-6, 0.5, 2.0)
    chip = PLAIN._replace(l2=1e6)
    assert elementwise.seconds(1e6, 0.0, chip, timing) == pytest.approx(1e-6 + 1e6 / 2e12)
    assert elementwise.seconds(2e6, 0.0, chip, timing) == pytest.approx(1e-6 + 2e6 / 0.5e12)


@settings(deadline=None)
@given(SIZES, SIZES, SIZES)
def test_no_expected_time_is_below_its_bound_or_outside_its_interval(m: int, n: int, k: int) -> None:
    for device in (A100, H100):
        operator = gemm_operator(m, n, k)
        expected = expect(operator, device, "fp16")
        assert expected is not None
        assert place(operator.cost, device, "fp16").bound_seconds <= expected.low
        assert expected.low <= expected.value <= expected.high


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=8))
def test_expected_times_of_arrays_equal_those_of_ints(shapes: list[tuple[int, int, int]]) -> None:
    m, n, k = (np.array(column, dtype=float) for column in zip(*shapes, strict=True))
    many = expect(OPERATIONS["gemm"].operator({"m": m, "n": n, "k": k}, widths_of("float16")), A100, "fp16")
    singles = [expect(gemm_operator(*shape), A100, "fp16") for shape in shapes]
    assert many is not None
    assert many.value == pytest.approx([one.value for one in singles if one], rel=1e-12)


@pytest.mark.parametrize("op", ["attn_context", "attn_generation"])
def test_attention_over_arrays_equals_attention_over_ints(op: str) -> None:
    rng = np.random.default_rng(7)
    rows = []
    for _ in range(50):
        kv, seq = int(rng.integers(1, 9)), int(rng.integers(1, 3000))
        rows.append(
            {"batch": int(rng.integers(1, 70)), "heads": kv * int(rng.integers(1, 9)), "kv_heads": kv, "head_dim": 128}
            | {"seq": 1 if op == "attn_generation" else seq + 1, "kv_len": seq + 1, "window": int(rng.choice([0, 128]))}
        )
    columns = {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}
    many = expect(OPERATIONS[op].operator(columns, widths_of("bfloat16")), H100, "bf16")
    assert many is not None
    for i, row in enumerate(rows):
        one = expect(OPERATIONS[op].operator(row, widths_of("bfloat16")), H100, "bf16")
        assert one is not None
        assert many.value[i] == pytest.approx(one.value, rel=1e-12)


def widths_of(dtype: str) -> Widths:
    return widths(PRECISIONS[dtype])


def test_a_device_without_calibration_has_no_expected_times() -> None:
    assert expect(gemm_operator(10, 10, 10), TOY, "fp16") is None
    assert expect(gemm_operator(10, 10, 10), replace(A100, calibration=Calibration("none")), "fp16") is None


@pytest.mark.parametrize(("low", "high", "ends"), [
    (0.8, 1.5, (0.8**2, 1.5**2)),
    (0.5, 2.0, (1 / 3, 3.0)),  # limited to a factor of three
    (0.2, 4.0, (0.2, 4.0)),  # the interval of the set itself is wider
])  # fmt: skip
def test_the_interval_of_a_substituted_parameter_set_is_within_a_factor_of_three(
    low: float, high: float, ends: tuple[float, float]
) -> None:
    wider = Fit(1, 1, 0.1, low, high, "", "").wider(2)
    assert (wider.low, wider.high) == ends


def test_the_error_of_a_fit_and_of_its_transfer_add_in_quadrature() -> None:
    """Logarithms -0.3 and 0.4, and a transfer error of 0.4: -0.5 and 0.4 √2."""
    biased = Fit(1, 1, 0.1, 1.03, 1.2, "", "")  # measurements take longer than the expected time
    same = biased.with_spread(0)
    assert (same.low, same.high) == pytest.approx((1.03, 1.2))
    assert 1 < biased.with_spread(0.02).low < 1.03
    assert Fit(1, 1, 0.1, 0.8, 0.97, "", "").with_spread(0).high == pytest.approx(0.97)
    wider = Fit(1, 1, 0.1, math.exp(-0.3), math.exp(0.4), "", "").with_spread(0.4)
    assert (math.log(wider.low), math.log(wider.high)) == pytest.approx((-0.5, 0.4 * math.sqrt(2)))


def test_intervals_of_independent_times_add_in_quadrature_and_those_of_equal_errors_linearly() -> None:
    """Lower parts 3 and 4 add to 5, upper parts 6 and 8 to 10; linearly, to 7 and 14."""
    first, second = Expected(100.0, 97.0, 106.0), Expected(50.0, 46.0, 58.0)
    assert independent_sum(first, second) == (150.0, 145.0, 160.0)
    assert first + second == (150.0, 143.0, 164.0)


def test_an_expected_time_clamped_to_its_bound_has_an_interval() -> None:
    """If the formula gives half of the bound, the interval starts at the bound and keeps its relative upper end."""
    fit = Fit(1, 1, 0.1, 0.9, 1.2, "", "")
    assert clamp_to_bound(1.0, fit, 2.0) == (2.0, 2.0, 2.4)
    assert clamp_to_bound(2.0, fit, 1.0) == (2.0, 1.8, 2.4)
