"""Expected time of the experts of an MoE layer: GEMMs with few rows each, whose weights are read once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from roofmodel.devices.calibration import ExpertsTiming
from roofmodel.numbers.algebra import Number, ceil_div, either, expm1, formula, maximum, minimum, part
from roofmodel.timing.formula import UNFITTED, Chip, FormulaDescription, overlap

TILES = ((16, 128), (32, 128), (64, 128), (128, 128), (128, 256))  # rows, columns
GROUPED_ROWS: Annotated[int, "rows of an expert that share one pass over its weights with Triton's default tiles"] = 512
K_SLICE: Annotated[int, "elements of K that a tile's loop processes at a time"] = 64
ROUTING_PAIRS: Annotated[int, "token-expert pairs from which on routing takes its whole additional time"] = 1024
OVERLAP: Annotated[float, "exponent p of overlap(a, b) = (a^p + b^p)^(1/p)"] = 1.6

DESCRIPTION = FormulaDescription(
    name="experts",
    title="experts of an MoE layer",
    summary="A fused MoE layer sorts the tokens by expert, multiplies, applies the activation, multiplies again and "
    "sums. Each GEMM takes the minimum over a list of tile shapes.",
    equation="latency + experts × expert + sorting + GEMMs + "
    "bytes of tokens and rows outside L2 / (DRAM bandwidth × rows)",
    terms=(
        ("experts", "the experts that have at least one row"),
        ("sorting", "pairs × pair + min(pairs / 1024, 1) × routing, for the token-expert pairs that the GPU sorts"),
        ("GEMM", "overlap(waves × (padded_k + fill) × max(multiply, load), stream)"),
        ("multiply", "FLOPs of a tile per element of K / (peak of one SM × pipe)"),
        ("load", "bytes of a tile's rows of A and columns of B, of all active SMs, / (L2 ports × l2)"),
        ("stream", "weights of these experts that are not in L2 / (DRAM bandwidth × dram)"),
        ("overlap(a, b)", "(a^1.6 + b^1.6)^(1/1.6): the two overlap, but not perfectly"),
    ),
    notes=(
        "The router spreads rows unevenly. With r rows per expert on average, distributed exponentially, an expert has "
        "1 / (1 - exp(-tile_rows / r)) tiles on average: 1 for small r, r / tile_rows + 1/2 for large r. In a balanced "
        "benchmark all experts have r rows, hence ceil(r / tile_rows) tiles.",
        "A tile fills its pipeline of loads before the first multiplication, and stores its results after the last "
        "one: both take as long as `fill` more elements of K.",
        "Routing and sorting of few pairs is one kernel of one thread block or cluster; many pairs need several "
        "kernels (TensorRT-LLM's RoutingKernel, SGLang's moe_align_block_size).",
        "Some libraries pad the weights to multiples of 128 rows and columns (`padded`).",
        "If a benchmark repeats the layer, L2 keeps weights that fit in `resident` of it.",
        "A GPU sorts the pairs of all tokens that it has: with experts on the GPUs of a tensor-parallel group, those "
        "of all GPUs; where an all-to-all sends rows to experts on other replicas, only the rows of its own experts.",
        "With experts on several GPUs, implementations differ in how they handle token-expert pairs whose expert is on "
        "another GPU (`elsewhere`).",
        "Triton's default tiles (`default_tiles`) depend on the number of tokens: in 16 bits 16 x 32 for at most as "
        "many tokens as experts, else 64 x 64; in fp8 64 x 128 or 128 x 256 by the same rule; in fp8 with scaled "
        "blocks always 64 x 128. They read weights that do not fit in L2 again for every 512 rows of an expert.",
        "L2 keeps part of the rows between the kernels (`kept`) if they fit.",
    ),
    source="Parameters: ExpertsTiming, fitted by `roof calibrate` to fused MoE layers. "
    f"Tile shapes and constants: {UNFITTED}",
    constants=("K_SLICE", "OVERLAP", "GROUPED_ROWS", "ROUTING_PAIRS"),
)


class GroupedGemmWork(NamedTuple):
    """C[rows, n] = A[rows, k] B[k, n], where each of `experts` has its own B and some of the rows."""

    experts: Annotated[Number, "experts that have at least one row"]
    rows: Annotated[Number, "rows of all these experts"]
    n: Annotated[Number, "columns of each B"]
    k: Annotated[Number, "length of the contraction"]
    a: Annotated[float, "bytes per element of A in the multiplication"] = 2.0
    b: Annotated[float, "bytes per element of B"] = 2.0
    few: Annotated[Number, "whether the layer has at most as many tokens as this GPU has experts"] = False
    pairs: Annotated[Number, "token-expert pairs that this GPU sorts, for a GEMM as a separate kernel"] = 0
    even: Annotated[Number, "whether all experts have the same number of rows"] = False


class MoeWork(NamedTuple):
    """One GPU's part of a fused MoE layer."""

    gemms: Annotated[Sequence[GroupedGemmWork], "the GEMMs of the experts"]
    tokens: Annotated[Number, "tokens of the batch"]
    pairs: Annotated[Number, "token-expert pairs on all GPUs"]
    token_bytes: Annotated[Number, "bytes of the tokens, in and out"]
    row_bytes: Annotated[Number, "bytes that move between the kernels for the rows of this GPU's experts"]
    repeated: Annotated[int, "1: a benchmark repeats the layer with the same weights; 0: the weights are new"] = 0


