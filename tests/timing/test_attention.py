"""Fused attention: tiles of query rows in a prefill; blocks, waves and splits in a decode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from roofmodel.devices.calibration import HEAD_SIZES, DecodeTiming, PrefillTiming
from roofmodel.timing.attention import AttentionWork, decode_seconds, prefill_seconds
from roofmodel.timing.formula import Chip

# 100 SMs of 1 TFLOP/s each.
CHIP = Chip(multiprocessors=100, peak=100e12, bandwidth=1e12, l2=0.0, port=1e12)


def by_head_size(name: str, value: float) -> dict[str, float]:
    """The fields of a parameter that is the same for all head sizes."""
    return {f"{name}_{size}": value for size in HEAD_SIZES}


COMPUTE = PrefillTiming(
    latency=0, rows=128, heads=1, outside=0, append=0, dram=1e9, l2=1e9, overlap=0,
    **by_head_size("pipe", 1.0), **by_head_size("fill", 0.0),
)  # fmt: skip
STREAM = COMPUTE._replace(dram=1.0, **by_head_size("pipe", 1e9))
WAVES = DecodeTiming(
    latency=0, single=1.0, pipe=1.0, rows=64, heads=128, window_heads=128, combine=1.0, dram=1e9, l2=1e9,
    **by_head_size("wave", 10e-6),
)  # fmt: skip
NO_WAVES = by_head_size("wave", 0.0)
FAST = CHIP._replace(peak=1e30)


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

    400 tiles / 100 SMs, and half of the tile that starts last.
    """
    tile = 128 * 512 * 4 * 64 / 1e12
    assert prefill_seconds(prefill(512, 512 * 512), CHIP, COMPUTE) == pytest.approx(4.5 * tile)


def test_where_each_sm_has_one_tile_the_longest_one_takes_all_the_time() -> None:
    """100 heads with one tile of 128 rows each, whose keys are the 128 of the prompt."""
    tile = 128 * 128 * 4 * 64 / 1e12
    assert prefill_seconds(prefill(128, 128 * 128), CHIP, COMPUTE) == pytest.approx(tile)


def test_a_causal_mask_hides_half_of_the_keys_but_those_at_the_edge_of_a_tile() -> None:
    """32 tiles of 128 rows: tile n has (n + 1) x 128 keys, of which half of the last 128 x 128 pairs are masked."""
    causal = prefill(4096, 4096 * 4097 / 2)
    keys = sum((n + 1) * 128 for n in range(32))
    longest = 4096
    expected = (keys + longest / 2) * 128 * 4 * 64 / 1e12
    assert prefill_seconds(causal, CHIP, COMPUTE) == pytest.approx(expected, rel=0.01)


def test_a_window_skips_the_tiles_outside_of_it_or_masks_them() -> None:
    """A tile of 128 rows processes 128 + 128 keys of a window of 128, and 2112 on average under a causal mask."""
    causal = prefill(4096, 4096 * 4097 / 2)
    windowed = prefill(4096, 128 * 129 / 2 + (4096 - 128) * 128, windowed=1)
    windowed = windowed._replace(flops=4 * 100 * windowed.pairs * 64)
    full, short, masked = (
        prefill_seconds(att, CHIP, COMPUTE._replace(outside=outside))
        for att, outside in ((causal, 0), (windowed, 0), (windowed, 1))
    )
    assert full / short == pytest.approx((32 * 2112 + 4096 / 2) / (32 * 256 + 384 / 2), rel=0.05)
    assert masked == pytest.approx(full)


@pytest.mark.parametrize(("head", "size"), [(40, 64), (64, 64), (96, 128), (192, 192), (576, 512)])
def test_heads_between_two_sizes_have_the_kernel_of_the_larger_one(head: int, size: int) -> None:
    """A tile of the slow kernel takes twice the FLOPs' time, and 1 us more, 4.5 times in a row."""
    att = prefill(512, 512 * 512, head=head)
    slow = COMPUTE._replace(**{f"pipe_{size}": 0.5, f"fill_{size}": 1e-6})
    expected = 2 * prefill_seconds(att, CHIP, COMPUTE) + 4.5e-6
    assert prefill_seconds(att, CHIP, slow) == pytest.approx(expected)


