"""Expected time of fused attention: many queries per sequence (prefill, encoders), or one or a few (decode)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import HEAD_SIZES, DecodeTiming, PrefillTiming
from roofmodel.numbers.algebra import (
    Bytes,
    FlopsPerSecond,
    Number,
    Seconds,
    ceil_div,
    either,
    formula,
    is_just,
    maximum,
    minimum,
    plain,
    product,
)
from roofmodel.timing.formula import Chip, FormulaDescription, dram_share, overlap

TILE_KEYS: Annotated[int, "keys of a decode's tile; a part of a cache has at least as many"] = 64

BACKWARD_RATE: Annotated[float, "FLOP/s of a backward kernel relative to those of the forward kernel"] = 0.82
"""The median of seven causal shapes with more tiles than SMs: TransformerEngine's kernels on a B200 run the five GEMMs
backward at 0.75 to 0.97 of the FLOP/s of the two forward (MooreThreads/SimuMax@4dcaae51, configs/system).
FlashAttention-2 on an A100: 63 % of the peak backward and 73 % forward, 0.86 (arXiv 2307.08691, section 4.1)."""

PREFILL = FormulaDescription(
    name="attention",
    title="fused attention with many queries per sequence",
    summary="Tiles of `rows` query rows each process the keys that their rows attend to. The SMs share the tiles; the "
    "last tile ends late.",
    equation="latency + tiles + stream - overlap × min(tiles, stream) + append",
    terms=(
        (
            "tiles",
            "time of all tiles / SMs, and half of the longest tile, which starts last; the longest tile where each SM "
            "has one. A tile takes its FLOPs / (peak of one SM × pipe), and `fill`",
        ),
        ("stream", "bytes / (DRAM bandwidth × dram), or / (L2 ports × l2) for data in L2"),
        (
            "append",
            "`append` times the bytes of the new keys and values, at the same bandwidth: other kernels write them to "
            "the KV cache before",
        ),
    ),
    notes=(
        "A tile skips the keys that the mask hides from all its rows. At the edge of the mask it processes keys that "
        "only some of its rows attend to. With a sliding window it processes a share of the keys before the window "
        "(`outside`): all of them where a Triton kernel masks them, few where tiles of keys are large.",
        "Libraries compile a kernel with other tiles for each head size, so that `pipe` and `fill` depend on it. Some "
        "put the query heads of a key-value head in one tile (`heads`).",
        "If a benchmark repeats the attention, L2 keeps its tensors: all of them where they fit, none from twice the "
        "capacity.",
    ),
    source="Tiles by head size, and query heads in one tile: FlashAttention-3, arXiv 2407.08608. The mean of a list "
    "schedule's bounds, shared and shared + longest tile: Graham 1966. Parameters: PrefillTiming, fitted by "
    "`roof calibrate`.",
    constants=("BACKWARD_RATE",),
)
DECODE = FormulaDescription(
    name="attention",
    title="fused attention with one or a few queries per sequence",
    summary="One thread block per sequence and key-value head processes the KV cache for all query heads that share "
    "it. If SMs are idle, the cache is split among several blocks, where this is faster.",
    equation="latency + √(waves² + stream²) + combine",
    terms=(
        (
            "waves",
            "⌈blocks / SMs⌉ × (wave + FLOPs of a block, in whole tiles of `rows` × TILE_KEYS, / (peak of one SM × "
            "pipe)); blocks = batch × KV heads × splits, or query heads × splits where heads do not share a block",
        ),
        ("stream", "bytes / (DRAM bandwidth × dram), or / (L2 ports × l2) for data in L2"),
        ("combine", "a fixed time, and the partial outputs, written and read; 0 with one part"),
    ),
    notes=(
        "Latent attention of a decode is absorbed: all heads share the latents, as one key-value head.",
        "With more than `heads` query heads per key-value head, or less than `fewest_heads`, a library has a thread "
        "block for each query head; "
        "blocks after the first read keys and values from L2. Some do so with any sliding window (`window_heads`). A "
        "wave of blocks with one query head takes `single` times as long.",
        "Where a model verifies drafted tokens, a block holds the queries of all of them.",
        "If a benchmark repeats the attention, L2 keeps its tensors: all of them where they fit, none from twice the "
        "capacity.",
    ),
    source="Splits of the KV cache: Flash-Decoding. At most 32 heads: TensorRT-LLM, decoderXQAImplJIT.cpp. Absorbed "
    "form: DeepSeek-V2, arXiv 2405.04434, section 2.1. Parameters: DecodeTiming, fitted by `roof calibrate`.",
    constants=("TILE_KEYS",),
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
    flops: Annotated[Number, "FLOPs of its matrix multiplications", "FLOP"]
    bytes: Annotated[Number, "bytes read and written", "B"]
    kv_bytes: Annotated[Number, "bytes of keys and values among them", "B"]
    windowed: Annotated[Number, "1: with a sliding window; 0: without, or unknown"] = 0
    backward: Annotated[int, "1: a backward kernel; 0: a forward kernel"] = 0
    ring: Annotated[Number, "GPUs around a ring that share the sequence; 1: none"] = 1
    halves: Annotated[Number, "GPUs that share the sequence and gather its keys; 1: none"] = 1
    kept: Annotated[Number, "keys that an indexer keeps for a query at most; 0: unknown"] = 0
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
        backward=int(operator.name.endswith(".grad")),
        ring=sizes.get("ring", 1),
        halves=sizes.get("halves", 1),
        kept=sizes.get("sparse", 0),
    )


@formula
def prefill_seconds(att: AttentionWork, chip: Chip, timing: PrefillTiming) -> Number:
    """Seconds for many queries per sequence, by PREFILL; elementwise for arrays."""
    return sum(runs * kernel_seconds(part, chip, timing) for runs, part in _kernels(att))


def _kernels(att: AttentionWork) -> list[tuple[Number, AttentionWork]]:
    """The kernels of an attention, each with its number of runs: several where GPUs share a sequence.

    Around a ring of n GPUs, the first kernel has the GPU's own keys and a causal mask; n - 1 further ones have all
    queries and half the keys of another GPU, or half and all, without a mask. After an all-gather, each of the two
    parts of the sequence has a kernel, on average for the keys up to the middle of the sequence
    (TransformerEngine, transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py).
    """
    if is_just(att.ring, 1) and is_just(att.halves, 1):
        return [(1, att)]

    def part(queries: Number, keys: Number, pairs: Number, kernels: Number) -> AttentionWork:
        return att._replace(
            queries=queries, keys=keys, pairs=pairs, flops=att.flops * pairs / att.pairs, bytes=att.bytes / kernels,
            kv_bytes=att.kv_bytes / kernels,
        )  # fmt: skip

    tokens = att.queries
    if not is_just(att.halves, 1):
        return [(2, part(tokens / 2, (att.pairs / tokens) + tokens / 4, att.pairs / 2, 2))]
    first = tokens * (tokens + 1) / 2
    others = (att.pairs - first) / (att.ring - 1)
    return [(1, part(tokens, tokens, first, 1)), (att.ring - 1, part(tokens, tokens / 2, others, 1))]


@formula
def kernel_seconds(att: AttentionWork, chip: Chip, timing: PrefillTiming) -> Number:
    """Seconds of a kernel with many queries per sequence, by PREFILL; elementwise for arrays."""
    group: Number = minimum(att.heads / att.kv_heads, timing.heads)
    tile_queries: Number = minimum(timing.rows / group, att.queries)  # positions of a tile
    row_tiles: Number = ceil_div(att.queries * group, timing.rows)
    tiles: Number = att.batch * att.heads / group * row_tiles
    causal = att.queries * (att.keys - (att.queries - 1) / 2)
    outside_pairs: Number = timing.outside * att.windowed * maximum(causal - att.pairs, 0)
    mean_keys: Number = (att.pairs + outside_pairs) / att.queries
    # Keys at the edge of the mask: half the rows under a causal mask, all of them in a window, none without a mask.
    edge: Number = tile_queries * (att.keys - mean_keys) / att.queries
    tile_keys: Number = mean_keys * att.queries / tile_queries / row_tiles + edge
    longest_keys: Number = minimum(att.keys, 2 * mean_keys + tile_queries)
    pipe: Number = _by_head_size("pipe", att, timing)
    rate = pipe * (1 - att.backward * (1 - BACKWARD_RATE))
    sm_rate: FlopsPerSecond = chip.peak / chip.multiprocessors * rate
    seconds_per_key: Seconds = timing.rows * _pair_flops(att) / sm_rate
    fill: Seconds = _by_head_size("fill", att, timing)
    longest_tile: Seconds = longest_keys * seconds_per_key + fill
    shared: Seconds = tiles * (tile_keys * seconds_per_key + fill) / chip.multiprocessors
    several = tiles > chip.multiprocessors
    tile_seconds: Seconds = several * (shared + longest_tile / 2) + (1 - several) * longest_tile
    # Keys and values of new tokens: as many as in the queries' format for their heads, and in the cache's format.
    new = (att.bytes - att.kv_bytes) * att.kv_heads / att.heads + att.kv_bytes * minimum(
        att.queries / maximum(att.keys, 1), 1
    )
    appended: Bytes = timing.append * new
    seconds_per_byte: Number = _seconds_per_byte(att, att.bytes + appended, chip, timing)
    stream: Seconds = att.bytes * seconds_per_byte
    both = tile_seconds + stream - timing.overlap * minimum(tile_seconds, stream)
    return timing.latency + both + appended * seconds_per_byte


def _by_head_size(name: str, att: AttentionWork, timing: PrefillTiming | DecodeTiming) -> Number:
    """A parameter by head size: that of the smallest of HEAD_SIZES which is not below the heads'."""
    value = getattr(timing, f"{name}_{HEAD_SIZES[-1]}")
    for size in HEAD_SIZES[-2::-1]:
        value = either(att.head_size <= size, getattr(timing, f"{name}_{size}"), value)
    return value