CANDIDATES = tuple((*first, *second) for first in TILES for second in TILES)
"""Rows and columns of the tiles of the two GEMMs among which a library chooses."""


def seconds(work: MoeWork, chip: Chip, timing: ExpertsTiming) -> Number:
    """Seconds of a fused MoE layer, by DESCRIPTION; elementwise for arrays."""
    fixed, idle, streamed = _outside_gemms(work, chip, timing)
    return fixed + sum(gemm_seconds(gemm, chip, timing, idle, streamed) for gemm in work.gemms)


def candidate_seconds(work: MoeWork, candidate: Sequence[Number], chip: Chip, timing: ExpertsTiming) -> Number:
    """Seconds with the tiles `candidate` of the GEMMs (rows, columns of each), which are numbers or arrays.

    The minimum over CANDIDATES is `seconds`.
    """
    fixed, idle, streamed = _outside_gemms(work, chip, timing)
    tiles = [(candidate[2 * i], candidate[2 * i + 1]) for i in range(len(work.gemms))]
    if timing.default_tiles:  # the same tile for all candidates, in arrays of the same shape
        same = 0 * candidate[0]
        tiles = [(rows + same, columns + same) for rows, columns in map(default_tile, work.gemms)]
    return fixed + sum(
        _tile_seconds(gemm, tile, _gemm_terms(gemm, chip, timing, streamed), chip, timing, idle)
        for gemm, tile in zip(work.gemms, tiles, strict=True)
    )


def _outside_gemms(work: MoeWork, chip: Chip, timing: ExpertsTiming) -> tuple[Number, Number, Number]:
    """Seconds outside the GEMMs, rows that are multiplied without use, and whether weights come from DRAM (1 or 0)."""
    first = work.gemms[0]
    rows, pairs, idle = first.rows, work.pairs, 0
    moved = rows if timing.elsewhere == 0 else pairs
    if timing.elsewhere == 2:
        active = pairs / work.tokens
        reaching = work.tokens * (1 - maximum(1 - rows / pairs, 0) ** active)  # tokens with an expert on this GPU
        moved = maximum(reaching * active, rows)
    if timing.elsewhere >= 2:
        idle = moved - rows
    data = work.token_bytes + _outside_l2(work.row_bytes * (moved / rows), chip, timing)
    weights = sum(gemm.experts * gemm.n * gemm.k * gemm.b for gemm in work.gemms)
    streamed = 1 - work.repeated * (weights <= timing.resident * chip.l2)
    fixed = _fixed_seconds(first.experts, pairs, timing) + data / (timing.rows * chip.bandwidth)
    return fixed, idle, streamed


def _fixed_seconds(experts: Number, pairs: Number, timing: ExpertsTiming) -> Number:
    """Seconds of launches, routing and sorting."""
    sorting = pairs * timing.pair + minimum(pairs / ROUTING_PAIRS, 1) * timing.routing
    return timing.latency + experts * timing.expert + sorting


def _outside_l2(row_bytes: Number, chip: Chip, timing: ExpertsTiming) -> Number:
    """The part of the bytes of rows between kernels that moves to and from DRAM; each byte is written, then read."""
    return row_bytes - timing.kept * minimum(2 * chip.l2, row_bytes)