def test_heads_that_share_a_tile_fill_it_with_few_queries() -> None:
    """16 queries of 8 heads per key-value head fill a tile of 128 rows, of which 12.5 take the place of 100."""
    att = prefill(16, 16 * 16)._replace(kv_heads=12.5)
    tile = 128 * 16 * 4 * 64 / 1e12
    many = att._replace(batch=16, flops=16 * att.flops)
    assert prefill_seconds(many, CHIP, COMPUTE) == pytest.approx(16.5 * tile)
    assert prefill_seconds(many, CHIP, COMPUTE._replace(heads=128)) == pytest.approx(2.5 * tile)


def test_smaller_tiles_use_more_sms_for_a_short_prefill() -> None:
    """50 of 100 SMs have a tile of 128 rows. With tiles of 64 rows, all SMs have one, which takes half as long."""
    att = prefill(128, 128 * 128, batch=0.5, flops=0.5 * 4 * 100 * 128 * 128 * 64)
    of_128_rows, of_64_rows = (prefill_seconds(att, CHIP, COMPUTE._replace(rows=rows)) for rows in (128.0, 64.0))
    assert of_64_rows == pytest.approx(of_128_rows / 2, rel=1e-3)


def test_appending_keys_and_values_reads_and_writes_them_once() -> None:
    """With one key-value head per query head, keys and values are 2 of 4 tensors: 2 more reads, 2 more writes."""
    att = prefill(1024, 1024 * 1025 / 2)
    without, appended = (prefill_seconds(att, CHIP, STREAM._replace(append=n)) for n in (0, 1))
    assert without == pytest.approx(att.bytes / 1e12, rel=1e-3)
    assert appended == pytest.approx(2 * att.bytes / 1e12, rel=1e-3)


def test_tiles_and_stream_take_their_sum_or_with_overlap_the_longer_one() -> None:
    att = prefill(1024, 1024 * 1025 / 2)
    tiles, stream = (prefill_seconds(att, CHIP, timing) for timing in (COMPUTE, STREAM))
    both = COMPUTE._replace(dram=1.0)
    assert prefill_seconds(att, CHIP, both) == pytest.approx(tiles + stream, rel=1e-3)
    assert prefill_seconds(att, CHIP, both._replace(overlap=1)) == pytest.approx(max(tiles, stream), rel=1e-3)


def test_a_decode_streams_its_cache_once() -> None:
    """32 sequences, 8 key-value heads, 1000 keys and values of 128 x 2 bytes each: 131 MB at 1 TB/s."""
    att = decode(32, 32, 8, 1000)
    assert att.bytes == 32 * 8 * 1000 * 2 * 128 * 2
    assert decode_seconds(att, FAST, WAVES._replace(dram=1.0, **NO_WAVES)) == pytest.approx(att.bytes / 1e12, rel=1e-6)


def test_waves_and_stream_of_a_decode_overlap_in_part() -> None:
    """Waves of 30 us and a stream of 40 us take the root of the sum of their squares: 50 us."""
    att = decode(3, 100, 100, 1)._replace(flops=0.0, bytes=40e6, kv_bytes=40e6)
    assert decode_seconds(att, FAST, WAVES._replace(dram=1.0)) == pytest.approx(50e-6, rel=1e-6)


def test_a_repeated_attention_reads_from_l2_what_fits_there() -> None:
    """L2 keeps 20 MB. Of a cache of 20 MB nothing comes from DRAM (1 TB/s); half of 30 MB; all of 40 MB."""
    chip, timing = FAST._replace(l2=20_000_000), WAVES._replace(dram=1.0, **NO_WAVES)
    for cache, streamed in ((20_000_000, 0), (30_000_000, 15_000_000), (40_000_000, 40_000_000)):
        att = AttentionWork(1, 1, 1, 128, 1, 64, 64, 0, cache, cache, repeated=1)
        assert decode_seconds(att, chip, timing) == pytest.approx(streamed / 1e12, abs=1e-9)
        assert decode_seconds(att._replace(repeated=0), chip, timing) == pytest.approx(cache / 1e12, abs=1e-9)


def test_waves_are_blocks_over_sms_and_a_block_holds_all_heads_of_a_group() -> None:
    """25 sequences x 8 key-value heads are 200 blocks: 2 waves on 100 SMs, for groups of 2 and of 8 heads."""
    for group in (2, 8):
        att = decode(25, 8 * group, 8, 64)
        assert decode_seconds(att, FAST, WAVES) == pytest.approx(20e-6, rel=1e-6)
        many = att._replace(batch=np.array([25.0, 25.0]))
        assert decode_seconds(many, FAST, WAVES) == pytest.approx([20e-6] * 2, rel=1e-6)


