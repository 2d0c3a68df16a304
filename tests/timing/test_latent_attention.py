"""Latent attention in a decode: the number of parts of a cache, rereads and the kernel of whole clusters."""

from __future__ import annotations

import pytest

from roofmodel.devices.calibration import LatentGenerationTiming
from roofmodel.timing.formula import Chip
from roofmodel.timing.latent_attention import LatentDecodeWork, seconds

CHIP = Chip(multiprocessors=188, peak=500e12, bandwidth=1.6e12, l2=128 * 2**20, port=30e12)
TRITON = LatentGenerationTiming(1e-5, 0.0, 0.0, 0.2, 1.0, 0.2, height=16, adaptive=1)


def decode(batch: int, heads: int, keys: int) -> LatentDecodeWork:
    """One query per sequence on latents of 512 + 64 elements in bf16, as DeepSeek-V3 stores them."""
    cache, queries_and_outputs = batch * keys * 576 * 2, batch * heads * (576 + 512) * 2
    return LatentDecodeWork(batch, heads, keys, 2 * (576 + 512), cache, queries_and_outputs, 0)


@pytest.mark.parametrize(
    ("batch", "heads", "keys", "parts"),
    [
        (1, 16, 8192, 256),  # 188 × log2(8192 / 64) = 1316 are wanted; the limit is the power of two above 188
        (8, 16, 8192, 128),  # ⌈1316 / 8⌉ = 165 parts of ⌈8192 / 165⌉ = 50 keys, rounded up to 64
        (8, 32, 8192, 64),  # two blocks of 16 heads: ⌈1316 / 16⌉ = 83 parts of 99 keys, rounded up to 128
        (1, 16, 1024, 32),  # a part has at least 32 keys
        (256, 128, 4096, 1),
    ],
)
def test_a_cache_has_the_parts_of_sglangs_rule(batch: int, heads: int, keys: int, parts: int) -> None:
    combined = TRITON._replace(split=1e-6)
    extra = seconds(decode(batch, heads, keys), CHIP, combined) - seconds(decode(batch, heads, keys), CHIP, TRITON)
    assert extra == pytest.approx(1e-6 * parts * (parts > 1))


def test_short_caches_take_the_time_of_launching_blocks_for_all_parts() -> None:
    launching = TRITON._replace(block=3e-7, pipe=1e3)  # multiplications take no time
    launched = 128 * 8 * 256  # sequences × blocks of 16 heads × parts
    assert seconds(decode(128, 128, 2), CHIP, launching) == pytest.approx(1e-5 + launched * 3e-7 / 188, rel=1e-3)


def test_blocks_of_further_heads_read_latents_again_that_are_in_l2() -> None:
    memory_bound = LatentGenerationTiming(0.0, 0.0, 0.0, 1e3, 1.0, 0.2, height=16, reread=1)
    once, eight_times = (seconds(decode(8, heads, 4096), CHIP, memory_bound) for heads in (16, 128))
    assert eight_times == pytest.approx(8 * once, rel=0.05)


def test_the_cluster_kernel_applies_from_its_number_of_heads_and_does_not_split() -> None:
    ordinary = LatentGenerationTiming(1e-5, 1e-6, 1e-6, 0.5, 1.0, 0.2)
    clusters = ordinary._replace(cluster_heads=128.0, cluster_latency=2e-5, cluster_wave=1e-6, cluster_pipe=1.0)
    assert seconds(decode(8, 64, 8192), CHIP, clusters) == seconds(decode(8, 64, 8192), CHIP, ordinary)
    fast = CHIP._replace(bandwidth=1e15, port=1e15)  # multiplications limit
    one, full, more = (seconds(decode(batch, 128, 8192), fast, clusters) - 2e-5 for batch in (1, 47, 48))
    assert full == pytest.approx(one, rel=0.01)  # 47 clusters of 4 SMs run at the same time
    assert more == pytest.approx(2 * one, rel=0.01)


NARROW = LatentGenerationTiming(1e-5, 2e-6, 0.0, 0.5, 1.0, 0.2, narrow_heads=32.0, narrow_wave=1e-6)


@pytest.mark.parametrize(
    ("batch", "heads", "keys", "blocks"),
    [
        (300, 16, 8, 300),
        (300, 32, 8, 600),  # two blocks of 16 heads for each sequence
        (300, 64, 8, 0),  # more heads and more blocks than SMs: the other kernel
        (40, 64, 512, 160),  # four blocks each, of 512 keys, at the same time
        (48, 64, 8, 0),  # 192 blocks on 188 SMs
        (40, 64, 2048, 0),  # more than 1024 keys for a block
    ],
)
def test_trtllms_kernel_for_few_heads_has_blocks_of_16_heads(batch: int, heads: int, keys: int, blocks: int) -> None:
    slower = NARROW._replace(narrow_wave=2e-6)
    fast = CHIP._replace(peak=1e20, bandwidth=1e18, port=1e18)  # only waves take time
    extra = seconds(decode(batch, heads, keys), fast, slower) - seconds(decode(batch, heads, keys), fast, NARROW)
    assert extra == pytest.approx(1e-6 * -(-blocks // 188), abs=1e-9)


def test_the_second_block_of_that_kernel_reads_the_latents_from_l2() -> None:
    fast = CHIP._replace(peak=1e20)  # only reads take time
    one, two = (seconds(decode(256, heads, 65536), fast, NARROW) for heads in (16, 32))
    again = 256 * 65536 * 576 * 2 / (0.2 * CHIP.port)
    assert two - one == pytest.approx(again, rel=0.02)
