"""Expected time of sparse attention: scores of an indexer, the choice among them, attention to what is chosen; and of
the kernels of hyper-connections.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import ChoiceTiming, ElementwiseTiming, IndexTiming, SparseTiming
from roofmodel.numbers.algebra import (
    Bytes,
    FlopsPerSecond,
    Number,
    Seconds,
    ceil_div,
    either,
    formula,
    maximum,
    minimum,
    plain,
)
from roofmodel.timing.attention import AttentionWork
from roofmodel.timing.formula import Chip, FormulaDescription, overlap, stream_seconds

TILE_ROWS: Annotated[int, "rows of a tile of an indexer's scores: queries x heads"] = 128
SPLIT_KEYS: Annotated[int, "least keys of a part of a tile that SMs share"] = 256
GATHERED_KEYS: Annotated[int, "keys that a block of sparse attention gathers at once"] = 64
SCORE_BYTES = 4  # fp32

_OVERLAP = ("overlap(a, b)", "√(a² + b²): the two overlap, but not perfectly")
INDEX = FormulaDescription(
    name="index_scores",
    title="scores of an indexer",
    summary="A tile multiplies the heads of a few queries with all keys before them, and sums over the heads. The SMs "
    "share the tiles; the last tile ends late. Kernels for paged keys also share the keys of a tile.",
    equation="latency + overlap(tiles, stream)",
    terms=(
        ("tiles", "FLOPs of a tile of TILE_ROWS rows / (peak of one SM × pipe), and `fill`, × tiles of an SM"),
        ("stream", "bytes of queries, keys and fp32 scores / (DRAM bandwidth × dram)"),
        _OVERLAP,
    ),
    notes=("Engines store index keys in fp8 and multiply in it, with a KV cache of any format.",),
    source="DeepGEMM, fp8_mqa_logits and fp8_paged_mqa_logits. Parameters: IndexTiming, fitted by `roof calibrate`.",
    constants=("TILE_ROWS", "SPLIT_KEYS"),
)
CHOICE = FormulaDescription(
    name="index_choose",
    title="the choice of the highest scores",
    summary="A thread block finds the highest scores of a query by radix: it reads all of them, some more than once. "
    "Queries with no more candidates than they keep take no choice.",
    equation="latency + overlap(blocks, stream)",
    terms=(
        ("blocks", "queries of an SM that choose × (row + key × candidates)"),
        ("stream", "bytes of the scores / (DRAM bandwidth × dram)"),
        _OVERLAP,
    ),
    source="SGLang, fast_topk_transform_fused. Parameters: ChoiceTiming, fitted by `roof calibrate`.",
)
SPARSE = FormulaDescription(
    name="sparse_attention",
    title="attention to the keys that an indexer chose",
    summary="A thread block gathers the chosen keys of a query for `rows` of its heads, and multiplies them on tensor "
    "cores. Some kernels process as many keys as a query keeps at most (`padded`). Where SMs are idle, blocks of some "
    "kernels share the keys of a query (`shares`).",
    equation="latency + overlap(blocks × (fill + gathered × max(multiply, gather)), stream) + combine",
    terms=(
        ("gathered", "keys of a query, or as many as it keeps at most"),
        ("multiply", "FLOPs of `rows` rows and a key / (peak of one SM × pipe)"),
        ("gather", "bytes of a key / (L2 port of one SM × l2)"),
        ("stream", "compulsory bytes / (DRAM bandwidth × dram)"),
        ("combine", "a fixed time, where blocks share the keys of a query"),
        _OVERLAP,
    ),
    source="FlashMLA's sparse kernels. Parameters: SparseTiming, fitted to whole modules by "
    "`python -m benchmarks.sparse_modules`.",
    constants=("GATHERED_KEYS",),
)


STREAMS = FormulaDescription(
    name="streams",
    title="kernels of hyper-connections",
    summary="Before a block, a kernel reads all streams for the weights and again for their sum; after it, a kernel "
    "mixes the streams and adds the output. Sinkhorn iterations are in the latency.",
    equation="latency + stream",
    terms=(("stream", "bytes / (DRAM bandwidth × dram), or / (L2 ports × l2) where half of L2 holds all of them"),),
    source="TileLang's kernels in vLLM and SGLang, those of TensorRT-LLM. Parameters: ElementwiseTiming, fitted by "
    "`roof calibrate`.",
)


class IndexWork(NamedTuple):
    """The size of an indexer's scores."""

    batch: Annotated[Number, "sequences"]
    queries: Annotated[Number, "queries per sequence"]
    keys: Annotated[Number, "keys of the last query"]
    pairs: Annotated[Number, "query-key pairs of a head and sequence"]
    heads: Annotated[Number, "heads of the indexer"]
    head_size: Annotated[Number, "elements of a key"]
    bytes: Annotated[Number, "bytes of queries, keys and fp32 scores", "B"]


class ChoiceWork(NamedTuple):
    """The size of a choice among scores."""

    rows: Annotated[Number, "queries that choose, times heads"]
    candidates: Annotated[Number, "mean candidates of a query"]
    bytes: Annotated[Number, "bytes of the scores", "B"]


