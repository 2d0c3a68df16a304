"""Expected times: the same for ints and arrays, never below the bound, and equal to formulas by hand."""

from __future__ import annotations

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
    ContextTiming,
    Fit,
    Fitted,
    GemmTiming,
    GenerationTiming,
    StreamTiming,
)
from roofmodel.devices.device import Device
from roofmodel.prediction import attention, gemm, stream
from roofmodel.prediction.attention import AttentionWork
from roofmodel.prediction.formula import Chip
from roofmodel.prediction.gemm import GemmWork
from roofmodel.prediction.roofline import place
from roofmodel.prediction.timing import Expected, Formula, choose_set, clamp_to_bound, expect, formula, independent_sum
from roofmodel.study.benchmark.operations import OPERATIONS, PRECISIONS, widths

A100, H100 = Device.load("a100"), Device.load("h100")
TOY = Device.load(Path(__file__).parents[2] / "examples" / "toy-gpu.yaml")
PLAIN = Chip(multiprocessors=100, peak=100e12, bandwidth=1e12, l2=0.0, port=1e12)
SIZES = st.integers(1, 20000)


def product(m: int, n: int, k: int) -> Operator:
    form = FORMATS["fp16"]
    build = Builder({"M": m, "N": n, "K": k}, Widths(form, form, form))
    return build.operator("gemm", "gemm", "x[M K] W[K N] -> y[M N]")


def test_the_time_of_a_gemm_of_whole_tiles_is_its_number_of_waves() -> None:
    """Nothing but multiplying: 100 multiprocessors of 1 TFLOP/s, 150 x 100 tiles of 256 x 128, so 150 waves.

    A wave is 2 x 256 x 128 x 4096 FLOP on 1 TFLOP/s = 268.4 us; every smaller tile comes to the same, none to less.
    """
    free = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1e9, 0)
    m, n, k = 256 * 150, 128 * 100, 4096
    seconds = gemm.seconds(GemmWork(1, m, n, k, 2 * (m * k + k * n + m * n)), PLAIN, free)
    assert seconds == pytest.approx(150 * 2 * 256 * 128 * 4096 / 1e12, rel=1e-9)


def test_one_tile_more_than_a_wave_takes_a_second_wave() -> None:
    """A split costs a second here, so none is chosen. 100 tiles of 16 x 64 are the finest that cut 1600 x 64."""
    free = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1e9, 0)
    full, more = (gemm.seconds(GemmWork(1, m, 64, 4096, 0), PLAIN, free) for m in (1600, 1601))
    assert full == pytest.approx(2 * 16 * 64 * 4096 / 1e12, rel=1e-9)
    assert more == pytest.approx(2 * full, rel=1e-9)


def test_a_gemm_of_one_row_streams_its_weights() -> None:
    """2 MB at half of 1 TB/s: 4 us, and 3 us of latency."""
    timing = GemmTiming(3e-6, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 0.5, 0)
    fast = PLAIN._replace(peak=1e18)  # so that multiplying takes nothing
    assert gemm.seconds(GemmWork(1, 1, 1000, 1000, 2e6), fast, timing) == pytest.approx(7e-6, rel=1e-6)


def test_a_row_is_quantized_by_one_multiprocessor() -> None:
    """200 rows on 100 multiprocessors, 5 us each: 10 us more; 2 MB read and written at 1 TB/s take 2 us, as before."""
    timing = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1.0, 0, row=5e-6)
    plain = gemm.seconds(GemmWork(1, 200, 1000, 1000, 0), PLAIN, timing)
    assert gemm.seconds(GemmWork(1, 200, 1000, 1000, 0, quantized=2e6), PLAIN, timing) == pytest.approx(plain + 10e-6)
    streamed = gemm.seconds(GemmWork(1, 200, 1000, 1000, 0, quantized=2e6), PLAIN, timing._replace(row=0))
    assert streamed == pytest.approx(plain + 2e-6)


