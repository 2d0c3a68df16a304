"""Expected time of fused attention: many queries per sequence (prefill), or one or a few (decode)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from roofmodel.devices.calibration import ContextTiming, GenerationTiming
from roofmodel.numbers.algebra import Number, ceil_div, formula, is_array, maximum, minimum, part
from roofmodel.timing.formula import PORT, UNFITTED, Chip, FormulaDescription, dram_share, overlap

TILE_KEYS: Annotated[int, "keys that a tile processes at a time"] = 64
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)  # of a sequence's KV cache
MAX_BLOCK_HEADS: Annotated[int, "largest number of query heads of a decode block"] = 64
REREAD_BANDWIDTH: Annotated[
    float, "factor on the L2 ports' bandwidth, at which further blocks read keys and values again"
] = 0.42
PART_KEYS: Annotated[int, "keys of a part, in the condition `occupied`"] = 128
LEAST_OCCUPANCY: Annotated[float, "least number of parts per SM in the condition `occupied`"] = 0.25
COPY_CLOCKS: Annotated[int, "clocks of a small kernel that copies queries or outputs"] = 4400
OVERLAP: Annotated[float, "exponent p of overlap(a, b) = (a^p + b^p)^(1/p)"] = 1.5
EXCLUSION_FACTOR = 1e3  # factor on the time of splits that a library does not use, so that they are never the best

PREFILL = FormulaDescription(
    name="attention",
    title="fused attention with many queries per sequence",
    summary="Tiles of `height` query rows each process the keys that their rows attend to. The SMs share the work of "
    "all tiles; the last tile ends late.",
    equation="latency + overlap(max(balanced + tail, longest_tile), stream) + append",
    terms=(
        (
            "balanced",
            "work of all tiles / SMs: FLOPs rounded up to whole tiles, and the exponential of each score, which "
            "matters for small heads",
        ),
        ("longest_tile", "time of the longest tile"),
        ("tail", "timing.tail × longest_tile, where there are more tiles than SMs"),
        ("stream", "bytes that are not in L2 / (DRAM bandwidth × dram)"),
        ("overlap(a, b)", "(a^1.5 + b^1.5)^(1/1.5): the two overlap, but not perfectly"),
        (
            "append",
            "the new keys and values, read and written at that bandwidth: another kernel first appends them to the KV "
            "cache",
        ),
    ),
    notes=(
        "Head sizes of 192 and 256 need smaller tiles where an SM has 100 KB of shared memory (compute capability 8.6, "
        "8.9 and 12.0): `height` is fitted for each head size.",
        "With a sliding window, some Triton kernels compute all tiles that a causal mask leaves and mask the scores "
        "outside the window (`masked`).",
        "Where the implementation packs (`packed`), a tile holds the queries of all heads that share a key-value head, "
        "so that few queries per sequence still fill a tile. Some pack only a single query.",
        "If a benchmark repeats the attention, L2 keeps the tensors that fit in `resident` of it.",
    ),
    source="Exponentials and packing: FlashAttention-3, arXiv 2407.08608, section 3.1; packing also in FlashInfer, "
    "arXiv 2501.01005. Parameters: ContextTiming, fitted by `roof calibrate`. "
    f"Constants: {UNFITTED}",
    constants=("TILE_KEYS", "OVERLAP"),
)
DECODE = FormulaDescription(
    name="attention",
    title="fused attention with one or a few queries per sequence",
    summary="One block per sequence and key-value head reads its keys and values; several blocks where the cache is "
    "split. The time is the minimum over a list of splits.",
    equation="latency + waves × wave + read + stream + split + reread",
    terms=(
        ("waves", "⌈blocks / SMs⌉"),
        ("read", "bytes of a block / (L2 port of one SM × stream)"),
        ("stream", "bytes that are not in L2 / (DRAM bandwidth × dram)"),
        ("split", "a fixed time, and the partial outputs over the DRAM bandwidth; 0 without a split"),
        ("reread", "keys and values that further blocks of a group of heads read again from L2"),
    ),
    notes=(
        "Where an SM runs one block at a time (`queue`), each wave reads its blocks after the previous wave, the reads "
        "overlap with the DRAM stream, and a cache is split into no more parts than one wave holds.",
        "A block holds at most `group` query heads. With more, or with one, some libraries use another kernel that "
        "gives each query head a block of its own, with its own latency and wave time; keys and values then come from "
        "L2 again for each block. FlashInfer uses a kernel without tensor cores for fewer than `least` query "
        "heads per key-value head. "
        "TensorRT-LLM uses the grouped kernel only for enough parts of 128 keys (`occupied`).",
        "Where a model verifies drafted tokens, with several queries per sequence, a block holds those of all its "
        "heads. Some libraries use the kernel with a block per query head for sliding windows, too: for all windows "
        "(FlashAttention 2), or only where a window hides keys (FlashAttention 3).",
        "vLLM's FlashAttention 2 transposes queries and outputs where several sequences and key-value heads have "
        "groups (`transposes`), which takes two more kernels. It does not split the cache of a single head (`whole`).",
        "If a benchmark repeats the attention, L2 keeps the tensors that fit in `resident` of it.",
    ),
    source="Split of the KV cache: Flash-Decoding. Choice of the kernel by the number of heads: TensorRT-LLM, "
    "decoderXQAImplJIT.cpp; `occupied`: decoderXQARunner.cpp (mayHavePerfGain). Parameters: GenerationTiming, fitted "
    f"by `roof calibrate`. Constants: {UNFITTED} REREAD_BANDWIDTH is twice the DRAM bandwidth of an A100 / the "
    "bandwidth of its L2 ports. COPY_CLOCKS is the difference between one and several key-value heads with vLLM's "
    "FlashAttention 2 on A100 and L40S.",
    constants=("MAX_BLOCK_HEADS", "PART_KEYS", "LEAST_OCCUPANCY", "COPY_CLOCKS", "REREAD_BANDWIDTH", "OVERLAP"),
)


class AttentionWork(NamedTuple):
    """The size of a fused attention, and its total cost."""

    batch: Annotated[Number, "sequences"]
    heads: Annotated[Number, "query heads"]
    kv_heads: Annotated[Number, "key-value heads"]
    queries: Annotated[Number, "queries per sequence"]
    keys: Annotated[Number, "keys per sequence that at least one query attends to"]
    pairs: Annotated[Number, "query-key pairs per head and sequence that the mask leaves"]
    flops: Annotated[Number, "FLOPs of its matrix multiplications"]
    bytes: Annotated[Number, "bytes read and written"]
    kv_bytes: Annotated[Number, "bytes of keys and values among them"]
    windowed: Annotated[Number, "1: with a sliding window; 0: without, or unknown"] = 0
    hides: Annotated[Number, "1: the sliding window hides keys; 0: it does not, or unknown"] = 0
    repeated: Annotated[int, "1: a benchmark repeats the attention with the same tensors; 0: the KV cache is new"] = 0


@formula
def context_seconds(att: AttentionWork, chip: Chip, timing: ContextTiming) -> Number:
    """Seconds for many queries per sequence, by PREFILL; elementwise for arrays."""
    group = att.heads / att.kv_heads
    if timing.packed < 1:
        group = 1 + (group - 1) * (att.queries <= 1) if timing.packed else 1
    group = part("group", group)
    tiles = part("tiles", ceil_div(att.queries * group, timing.height))
    tile_positions = part("tile_positions", minimum(timing.height / group, att.queries))  # query positions of a tile
    pairs = part("pairs", _computed_pairs(att, timing))
    mean_keys = part("mean_keys", pairs / att.queries)
    # Keys of all tiles of a head, or of a group of heads. At the edge of the mask a tile processes keys that only some
    # of its rows attend to: half its positions under a causal mask, all of them in a window, none without a mask.
    edge = tile_positions * (att.keys - mean_keys) / att.queries
    processed_keys = part("processed_keys", pairs / tile_positions + tiles * (edge + TILE_KEYS / 2))
    longest_keys = part("longest_keys", minimum(att.keys, 2 * mean_keys + tile_positions) + TILE_KEYS / 2)
    flops_per_pair = part("flops_per_pair", att.flops / (att.batch * att.heads * att.pairs) + 4 * timing.softmax)
    sm_rate = part("sm_rate", chip.peak / chip.multiprocessors * timing.pipe, "FLOP/s")
    seconds_per_key = part("seconds_per_key", timing.height * flops_per_pair / sm_rate, "s")
    head_groups = part("head_groups", att.batch * att.heads / group)
    balanced = part(
        "balanced", head_groups * (processed_keys + tiles * timing.fill) * seconds_per_key / chip.multiprocessors, "s"
    )
    longest_tile = part("longest_tile", (longest_keys + timing.fill) * seconds_per_key, "s")
    tail = timing.tail * longest_tile * (head_groups * tiles > chip.multiprocessors)
    sm_seconds = part("sm_time", maximum(balanced + tail, longest_tile), "s")
    stream = part("stream", att.bytes / (timing.dram * chip.bandwidth), "s")
    from_dram = _from_dram(att, chip, timing)
    append = part("append", timing.append * _appended_bytes(att) / (timing.dram * chip.bandwidth), "s")
    return timing.latency + overlap(sm_seconds, stream * from_dram, OVERLAP) + append * from_dram


def _computed_pairs(att: AttentionWork, timing: ContextTiming) -> Number:
    """Query-key pairs of a head and sequence that tiles compute: with `masked`, also pairs outside of the window."""
    if not timing.masked:
        return att.pairs
    causal = att.queries * (att.keys - (minimum(att.queries, att.keys) - 1) / 2)
    return att.windowed * maximum(causal, att.pairs) + (1 - att.windowed) * att.pairs


def _appended_bytes(att: AttentionWork) -> Number:
    """Bytes of the new keys and values: read in the format of the queries, and written in the format of the cache."""
    query_bytes = att.bytes - att.kv_bytes  # and the outputs, which have as many bytes as the queries
    return query_bytes * att.kv_heads / att.heads + att.kv_bytes * minimum(att.queries / att.keys, 1)


def _from_dram(att: AttentionWork, chip: Chip, timing: ContextTiming | GenerationTiming) -> Number:
    """The share of the bytes that comes from DRAM; L2 keeps the rest from the launch before."""
    return part("from_dram", 1 - att.repeated * (1 - dram_share(att.bytes, timing.resident * chip.l2)))


@formula
def generation_seconds(att: AttentionWork, chip: Chip, timing: GenerationTiming) -> Number:
    """Seconds for one or a few queries per sequence, by DECODE; elementwise for arrays."""
    terms = _decode_terms(att, chip, timing)
    best: Number = float("inf")
    for parts in SPLITS:
        best = minimum(best, _split_seconds(att, parts, terms, chip, timing))
    return terms.latency + best


CANDIDATES = tuple((parts,) for parts in SPLITS)
"""The numbers of parts of a sequence's KV cache among which a library chooses."""


