"""Expected time of batched GEMMs with the weights of each head: those before and after an absorbed latent attention."""

from __future__ import annotations

from roofmodel.devices.calibration import BatchedTiming
from roofmodel.numbers.algebra import Number, ceil_div, either, formula, maximum, minimum, part
from roofmodel.timing.formula import UNFITTED, Chip, FormulaDescription, dram_share, overlap
from roofmodel.timing.gemm import GemmWork

TILES = ((128, 128), (64, 128), (128, 64), (64, 64), (32, 64), (16, 64))  # rows, columns

DESCRIPTION = FormulaDescription(
    name="batched_gemm",
    title="batched GEMMs with the weights of each head",
    summary="Each SM computes one tile of C[m, n] of a head at a time, so that the tiles run in waves. The time is the "
    "minimum over a list of tile shapes.",
    equation="latency + √((waves × (wave + max(multiply, load)))² + stream²) + quantize",
    terms=(
        ("multiply", "FLOPs of a tile / (peak of one SM × pipe)"),
        ("load", "bytes of a tile's rows of A and columns of B, of all active SMs, / (L2 ports × l2)"),
        ("stream", "bytes / (DRAM bandwidth × dram), and for the share in L2 / (L2 ports × l2)"),
        ("quantize", "rows of A of an SM × quantize_row, where A is quantized at run time"),
    ),
    source=f"Parameters: BatchedTiming, fitted by `roof calibrate`. Tile shapes: {UNFITTED}",
)


@formula
def seconds(work: GemmWork, chip: Chip, timing: BatchedTiming) -> Number:
    """Seconds with the best tile, by DESCRIPTION; elementwise for arrays."""
    best: Number = float("inf")
    for tile in TILES:
        rows, columns = part("tile_rows", tile[0]), part("tile_columns", tile[1])
        tiles = part("tiles", work.batch * ceil_div(work.n, columns) * ceil_div(work.m, rows))
        waves = part("waves", ceil_div(tiles, chip.multiprocessors))
        sm_rate = part("sm_rate", chip.peak / chip.multiprocessors * timing.pipe, "FLOP/s")
        multiply = part("multiply", 2 * rows * columns * work.k / sm_rate, "s")
        loaded = (rows * work.a + columns * work.b) * work.k * minimum(tiles, chip.multiprocessors)
        load = part("load", loaded / (timing.l2 * chip.port), "s")
        sm_seconds = part("sm_time", waves * (timing.wave + maximum(multiply, load)), "s")
        best = minimum(best, sm_seconds)
    data = part("data", work.bytes + work.quantized, "B")
    missed = part("missed", either(work.copies_b > 0, dram_share(work.bytes, chip.l2), 1))
    stream = data * (missed / (timing.dram * chip.bandwidth) + (1 - missed) / (timing.l2 * chip.port))
    stream = part("stream", stream, "s")
    rows = ceil_div(work.batch * work.m, chip.multiprocessors) * (work.quantized > 0)
    quantize = part("quantize", rows * timing.quantize_row, "s")
    return timing.latency + overlap(best, stream) + quantize