def test_rows_that_exceed_l2_are_quantized_more_slowly() -> None:
    """2 MB at 1 TB/s take 2 us, and three times that if they exceed 0.7 of L2."""
    timing = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1.0, 0, spill=2.0)
    plain = gemm.seconds(GemmWork(1, 200, 1000, 1000, 0), PLAIN, timing)
    for l2, quantising in ((3e6, 2e-6), (2.8e6, 6e-6)):
        chip = PLAIN._replace(l2=l2)
        found = gemm.seconds(GemmWork(1, 200, 1000, 1000, 0, quantized=2e6), chip, timing)
        assert found == pytest.approx(plain + quantising)


def test_tall_tiles_waste_work_on_few_rows() -> None:
    """129 rows are two tiles of 128, as 256 rows are; with shorter tiles available they use those."""
    fine = GemmTiming(0, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1e9, 0)
    tall = fine._replace(tall=128)
    few, many = (GemmWork(1, m, 64 * 10000, 4096, 0) for m in (129, 256))
    assert gemm.seconds(few, PLAIN, tall) == pytest.approx(gemm.seconds(many, PLAIN, tall))
    assert gemm.seconds(few, PLAIN, fine) < 0.7 * gemm.seconds(many, PLAIN, fine)


def test_launch_overhead_hides_shorter_kernels() -> None:
    timing = GemmTiming(3e-6, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 0.5, 0, host=80e-6)
    fast = PLAIN._replace(peak=1e18)
    assert gemm.seconds(GemmWork(1, 1, 1000, 1000, 2e6), fast, timing) == 80e-6
    assert gemm.seconds(GemmWork(1, 1, 10000, 10000, 2e8), fast, timing) == pytest.approx(403e-6, rel=1e-6)


def test_a_repeated_gemm_reads_from_l2_what_fits_there() -> None:
    """A, C and B have 1, 2 and 3 MB. Until A is used again, 6 MB pass; C counts twice for itself, so 8 MB have to fit.
    With 5 copies of B, 18 MB pass until B is used again; with 6 of A and of B, 26 MB until both are. Half of an operand
    stays if these bytes exceed L2 by 10 %."""
    work = GemmWork(1, 1000, 1500, 1000, 6_000_000, 1.0, 2.0, 4 / 3)
    for l2, copies, streamed in (
        (5e6, (1, 1), 6e6), (6e6, (1, 1), 2e6), (8e6 / 1.1, (1, 1), 1e6), (8e6, (1, 1), 0), (9e6, (1, 0), 3e6),
        (15e6, (1, 5), 3e6), (18e6 / 1.1, (1, 5), 1.5e6), (18e6, (1, 5), 0), (21e6, (6, 6), 4e6), (26e6, (6, 6), 0),
    ):  # fmt: skip
        timing = GemmTiming(0, 0, 0, 0, 1e9, 0, 1e9, 1e9, 1.0, 0, resident=1.0)
        chip = PLAIN._replace(l2=l2)
        found = gemm.seconds(work._replace(copies_a=copies[0], copies_b=copies[1]), chip, timing)
        assert found == pytest.approx(streamed / 1e12, abs=1e-8)


def test_few_rows_use_dot_products_if_these_are_faster() -> None:
    """Tiles take 41 us for 1024 of K; dot products 5 us for 1000 columns on 100 multiprocessors, 0.5 us each, or 8 us
    for 4000 elements of K, 2 ns each; and 3 us of latency. Five rows are too many."""
    tiles = GemmTiming(3e-6, 0, 0, 1.0, 1.0, 0, 1e9, 1e9, 1.0, 0, parts=1)
    slow = tiles._replace(step=40e-9)
    dots = slow._replace(few=4, column=0.5e-6, dot=2e-9)

    def seconds(m: int, k: int, timing: GemmTiming) -> float:
        return float(gemm.seconds(GemmWork(1, m, 1000, k, 0), PLAIN, timing))

    assert seconds(4, 1024, slow) == pytest.approx(3e-6 + 40e-9 * 1024)
    assert seconds(4, 1024, dots) == pytest.approx(3e-6 + 5e-6)
    assert seconds(4, 4000, dots) == pytest.approx(3e-6 + 8e-6)
    assert seconds(5, 1024, dots) == seconds(5, 1024, slow)
    assert seconds(4, 1024, dots._replace(step=0)) == pytest.approx(seconds(4, 1024, tiles))  # tiles are quicker