def _pair_flops(att: AttentionWork) -> Number:
    pair_flops: Number = att.flops / (att.batch * att.heads * maximum(att.pairs, 1))
    return pair_flops


def _seconds_per_byte(att: AttentionWork, data: Number, chip: Chip, timing: PrefillTiming | DecodeTiming) -> Number:
    """Seconds per byte: of DRAM, or of L2 for the share of `data` bytes that it keeps from the launch before."""
    from_l2: Number = att.repeated * (1 - dram_share(data, chip.l2))
    return (1 - from_l2) / (timing.dram * chip.bandwidth) + from_l2 / (timing.l2 * chip.port)


@formula
def decode_seconds(att: AttentionWork, chip: Chip, timing: DecodeTiming) -> Number:
    """Seconds for one or a few queries per sequence, by DECODE; elementwise for arrays."""
    group: Number = att.heads / att.kv_heads
    most_heads: Number = minimum(timing.heads, either(att.windowed > 0, timing.window_heads, timing.heads))
    blocks_per_group: Number = either(group > most_heads, group, either(group < timing.fewest_heads, group, 1))
    blocks: Number = att.batch * att.kv_heads * blocks_per_group
    rows: Number = timing.rows * ceil_div(group * att.queries, timing.rows * blocks_per_group)
    wave: Seconds = _by_head_size("wave", att, timing)
    start = wave * either(blocks_per_group < group, 1, timing.single)
    seconds_per_key: Seconds = rows * _pair_flops(att) * chip.multiprocessors / (chip.peak * timing.pipe)
    seconds_per_byte: Number = _seconds_per_byte(att, att.bytes, chip, timing)
    again: Seconds = att.kv_bytes * (blocks_per_group - 1) / (timing.l2 * chip.port)
    stream: Seconds = att.bytes * seconds_per_byte + again

    def seconds(splits: Number) -> Number:
        """Seconds after the latency, with the KV cache of a sequence in `splits` splits."""
        split_keys: Number = TILE_KEYS * ceil_div(att.keys, TILE_KEYS * splits)
        waves: Number = ceil_div(blocks * splits, chip.multiprocessors)
        wave_seconds: Seconds = waves * (start + split_keys * seconds_per_key)
        return overlap(wave_seconds, stream)

    idle = maximum(ceil_div(chip.multiprocessors + 1, blocks) - 1, 1)  # whole splits of all blocks in one wave
    splits: Number = minimum(idle, ceil_div(att.keys, TILE_KEYS))
    # Outputs are about half of the bytes besides keys and values: in fp32 twice as many, written and read.
    partial_outputs: Bytes = 2 * splits * (att.bytes - att.kv_bytes)
    combine: Seconds = timing.combine + partial_outputs * seconds_per_byte
    return timing.latency + minimum(seconds(1), seconds(splits) + combine)