def test_groups_above_the_limit_have_a_block_for_each_head_and_read_the_cache_again_from_l2() -> None:
    """64 query heads per key-value head and blocks of up to 32: 64 blocks a sequence. 63 of them read from L2."""
    att = decode(25, 64, 1, 64)
    limited = WAVES._replace(heads=32)
    assert decode_seconds(att, FAST, limited) == pytest.approx(16 * 10e-6, rel=1e-6)  # 1600 blocks on 100 SMs
    read = limited._replace(l2=0.5, **NO_WAVES)
    assert decode_seconds(att, FAST, read) == pytest.approx(63 * att.kv_bytes / 0.5e12, rel=1e-6)


def test_groups_below_the_limit_have_a_block_for_each_head_too() -> None:
    """25 sequences on 100 SMs: 32 heads in groups of 4 are 800 blocks, 64 in groups of 8 are 200, 128 in groups of 16
    are 3200."""
    of_eight = WAVES._replace(heads=8, fewest_heads=8)
    for group, waves in ((1, 2), (4, 8), (8, 2), (16, 32)):
        att = decode(25, 8 * group, 8, 64)
        assert decode_seconds(att, FAST, of_eight) == pytest.approx(waves * 10e-6, rel=1e-6)


def test_with_a_sliding_window_another_limit_applies_too() -> None:
    att = decode(25, 32, 4, 64)
    timing = WAVES._replace(window_heads=1)
    assert decode_seconds(att, FAST, timing) == pytest.approx(10e-6, rel=1e-6)  # 100 blocks
    assert decode_seconds(att._replace(windowed=1), FAST, timing) == pytest.approx(8 * 10e-6, rel=1e-6)
    alone = timing._replace(heads=4, window_heads=128)  # 8 heads share a key-value head
    assert decode_seconds(att._replace(windowed=1), FAST, alone) == pytest.approx(8 * 10e-6, rel=1e-6)


def test_blocks_with_one_query_head_have_a_wave_time_of_their_own() -> None:
    """25 x 4 blocks, where each query head has its own keys; 8 times as many where it shares them but not its block."""
    timing = WAVES._replace(single=0.5)
    assert decode_seconds(decode(25, 4, 4, 64), FAST, timing) == pytest.approx(5e-6, rel=1e-6)
    assert decode_seconds(decode(25, 32, 4, 64), FAST, timing._replace(heads=4)) == pytest.approx(40e-6, rel=1e-6)


def test_a_cache_is_split_into_the_parts_that_fill_one_wave() -> None:
    """A block multiplies 64 rows x 1024 keys x 512 FLOPs in 33.6 us. With 50 sequences it is split once: half of that.

    51 sequences would have 102 blocks, which is two waves.
    """
    timing = WAVES._replace(combine=0, **NO_WAVES)
    block = 64 * 1024 * 512 / 1e12
    for sequences, time in ((50, block / 2), (51, block), (101, 2 * block)):
        assert decode_seconds(decode(sequences, 1, 1, 1024), CHIP, timing) == pytest.approx(time, rel=1e-6)


def test_combining_a_split_cache_takes_a_fixed_time() -> None:
    """One sequence of 65536 keys: a block multiplies 2.1 ms; 100 parts of 656 keys, in 11 tiles of 64, 23 us each."""
    timing = WAVES._replace(combine=5e-6, **NO_WAVES)
    att = decode(1, 1, 1, 65536)
    assert decode_seconds(att, CHIP, timing) == pytest.approx(64 * 11 * 64 * 512 / 1e12 + 5e-6, rel=1e-6)
    slow = timing._replace(combine=1e-2)
    assert decode_seconds(att, CHIP, slow) == pytest.approx(64 * 65536 * 512 / 1e12, rel=1e-6)


def test_latents_are_one_key_value_head_whose_heads_multiply_in_whole_tiles() -> None:
    """Absorbed: 1088 multiplications and additions a pair. 65 heads are two tiles of 64 rows, in one block."""
    timing = WAVES._replace(pipe=0.5, **NO_WAVES)
    for heads, rows in ((16, 64), (64, 64), (65, 128)):
        att = AttentionWork(1, heads, 1, 576, 1, 1024, 1024, 2 * 1088 * heads * 1024, 0, 0)
        assert decode_seconds(att, CHIP, timing) == pytest.approx(2 * rows * 1024 * 2 * 1088 / 1e12, rel=1e-6)