def test_a_library_that_splits_k_into_few_parts_or_none_takes_longer() -> None:
    """One tile of 64 000 elements of K, 10 ns each, takes 640 us; the parts of 64 000 / 6
    and 64 000 / 32 run at once."""
    free = GemmTiming(0, 0, 10e-9, 0, 1.0, 0, 1e9, 1e9, 1e9, 0)
    fast = PLAIN._replace(peak=1e18, port=1e24)
    times = [gemm.seconds(GemmWork(1, 16, 64, 64000, 0), fast, free._replace(parts=n)) for n in (1, 7, 32)]
    assert times == pytest.approx([10e-9 * k for k in (64000, 10688, 2016)], rel=1e-9)  # in whole slices of 32


def test_narrow_weights_are_converted_before_the_gemm() -> None:
    """1024 elements of K at 2 ns: 2.048 us more in any case."""
    timing = GemmTiming(3e-6, 1e-6, 4e-9, 1.0, 1.0, 0, 1e9, 1e9, 1.0, 0)
    plain, converted = (
        gemm.seconds(GemmWork(1, 16, 1000, 1024, 1e6), PLAIN, timing._replace(convert=each)) for each in (0.0, 2e-9)
    )
    assert converted == pytest.approx(plain + 2.048e-6)


QUANTISED = [
    (dtype, kernel)
    for dtype, form in (("sq", "int8/int8"), ("int8_wo", "fp16/int8"), ("int4_wo", "fp16/int4"))
    for kernel, sets in (A100.calibration or Calibration("none")).gemm.items()
    if form in sets
]


@pytest.mark.parametrize(("dtype", "kernel"), QUANTISED)
@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 40), SIZES, SIZES), min_size=1, max_size=8))
def test_few_rows_have_equal_expected_times_as_arrays_and_ints(
    dtype: str, kernel: str, shapes: list[tuple[int, int, int]]
) -> None:
    m, n, k = (np.array(column, dtype=float) for column in zip(*shapes, strict=True))
    precision = PRECISIONS[dtype]
    ask = OPERATIONS["gemm"].operator

    def found(columns: dict[str, Any]) -> Formula:
        operator = ask(columns, widths(precision))
        by = formula(operator, place(operator.cost, A100, precision.compute), A100, precision.compute, kernel)
        assert by is not None
        return by

    many = found({"m": m, "n": n, "k": k})
    each = [found({"m": m, "n": n, "k": k}) for m, n, k in shapes]
    assert many.seconds == pytest.approx([one.seconds for one in each], rel=1e-12)


def prefill(queries: int, windowed: int, pairs: float) -> AttentionWork:
    """An attention of 100 heads of 64 elements in 2 bytes, with a key-value head each, over its own tokens."""
    keys = 100 * queries * 2 * 64 * 2
    return AttentionWork(1, 100, 100, queries, queries, pairs, 4 * 100 * pairs * 64, 2 * keys, keys, windowed)


def test_a_prefill_that_masks_its_window_takes_as_long_as_without_it() -> None:
    """Some Triton kernels compute the tiles outside of a window of 128 keys and mask their scores.

    A tile of 128 rows has about 288 keys in the window, and 2200 of a causal mask.
    """
    causal, window = 4096 * 4097 / 2, 128 * 129 / 2 + (4096 - 128) * 128
    computed = ContextTiming(0, 1.0, 0, 0, 0, 1e9, 0, masked=1)
    skipped = computed._replace(masked=0)
    whole, part_of_it = prefill(4096, 0, causal), prefill(4096, 1, window)
    assert attention.context_seconds(part_of_it, PLAIN, computed) == pytest.approx(
        attention.context_seconds(whole, PLAIN, computed), rel=1e-9
    )
    assert attention.context_seconds(part_of_it, PLAIN, skipped) < attention.context_seconds(whole, PLAIN, skipped) / 7


