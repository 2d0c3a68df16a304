"""Expected time of the attention of encoders, and of latent attention with many queries per sequence.

The tables of these kernels repeat each call on the same operands, so that data that fits in L2 is read from there.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import TiledTiming
from roofmodel.numbers.algebra import Number, ceil_div, formula, maximum, minimum, part, plain, product
from roofmodel.timing.formula import UNFITTED, Chip, FormulaDescription, miss_rate, overlap

TILE_KEYS: Annotated[int, "keys that a tile processes at a time"] = 64
RESIDENT_BLOCKS: Annotated[int, "tiles that an SM processes at the same time, where they read keys again"] = 2
OVERLAP: Annotated[float, "exponent p of overlap(a, b) = (a^p + b^p)^(1/p)"] = 1.5

DESCRIPTION = FormulaDescription(
    name="attention",
    title="attention of encoders, and latent attention with many queries per sequence",
    summary="Tiles of query rows each process the keys that their rows attend to. The SMs share the work of all tiles; "
    "the last tile ends late. Data comes from L2 where it fits.",
    equation="max(latency + overlap(max(balanced + tail, longest_tile), stream), host)",
    terms=(
        ("balanced", "work of all tiles / SMs: FLOPs rounded up to whole tiles, and the exponential of each score"),
        ("longest_tile", "time of the longest tile"),
        ("tail", "timing.tail × longest_tile, where there are more tiles than SMs"),
        ("stream", "bytes / (DRAM bandwidth × dram), and for the share in L2 / (L2 ports × l2)"),
        ("overlap(a, b)", "(a^1.5 + b^1.5)^(1/1.5): the two overlap, but not perfectly"),
    ),
    notes=(
        "Latent attention runs on keys and values of each head, or `absorbed`: on the latents, which all heads share, "
        "with more FLOPs per score. Where the implementation packs (`packed`), a tile holds the queries of all heads.",
        "Some implementations run tiles of all heads at the same time (`reread`): where keys and values do not fit in "
        "L2, a tile shares its reads from DRAM only with the other tiles of its head that run at that time.",
    ),
    source="Absorbed form: DeepSeek-V2, arXiv 2405.04434, section 2.1. Parameters: TiledTiming, fitted by "
    f"`roof calibrate`. Constants: {UNFITTED}",
    constants=("TILE_KEYS", "RESIDENT_BLOCKS", "OVERLAP"),
)


class TiledAttentionWork(NamedTuple):
    """The size of an attention without a split of the keys."""

    batch: Annotated[Number, "sequences"]
    heads: Annotated[Number, "query heads"]
    queries: Annotated[Number, "queries per sequence"]
    keys: Annotated[Number, "keys per sequence that at least one query attends to"]
    pairs: Annotated[Number, "query-key pairs per head and sequence that the mask leaves"]
    pair_flops: Annotated[Number, "FLOPs per pair"]
    bytes: Annotated[Number, "bytes read and written"]
    kv_bytes: Annotated[Number, "bytes of keys and values among them"]
    absorbed_pair_flops: Annotated[Number, "FLOPs per pair on the latents; the same where there are none"]
    absorbed_bytes: Annotated[Number, "bytes read and written, on the latents"]


@formula
def seconds(att: TiledAttentionWork, chip: Chip, timing: TiledTiming) -> Number:
    """Seconds of the attention, by DESCRIPTION; elementwise for arrays."""
    pair_flops = part("score_flops", att.absorbed_pair_flops if timing.absorbed else att.pair_flops)
    data = part("data", att.absorbed_bytes if timing.absorbed else att.bytes, "B")
    group = part("group", att.heads if timing.packed else 1)
    rows = att.queries * group
    tiles = part("tiles", ceil_div(rows, timing.height))
    tile_positions = part("tile_positions", minimum(timing.height / group, att.queries))  # query positions of a tile
    mean_keys = part("mean_keys", att.pairs / att.queries)
    # At the edge of the mask a tile processes keys that only some of its rows attend to (attention.py).
    edge = tile_positions * (att.keys - mean_keys) / att.queries
    processed_keys = part("processed_keys", att.pairs / tile_positions + tiles * (edge + TILE_KEYS / 2))
    longest_keys = part("longest_keys", minimum(att.keys, 2 * mean_keys + tile_positions) + TILE_KEYS / 2)
    sm_rate = part("sm_rate", chip.peak / chip.multiprocessors * timing.pipe, "FLOP/s")
    seconds_per_key = part("seconds_per_key", timing.height * (pair_flops + 4 * timing.softmax) / sm_rate, "s")
    head_groups = part("head_groups", att.batch * att.heads / group)
    work = head_groups * (processed_keys + tiles * timing.fill) * seconds_per_key
    balanced = part("balanced", work / chip.multiprocessors, "s")
    longest_tile = part("longest_tile", (longest_keys + timing.fill) * seconds_per_key, "s")
    tail = timing.tail * longest_tile * (head_groups * tiles > chip.multiprocessors)
    sm_seconds = part("sm_time", maximum(balanced + tail, longest_tile), "s")
    missed = part("missed", miss_rate(data, chip))
    stream = data * (missed / (timing.dram * chip.bandwidth) + (1 - missed) / (timing.l2 * chip.port))
    if timing.reread:
        key_bytes = att.kv_bytes / (att.batch * att.heads * att.keys)
        alone = part("alone", minimum(head_groups / (RESIDENT_BLOCKS * chip.multiprocessors), 1))
        again = head_groups * processed_keys * key_bytes * alone * miss_rate(att.kv_bytes, chip)
        stream = maximum(stream, again / (timing.dram * chip.bandwidth))
    stream = part("stream", stream, "s")
    time = timing.latency + overlap(sm_seconds, stream, OVERLAP)
    return maximum(time, timing.host)


def work(operator: Operator) -> TiledAttentionWork:
    """The input of the formula, from a fused attention without a cache, or latent attention that is not absorbed."""
    sizes, cost = operator.sizes, operator.cost
    heads = product(sizes[axis] for axis in ("k", "g") if axis in sizes)
    pairs, queries, keys = sizes["t:s"], sizes["t"], sizes["s"]
    pair_flops = cost.matmul_flops / (sizes["b"] * heads * pairs)
    kv_bytes = sum(operator.bytes_of(tensor) for tensor in operator.reads if "s" in tensor.axes)
    absorbed_flops, absorbed_bytes = pair_flops, cost.bytes
    if "zk" in sizes:  # per head: a query and an output of the latent's size and a rotary query, for all heads latents
        latent, rotary = sizes["zk"], sizes["r"]
        absorbed_flops = 2 * (2 * latent + rotary)
        cached = sizes["b"] * keys * (latent + rotary)
        other = sizes["b"] * queries * heads * (2 * latent + rotary)
        absorbed_bytes = operator.widths.kv.bytes(cached) + operator.widths.dtype.bytes(other)
    numbers = (
        sizes["b"], heads, queries, keys, pairs, pair_flops, cost.bytes, kv_bytes, absorbed_flops, absorbed_bytes
    )  # fmt: skip
    return TiledAttentionWork(*map(plain, numbers))
