"""Expected time of linear attention by the delta rule, and of the causal convolution before it and before Mamba.

A prefill computes the delta rule in chunks, with several kernels; a decode updates the state by one token.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import ChunkTiming, FilterTiming, RecurrenceTiming
from roofmodel.numbers.algebra import Number, ceil_div, either, formula, maximum, minimum, part, plain
from roofmodel.timing.formula import UNFITTED, Chip, FormulaDescription, miss_rate, overlap

BLOCK_TOKENS: Annotated[int, "tokens of a block, where blocks share the tokens of a sequence"] = 8
BLOCK_CHANNELS: Annotated[int, "channels of a block, where blocks share the tokens of a sequence"] = 256
CHUNK_TOKENS: Annotated[int, "tokens of a chunk in all implementations"] = 64
OVERLAP: Annotated[float, "exponent p of overlap(a, b) = (a^p + b^p)^(1/p)"] = 4.0
STREAM_SHARE: Annotated[float, "fraction of the DRAM bandwidth that the kernels of a delta rule reach"] = 0.9
CHANNEL_WORK: Annotated[float, "work of an SM with one decay per element of a key, relative to one per head"] = 1.5
CHANNEL_BYTES: Annotated[float, "bytes between kernels with one decay per element of a key, relative to one"] = 1.8

FILTER = FormulaDescription(
    name="filter",
    title="causal convolutions over the tokens of a prefill",
    summary="Blocks filter a few tokens of many channels (Triton), or all tokens of one channel (CUDA).",
    equation="latency + serial + overlap(blocks, stream)",
    terms=(
        ("serial", "token × tokens of a block"),
        ("blocks", "block × blocks of an SM"),
        ("stream", "bytes / (DRAM bandwidth × dram); or / (L2 ports × l2), where L2 holds what is read and written"),
        ("overlap(a, b)", "(a^4 + b^4)^(1/4)"),
    ),
    source="Blocks: causal_conv1d of Tri Dao (CUDA), causal_conv1d_triton of vLLM and SGLang. Parameters: "
    f"FilterTiming, fitted by `roof calibrate`. Constants: {UNFITTED}",
    constants=("BLOCK_TOKENS", "BLOCK_CHANNELS", "OVERLAP"),
)
CHUNKS = FormulaDescription(
    name="delta_chunks",
    title="the delta rule of a prefill, in chunks of tokens",
    summary="Some kernels compute all chunks of all heads independently; one kernel passes the state from chunk to "
    "chunk. Fused implementations do all of it in that kernel.",
    equation="latency + first + overlap(parallel + loop, stream)",
    terms=(
        ("first", "token × tokens of the first chunk"),
        ("parallel", "(chunk × chunks of all heads + row × tokens of all heads) / SMs"),
        ("loop", "⌈sequences × heads / SMs⌉ × (start + serial × chunks of a sequence)"),
        ("stream", "compulsory bytes, and `spill` for each token of a head where L2 does not hold them"),
        ("overlap(a, b)", "(a^4 + b^4)^(1/4)"),
    ),
    notes=(
        "With one decay per element of a key (Kimi), the kernels read and write decayed keys and queries as well. "
        "CHANNEL_WORK and CHANNEL_BYTES are counted from flash-linear-attention's kernels, not measured.",
    ),
    source="Kernels: flash-linear-attention, chunk_gated_delta_rule; arXiv 2412.06464, section 3.3. Parameters: "
    f"ChunkTiming, fitted by `roof calibrate`. Constants: {UNFITTED}",
    constants=("CHUNK_TOKENS", "STREAM_SHARE", "CHANNEL_WORK", "CHANNEL_BYTES", "OVERLAP"),
)
RECURRENCE = FormulaDescription(
    name="recurrence",
    title="updates of a state by one token per sequence",
    summary="A kernel reads the state of each sequence, updates it and writes it.",
    equation="latency + overlap(blocks, stream)",
    terms=(
        ("blocks", "block × blocks of an SM"),
        ("stream", "bytes / (DRAM bandwidth × dram); or / (L2 ports × l2), where L2 holds what is read and written"),
        ("overlap(a, b)", "(a^4 + b^4)^(1/4)"),
    ),
    source="Parameters: RecurrenceTiming, fitted by `roof calibrate`.",
    constants=("BLOCK_CHANNELS", "OVERLAP"),
)


class FilterWork(NamedTuple):
    """The size of a causal convolution."""

    batch: Annotated[Number, "sequences"]
    tokens: Annotated[Number, "tokens per sequence"]
    channels: Annotated[Number, "channels, each with its own filter"]
    read: Annotated[Number, "bytes read"]
    written: Annotated[Number, "bytes written"]
    launches: Annotated[Number, "kernels: 3 where queries, keys and values are filtered separately"] = 1


class ChunkWork(NamedTuple):
    """The size of a delta rule in chunks."""

    batch: Annotated[Number, "sequences"]
    tokens: Annotated[Number, "tokens per sequence"]
    heads: Annotated[Number, "value heads"]
    chunks: Annotated[Number, "chunks of a sequence"]
    bytes: Annotated[Number, "compulsory bytes"]
    decays: Annotated[Number, "decays per token and value head: 1, or the size of a key"]


class RecurrenceWork(NamedTuple):
    """The size of an update of a state."""

    blocks: Annotated[Number, "heads, or groups of 256 channels, of all sequences"]
    read: Annotated[Number, "bytes read"]
    written: Annotated[Number, "bytes written"]


@formula
def filter_seconds(work: FilterWork, chip: Chip, timing: FilterTiming) -> Number:
    """Seconds of a causal convolution, by FILTER; elementwise for arrays."""
    token_blocks = part("token_blocks", ceil_div(work.tokens, BLOCK_TOKENS))
    tiled = work.batch * token_blocks * ceil_div(work.channels, BLOCK_CHANNELS)
    unaligned = token_blocks * BLOCK_TOKENS > work.tokens
    whole = work.batch * work.channels * (1 + timing.unaligned * unaligned)
    blocks = part("blocks", tiled if timing.tiles else whole)
    serial = part("serial", timing.token * (minimum(work.tokens, BLOCK_TOKENS) if timing.tiles else 1), "s")
    block_seconds = maximum(blocks / chip.multiprocessors, 1) * timing.block
    stream = _stream_seconds(work.read, work.written, chip, timing.dram, timing.l2)
    return work.launches * (timing.latency + serial) + overlap(block_seconds, stream, OVERLAP)


@formula
def chunk_seconds(work: ChunkWork, chip: Chip, timing: ChunkTiming) -> Number:
    """Seconds of a delta rule in chunks, by CHUNKS; elementwise for arrays."""
    heads = part("all_heads", work.batch * work.heads)
    token_heads = part("token_heads", heads * work.tokens)
    each = part("each", either(work.decays > 1, CHANNEL_WORK, 1.0))
    spread = heads * work.chunks * timing.chunk + token_heads * timing.row
    parallel = part("parallel", each * spread / chip.multiprocessors, "s")
    waves = part("waves", ceil_div(heads, chip.multiprocessors))
    loop = part("loop", waves * (timing.start + timing.serial * work.chunks), "s")
    wider = part("wider", either(work.decays > 1, CHANNEL_BYTES, 1.0))
    missed = part("missed", miss_rate(token_heads * wider * timing.kept, chip))
    spilled = part("spilled", token_heads * wider * timing.spill * missed, "B")
    stream = part("stream", (work.bytes + spilled) / (STREAM_SHARE * chip.bandwidth), "s")
    first = part("first", timing.token * minimum(work.tokens, CHUNK_TOKENS), "s")
    return timing.latency + first + overlap(parallel + loop, stream, OVERLAP)


@formula
def recurrence_seconds(work: RecurrenceWork, chip: Chip, timing: RecurrenceTiming) -> Number:
    """Seconds of an update of a state, by RECURRENCE; elementwise for arrays."""
    blocks = part("block_time", maximum(work.blocks / chip.multiprocessors, 1) * timing.block, "s")
    stream = _stream_seconds(work.read, work.written, chip, timing.dram, timing.l2)
    return timing.latency + overlap(blocks, stream, OVERLAP)


def _stream_seconds(read: Number, written: Number, chip: Chip, dram: Number, l2: Number) -> Number:
    """Seconds to read and write, from and to L2 where it holds the larger of both."""
    fits = maximum(read, written) <= chip.l2
    bandwidth = part("rate", l2 * chip.port * fits + dram * chip.bandwidth * (1 - fits), "B/s")
    return part("stream", (read + written) / bandwidth, "s")


def filter_work(operator: Operator) -> FilterWork:
    """The input of `filter_seconds`, from a filter."""
    sizes, cost = operator.sizes, operator.cost
    launches = 1 if "u" in {tensor.name for tensor in operator.reads} else 3
    numbers = (sizes["b"], sizes["t"], sizes["c"], cost.bytes_read, cost.bytes_written, launches)
    return FilterWork(*map(plain, numbers))


def chunk_work(operator: Operator) -> ChunkWork:
    """The input of `chunk_seconds`, from the scan of a delta rule."""
    sizes = operator.sizes
    heads = sizes["k"] * sizes["m"]
    decay = next(t for line in operator.lines for t in line.outputs if t.name == "decay")
    decays = decay.elements(sizes) / (sizes["b"] * sizes["t"] * heads)
    return ChunkWork(*map(plain, (sizes["b"], sizes["t"], heads, sizes["j"], operator.cost.bytes, decays)))


def update_work(operator: Operator) -> RecurrenceWork:
    """The input of `recurrence_seconds`, from a filter or a scan of one token."""
    sizes, cost = operator.sizes, operator.cost
    is_scan = operator.kind == "scan"
    blocks = sizes["b"] * (sizes["k"] * sizes["m"] if is_scan else ceil_div(sizes["c"], BLOCK_CHANNELS))
    return RecurrenceWork(*map(plain, (blocks, cost.bytes_read, cost.bytes_written)))