def test_appending_keys_and_values_reads_and_writes_them_once() -> None:
    """With a key-value head per query head, keys and values are half of the 4 tensors: 2 more reads, 2 more writes."""
    timing = ContextTiming(0, 1e9, 0, 0, 0, 1.0, 0)
    att = prefill(1024, 0, 1024 * 1025 / 2)
    without, appended = (attention.context_seconds(att, PLAIN, timing._replace(append=n)) for n in (0, 1))
    assert without == pytest.approx(att.bytes / 1e12, rel=1e-6)
    assert appended == pytest.approx(2 * att.bytes / 1e12, rel=1e-6)


def test_smaller_tiles_share_a_short_prefill_between_more_multiprocessors() -> None:
    """Half of 100 multiprocessors have a tile of 128 rows; with 64 rows, all have one that takes half as long."""
    timing = ContextTiming(0, 1.0, 0, 0, 0, 1e9, 0)
    att = prefill(128, 0, 128 * 128)._replace(batch=0.5)
    tall, low = (attention.context_seconds(att, PLAIN, timing._replace(height=rows)) for rows in (128.0, 64.0))
    assert low == pytest.approx(tall / 2, rel=1e-3)


def test_a_decode_streams_its_cache_once() -> None:
    """32 sequences, 8 key-value heads, 1000 keys of 2 x 128 x 2 bytes: 131 MB at 1 TB/s."""
    keys = 32 * 8 * 1000 * 2 * 128 * 2
    att = AttentionWork(32, 32, 8, 1, 1000, 1000, 4 * 32 * 32 * 1000 * 128, keys, keys)
    free = GenerationTiming(0, 0, 1.0, 1e9, 1.0, 0)
    assert attention.generation_seconds(att, PLAIN, free) == pytest.approx(keys / 1e12, rel=1e-6)


def test_a_repeated_decode_reads_from_l2_what_fits_there() -> None:
    """Half of L2 keeps 20 MB: these cost nothing, half of 30 MB comes from DRAM at 1 TB/s, and all of 40 MB."""
    chip = PLAIN._replace(l2=40_000_000)
    free = GenerationTiming(0, 0, 1.0, 1e9, 1.0, 0, resident=0.5)
    for cache, streamed in ((20_000_000, 0), (30_000_000, 15_000_000), (40_000_000, 40_000_000)):
        att = AttentionWork(1, 1, 1, 1, 64, 64, 0, cache, cache, repeated=1)
        read_by_sm = attention.generation_seconds(att, chip, free._replace(dram=1e9))
        assert attention.generation_seconds(att, chip, free) - read_by_sm == pytest.approx(streamed / 1e12, abs=1e-9)
        new = att._replace(repeated=0)
        assert attention.generation_seconds(new, chip, free) - read_by_sm == pytest.approx(cache / 1e12, abs=1e-9)


def test_query_heads_beyond_a_blocks_capacity_read_the_cache_again() -> None:
    """64 query heads share one key-value head: 63 read it again, from L2 at 0.42 of the ports' 1 TB/s,
    where a block holds 32 at most."""
    keys = 32 * 1024 * 2 * 128 * 2
    att = AttentionWork(32, 64, 1, 1, 1024, 1024, 4 * 32 * 64 * 1024 * 128, keys, keys)
    together = attention.generation_seconds(att, PLAIN, GenerationTiming(0, 0, 1.0, 1e9, 1.0, 0))
    apart = attention.generation_seconds(att, PLAIN, GenerationTiming(0, 0, 1.0, 1e9, 1.0, 32))
    assert together == pytest.approx(keys / 1e12, rel=1e-6)
    assert apart == pytest.approx(keys / 1e12 + 63 * keys / 0.42e12, rel=1e-6)


