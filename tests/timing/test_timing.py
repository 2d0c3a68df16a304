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

from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.tensors import FORMATS, Widths
from roofmodel.devices.calibration import (
    Calibration,
    ElementwiseTiming,
    Fit,
    GemmTiming,
)
from roofmodel.devices.device import Device
from roofmodel.measure.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.timing import gemm
from roofmodel.timing.formula import Chip, elementwise_seconds
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


FREE = GemmTiming(
    latency=1e-9, split=1, pipe=1.0, step=0, store=1e9, l2=1e9, dram=1.0, resident=1.0, quantize_row=0
)  # only multiplication and DRAM take time; K is not split, because adding the parts takes a second
FAST = PLAIN._replace(peak=1e18)  # multiplication takes no time


def test_the_time_of_a_gemm_of_whole_tiles_is_its_number_of_waves() -> None:
    """Compute only: 100 SMs of 1 TFLOP/s and 150 x 100 tiles of 256 x 128, so 150 waves.

    A wave is 2 x 256 x 128 x 4096 FLOP at 1 TFLOP/s = 268.4 us. No smaller tile is faster.
    """
    seconds = gemm.seconds(GemmWork(1, 256 * 150, 128 * 100, 4096, 0), PLAIN, FREE)
    assert seconds == pytest.approx(150 * 2 * 256 * 128 * 4096 / 1e12, rel=1e-6)


def test_one_tile_more_than_a_wave_takes_a_second_wave() -> None:
    """The smallest tiles of 6400 x 32 are 100 of 64 x 32."""
    full, one_row_more = (gemm.seconds(GemmWork(1, m, 32, 4096, 0), PLAIN, FREE) for m in (6400, 6401))
    assert full == pytest.approx(2 * 64 * 32 * 4096 / 1e12, rel=1e-3)
    assert one_row_more == pytest.approx(2 * full, rel=1e-3)


def test_a_gemm_of_one_row_streams_its_weights() -> None:
    """2 MB at half of 1 TB/s take 4 us, plus 3 us of latency."""
    timing = FREE._replace(latency=3e-6, dram=0.5)
    assert gemm.seconds(GemmWork(1, 1, 1000, 1000, 2e6), FAST, timing) == pytest.approx(7e-6, rel=1e-6)


def test_computing_and_streaming_overlap_but_not_perfectly() -> None:
    """One tile of 64 x 64 with K = 4096 takes 33.6 us of an SM; where the DRAM takes as long, both take √2 times it."""
    compute = 2 * 64 * 64 * 4096 / 1e12
    for streamed, factor in ((0, 1), (compute * 1e12, math.sqrt(2))):
        found = gemm.candidate_seconds(GemmWork(1, 64, 64, 4096, streamed), (64, 64, 1), PLAIN, FREE)
        assert found == pytest.approx(factor * compute, rel=1e-3)


def test_all_tiles_load_their_operands_through_the_ports() -> None:
    """2 x 3 tiles of 128 x 128 with K = 1000 load 256 rows or columns of 2 bytes each: 3.07 MB at 1 TB/s."""
    found = gemm.candidate_seconds(GemmWork(1, 256, 384, 1000, 0), (128, 128, 1), FAST, FREE._replace(l2=1.0))
    assert found == pytest.approx(6 * 1000 * 256 * 2 / 1e12, rel=1e-3)


def test_a_tile_at_the_edge_loads_only_the_rows_and_columns_that_it_has() -> None:
    """50 tiles of 128 columns and one row: K = 1000 of each in 2 bytes at 1 TB/s; the same with rows for columns."""
    for m, n in ((1, 6400), (6400, 1)):
        found = gemm.candidate_seconds(GemmWork(1, m, n, 1000, 0), (128, 128, 1), FAST, FREE._replace(l2=1.0))
        assert found == pytest.approx(50 * 1000 * (1 + 128) * 2 / 1e12, rel=1e-3)


def test_the_next_tile_waits_until_the_sums_of_a_tile_are_stored_in_fp32() -> None:
    """64 x 64 elements of 4 bytes at half of the port of one of 100 SMs, so of 10 GB/s: 3.28 us for each wave."""
    for tiles, waves in ((100, 1), (101, 2)):
        work = GemmWork(tiles, 64, 64, 1, 0)
        found = gemm.candidate_seconds(work, (64, 64, 1), FAST, FREE._replace(store=0.5))
        assert found == pytest.approx(waves * 64 * 64 * 4 / 5e9, rel=1e-3)