@formula
def separate_gemm_seconds(work: GroupedGemmWork, moved: Number, chip: Chip, timing: ExpertsTiming) -> Number:
    """Seconds of one of the two GEMMs as a separate kernel, which also moves `moved` bytes besides the weights.

    It gets half of the fixed time of the fused layer.
    """
    fixed = _fixed_seconds(work.experts, work.pairs, timing) / 2
    row_stream = part("row_stream", _outside_l2(moved, chip, timing) / (timing.rows * chip.bandwidth), "s")
    return part("fixed", fixed, "s") + gemm_seconds(work, chip, timing) + row_stream


def gemm_seconds(
    work: GroupedGemmWork, chip: Chip, timing: ExpertsTiming, idle: Number = 0, streamed: Number = 1
) -> Number:
    """Seconds of a GEMM without the fixed time; `idle` more rows are multiplied without use.

    `streamed` is 1 where the weights come from DRAM, 0 where L2 has them.
    """
    terms = _gemm_terms(work, chip, timing, streamed)
    best: Number = float("inf")
    for tile in TILES:
        best = minimum(best, _tile_seconds(work, tile, terms, chip, timing, idle))
    default = _tile_seconds(work, default_tile(work), terms, chip, timing, idle)
    return either(timing.default_tiles > 0, default, best)


def default_tile(work: GroupedGemmWork) -> tuple[Number, Number]:
    """Rows and columns of the default tiles of the Triton kernels in SGLang and vLLM (`get_default_config`)."""
    few, wide, whole = work.few, work.a > 1, work.b == 1  # whole: fp8 without scaled blocks
    rows = either(wide, either(few, 16, 64), either(whole, either(few, 64, 128), 64))
    columns = either(wide, either(few, 32, 64), either(whole, either(few, 128, 256), 128))
    return rows, columns


class GemmTerms(NamedTuple):
    """What does not depend on the tile."""

    stream: Number
    padded_k: Number
    rows_per_expert: Number


def _gemm_terms(work: GroupedGemmWork, chip: Chip, timing: ExpertsTiming, streamed: Number) -> GemmTerms:
    padded_n, padded_k = (timing.padded * ceil_div(size, timing.padded) for size in (work.n, work.k))
    weights = work.experts * padded_n * padded_k * work.b * streamed
    stream, rows_per_expert = weights / (timing.dram * chip.bandwidth), work.rows / work.experts
    passes = maximum(rows_per_expert / GROUPED_ROWS, 1)
    outside = maximum(1 - chip.l2 / (work.n * work.k * work.b), 0)  # of L2
    again = (1 + (passes - 1) * outside) / either(work.few, 1, timing.large)
    stream = stream * either(timing.default_tiles > 0, again, 1)
    return GemmTerms(
        stream=part("stream", stream, "s"),
        padded_k=part("padded_k", K_SLICE * ceil_div(work.k, K_SLICE)),
        rows_per_expert=part("rows_per_expert", rows_per_expert),
    )


def _tile_seconds(
    work: GroupedGemmWork,
    tile: tuple[Number, Number],
    terms: GemmTerms,
    chip: Chip,
    timing: ExpertsTiming,
    idle: Number,
) -> Number:
    """Seconds of a GEMM with tiles of this shape."""
    stream, padded_k, rows_per_expert = terms
    tile_rows, tile_columns = part("tile_rows", tile[0]), part("tile_columns", tile[1])
    tiles_per_expert = either(work.even, ceil_div(rows_per_expert, tile_rows), 1 / -expm1(-tile_rows / rows_per_expert))
    row_tiles = work.experts * tiles_per_expert + idle / tile_rows
    tiles = part("tiles", row_tiles * ceil_div(work.n, tile_columns))
    waves = part("waves", maximum(tiles / chip.multiprocessors + 0.5, 1))
    multiply = part("multiply", 2 * tile_rows * tile_columns / (chip.peak / chip.multiprocessors * timing.pipe), "s")
    loaded_bytes = part(
        "loaded_bytes", minimum(tile_rows, maximum(rows_per_expert, 1)) * work.a + tile_columns * work.b, "B"
    )
    load = part("load", loaded_bytes * minimum(tiles, chip.multiprocessors) / (timing.l2 * chip.port), "s")
    sm_seconds = part("sm_time", waves * (padded_k + timing.fill) * maximum(multiply, load), "s")
    return overlap(sm_seconds, stream, OVERLAP)