def test_a_cache_is_split_until_its_parts_fill_one_wave() -> None:
    """A sequence's 1024 keys are 524 kB, at 10 GB/s of a multiprocessor's port 52 us; there are 100 of these.

    101 sequences take twice as long, 50 half: two parts each.
    """
    timing = GenerationTiming(0, 0, 0, 1.0, 1e9, 0, queue=1)
    keys = 1024 * 2 * 128 * 2
    for sequences, waves in ((50, 0.5), (51, 1), (100, 1), (101, 2)):
        att = AttentionWork(sequences, 1, 1, 1, 1024, 1024, 0, sequences * keys, sequences * keys)
        assert attention.generation_seconds(att, PLAIN, timing) == pytest.approx(waves * keys / 10e9, rel=1e-6)


def test_single_heads_and_large_groups_use_the_kernel_with_one_head_per_block() -> None:
    """Nothing but waves: 25 x 8 key-value heads on 100 multiprocessors are two; of 64 heads a group, 128.

    8 heads of a block add 8 us to the 10 of its wave.
    """
    timing = GenerationTiming(1e-6, 10e-6, 1.0, 1.0, 1.0, 32, row=1e-6, alone=5e-6, single=2e-6)
    for group, seconds in ((1, 5e-6 + 2 * 2e-6), (8, 1e-6 + 2 * 18e-6), (64, 5e-6 + 128 * 2e-6)):
        att = AttentionWork(25, 8 * group, 8, 1, 64, 64, 0, 0, 0)
        assert attention.generation_seconds(att, PLAIN, timing) == pytest.approx(seconds, rel=1e-9)
        many = att._replace(batch=np.array([25.0, 25.0]))
        assert attention.generation_seconds(many, PLAIN, timing) == pytest.approx([seconds] * 2, rel=1e-9)


def test_the_kernel_for_a_single_head_may_not_split_the_cache() -> None:
    """A head's 65536 keys are 34 MB, at 10 GB/s of one multiprocessor's port 3.4 ms; 64 parts take a 64th."""
    timing = GenerationTiming(0, 0, 0, 1.0, 1e9, 1000, queue=1, whole=1)
    keys = 65536 * 2 * 128 * 2
    alone = AttentionWork(1, 1, 1, 1, 65536, 65536, 0, keys, keys)
    assert attention.generation_seconds(alone, PLAIN, timing) == pytest.approx(keys / 10e9, rel=1e-6)
    assert attention.generation_seconds(alone._replace(heads=8), PLAIN, timing) == pytest.approx(
        keys / 64 / 10e9, rel=1e-6
    )


def test_transposes_of_grouped_heads_take_two_more_kernels() -> None:
    """Each takes 4400 clocks of 0.15625 GHz (64 bytes per clock give 10 GB/s), unless a transpose moves no data."""
    timing = GenerationTiming(0, 0, 1.0, 1.0, 1e9, 1000, transposes=1)
    for sequences, heads, groups, kernels in ((4, 32, 8, 2), (1, 32, 8, 0), (4, 32, 1, 0), (4, 32, 32, 0)):
        att = AttentionWork(sequences, heads, groups, 1, 64, 64, 0, 0, 0)
        seconds = attention.generation_seconds(att, PLAIN, timing)
        assert seconds == pytest.approx(kernels * 4400 / 0.15625e9, abs=1e-12)


def test_small_groups_run_in_one_block_of_the_kernel_without_tensor_cores() -> None:
    """100 blocks of 3 heads are one wave of 2 us, of 4 heads one of 10."""
    timing = GenerationTiming(0, 10e-6, 1.0, 1.0, 1.0, 1000, single=2e-6, least=4)
    for group, seconds in ((1, 2e-6), (3, 2e-6), (4, 10e-6)):
        att = AttentionWork(100, group, 1, 1, 64, 64, 0, 0, 0)
        assert attention.generation_seconds(att, PLAIN, timing) == pytest.approx(seconds, rel=1e-9)