def candidate_seconds(att: AttentionWork, candidate: Sequence[Number], chip: Chip, timing: GenerationTiming) -> Number:
    """Seconds of a decode with `candidate`, the number of parts of a KV cache: a number or an array.

    The minimum over CANDIDATES is `generation_seconds`.
    """
    terms = _decode_terms(att, chip, timing)
    return terms.latency + _split_seconds(att, candidate[0], terms, chip, timing)


class DecodeTerms(NamedTuple):
    """What does not depend on the number of parts: rates in bytes per second, bytes, and seconds."""

    bandwidth: Number
    sm_bandwidth: Number
    other_bytes: Number
    blocks_per_group: Number
    shared: Number
    wave: Number
    latency: Number
    stream: Number


def _decode_terms(att: AttentionWork, chip: Chip, timing: GenerationTiming) -> DecodeTerms:
    bandwidth = part("dram_rate", timing.dram * chip.bandwidth, "B/s")
    sm_bandwidth = part("sm_bandwidth", timing.stream * chip.port / chip.multiprocessors, "B/s")
    other_bytes = part("other_bytes", att.bytes - att.kv_bytes, "B")  # queries and outputs
    group = part("group", att.heads / att.kv_heads)
    # Parameters that are 0 or 1 are factors, not conditions: `roof explore` has one formula for all devices.
    limited = timing.group > 0
    small = limited * (group < timing.least)  # 1: few query heads share a key-value head, in one block
    shared = 1 - limited * (1 - (1 - small) * (group <= timing.group))  # 1: the grouped kernel
    shared = shared * (1 - (timing.windowed == 1) * att.windowed - (timing.windowed == 2) * att.hides)
    parts = att.batch * att.kv_heads * maximum(ceil_div(att.keys + 1, PART_KEYS) - 1, 1)
    shared = shared * (1 - limited * timing.occupied * (parts < LEAST_OCCUPANCY * chip.multiprocessors))
    rows = part("rows", group * att.queries)
    in_one_block = shared * ceil_div(rows, MAX_BLOCK_HEADS) + (1 - shared) * group
    blocks_per_group = part("blocks_per_group", small + (1 - small) * in_one_block)
    wave = shared * (timing.wave + timing.row * rows) + (1 - shared) * (timing.single or timing.wave)
    latency = shared * timing.latency + (1 - shared) * (timing.alone or timing.latency)
    from_dram = _from_dram(att, chip, timing)
    stream = part("stream", att.bytes / bandwidth * from_dram, "s")
    transposed = timing.transposes * shared * (group > 1) * (att.kv_heads > 1) * (att.batch > 1)
    clock = chip.port / chip.multiprocessors / PORT
    latency = latency + transposed * 2 * (COPY_CLOCKS / clock + other_bytes / bandwidth * from_dram)
    return DecodeTerms(bandwidth, sm_bandwidth, other_bytes, blocks_per_group, shared, wave, latency, stream)