def test_a_small_tile_needs_a_step_for_each_element_of_k() -> None:
    """One row, K = 1000 at 5 ns: 5 us for tiles of any size."""
    assert gemm.seconds(GemmWork(1, 1, 100, 1000, 0), FAST, FREE._replace(step=5e-9)) == pytest.approx(5e-6, rel=1e-3)


def test_a_gemm_multiplies_at_a_fraction_of_the_peak() -> None:
    """100 tiles of 256 x 128, one for each SM of 1 TFLOP/s, at 0.8 of it."""
    work = GemmWork(1, 25600, 128, 1000, 0)
    found = gemm.candidate_seconds(work, (256, 128, 1), PLAIN, FREE._replace(pipe=0.8))
    assert found == pytest.approx(2 * 256 * 128 * 1000 / 0.8e12, rel=1e-3)


def test_a_library_runs_parts_of_k_at_the_same_time_and_then_adds_them() -> None:
    """One tile with K = 64 000 at 10 ns per element takes 640 us; 32 parts take 20 us, and 3 us to add them."""
    timing = FREE._replace(latency=1e-6, step=10e-9)
    times = [gemm.seconds(GemmWork(1, 16, 64, 64000, 0), FAST, timing._replace(split=split)) for split in (1, 3e-6)]
    assert times == pytest.approx([1e-6 + 640e-6, 1e-6 + 20e-6 + 3e-6])


def test_a_row_is_quantized_by_one_sm_through_the_ports_and_streamed_where_l2_does_not_keep_it() -> None:
    """200 rows on 100 SMs, 5 us each: 10 us. A of 200 x 1000 is read in 2 bytes and written in 1: 0.6 MB.

    The GEMM reads 0.2 MB of A, 1 MB of B and writes 0.4 MB of C: 1.6 us at 1 TB/s. Without quantization, A has the
    0.4 MB that are counted. At a tenth of the ports' 1 TB/s, 0.6 MB take 6 us more.
    """
    timing = FREE._replace(quantize_row=5e-6)
    work = GemmWork(1, 200, 1000, 1000, 1.8e6, a=1, b=1, c=2, quantized=0.6e6)
    in_l2 = FAST._replace(l2=0.6e6)
    assert gemm.seconds(work, FAST, timing) == pytest.approx(1.6e-6 + 0.6e-6 + 10e-6, rel=1e-3)
    assert gemm.seconds(work, in_l2, timing) == pytest.approx(1.6e-6 + 10e-6, rel=1e-3)
    assert gemm.seconds(work._replace(quantized=0), FAST, timing) == pytest.approx(1.8e-6, rel=1e-3)
    one_tile = work._replace(m=1, n=1, k=1, bytes=0.6e6)  # loads nothing, so that only the quantization uses the ports
    through_ports = gemm.seconds(one_tile, in_l2, FREE._replace(l2=0.1))
    assert through_ports - gemm.seconds(one_tile, in_l2, FREE) == pytest.approx(6e-6, rel=1e-3)


def test_a_repeated_gemm_reads_from_l2_what_fits_there() -> None:
    """A, C and B have 1, 2 and 3 MB: 6 MB pass between two uses. With 5 copies of B these are 18 MB, with 6 copies of
    A and B 26 MB. L2 keeps all of them if they fit, half if they exceed it by half, and none from twice of it. Operands
    that are used once come from DRAM."""
    work = GemmWork(1, 1000, 1500, 1000, 6_000_000, 1.0, 2.0, 4 / 3)
    for l2, copies, streamed in (
        (6e6, (1, 1), 0), (4e6, (1, 1), 3e6), (3e6, (1, 1), 6e6), (18e6, (1, 5), 0), (12e6, (1, 5), 3e6),
        (26e6, (6, 6), 0), (13e6, (6, 6), 6e6), (1e9, (0, 0), 6e6),
    ):  # fmt: skip
        repeated = work._replace(copies_a=copies[0], copies_b=copies[1])
        found = gemm.seconds(repeated, FAST._replace(l2=l2), FREE)
        assert found == pytest.approx(streamed / 1e12, abs=1e-8)


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
    assert elementwise_seconds(1e6, 0.0, chip, timing) == pytest.approx(1e-6 + 1e6 / 2e12)
    assert elementwise_seconds(2e6, 0.0, chip, timing) == pytest.approx(1e-6 + 2e6 / 0.5e12)


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