def test_the_grouped_kernel_needs_parts_for_a_quarter_of_the_multiprocessors() -> None:
    """25 parts of 128 keys are enough for 100 multiprocessors. Else 8 heads of 24 sequences are 192 blocks of 2 us."""
    timing = GenerationTiming(0, 10e-6, 1.0, 1.0, 1.0, 32, single=2e-6, occupied=1)
    for sequences, keys, seconds in ((25, 64, 10e-6), (24, 64, 4e-6), (13, 256, 10e-6), (12, 256, 2e-6)):
        att = AttentionWork(sequences, 8, 1, 1, keys, keys, 0, 0, 0)
        assert attention.generation_seconds(att, PLAIN, timing) == pytest.approx(seconds, rel=1e-9)


def test_data_in_l2_moves_at_its_bandwidth() -> None:
    timing = StreamTiming(1e-6, 0.5, 2.0)
    roomy = PLAIN._replace(l2=1e6)
    assert stream.seconds(1e6, 0.0, roomy, timing) == pytest.approx(1e-6 + 1e6 / 2e12)
    assert stream.seconds(2e6, 0.0, roomy, timing) == pytest.approx(1e-6 + 2e6 / 0.5e12)


@settings(deadline=None)
@given(SIZES, SIZES, SIZES)
def test_no_expectation_is_below_its_bound_and_its_interval_holds_it(m: int, n: int, k: int) -> None:
    for device in (A100, H100):
        operator = product(m, n, k)
        expected = expect(operator, device, "fp16")
        assert expected is not None
        assert place(operator.cost, device, "fp16").bound_seconds <= expected.low
        assert expected.low <= expected.seconds <= expected.high


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=8))
def test_arrays_have_the_expected_times_of_ints(shapes: list[tuple[int, int, int]]) -> None:
    m, n, k = (np.array(column, dtype=float) for column in zip(*shapes, strict=True))
    many = expect(OPERATIONS["gemm"].operator({"m": m, "n": n, "k": k}, widths_of("float16")), A100, "fp16")
    each = [expect(product(*shape), A100, "fp16") for shape in shapes]
    assert many is not None
    assert many.seconds == pytest.approx([one.seconds for one in each if one], rel=1e-12)


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
    columns |= {name: rows[0][name] for name in OPERATIONS[op].shared_columns}
    many = expect(OPERATIONS[op].operator(columns, widths_of("bfloat16")), H100, "bf16")
    assert many is not None
    for i, row in enumerate(rows):
        one = expect(OPERATIONS[op].operator(row, widths_of("bfloat16")), H100, "bf16")
        assert one is not None
        assert many.seconds[i] == pytest.approx(one.seconds, rel=1e-12)


def widths_of(dtype: str) -> Widths:
    return widths(PRECISIONS[dtype])


def test_a_device_without_calibration_has_no_expected_times() -> None:
    assert expect(product(10, 10, 10), TOY, "fp16") is None
    assert expect(product(10, 10, 10), replace(A100, calibration=Calibration("none")), "fp16") is None


def test_a_parameter_set_is_chosen_by_kernel_then_format_then_order() -> None:
    def one(latency: float) -> Fitted[StreamTiming]:
        return Fitted(StreamTiming(latency, 1, 1), Fit(1, 1, 0.1, 0.9, 1.2, "", ""))

    sets = {"a": {"x": one(1), "y": one(2)}, "b": {"x": one(3)}}
    assert choose_set(sets, "b", "x") == (*one(3), "b", "")
    assert choose_set(sets, "b", "y") == (*one(2), "a", "")  # the first that has these formats
    assert choose_set(sets, "unknown", "x") == (*one(1), "a", "")
    other = choose_set(sets, "b", "z")
    assert other is not None
    assert other.timing == one(3).timing
    assert (other.fit.low, other.fit.high) == (0.9**2, 1.2**2)  # fitted on other formats: twice as wide
    assert choose_set({}, "a", "x") is None


