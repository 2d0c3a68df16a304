"""How long fused attention takes: many queries over a context, or one query over a cache.

Context. Tiles of 128 query rows each walk the keys that they may see. Their work, FLOPs rounded up to whole tiles and
the exponential of each score, which small heads do not outweigh (FlashAttention-3, section 3.1), is shared by the
multiprocessors, and the last tile ends late by a part of the longest:

    latency + join(max(work / multiprocessors + tail x longest, longest), bytes / (DRAM x dram))

Where an implementation packs, a tile holds the queries of all heads that share a key-value head (FlashAttention-3,
arXiv 2407.08608; the kernels of FlashInfer, arXiv 2501.01005): short queries then fill it.

Generation. One block a key-value head and sequence streams its keys and values, or several that split them
(Flash-Decoding). The best of a few splits of

    latency + whole waves of blocks x wave + block's bytes / (port x stream) + all bytes / (DRAM x dram) + split

Where a multiprocessor takes one block at a time, each wave streams its block after the one before, which overlaps with
what DRAM streams, and a cache is split into no more parts than one wave holds.

Kernels hold so many query heads a block. With more, and with a single one, some libraries take another kernel, which
gives each head a block of its own, of its own latency and wave (TensorRT-LLM, decoderXQAImplJIT.cpp); keys and values
come from L2 again for each.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number, ceil_div, formula, maximum, minimum, part
from roofmodel.devices.calibration import ContextTiming, GenerationTiming
from roofmodel.prediction.chip import Chip

ROWS = 128  # query rows of a tile
KEYS = 64  # keys that a tile takes at a time
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
HEADS = 64  # query heads that one block of a decode holds
AGAIN = 0.42  # of the ports, at which L2 gives keys and values to further blocks
OVERLAP = 1.5  # power by which what overlaps is joined
NEVER = 1e3  # times longer, so that parts that a library does not make are not the best


class AttentionWork(NamedTuple):
    """Fused attention: sizes, and what it costs altogether."""

    batch: Number  # sequences
    heads: Number  # of queries
    kv_heads: Number  # of keys and values
    queries: Number  # a sequence
    keys: Number  # a sequence, that any of the queries sees
    pairs: Number  # of query and key, a head and sequence, that the mask leaves
    flops: Number  # of its products
    bytes: Number  # read and written
    kv_bytes: Number  # of them, those of keys and values


@formula
def context_seconds(att: AttentionWork, chip: Chip, timing: ContextTiming) -> Number:
    """Seconds for many queries a sequence; elementwise for arrays."""
    group = part("group", att.heads / att.kv_heads if timing.packed else 1)
    rows = att.queries * group
    tiles = part("tiles", ceil_div(rows, ROWS))
    positions = part("positions", minimum(ROWS / group, att.queries))  # that a tile covers
    mean = part("mean", att.pairs / att.queries)
    # Keys of all tiles of a head, or group of heads. At the edges of the mask a tile takes keys that some of its rows
    # may not see: half its positions under a causal mask, all of them in a window, none where everybody sees all.
    edge = positions * (att.keys - mean) / att.queries
    seen = part("seen", att.pairs / positions + tiles * (edge + KEYS / 2))
    longest = part("longest", minimum(att.keys, 2 * mean + positions) + KEYS / 2)
    per_pair = part("per_pair", att.flops / (att.batch * att.heads * att.pairs) + 4 * timing.softmax)
    rate = part("rate", chip.peak / chip.multiprocessors * timing.pipe, "FLOP/s")
    a_key = part("a_key", ROWS * per_pair / rate, "s")
    units = part("units", att.batch * att.heads / group)
    even = part("even", units * (seen + tiles * timing.fill) * a_key / chip.multiprocessors, "s")
    one = part("one", (longest + timing.fill) * a_key, "s")
    late = timing.tail * one * (units * tiles > chip.multiprocessors)
    busy = part("busy", maximum(even + late, one), "s")
    stream = part("stream", att.bytes / (timing.dram * chip.bandwidth), "s")
    return timing.latency + _joined(busy, stream)


def _joined(busy: Number, stream: Number) -> Number:
    return (busy**OVERLAP + stream**OVERLAP) ** (1 / OVERLAP)


@formula
def generation_seconds(att: AttentionWork, chip: Chip, timing: GenerationTiming) -> Number:
    """Seconds for one query a sequence; elementwise for arrays."""
    best: Number = float("inf")
    bandwidth = part("rate", timing.dram * chip.bandwidth, "B/s")
    share = part("share", timing.stream * chip.port / chip.multiprocessors, "B/s")
    padded = part("padded", KEYS * ceil_div(att.keys, KEYS) / att.keys)
    rest = part("rest", att.bytes - att.kv_bytes, "B")  # queries and outputs
    group = part("group", att.heads / att.kv_heads)
    shared = (group > 1) * (group <= timing.group) if timing.group else 1  # by a block; else every head has its own
    each = part("each", shared * ceil_div(group, HEADS) + (1 - shared) * group)
    wave = shared * (timing.wave + timing.row * group) + (1 - shared) * (timing.single or timing.wave)
    latency = shared * timing.latency + (1 - shared) * (timing.alone or timing.latency)
    for parts in SPLITS:
        split = part("parts", parts)
        keys = part("block_keys", KEYS * ceil_div(ceil_div(att.keys, split), KEYS))
        blocks = part("blocks", att.batch * att.kv_heads * split * each)
        block = part("block", att.kv_bytes / (att.batch * att.kv_heads) * (keys / att.keys), "B")
        again = part("again", att.kv_bytes * (each - 1) / (AGAIN * chip.port), "s")
        waves = part("waves", ceil_div(blocks, chip.multiprocessors))
        one = part("one", block / share, "s")
        stream = part("stream", (att.kv_bytes * padded + rest) / bandwidth, "s")
        time = wave * waves + (_joined(waves * one, stream) if timing.queue else one + stream) + again
        if split > 1:
            time = time + timing.split + 4 * split * rest / bandwidth
            if timing.queue:
                time = time * (1 + NEVER * (waves > 1))
        best = minimum(best, time)
    return latency + best
