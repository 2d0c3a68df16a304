"""Expected time of fused attention: many queries per sequence (prefill, encoders), or one or a few (decode)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import DecodeTiming, PrefillTiming
from roofmodel.numbers.algebra import Number, ceil_div, either, formula, maximum, minimum, part, plain, product
from roofmodel.timing.formula import PORT, Chip, FormulaDescription, dram_share

EXPONENTIALS: Annotated[int, "exponentials per clock and SM, on the special function units"] = 16
MULTIPLY_DEPTH: Annotated[int, "elements of a head that a tensor-core instruction multiplies and adds"] = 16
SPLITS = tuple(2**n for n in range(8))  # of a sequence's KV cache

PREFILL = FormulaDescription(
    name="attention",
    title="fused attention with many queries per sequence",
    summary="Tiles of `rows` query rows of a head each process the keys that their rows attend to. The SMs share the "
    "tiles; the last tile ends late.",
    equation="latency + shared + longest_tile + stream",
    terms=(
        ("shared", "time of all tiles / SMs: keys of the tiles × seconds_per_key, and `fill` for each tile"),
        (
            "seconds_per_key",
            "the larger one of the tile's FLOPs / (peak of one SM × pipe) and its exponentials / the rate of the "
            "special function units",
        ),
        ("longest_tile", "time of the longest tile, which may start last; no `shared` where each SM has one tile"),
        (
            "stream",
            "bytes / (DRAM bandwidth × dram), or / (L2 ports × l2) for data in L2; with `append` times the bytes of "
            "the new keys and values, which other kernels write to the KV cache before",
        ),
    ),
    notes=(
        "A tile skips the keys that the mask hides from all its rows. At the edge of the mask it processes keys that "
        "only some of its rows attend to.",
        "If a benchmark repeats the attention, L2 keeps its tensors: all of them where they fit, none from twice the "
        "capacity.",
    ),
    source="Tiles, and exponentials as a limit: FlashAttention-3, arXiv 2407.08608, section 3.1. Bound of a list "
    "schedule, shared + longest_tile: Graham 1966. EXPONENTIALS: CUDA C++ programming guide, arithmetic throughput. "
    "MULTIPLY_DEPTH: PTX ISA, mma of 16-bit formats. Parameters: PrefillTiming, fitted by `roof calibrate`.",
    constants=("EXPONENTIALS", "MULTIPLY_DEPTH"),
)
DECODE = FormulaDescription(
    name="attention",
    title="fused attention with one or a few queries per sequence",
    summary="One thread block per sequence and key-value head processes the KV cache for all heads that share it; "
    "several blocks where the cache is split. The time is the minimum over the numbers of splits.",
    equation="latency + waves × (wave + multiply) + stream + combine",
    terms=(
        ("waves", "⌈blocks / SMs⌉; blocks = batch × KV heads × splits"),
        ("multiply", "FLOPs of a block, for whole tiles of `rows` query rows, / (peak of one SM × pipe)"),
        ("stream", "bytes / (DRAM bandwidth × dram), or / (L2 ports × l2) for data in L2"),
        ("combine", "a fixed time, and the partial outputs, written and read; 0 without a split"),
    ),
    notes=(
        "Latent attention of a decode is absorbed: all heads share the latents, as one key-value head.",
        "With more than `heads` query heads per key-value head, a library has a thread block for each query head; "
        "blocks after the first read keys and values from L2. Some do so with any sliding window (`window_heads`).",
        "Where a model verifies drafted tokens, a block holds the queries of all of them.",
        "If a benchmark repeats the attention, L2 keeps its tensors: all of them where they fit, none from twice the "
        "capacity.",
    ),
    source="Split of the KV cache: Flash-Decoding. Absorbed form: DeepSeek-V2, arXiv 2405.04434, section 2.1. "
    "Parameters: DecodeTiming, fitted by `roof calibrate`.",
)


class AttentionWork(NamedTuple):
    """The size of a fused attention, and its total cost."""

    batch: Annotated[Number, "sequences"]
    heads: Annotated[Number, "query heads"]
    kv_heads: Annotated[Number, "key-value heads; 1 where all heads share latents"]
    head_size: Annotated[Number, "elements of a query's head"]
    queries: Annotated[Number, "queries per sequence"]
    keys: Annotated[Number, "keys per sequence that at least one query attends to"]
    pairs: Annotated[Number, "query-key pairs per head and sequence that the mask leaves"]
    flops: Annotated[Number, "FLOPs of its matrix multiplications"]
    bytes: Annotated[Number, "bytes read and written"]
    kv_bytes: Annotated[Number, "bytes of keys and values among them"]
    windowed: Annotated[Number, "1: with a sliding window; 0: without, or unknown"] = 0
    repeated: Annotated[int, "1: a benchmark repeats the attention with the same tensors; 0: the KV cache is new"] = 0


def work(operator: Operator) -> AttentionWork:
    """The input of the formulas, from a fused attention."""
    sizes, cost = operator.sizes, operator.cost
    cache = [tensor for tensor in operator.reads if "s" in tensor.axes]  # keys and values
    scores = [line for line in operator.lines if line.outputs == operator.lines[0].outputs]
    of_each_head = any("k" in tensor.axes for tensor in cache)
    return AttentionWork(
        batch=plain(sizes["b"]),
        heads=product(sizes[axis] for axis in ("k", "g", "ki") if axis in sizes),  # ki: heads of an indexer
        kv_heads=sizes["k"] if of_each_head else 1,
        head_size=sum(product(sizes[axis] for axis in line.contracted) for line in scores),
        queries=plain(sizes["t"]),
        keys=plain(sizes["s"]),
        pairs=plain(sizes["t:s"]),
        flops=plain(cost.matmul_flops),
        bytes=plain(cost.bytes),
        kv_bytes=plain(sum(operator.bytes_of(tensor) for tensor in cache)),
        windowed=sizes.get("windowed", 0),
    )


@formula
def prefill_seconds(att: AttentionWork, chip: Chip, timing: PrefillTiming) -> Number:
    """Seconds for many queries per sequence, by PREFILL; elementwise for arrays."""
    tiles = part("tiles", att.batch * att.heads * ceil_div(att.queries, timing.rows))
    rows = part("tile_rows", minimum(timing.rows, att.queries))
    mean_keys = part("mean_keys", att.pairs / att.queries)
    # Keys at the edge of the mask: half the rows under a causal mask, all of them in a window, none without a mask.
    edge = part("edge", rows * (att.keys - mean_keys) / att.queries)
    tile_keys = part("tile_keys", att.pairs / rows / ceil_div(att.queries, timing.rows) + edge)
    longest_keys = part("longest_keys", minimum(att.keys, 2 * mean_keys + rows))
    aligned = ceil_div(att.head_size, MULTIPLY_DEPTH) * MULTIPLY_DEPTH <= att.head_size
    pipe = part("tile_pipe", timing.pipe * either(aligned, 1, timing.unaligned))
    multiply = part("multiply", _pair_flops(att) * chip.multiprocessors / (chip.peak * pipe), "s")
    exponential = part("exponential", chip.multiprocessors / (EXPONENTIALS * chip.port / PORT), "s")
    seconds_per_key = part("seconds_per_key", timing.rows * maximum(multiply, exponential), "s")
    longest_tile = part("longest_tile", longest_keys * seconds_per_key + timing.fill, "s")
    shared = part("shared", tiles * (tile_keys * seconds_per_key + timing.fill) / chip.multiprocessors, "s")
    shared = shared * (tiles > chip.multiprocessors)
    # Keys and values of new tokens: as many as in the queries' format for their heads, and in the cache's format.
    new = (att.bytes - att.kv_bytes) * att.kv_heads / att.heads + att.kv_bytes * minimum(att.queries / att.keys, 1)
    moved = part("moved", att.bytes + timing.append * new, "B")
    return timing.latency + shared + longest_tile + part("stream", moved * _seconds_per_byte(att, chip, timing), "s")


def _pair_flops(att: AttentionWork) -> Number:
    return part("pair_flops", att.flops / (att.batch * att.heads * att.pairs))


def _seconds_per_byte(att: AttentionWork, chip: Chip, timing: PrefillTiming | DecodeTiming) -> Number:
    """Seconds per byte: of DRAM, or of L2 for the share that L2 keeps from the launch before."""
    from_l2 = part("from_l2", att.repeated * (1 - dram_share(att.bytes, chip.l2)))
    return (1 - from_l2) / (timing.dram * chip.bandwidth) + from_l2 / (timing.l2 * chip.port)


@formula
def decode_seconds(att: AttentionWork, chip: Chip, timing: DecodeTiming) -> Number:
    """Seconds for one or a few queries per sequence, by DECODE; elementwise for arrays."""
    terms = _decode_terms(att, chip, timing)
    best: Number = float("inf")
    for splits in SPLITS:
        best = minimum(best, _split_seconds(att, splits, terms, chip, timing))
    return timing.latency + terms.stream + best


CANDIDATES = tuple((splits,) for splits in SPLITS)
"""The numbers of splits of a sequence's KV cache among which a library chooses."""


