"""Expected time of linear attention by the delta rule, and of the causal convolution before it and before Mamba.

A prefill computes the delta rule in chunks, with several kernels; a decode updates the state by one token.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import CausalConvolutionTiming, DeltaRuleTiming, StateUpdateTiming
from roofmodel.numbers.algebra import (
    Bytes,
    Number,
    Seconds,
    ceil_div,
    formula,
    maximum,
    minimum,
    plain,
)
from roofmodel.timing.formula import Chip, FormulaDescription, dram_share, overlap, stream_seconds

BLOCK_ELEMENTS: Annotated[int, "elements of a thread block of a causal convolution: tokens x channels"] = 2048
UPDATE_CHANNELS = 256  # of a thread block of the update of a causal convolution
CHUNK_TOKENS: Annotated[int, "tokens of a chunk in all implementations"] = 64
OVERLAP = ("overlap(a, b)", "√(a² + b²): the two overlap, but not perfectly")

CAUSAL_CONVOLUTION = FormulaDescription(
    name="causal_convolution",
    title="causal convolutions over the tokens of a prefill",
    summary="A thread block filters a few tokens of many channels (Triton), or many tokens of few channels (CUDA).",
    equation="launches × (latency + serial) + overlap(block_time, stream)",
    terms=(
        ("serial", "token × tokens of a block"),
        ("blocks", "block × blocks of an SM"),
        ("stream", "bytes / (DRAM bandwidth × dram); or / (L2 ports × l2), where L2 holds what is read and written"),
        OVERLAP,
    ),
    source="Blocks: causal_conv1d of Tri Dao (CUDA), causal_conv1d_triton of vLLM and SGLang. Parameters: "
    "CausalConvolutionTiming, fitted by `roof calibrate`.",
    constants=("BLOCK_ELEMENTS",),
)
DELTA_RULE = FormulaDescription(
    name="delta_rule_prefill",
    title="the delta rule of a prefill, in chunks of tokens",
    summary="Some kernels compute all chunks of all heads independently; one kernel passes the state from chunk to "
    "chunk. Fused implementations do all of it in that kernel.",
    equation="latency + first + overlap(parallel + loop, stream)",
    terms=(
        ("first", "token × tokens of the first chunk"),
        ("parallel", "(chunk × chunks of all heads + row × tokens of all heads) / SMs"),
        ("loop", "⌈sequences × heads / SMs⌉ × (start + serial × chunks of a sequence)"),
        ("stream", "compulsory bytes, and `intermediate` for each token of a head where L2 does not hold `live` of it"),
        OVERLAP,
    ),
    notes=("Kernels with one decay per element of a key (Kimi's delta attention) have parameters of their own.",),
    source="Kernels: flash-linear-attention, chunk_gated_delta_rule; arXiv 2412.06464, section 3.3. Parameters: "
    "DeltaRuleTiming, fitted by `roof calibrate`.",
    constants=("CHUNK_TOKENS",),
)
STATE_UPDATE = FormulaDescription(
    name="state_update",
    title="updates of a state by one token per sequence",
    summary="A kernel reads the state of each sequence, updates it and writes it.",
    equation="latency + overlap(block_time, stream)",
    terms=(
        ("blocks", "block × blocks of an SM"),
        ("stream", "bytes / (DRAM bandwidth × dram); or / (L2 ports × l2), where L2 holds what is read and written"),
        OVERLAP,
    ),
    source="Parameters: StateUpdateTiming, fitted by `roof calibrate`.",
)


class ConvolutionWork(NamedTuple):
    """The size of a causal convolution."""

    batch: Annotated[Number, "sequences"]
    tokens: Annotated[Number, "tokens per sequence"]
    channels: Annotated[Number, "channels, each with its own filter"]
    read: Annotated[Number, "bytes read", "B"]
    written: Annotated[Number, "bytes written", "B"]
    launches: Annotated[Number, "kernels: 3 where queries, keys and values are filtered separately"] = 1


class DeltaRuleWork(NamedTuple):
    """The size of a delta rule in chunks."""

    batch: Annotated[Number, "sequences"]
    tokens: Annotated[Number, "tokens per sequence"]
    heads: Annotated[Number, "value heads"]
    chunks: Annotated[Number, "chunks of a sequence"]
    bytes: Annotated[Number, "compulsory bytes", "B"]


class UpdateWork(NamedTuple):
    """The size of an update of a state."""

    blocks: Annotated[Number, "heads, or groups of 256 channels, of all sequences"]
    read: Annotated[Number, "bytes read", "B"]
    written: Annotated[Number, "bytes written", "B"]


@formula
def convolution_seconds(work: ConvolutionWork, chip: Chip, timing: CausalConvolutionTiming) -> Number:
    """Seconds of a causal convolution, by CAUSAL_CONVOLUTION; elementwise for arrays."""
    token_blocks: Number = ceil_div(work.tokens, timing.block_tokens)
    channel_blocks: Number = ceil_div(work.channels, BLOCK_ELEMENTS / timing.block_tokens)
    blocks: Number = work.batch * token_blocks * channel_blocks
    serial: Seconds = timing.token * minimum(work.tokens, timing.block_tokens)
    block_seconds = maximum(blocks / chip.multiprocessors, 1) * timing.block
    stream: Seconds = stream_seconds(
        work.read + work.written, maximum(work.read, work.written), chip, timing.dram, timing.l2
    )
    return work.launches * (timing.latency + serial) + overlap(block_seconds, stream)


@formula
def delta_rule_seconds(work: DeltaRuleWork, chip: Chip, timing: DeltaRuleTiming) -> Number:
    """Seconds of a delta rule in chunks, by DELTA_RULE; elementwise for arrays."""
    all_heads: Number = work.batch * work.heads
    token_heads: Number = all_heads * work.tokens
    spread = all_heads * work.chunks * timing.chunk + token_heads * timing.row
    parallel: Seconds = spread / chip.multiprocessors
    waves: Number = ceil_div(all_heads, chip.multiprocessors)
    loop: Seconds = waves * (timing.start + timing.serial * work.chunks)
    missed: Number = dram_share(token_heads * timing.live, chip.l2)
    between: Bytes = token_heads * timing.intermediate * missed
    stream: Seconds = (work.bytes + between) / chip.bandwidth
    first: Seconds = timing.token * minimum(work.tokens, CHUNK_TOKENS)
    return timing.latency + first + overlap(parallel + loop, stream)


@formula
def update_seconds(work: UpdateWork, chip: Chip, timing: StateUpdateTiming) -> Number:
    """Seconds of an update of a state, by STATE_UPDATE; elementwise for arrays."""
    block_time: Seconds = maximum(work.blocks / chip.multiprocessors, 1) * timing.block
    stream: Seconds = stream_seconds(
        work.read + work.written, maximum(work.read, work.written), chip, timing.dram, timing.l2
    )
    return timing.latency + overlap(block_time, stream)


def convolution_work(operator: Operator) -> ConvolutionWork:
    """The input of `convolution_seconds`, from a causal convolution."""
    sizes, cost = operator.sizes, operator.cost
    launches = 1 if "u" in {tensor.name for tensor in operator.reads} else 3
    numbers = (sizes["b"], sizes["t"], sizes["c"], cost.bytes_read, cost.bytes_written, launches)
    return ConvolutionWork(*map(plain, numbers))


def delta_rule_work(operator: Operator) -> DeltaRuleWork:
    """The input of `delta_rule_seconds`, from the scan of a delta rule."""
    sizes = operator.sizes
    heads = sizes["k"] * sizes["m"]
    return DeltaRuleWork(*map(plain, (sizes["b"], sizes["t"], heads, sizes["j"], operator.cost.bytes)))


def update_work(operator: Operator) -> UpdateWork:
    """The input of `update_seconds`, from a causal convolution or a scan of one token."""
    sizes, cost = operator.sizes, operator.cost
    is_scan = operator.kind == "scan"
    blocks = sizes["b"] * (sizes["k"] * sizes["m"] if is_scan else ceil_div(sizes["c"], UPDATE_CHANNELS))
    return UpdateWork(*map(plain, (blocks, cost.bytes_read, cost.bytes_written)))
