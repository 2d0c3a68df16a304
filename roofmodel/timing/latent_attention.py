"""Expected time of latent attention in a decode: absorbed, on the latents that all heads share."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import LatentGenerationTiming
from roofmodel.numbers.algebra import Number, ceil_div, doublings, either, formula, maximum, minimum, part, plain
from roofmodel.timing.formula import UNFITTED, Chip, FormulaDescription, miss_rate, overlap

TILE_KEYS: Annotated[int, "keys that a block processes at a time"] = 64
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)  # of a sequence's cache
PART_KEYS: Annotated[int, "keys that a block processes at a time, with `adaptive`"] = 32
RESIDENT_BLOCKS: Annotated[int, "blocks that an SM processes at the same time, where they read latents again"] = 2
CLUSTER_SMS: Annotated[int, "SMs of a cluster that processes all heads of a sequence"] = 4
NARROW_HEADS: Annotated[int, "query heads of a block, with `narrow_heads`"] = 16
NARROW_KEYS: Annotated[
    int, "largest number of keys of a part for which more heads use the kernel of `narrow_heads`"
] = 1024
NARROW_STEP: Annotated[int, "least keys of a part, in the condition of NARROW_KEYS"] = 256
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
        (
            "multiply",
            "FLOPs of a block, for `height` heads, / (peak of one SM × pipe); (1 + uncached) times as long for keys "
            "from DRAM",
        ),
        ("stream", "bytes / (DRAM bandwidth × dram), and for the share in L2 / (L2 ports × l2)"),
        ("split", "a fixed time, and the partial outputs in `stream`; 0 without a split"),
        ("overlap(a, b)", "(a^2 + b^2)^(1/2): the two overlap, but not perfectly"),
    ),
    notes=(
        "In some implementations, `column_blocks` blocks share the output columns of the same heads. Some split each "
        "cache into `fixed` parts, also a short one.",
        "SGLang's Triton backend splits a cache into enough parts of at least 32 keys to fill the SMs (`adaptive`). It "
        "launches blocks for the largest number of parts, which is the number of SMs rounded up to a power of two, "
        "also for a short cache (`block` for each). It combines the parts one after another (`split` for each).",
        "Where another kernel first converts a narrower cache (`casts`), it reads the cache and writes it in the "
        "compute format, and the attention reads that. In some implementations, each block of further heads reads the "
        "latents again (`reread`): from L2, or, where they do not fit in L2 and the blocks of all sequences run at the "
        "same time, from DRAM.",
        "TensorRT-LLM has another kernel for all 128 heads in fp8 on compute capability 12.0 (`cluster_heads`): a "
        "cluster of SMs processes a sequence, without a split.",
        "On compute capability 10.x, its kernel for up to 32 heads (`narrow_heads`) has blocks of 16 heads, which each "
        "read the latents, the first one from DRAM and the others from L2. More heads use it, too, where a part of the "
        "cache has at most 1024 keys and all blocks run at the same time.",
    ),
    source="Absorbed form: DeepSeek-V2, arXiv 2405.04434, section 2.1. `adaptive`: SGLang 0.5.14, triton_backend.py "
    "(get_num_kv_splits_triton, _mla_decode_kv_splits_cap). `cluster_heads`: TensorRT-LLM, mla_sm120.cu. "
    "`narrow_heads`: TensorRT-LLM and FlashInfer, fmhaKernels (selectMlaGenerationKernel). Parameters: "
    f"LatentGenerationTiming, fitted by `roof calibrate`. Constants: {UNFITTED}",
    constants=(
        "TILE_KEYS",
        "PART_KEYS",
        "RESIDENT_BLOCKS",
        "CLUSTER_SMS",
        "NARROW_HEADS",
        "NARROW_KEYS",
        "NARROW_STEP",
        "OVERLAP",
    ),
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


class LatentDecodeTerms(NamedTuple):
    """What does not depend on the number of parts of a cache."""

    read: Number
    """Bytes of the cache, with the copy that another kernel converts."""
    per_byte: Number
    """Seconds per byte."""
    again: Number
    """Seconds in which further blocks of heads read the latents again."""
    blocks: Number
    """Blocks without a split."""
    per_key: Number
    """Seconds of a block per key."""


@formula
def seconds(att: LatentDecodeWork, chip: Chip, timing: LatentGenerationTiming) -> Number:
    """Seconds of the attention, by DESCRIPTION; elementwise for arrays."""
    terms = _terms(att, chip, timing)
    if timing.adaptive:
        most = part("most_parts", 2 ** doublings(chip.multiprocessors))
        parts = part("parts", _adaptive_parts(att.keys, terms.blocks, most, chip))
        launched = part("launched", terms.blocks * most * timing.block / chip.multiprocessors, "s")
        best = _split_seconds(att, parts, PART_KEYS, launched, terms, chip, timing) + timing.split * parts * (parts > 1)
    else:
        best = _best_split_seconds(att, terms, chip, timing)
    time = maximum(timing.latency + best, timing.host)
    if timing.narrow_heads:
        narrow = _narrow_seconds(att, chip, timing)
        time = either(_is_narrow(att, chip, timing), maximum(timing.latency + narrow, timing.host), time)
    if timing.cluster_heads:
        time = either(att.heads >= timing.cluster_heads, _cluster_seconds(att, terms, chip, timing), time)
    return time


def _best_split_seconds(
    att: LatentDecodeWork, terms: LatentDecodeTerms, chip: Chip, timing: LatentGenerationTiming
) -> Number:
    """Seconds after the latency with the best number of parts of a cache."""
    best: Number = float("inf")
    for number in SPLITS:
        parts = part("parts", number)
        time = _split_seconds(att, parts, TILE_KEYS, 0, terms, chip, timing) + timing.split * (number > 1)
        other = (parts < timing.fixed) + (timing.fixed < parts) if timing.fixed else timing.splits < parts
        best = minimum(best, time * (1 + EXCLUSION_FACTOR * other))
    return best


def _is_narrow(att: LatentDecodeWork, chip: Chip, timing: LatentGenerationTiming) -> Number:
    """Whether TensorRT-LLM runs its kernel with blocks of NARROW_HEADS heads: for few heads, or short caches."""
    blocks = part("narrow_blocks", att.batch * ceil_div(att.heads, NARROW_HEADS))
    most = maximum(ceil_div(chip.multiprocessors + 1, blocks) - 1, 1)  # whole parts that run at the same time
    parts = part("narrow_parts", minimum(ceil_div(att.keys, NARROW_STEP), most))
    short = (ceil_div(att.keys, parts) <= NARROW_KEYS) * (blocks <= chip.multiprocessors)
    return (att.heads <= timing.narrow_heads) + short > 0


def _narrow_seconds(att: LatentDecodeWork, chip: Chip, timing: LatentGenerationTiming) -> Number:
    """Seconds after the latency with this kernel."""
    narrow = timing._replace(height=NARROW_HEADS, wave=timing.narrow_wave, reread=0.0, column_blocks=1.0)
    terms = _terms(att, chip, narrow)
    again = terms.read * (ceil_div(att.heads, NARROW_HEADS) - 1) / (timing.l2 * chip.port)
    return _best_split_seconds(att, terms._replace(again=part("again", again, "s")), chip, narrow)


def _terms(att: LatentDecodeWork, chip: Chip, timing: LatentGenerationTiming) -> LatentDecodeTerms:
    read = part("read", att.cache_bytes + (2 * att.converted_bytes if timing.casts else 0), "B")
    missed = part("missed", miss_rate(read + att.other_bytes, chip))
    per_byte = part("per_byte", _seconds_per_byte(missed, chip, timing))
    head_blocks = part("head_blocks", ceil_div(att.heads, timing.height))
    again: Number = 0
    if timing.reread:
        alone = part("alone", minimum(att.batch / (RESIDENT_BLOCKS * chip.multiprocessors), 1))
        missed_again = part("missed_again", alone * miss_rate(read, chip))
        again = part("again", read * (head_blocks - 1) * _seconds_per_byte(missed_again, chip, timing), "s")
    column_blocks = 1 if timing.adaptive else timing.column_blocks
    blocks = part("blocks", att.batch * head_blocks * column_blocks)
    block_flops = part("block_flops", timing.height * att.pair_flops / column_blocks)
    per_key = block_flops / _sm_rate("sm_rate", timing.pipe, chip) * (1 + timing.uncached * missed)
    return LatentDecodeTerms(read, per_byte, again, blocks, part("per_key", per_key, "s"))


def _seconds_per_byte(missed: Number, chip: Chip, timing: LatentGenerationTiming) -> Number:
    """Seconds per byte, where the share `missed` comes from DRAM and the rest from L2."""
    return missed / (timing.dram * chip.bandwidth) + (1 - missed) / (timing.l2 * chip.port)


def _split_seconds(
    att: LatentDecodeWork,
    parts: Number,
    tile: int,
    launched: Number,
    terms: LatentDecodeTerms,
    chip: Chip,
    timing: LatentGenerationTiming,
) -> Number:
    """Seconds after the latency with each cache in `parts` parts, before they are combined."""
    keys = part("block_keys", tile * ceil_div(ceil_div(att.keys, parts), tile))
    waves = part("waves", ceil_div(terms.blocks * parts, chip.multiprocessors))
    sm_seconds = part("sm_time", waves * (timing.wave + keys * terms.per_key) + launched, "s")
    moved = terms.read + att.other_bytes + 2 * parts * att.other_bytes * (parts > 1)
    return overlap(sm_seconds, part("stream", moved * terms.per_byte + terms.again, "s"), OVERLAP)


def _adaptive_parts(keys: Number, blocks: Number, most: Number, chip: Chip) -> Number:
    """The number of parts of a cache that fills the SMs: more of them the longer the cache is."""
    tiles_log2 = part("tiles_log2", maximum(doublings(keys / TILE_KEYS), 1))
    wanted = minimum(ceil_div(chip.multiprocessors * tiles_log2, blocks), most)
    return ceil_div(keys, PART_KEYS * ceil_div(ceil_div(keys, wanted), PART_KEYS))


def _cluster_seconds(
    att: LatentDecodeWork, terms: LatentDecodeTerms, chip: Chip, timing: LatentGenerationTiming
) -> Number:
    """Seconds where a cluster of SMs processes all heads of a sequence."""
    waves = part("cluster_waves", ceil_div(att.batch * CLUSTER_SMS, chip.multiprocessors))
    keys = part("cluster_keys", TILE_KEYS * ceil_div(att.keys, TILE_KEYS))
    multiply = (
        keys * att.heads * att.pair_flops / (CLUSTER_SMS * _sm_rate("cluster_sm_rate", timing.cluster_pipe, chip))
    )
    sm_seconds = part("cluster_time", waves * (timing.cluster_wave + multiply), "s")
    return timing.cluster_latency + overlap(sm_seconds, (terms.read + att.other_bytes) * terms.per_byte, OVERLAP)


def _sm_rate(name: str, pipe: Number, chip: Chip) -> Number:
    return part(name, chip.peak / chip.multiprocessors * pipe, "FLOP/s")


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