@formula
def index_seconds(work: IndexWork, chip: Chip, timing: IndexTiming) -> Number:
    """Seconds of an indexer's scores, by INDEX; elementwise for arrays."""
    tile_queries: Number = maximum(TILE_ROWS / work.heads, 1)
    tiles: Number = work.batch * ceil_div(work.queries, tile_queries)
    mean_keys: Number = work.pairs / work.queries + minimum(tile_queries, work.queries) / 2
    sm_rate: FlopsPerSecond = chip.peak / chip.multiprocessors * timing.pipe
    rows: Number = maximum(work.heads, TILE_ROWS)
    key_seconds: Seconds = 2 * rows * work.head_size / sm_rate
    shared: Seconds = tiles * (mean_keys * key_seconds + timing.fill) / chip.multiprocessors
    longest: Seconds = work.keys * key_seconds + timing.fill
    part: Seconds = minimum(work.keys, SPLIT_KEYS) * key_seconds + timing.fill
    several = tiles > chip.multiprocessors
    alone = several * (shared + longest / 2) + (1 - several) * longest
    tile_seconds: Seconds = either(timing.shares > 0, maximum(shared, part), alone)
    stream: Seconds = work.bytes / (timing.dram * chip.bandwidth)
    return timing.latency + overlap(tile_seconds, stream)


@formula
def streams_seconds(data: Number, chip: Chip, timing: ElementwiseTiming) -> Number:
    """Seconds of a kernel of hyper-connections that moves `data` bytes, by STREAMS; elementwise for arrays."""
    return timing.latency + stream_seconds(data, 2 * data, chip, timing.dram, timing.l2)


@formula
def choice_seconds(work: ChoiceWork, chip: Chip, timing: ChoiceTiming) -> Number:
    """Seconds of a choice, by CHOICE; elementwise for arrays."""
    of_sm: Number = maximum(work.rows / chip.multiprocessors, minimum(work.rows, 1))
    blocks: Seconds = of_sm * (timing.row + timing.key * work.candidates)
    stream: Seconds = work.bytes / (timing.dram * chip.bandwidth)
    return timing.latency + overlap(blocks, stream)


@formula
def sparse_seconds(att: AttentionWork, chip: Chip, timing: SparseTiming) -> Number:
    """Seconds of a sparse attention, by SPARSE; elementwise for arrays."""
    group: Number = att.heads / att.kv_heads
    gathered: Number = either(timing.padded > 0, maximum(att.kept, att.pairs / att.queries), att.pairs / att.queries)
    blocks: Number = att.batch * att.queries * att.kv_heads * ceil_div(group, timing.rows)
    pair_flops: Number = att.flops / (att.batch * att.heads * att.pairs)
    key_bytes: Bytes = att.kv_bytes / (att.batch * att.keys * att.kv_heads)
    sm_rate: FlopsPerSecond = chip.peak / chip.multiprocessors * timing.pipe
    multiply: Seconds = timing.rows * pair_flops / sm_rate
    gather: Seconds = key_bytes * chip.multiprocessors / (timing.l2 * chip.port)
    stream: Seconds = att.bytes / (timing.dram * chip.bandwidth)
    parts: Number = ceil_div(gathered, GATHERED_KEYS)
    idle: Number = maximum(chip.multiprocessors // blocks, 1)
    splits: Number = minimum(either(timing.shares > 0, idle, 1), parts)
    split_keys: Number = GATHERED_KEYS * ceil_div(gathered, GATHERED_KEYS * splits)
    of_sm: Number = maximum(blocks * splits / chip.multiprocessors, 1)
    block_seconds: Seconds = of_sm * (timing.fill + split_keys * maximum(multiply, gather))
    combine: Seconds = (splits > 1) * timing.combine
    return timing.latency + overlap(block_seconds, stream) + combine


def index_work(operator: Operator) -> IndexWork:
    """The input of `index_seconds`, from the scores of an indexer.

    Engines store queries and keys of token scores in fp8, and write fp32 scores: of pairs, or of blocks of keys.
    """
    sizes = operator.sizes
    batch, queries, heads, size = sizes["b"], sizes["t"], sizes["ki"], sizes["hi"]
    keys, pairs = (sizes["se"], sizes["t:se"]) if "se" in sizes else (sizes["s"], sizes["t:s"])
    of_blocks = "t:sb" in sizes  # scores of blocks of keys
    width = operator.widths.kv.bits / 8 if of_blocks else 1
    scores = heads * sizes["t:sb"] if of_blocks else pairs
    moved = batch * (width * size * (keys + queries * heads) + scores * SCORE_BYTES)
    return IndexWork(*map(plain, (batch, queries, keys, pairs, heads, size, moved)))


def streams_work(operator: Operator) -> Number:
    """The input of `streams_seconds`: compulsory bytes of a kernel of hyper-connections."""
    moved: Number = plain(operator.cost.bytes)
    return moved


def choice_work(operator: Operator) -> ChoiceWork:
    """The input of `choice_seconds`, from the choice among an indexer's scores."""
    (scores,), (chosen,) = operator.reads, operator.writes
    sizes = operator.sizes
    heads = sizes["ki"] if "ki" in scores.axes else 1
    rows = sizes["b"] * sizes["t"] * heads
    candidates, kept = scores.elements(sizes) / rows, chosen.elements(sizes) / rows
    return ChoiceWork(*map(plain, (rows * (candidates > kept), candidates, scores.elements(sizes) * SCORE_BYTES)))
