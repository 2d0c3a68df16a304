"""Expected time of the experts of an MoE layer: GEMMs with few rows each, whose weights are read once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from roofmodel.devices.calibration import ExpertsTiming
from roofmodel.numbers.algebra import Bytes, Number, Seconds, ceil_div, either, expm1, formula, maximum, minimum
from roofmodel.timing.formula import UNFITTED, Chip, FormulaDescription, dram_share, overlap

TILE_ROWS = (16, 32, 64, 128)  # of the tiles among which a library chooses
TILE_COLUMNS: Annotated[int, "columns of a tile"] = 64

DESCRIPTION = FormulaDescription(
    name="experts",
    title="experts of an MoE layer",
    summary="A fused MoE layer sorts the tokens by expert, multiplies, applies the activation, multiplies again and "
    "sums. Each GEMM takes the minimum over the heights of its tiles.",
    equation="latency + routing + experts × expert + GEMMs + bytes of tokens and rows / (DRAM bandwidth × rows)",
    terms=(
        ("experts", "the experts that have at least one row"),
        ("GEMM", "overlap(waves × (k + fill) × max(multiply, load), stream)"),
        ("multiply", "FLOPs of a tile per element of K / (peak of one SM × pipe)"),
        ("load", "bytes of a tile's rows of A and columns of B, of all active SMs, / (L2 ports × l2)"),
        ("stream", "weights of these experts / (DRAM bandwidth × dram)"),
        ("overlap(a, b)", "√(a² + b²): the two overlap, but not perfectly"),
    ),
    notes=(
        "The router spreads rows unevenly. With r rows per expert on average, distributed exponentially, an expert has "
        "1 / (1 - exp(-tile_rows / r)) tiles on average: 1 for small r, r / tile_rows + 1/2 for large r. In a balanced "
        "benchmark all experts have r rows, hence ceil(r / tile_rows) tiles.",
        "A layer with at most as many tokens as experts sorts them in one small kernel, without `routing`, and has "
        "tiles of 16 rows; others have tiles of at least `tile_rows` rows (`get_default_config` of the Triton kernels "
        "in SGLang and vLLM).",
        "A tile fills its pipeline of loads before the first multiplication, and stores its results after the last "
        "one: both take as long as `fill` more elements of K.",
        "If a benchmark repeats the layer, L2 keeps weights that fit.",
    ),
    source=f"Parameters: ExpertsTiming, fitted by `roof calibrate` to fused MoE layers. Sizes of tiles: {UNFITTED}",
    constants=("TILE_COLUMNS",),
)


class GroupedGemmWork(NamedTuple):
    """C[rows, n] = A[rows, k] B[k, n], where each of `experts` has its own B and some of the rows."""

    experts: Annotated[Number, "experts that have at least one row"]
    rows: Annotated[Number, "rows of all these experts"]
    n: Annotated[Number, "columns of each B"]
    k: Annotated[Number, "length of the contraction"]
    a: Annotated[float, "bytes per element of A in the multiplication"] = 2.0
    b: Annotated[float, "bytes per element of B"] = 2.0
    small_batch: Annotated[Number, "whether the layer has at most as many tokens as this GPU has experts"] = False
    even: Annotated[Number, "whether all experts have the same number of rows"] = False


class MoeWork(NamedTuple):
    """One GPU's part of a fused MoE layer."""

    gemms: Annotated[Sequence[GroupedGemmWork], "the GEMMs of the experts"]
    moved: Annotated[Number, "bytes of the tokens, in and out, and of the rows between the kernels", "B"]
    repeated: Annotated[int, "1: a benchmark repeats the layer with the same weights; 0: the weights are new"] = 0


def seconds(work: MoeWork, chip: Chip, timing: ExpertsTiming) -> Number:
    """Seconds of a fused MoE layer, by DESCRIPTION; elementwise for arrays."""
    weights = sum(gemm.experts * gemm.n * gemm.k * gemm.b for gemm in work.gemms)
    streamed = dram_share(weights, chip.l2) if work.repeated else 1
    outside = _fixed_seconds(work.gemms[0], timing) + work.moved / (timing.rows * chip.bandwidth)
    return outside + sum(gemm_seconds(gemm, chip, timing, streamed) for gemm in work.gemms)


def _fixed_seconds(work: GroupedGemmWork, timing: ExpertsTiming) -> Number:
    """Seconds of launches, routing and sorting."""
    return timing.latency + either(work.small_batch, 0, timing.routing) + work.experts * timing.expert


@formula
def separate_gemm_seconds(work: GroupedGemmWork, moved: Number, chip: Chip, timing: ExpertsTiming) -> Number:
    """Seconds of one of the two GEMMs as a separate kernel, which also moves `moved` bytes besides the weights.

    It gets half of the fixed time of the fused layer.
    """
    fixed: Seconds = _fixed_seconds(work, timing) / 2
    row_stream: Seconds = moved / (timing.rows * chip.bandwidth)
    return fixed + gemm_seconds(work, chip, timing) + row_stream


def gemm_seconds(work: GroupedGemmWork, chip: Chip, timing: ExpertsTiming, streamed: Number = 1) -> Number:
    """Seconds of a GEMM without the fixed time; `streamed` is the share of the weights that comes from DRAM."""
    best = float("inf")
    for rows in TILE_ROWS:
        best = minimum(best, _tile_seconds(work, rows, chip, timing, streamed))
    return best


def _tile_seconds(work: GroupedGemmWork, rows: Number, chip: Chip, timing: ExpertsTiming, streamed: Number) -> Number:
    """Seconds of a GEMM with tiles of this height, or of the least height of the implementation."""
    stream: Seconds = work.experts * work.n * work.k * work.b * streamed / (timing.dram * chip.bandwidth)
    tile_rows: Number = either(work.small_batch, TILE_ROWS[0], maximum(rows, timing.tile_rows))
    rows_per_expert: Number = work.rows / work.experts
    tiles_per_expert = either(work.even, ceil_div(rows_per_expert, tile_rows), 1 / -expm1(-tile_rows / rows_per_expert))
    tiles: Number = work.experts * tiles_per_expert * ceil_div(work.n, TILE_COLUMNS)
    waves: Number = maximum(tiles / chip.multiprocessors + 0.5, 1)
    multiply: Seconds = 2 * tile_rows * TILE_COLUMNS / (chip.peak / chip.multiprocessors * timing.pipe)
    loaded_rows = minimum(tile_rows, maximum(rows_per_expert, 1))
    loaded_bytes: Bytes = loaded_rows * work.a + TILE_COLUMNS * work.b
    load: Seconds = loaded_bytes * minimum(tiles, chip.multiprocessors) / (timing.l2 * chip.port)
    sm_time: Seconds = waves * (work.k + timing.fill) * maximum(multiply, load)
    return overlap(sm_time, stream)
