"""Expected time of latent attention in a decode: absorbed, on the latents that all heads share."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from roofmodel.algebra import Number, ceil_div, formula, maximum, minimum, part, plain
from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import LatentGenerationTiming
from roofmodel.prediction.formula import UNFITTED, Chip, FormulaDescription, miss_rate

TILE_KEYS: Annotated[int, "keys that a block processes at a time"] = 64
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)  # of a sequence's cache
RESIDENT_BLOCKS: Annotated[int, "blocks that an SM processes at the same time, where they read latents again"] = 2
OVERLAP: Annotated[float, "exponent p of overlap(a, b) = (a^p + b^p)^(1/p)"] = 2.0
EXCLUSION_FACTOR = 1e3  # factor on the time of splits that a library does not use, so that they are never the best

DESCRIPTION = FormulaDescription(
    name="attention",
    title="latent attention with one or a few queries per sequence",
    summary="One block per sequence and `height` query heads multiplies its queries with the latents; several blocks "
    "where the cache is split. The time is the minimum over a list of splits.",
    equation="max(latency + overlap(waves × (wave + multiply), stream) + split, host)",
    terms=(
        ("waves", "⌈blocks / SMs⌉"),
        ("multiply", "FLOPs of a block, for `height` heads, / (peak of one SM × pipe)"),
        ("stream", "bytes / (DRAM bandwidth × dram), and for the share in L2 / (L2 ports × l2)"),
        ("split", "a fixed time, and the partial outputs in `stream`; 0 without a split"),
        ("overlap(a, b)", "(a^2 + b^2)^(1/2): the two overlap, but not perfectly"),
    ),
    notes=(
        "Some implementations split each cache into `fixed` parts, also a short one.",
        "Where another kernel first converts a narrower cache (`casts`), it reads the cache and writes it in the "
        "compute format, and the attention reads that. Some implementations run the blocks of all sequences at the "
        "same time (`reread`): where the latents do not fit in L2, each block of further heads reads them from DRAM.",
    ),
    source="Absorbed form: DeepSeek-V2, arXiv 2405.04434, section 2.1. Parameters: LatentGenerationTiming, fitted by "
    f"`roof calibrate`. Constants: {UNFITTED}",
    constants=("TILE_KEYS", "RESIDENT_BLOCKS", "OVERLAP"),
)


class LatentDecodeWork(NamedTuple):
    """The size of an absorbed latent attention."""

    batch: Annotated[Number, "sequences"]
    heads: Annotated[Number, "query heads, times the queries per sequence: all share the latents"]
    keys: Annotated[Number, "latents per sequence"]
    pair_flops: Annotated[Number, "FLOPs per query head and latent"]
    cache_bytes: Annotated[Number, "bytes of the latents"]
    other_bytes: Annotated[Number, "bytes of queries and outputs"]
    converted_bytes: Annotated[Number, "bytes of the latents in the compute format; 0 where they have it"]


@formula
def seconds(att: LatentDecodeWork, chip: Chip, timing: LatentGenerationTiming) -> Number:
    """Seconds of the attention, by DESCRIPTION; elementwise for arrays."""
    read = part("read", att.cache_bytes + (2 * att.converted_bytes if timing.casts else 0), "B")
    missed = part("missed", miss_rate(read + att.other_bytes, chip))
    per_byte = part("per_byte", missed / (timing.dram * chip.bandwidth) + (1 - missed) / (timing.l2 * chip.port))
    head_blocks = part("head_blocks", ceil_div(att.heads, timing.height))
    again: Number = 0
    if timing.reread:
        alone = part("alone", minimum(att.batch / (RESIDENT_BLOCKS * chip.multiprocessors), 1))
        again = part("again", read * (head_blocks - 1) * alone * miss_rate(read, chip), "B")
    sm_rate = part("sm_rate", chip.peak / chip.multiprocessors * timing.pipe, "FLOP/s")
    best: Number = float("inf")
    for parts in SPLITS:
        split = part("parts", parts)
        keys = part("block_keys", TILE_KEYS * ceil_div(ceil_div(att.keys, split), TILE_KEYS))
        waves = part("waves", ceil_div(att.batch * head_blocks * split, chip.multiprocessors))
        multiply = part("multiply", keys * timing.height * att.pair_flops / sm_rate, "s")
        sm_seconds = part("sm_time", waves * (timing.wave + multiply), "s")
        moved = read + att.other_bytes + (2 * split * att.other_bytes if parts > 1 else 0)
        stream = part("stream", moved * per_byte + again / (timing.dram * chip.bandwidth), "s")
        time = (sm_seconds**OVERLAP + stream**OVERLAP) ** (1 / OVERLAP)
        other = (split < timing.fixed) + (timing.fixed < split) if timing.fixed else timing.splits < split
        time = (time + timing.split * (parts > 1)) * (1 + EXCLUSION_FACTOR * other)
        best = minimum(best, time)
    return maximum(timing.latency + best, timing.host)


def work(operator: Operator) -> LatentDecodeWork:
    """The input of the formula, from an absorbed latent attention."""
    sizes, cost, widths = operator.sizes, operator.cost, operator.widths
    latents = sizes["b"] * sizes["s"] * (sizes["zk"] + sizes["r"])
    cached = sum(operator.bytes_of(tensor) for tensor in operator.reads if "s" in tensor.axes)
    converted = widths.dtype.bytes(latents) if widths.kv.bits < widths.dtype.bits else 0
    pair_flops = plain(cost.matmul_flops) / plain(sizes["b"] * sizes["k"] * sizes["t:s"])
    others = plain(cost.bytes) - plain(cached)
    heads = sizes["k"] * sizes["t"]
    numbers = (sizes["b"], heads, sizes["s"], pair_flops, cached, others, converted)
    return LatentDecodeWork(*map(plain, numbers))