def test_the_parameter_set_of_the_same_kernel_is_preferred_to_the_nearest_head_size() -> None:
    def one(latency: float) -> Fitted[StreamTiming]:
        return Fitted(StreamTiming(latency, 1, 1), Fit(1, 1, 0.1, 0.9, 1.2, "", ""))

    sets = {"a": {"x/x/64": one(1), "x/x/128": one(2)}, "b": {"x/x/256": one(3), "x/y/64": one(4)}}
    assert choose_set(sets, "", "x/x/256") == (*one(3), "b", "")  # nobody asked for a
    for name, form, latency in (("", "x/x/80", 1), ("", "x/x/96", 2), ("a", "x/x/256", 2), ("b", "x/x/64", 3)):
        other = choose_set(sets, name, form)
        assert other is not None
        assert other.timing.latency == latency, (name, form)
        assert other.fit.high == 1.2**2


def test_unmeasured_formats_use_the_parameter_set_of_equal_width() -> None:
    def one(latency: float) -> Fitted[StreamTiming]:
        return Fitted(StreamTiming(latency, 1, 1), Fit(1, 1, 0.1, 0.9, 1.2, "", ""))

    sets = {"a": {"fp16/fp16": one(1), "fp16/int4": one(2)}, "b": {"fp16/int8": one(3), "fp8/fp8": one(4)}}
    for form, latency in (("fp16/nf4", 2), ("fp16/mxfp4", 2), ("fp16/fp8", 3), ("fp8/int8", 4), ("tf32/tf32", 1)):
        other = choose_set(sets, "a", form)
        assert other is not None
        assert other.timing.latency == latency, form
        assert other.fit.high == 1.2**2
        assert {**sets["a"], **sets["b"]}[other.stands_in].timing == other.timing
    heads = {"a": {"fp16/fp16/128": one(1), "fp16/fp16/64": one(2)}}
    other = choose_set(heads, "", "fp16/int8/64")
    assert other is not None
    assert other.timing.latency == 2  # of other widths, but of these heads


def test_a_parameter_set_of_a_distant_format_is_not_substituted() -> None:
    def one(latency: float, error: float) -> Fitted[StreamTiming]:
        return Fitted(StreamTiming(latency, 1, 1), Fit(1, 1, error, 0.9, 1.2, "", ""))

    sets = {"a": {"fp16/fp16/512": one(1, 0.5)}, "b": {"fp16/fp16/128": one(2, 0.1)}}
    assert choose_set(sets, "a", "fp16/fp16/512") == (*one(1, 0.5), "a", "")
    other = choose_set(sets, "a", "fp16/fp16/576")
    assert other is not None
    assert other.timing.latency == 2


@pytest.mark.parametrize(("low", "high", "power", "factor", "ends"), [
    (0.8, 1.5, 2, 1, (0.8**2, 1.5**2)),
    (0.8, 1.5, 2, 1.25, (0.8**2 / 1.25, 1.5**2 * 1.25)),
    (0.5, 2.0, 2, 1, (1 / 3, 3.0)),  # one step away from what was measured is not another order of magnitude
    (0.2, 4.0, 2, 1.25, (0.2, 4.0)),  # as wide as that by its own rows
])  # fmt: skip
def test_the_interval_of_a_substituted_parameter_set_is_within_a_factor_of_three(
    low: float, high: float, power: float, factor: float, ends: tuple[float, float]
) -> None:
    wider = Fit(1, 1, 0.1, low, high, "", "").wider(power, factor)
    assert (wider.low, wider.high) == ends


def test_intervals_of_independent_times_add_as_squares_and_those_of_equal_errors_as_they_are() -> None:
    """Down 3 and 4 give 5, up 6 and 8 give 10; added as they are, 7 and 14."""
    one, other = Expected(100.0, 97.0, 106.0), Expected(50.0, 46.0, 58.0)
    assert independent_sum(one, other) == (150.0, 145.0, 160.0)
    assert one + other == (150.0, 143.0, 164.0)


def test_an_expected_time_clamped_to_its_bound_has_an_interval() -> None:
    """A formula that expects half of the bound, and up to 1.2 times that: measurements lie above the bound."""
    fit = Fit(1, 1, 0.1, 0.9, 1.2, "", "")
    assert clamp_to_bound(1.0, fit, 2.0) == (2.0, 2.0, 2.4)
    assert clamp_to_bound(2.0, fit, 1.0) == (2.0, 1.8, 2.4)