def candidate_seconds(att: AttentionWork, candidate: Sequence[Number], chip: Chip, timing: DecodeTiming) -> Number:
    """Seconds of a decode with `candidate`, the number of splits of a KV cache: a number or an array.

    The minimum over CANDIDATES is `decode_seconds`.
    """
    terms = _decode_terms(att, chip, timing)
    return timing.latency + terms.stream + _split_seconds(att, candidate[0], terms, chip, timing)


class DecodeTerms(NamedTuple):
    """What does not depend on the number of splits: blocks without a split, and seconds."""

    blocks: Number
    multiply: Number
    combine: Number
    stream: Number


def _decode_terms(att: AttentionWork, chip: Chip, timing: DecodeTiming) -> DecodeTerms:
    group = part("group", att.heads / att.kv_heads)
    largest = either(att.windowed > 0, timing.window_heads, timing.heads)
    blocks_per_group = part("blocks_per_group", either(group > largest, group, 1))
    rows = part("rows", timing.rows * ceil_div(group * att.queries, timing.rows * blocks_per_group))
    flops = part("block_flops", rows * att.keys * _pair_flops(att))
    multiply = part("multiply", flops * chip.multiprocessors / (chip.peak * timing.pipe), "s")
    per_byte = part("seconds_per_byte", _seconds_per_byte(att, chip, timing))
    again = part("again", att.kv_bytes * (blocks_per_group - 1) / (timing.l2 * chip.port), "s")
    return DecodeTerms(
        blocks=part("blocks", att.batch * att.kv_heads * blocks_per_group),
        multiply=multiply,
        combine=part("combine", 4 * (att.bytes - att.kv_bytes) * per_byte, "s"),
        stream=part("stream", att.bytes * per_byte + again, "s"),
    )


def _split_seconds(att: AttentionWork, splits: Number, terms: DecodeTerms, chip: Chip, timing: DecodeTiming) -> Number:
    """Seconds of the waves of blocks, with the KV cache of a sequence in `splits` parts."""
    splits = part("splits", minimum(splits, timing.splits))
    waves = part("waves", ceil_div(terms.blocks * splits, chip.multiprocessors))
    return waves * (timing.wave + terms.multiply / splits) + (splits > 1) * (timing.combine + splits * terms.combine)