def _split_seconds(
    att: AttentionWork, split: Number, terms: DecodeTerms, chip: Chip, timing: GenerationTiming
) -> Number:
    """Seconds after the latency, with the KV cache of a sequence in `split` parts."""
    split = part("parts", split)
    keys = part("block_keys", timing.tile * ceil_div(ceil_div(att.keys, split), timing.tile))
    blocks = part("blocks", att.batch * att.kv_heads * split * terms.blocks_per_group)
    block_bytes = part("block_bytes", att.kv_bytes / (att.batch * att.kv_heads) * (keys / att.keys), "B")
    reread = part("reread", att.kv_bytes * (terms.blocks_per_group - 1) / (REREAD_BANDWIDTH * chip.port), "s")
    waves = part("waves", ceil_div(blocks, chip.multiprocessors))
    read = part("read", block_bytes / terms.sm_bandwidth, "s")
    moved = overlap(waves * read, terms.stream, OVERLAP) if timing.queue else read + terms.stream
    time = terms.wave * waves + moved + reread
    if is_array(split) or split > 1:
        combine = timing.split + 4 * split * terms.other_bytes / terms.bandwidth
        time = time + (combine * (split > 1) if is_array(split) else combine)
        if timing.queue:
            time = time * (1 + EXCLUSION_FACTOR * (waves > 1) * (split > 1))
        time = time * (1 + EXCLUSION_FACTOR * timing.whole * (1 - terms.shared) * (split > 1))
    return time
