"""Fused attention: tiles of query rows in a prefill; blocks, waves and splits in a decode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from roofmodel.devices.calibration import DecodeTiming, PrefillTiming
from roofmodel.timing.attention import AttentionWork, decode_seconds, prefill_seconds
from roofmodel.timing.formula import Chip

# 100 SMs of 1 TFLOP/s, 156 MHz (64 bytes per clock and SM are 1 TB/s) and 2.5 G exponentials/s each.
CHIP = Chip(multiprocessors=100, peak=100e12, bandwidth=1e12, l2=0.0, port=1e12)
FAST_EXPONENTIALS = CHIP._replace(port=1e24)
COMPUTE = PrefillTiming(latency=0, pipe=1.0, unaligned=1.0, fill=0, rows=128, append=0, dram=1e9, l2=1e9)
STREAM = COMPUTE._replace(pipe=1e9, dram=1.0)
WAVES = DecodeTiming(
    latency=0, wave=10e-6, pipe=1e9, rows=16, heads=128, window_heads=128, splits=128, combine=1.0, dram=1e9, l2=1e9
)


def prefill(queries: int, pairs: float, head: int = 64, **others: Any) -> AttentionWork:
    """Attention of 100 heads in 2 bytes, each with its own key-value head, over the tokens of the prompt."""
    keys = 100 * queries * 2 * head * 2
    return AttentionWork(1, 100, 100, head, queries, queries, pairs, 4 * 100 * pairs * head, 2 * keys, keys)._replace(
        **others
    )


def decode(batch: int, heads: int, kv_heads: int, keys: int, head: int = 128) -> AttentionWork:
    """One query per sequence; keys and values in 2 bytes, and no bytes of queries and outputs."""
    cache = batch * kv_heads * keys * 2 * head * 2
    return AttentionWork(batch, heads, kv_heads, head, 1, keys, keys, 4 * batch * heads * keys * head, cache, cache)


def test_whole_tiles_without_a_mask_take_the_time_of_their_flops() -> None:
    """100 heads x 4 tiles of 128 rows x 512 keys x 4 x 64 FLOPs: 16.8 MFLOP a tile, 16.8 us on an SM.

    The schedule's bound: 400 tiles / 100 SMs, and one tile that may start last.
    """
    tile = 128 * 512 * 4 * 64 / 1e12
    assert prefill_seconds(prefill(512, 512 * 512), FAST_EXPONENTIALS, COMPUTE) == pytest.approx(5 * tile)


def test_a_causal_mask_hides_half_of_the_keys_but_those_at_the_edge_of_a_tile() -> None:
    """32 tiles of 128 rows: tile n has (n + 1) x 128 keys, of which half of the last 128 x 128 pairs are masked."""
    causal = prefill(4096, 4096 * 4097 / 2)
    keys = sum((n + 1) * 128 for n in range(32))
    longest = 4096
    expected = (keys + longest) * 128 * 4 * 64 / 1e12
    assert prefill_seconds(causal, FAST_EXPONENTIALS, COMPUTE) == pytest.approx(expected, rel=0.01)


def test_a_window_skips_the_tiles_outside_of_it() -> None:
    """A tile of 128 rows processes 128 + 128 keys of a window of 128, and 2112 on average under a causal mask."""
    causal = prefill(4096, 4096 * 4097 / 2)
    windowed = prefill(4096, 128 * 129 / 2 + (4096 - 128) * 128)
    full, short = (prefill_seconds(att, FAST_EXPONENTIALS, COMPUTE) for att in (causal, windowed))
    assert full / short == pytest.approx((32 * 2112 + 4096) / (32 * 256 + 384), rel=0.05)


def test_exponentials_limit_small_heads() -> None:
    """128 x 512 exponentials at 16 per clock and 156.25 MHz take 26 us; the FLOPs of heads of 64 elements 16.8 us."""
    assert prefill_seconds(prefill(512, 512 * 512), CHIP, COMPUTE) == pytest.approx(5 * 128 * 512 / 2.5e9)
    wide = prefill(512, 512 * 512, head=256)  # 67 us
    assert prefill_seconds(wide, CHIP, COMPUTE) == pytest.approx(5 * 128 * 512 * 4 * 256 / 1e12)


@pytest.mark.parametrize(("head", "factor"), [(64, 1), (72, 4), (80, 1)])
def test_head_sizes_that_are_no_multiple_of_16_multiply_more_slowly(head: int, factor: int) -> None:
    att = prefill(512, 512 * 512, head=head)
    aligned, slow = (prefill_seconds(att, FAST_EXPONENTIALS, COMPUTE._replace(unaligned=pipe)) for pipe in (1.0, 0.25))
    assert slow == pytest.approx(factor * aligned)


def test_smaller_tiles_use_more_sms_for_a_short_prefill() -> None:
    """50 of 100 SMs have a tile of 128 rows. With tiles of 64 rows, all SMs have one, which takes half as long."""
    att = prefill(128, 128 * 128, batch=0.5, flops=0.5 * 4 * 100 * 128 * 128 * 64)
    of_128_rows, of_64_rows = (
        prefill_seconds(att, FAST_EXPONENTIALS, COMPUTE._replace(rows=rows)) for rows in (128.0, 64.0)
    )
    assert of_64_rows == pytest.approx(of_128_rows / 2, rel=1e-3)


def test_appending_keys_and_values_reads_and_writes_them_once() -> None:
    """With one key-value head per query head, keys and values are 2 of 4 tensors: 2 more reads, 2 more writes."""
    att = prefill(1024, 1024 * 1025 / 2)
    without, appended = (prefill_seconds(att, FAST_EXPONENTIALS, STREAM._replace(append=n)) for n in (0, 1))
    assert without == pytest.approx(att.bytes / 1e12, rel=1e-3)
    assert appended == pytest.approx(2 * att.bytes / 1e12, rel=1e-3)


def test_a_decode_streams_its_cache_once() -> None:
    """32 sequences, 8 key-value heads, 1000 keys and values of 128 x 2 bytes each: 131 MB at 1 TB/s."""
    att = decode(32, 32, 8, 1000)
    assert att.bytes == 32 * 8 * 1000 * 2 * 128 * 2
    assert decode_seconds(att, CHIP, WAVES._replace(wave=0, dram=1.0)) == pytest.approx(att.bytes / 1e12, rel=1e-6)


def test_a_repeated_attention_reads_from_l2_what_fits_there() -> None:
    """L2 keeps 20 MB. Of a cache of 20 MB nothing comes from DRAM (1 TB/s); half of 30 MB; all of 40 MB."""
    chip, timing = CHIP._replace(l2=20_000_000), WAVES._replace(wave=0, dram=1.0)
    for cache, streamed in ((20_000_000, 0), (30_000_000, 15_000_000), (40_000_000, 40_000_000)):
        att = AttentionWork(1, 1, 1, 128, 1, 64, 64, 0, cache, cache, repeated=1)
        assert decode_seconds(att, chip, timing) == pytest.approx(streamed / 1e12, abs=1e-9)
        assert decode_seconds(att._replace(repeated=0), chip, timing) == pytest.approx(cache / 1e12, abs=1e-9)


def test_waves_are_blocks_over_sms_and_a_block_holds_all_heads_of_a_group() -> None:
    """25 sequences x 8 key-value heads are 200 blocks: 2 waves on 100 SMs, for groups of 1 and of 8 heads."""
    for group in (1, 8):
        att = decode(25, 8 * group, 8, 64)
        assert decode_seconds(att, CHIP, WAVES) == pytest.approx(20e-6, rel=1e-6)
        many = att._replace(batch=np.array([25.0, 25.0]))
        assert decode_seconds(many, CHIP, WAVES) == pytest.approx([20e-6] * 2, rel=1e-6)


def test_groups_above_the_limit_have_a_block_for_each_head_and_read_the_cache_again_from_l2() -> None:
    """64 query heads per key-value head and blocks of up to 32: 64 blocks a sequence. 63 of them read from L2."""
    att = decode(25, 64, 1, 64)
    limited = WAVES._replace(heads=32)
    assert decode_seconds(att, CHIP, limited) == pytest.approx(16 * 10e-6, rel=1e-6)  # 1600 blocks on 100 SMs
    read = limited._replace(wave=0, l2=0.5)
    assert decode_seconds(att, CHIP, read) == pytest.approx(63 * att.kv_bytes / 0.5e12, rel=1e-6)


def test_with_a_sliding_window_another_limit_applies() -> None:
    att = decode(25, 32, 4, 64)
    timing = WAVES._replace(window_heads=1)
    assert decode_seconds(att, CHIP, timing) == pytest.approx(10e-6, rel=1e-6)  # 100 blocks
    assert decode_seconds(att._replace(windowed=1), CHIP, timing) == pytest.approx(8 * 10e-6, rel=1e-6)


def test_a_cache_is_split_until_its_parts_fill_one_wave() -> None:
    """A block multiplies 16 rows x 1024 keys x 512 FLOPs in 8.4 us. With 50 sequences it is split once: half of that.

    51 sequences would have 102 blocks, which is two waves of half the time.
    """
    timing = WAVES._replace(wave=0, pipe=1.0, combine=0)
    block = 16 * 1024 * 512 / 1e12
    for sequences, splits, time in ((50, 128, block / 2), (50, 1, block), (101, 1, 2 * block)):
        att = decode(sequences, 1, 1, 1024)
        assert decode_seconds(att, CHIP, timing._replace(splits=splits, heads=128)) == pytest.approx(
            time, rel=0.03 if splits > 1 else 1e-6
        )


def test_combining_a_split_cache_takes_a_fixed_time() -> None:
    """One sequence of 65536 keys: a block multiplies 537 us, 64 splits on 100 SMs 8.4 us each, and 5 us together."""
    timing = WAVES._replace(wave=0, pipe=1.0, combine=5e-6)
    att = decode(1, 1, 1, 65536)
    assert decode_seconds(att, CHIP, timing) == pytest.approx(16 * 65536 * 512 / 1e12 / 64 + 5e-6, rel=1e-6)


def test_latents_are_one_key_value_head_whose_heads_multiply_in_whole_tiles() -> None:
    """Absorbed: 1088 multiplications and additions a pair. 65 heads are two tiles of 64 rows, in one block."""
    timing = WAVES._replace(wave=0, pipe=1.0, rows=64, splits=1)
    for heads, rows in ((16, 64), (64, 64), (65, 128)):
        att = AttentionWork(1, heads, 1, 576, 1, 1000, 1000, 2 * 1088 * heads * 1000, 0, 0)
        assert decode_seconds(att, CHIP, timing) == pytest.approx(rows * 1000 * 2 * 1088 / 1e12, rel=1e-6)
