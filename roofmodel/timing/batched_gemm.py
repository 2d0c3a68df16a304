"""Expected time of batched GEMMs with the weights of each head: those before and after an absorbed latent attention."""

from __future__ import annotations

from roofmodel.devices.calibration import BatchedTiming
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
)
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
    best = float("inf")
    for tile in TILES:
        tile_rows: Number = tile[0]
        tile_columns: Number = tile[1]
        tiles: Number = work.batch * ceil_div(work.n, tile_columns) * ceil_div(work.m, tile_rows)
        waves: Number = ceil_div(tiles, chip.multiprocessors)
        sm_rate: FlopsPerSecond = chip.peak / chip.multiprocessors * timing.pipe
        multiply: Seconds = 2 * tile_rows * tile_columns * work.k / sm_rate
        loaded = (tile_rows * work.a + tile_columns * work.b) * work.k * minimum(tiles, chip.multiprocessors)
        load: Seconds = loaded / (timing.l2 * chip.port)
        sm_time: Seconds = waves * (timing.wave + maximum(multiply, load))
        best = minimum(best, sm_time)
    data: Bytes = work.bytes + work.quantized
    missed: Number = either(work.copies_b > 0, dram_share(work.bytes, chip.l2), 1)
    stream: Seconds = data * (missed / (timing.dram * chip.bandwidth) + (1 - missed) / (timing.l2 * chip.port))
    rows = ceil_div(work.batch * work.m, chip.multiprocessors) * (work.quantized > 0)
    quantize: Seconds = rows * timing.quantize_row
    return timing.latency + overlap(best, stream) + quantize
