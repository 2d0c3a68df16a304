"""Expected time of a GEMM: tiles in waves over the SMs.

On tensor cores it loses time where the rows of its matrices are not multiples of 16 bytes (`load_bytes`).
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import Format
from roofmodel.devices.calibration import GemmTiming
from roofmodel.devices.parts import Unaligned
from roofmodel.numbers.algebra import (
    Bytes,
    BytesPerSecond,
    Number,
    Seconds,
    ceil_div,
    either,
    formula,
    maximum,
    minimum,
    smallest,
)
from roofmodel.timing.formula import UNFITTED, Chip, FormulaDescription, dram_share, overlap

TILES = ((256, 128), (128, 256), (128, 128), (64, 128), (64, 64), (64, 32), (32, 64))  # rows, columns
SPLITS = (1, 2, 4, 8, 16, 32)
ACCUMULATOR = 4  # bytes of a partial sum: tensor cores add in fp32 or int32

DESCRIPTION = FormulaDescription(
    name="gemm",
    title="GEMMs",
    summary="The kernel cuts C[m, n] into tiles and, where there are few tiles, K into splits. Each SM computes one "
    "tile at a time, so that the tiles run in waves. The library is assumed to choose well: the time is the minimum "
    "over a list of tile shapes and numbers of splits.",
    equation="latency + √(compute² + memory²) + split + quantize",
    terms=(
        ("compute", "waves × (K of a split × max(FLOPs of a tile per element of K / (peak of one SM × pipe), step) + "
         "bytes of the tile in fp32 / (L2 port of one SM × store)): the next tile waits for the store"),
        ("memory", "max(bytes of all tiles' rows of A and columns of B / (L2 ports × l2), DRAM bytes / (DRAM "
         "bandwidth × dram))"),
        ("split", "with K in splits: a second kernel adds the partial sums"),
        ("quantize", "where a kernel quantizes A first: its DRAM bytes / (DRAM bandwidth × dram) + its bytes / (L2 "
         "ports × l2) + rows of an SM × quantize_row"),
    ),
    notes=(
        f"Tiles (rows × columns): {', '.join(f'{rows} × {columns}' for rows, columns in TILES)}. "
        f"Splits of K: {', '.join(map(str, SPLITS))}.",
        "The DRAM bytes are the compulsory ones. A benchmark repeats a GEMM on a few copies of its operands: L2 keeps "
        "all of them if they fit in `resident` of it, and none from twice of that.",
    ),
    source='Waves: NVIDIA, "Matrix Multiplication Background User\'s Guide". '
    f"Parameters: GemmTiming, fitted by `roof calibrate`. Tile shapes and splits: {UNFITTED}",
)  # fmt: skip


class GemmWork(NamedTuple):
    """`batch` GEMMs C[m, n] = A[m, k] B[k, n]."""

    batch: Annotated[Number, "number of GEMMs"]
    m: Annotated[Number, "rows of A"]
    n: Annotated[Number, "columns of B"]
    k: Annotated[Number, "length of the contraction"]
    bytes: Annotated[Number, "compulsory bytes", "B"]
    a: Annotated[float, "bytes per element of A"] = 2.0
    b: Annotated[float, "bytes per element of B"] = 2.0
    c: Annotated[float, "bytes per element of C"] = 2.0
    quantized: Annotated[Number, "bytes that the kernel that quantizes A reads and writes; 0: there is none", "B"] = 0
    aligned: Annotated[Number, "fraction of the full rate at this row alignment"] = 1
    copies_a: Annotated[Number, "copies of A that a benchmark uses in turn; 0: A is used once"] = 0
    copies_b: Annotated[Number, "copies of B that a benchmark uses in turn; 0: B is used once"] = 0


@formula
def seconds(work: GemmWork, chip: Chip, timing: GemmTiming) -> Number:
    """Seconds with the best tile and splits, by DESCRIPTION; elementwise for arrays."""
    fixed, stream = _of_all_candidates(work, chip, timing)
    return fixed + smallest(
        lambda candidate: _kernel_seconds(work, candidate, stream, chip, timing), CANDIDATES, (*work, stream)
    )


CANDIDATES = tuple((*tile, splits) for tile in TILES for splits in SPLITS)
"""The rows and columns of a tile and the splits of K among which a library chooses."""


def candidate_seconds(work: GemmWork, candidate: Sequence[Number], chip: Chip, timing: GemmTiming) -> Number:
    """Seconds with the tile and splits (rows, columns, splits) `candidate`, each a number or an array.

    The minimum over CANDIDATES is `seconds`.
    """
    fixed, stream = _of_all_candidates(work, chip, timing)
    return fixed + _kernel_seconds(work, candidate, stream, chip, timing)


def _of_all_candidates(work: GemmWork, chip: Chip, timing: GemmTiming) -> tuple[Number, Number]:
    """What no tile changes: latency and quantization in seconds, seconds of the DRAM."""
    resident_bytes: Bytes = timing.resident * chip.l2
    dram_bandwidth: BytesPerSecond = timing.dram * chip.bandwidth
    of_a = work.batch * work.m * work.k * work.a
    data = work.bytes - either(work.quantized > 0, work.quantized - 2 * of_a, 0)  # the GEMM reads A quantized
    of_b = minimum(work.batch * work.n * work.k * work.b, data)
    in_turn = data + (work.copies_a - 1) * of_a + (work.copies_b - 1) * of_b
    missing = either(work.copies_b > 0, dram_share(in_turn, resident_bytes), 1)
    stream: Seconds = data * missing / dram_bandwidth
    rows = work.batch * work.m * (work.quantized > 0) / chip.multiprocessors
    moved = work.quantized * (dram_share(work.quantized, resident_bytes) / dram_bandwidth + 1 / (timing.l2 * chip.port))
    quantize: Seconds = moved + rows * timing.quantize_row
    return timing.latency + quantize, stream


def _kernel_seconds(
    work: GemmWork, candidate: Sequence[Number], stream: Number, chip: Chip, timing: GemmTiming
) -> Number:
    """Seconds of the kernel without its latency, and of the kernel that adds partial sums.

    Plain numbers are multiplied first, because operations on arrays are slower.
    """
    tile_rows: Number = candidate[0]
    tile_columns: Number = candidate[1]
    splits: Number = candidate[2]
    tiles: Number = work.batch * ceil_div(work.n, tile_columns) * ceil_div(work.m, tile_rows)
    used_rows, used_columns = minimum(tile_rows, work.m), minimum(tile_columns, work.n)
    loads = timing.l2 * chip.port
    load: Seconds = tiles * work.k * (used_rows * (work.a / loads) + used_columns * (work.b / loads))
    memory: Seconds = maximum(load, stream)
    multiply = 2 * tile_rows * tile_columns * chip.multiprocessors / (chip.peak * timing.pipe)
    stored = used_rows * used_columns * (ACCUMULATOR * chip.multiprocessors / (timing.store * chip.port))
    waves: Number = ceil_div(tiles * splits, chip.multiprocessors)
    step = maximum(multiply, timing.step) / work.aligned
    compute: Seconds = waves * (step * (work.k / splits) + stored)
    split: Seconds = either(splits > 1, timing.split, 0.0)
    return overlap(compute, memory) + split


LOADS = (16, 4, 2)
"""Bytes of the loads that GEMM kernels exist for: 16 by a thread or by Hopper's copy engine, one register, one element
of 16 bits. Rows must start at multiples of them (NVIDIA, "Matrix Multiplication Background User's Guide", section
"Tensor Core Requirements"). Measured on an H100, rows of 8 bytes take as long as rows of 4
(`benchmarks/collect/layouts.py`)."""


def load_bytes(operator: Operator, work: GemmWork, compute: Format, pads_vocabulary: bool) -> Number:
    """The widest of LOADS that the rows of all matrices are multiples of.

    Only for 16-bit and tf32 GEMMs; libraries refuse or pad others. A GEMM of one row is a matrix-vector product, which
    needs no tensor cores: 16. `pads_vocabulary`: the engine adds rows to the embedding, so that the vocabulary is
    aligned.
    """
    if operator.kind != "gemm":
        return LOADS[0]
    line = operator.lines[0]
    if pads_vocabulary and any("v" in tensor.axes for tensor in (*line.factors, *line.outputs)):
        return LOADS[0]
    # The rows have the features on both sides. A gradient of weights contracts over the tokens, its rows are m and n.
    rows = (work.n, work.k) if any(tensor.is_parameter for tensor in line.factors) else (work.m, work.n)
    bits = [ceil_div(row, 1) * compute.bits for row in rows]  # a shard of an uneven size has the ceiling of the mean
    largest: Number = LOADS[2]
    for load in LOADS[1::-1]:
        first, second = (ceil_div(row, 8 * load) * (8 * load) <= row for row in bits)
        largest = either(first * second, load, largest)
    return either(compute.bits < 16, LOADS[0], either(work.m <= 1, LOADS[0], largest))


def aligned_share(load: Number, measured: Unaligned) -> Number:
    """The share of the tensor cores' rate that kernels with such loads reach."""
    narrow = either(load >= LOADS[1], measured.rows_of_4_bytes, measured.rows_of_2_bytes)
    return either(load >= LOADS[0], 1, narrow)
