"""Expected time of a GEMM: tiles in waves over the SMs."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

from roofmodel.devices.calibration import GemmTiming
from roofmodel.numbers.algebra import Number, ceil_div, either, formula, is_array, lowered, maximum, minimum, part
from roofmodel.timing.formula import UNFITTED, Chip, FormulaDescription, overlap

TILES = (  # rows, columns
    (256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64),
    (128, 32), (32, 128), (64, 32), (32, 64), (16, 128), (16, 64),
)  # fmt: skip
# The heights between the powers of two appear in the names of cuBLAS's kernels for Hopper and later GPUs (nvjet_*).
INTERMEDIATE_TILES = ((192, 128), (160, 128), (96, 128), (224, 128), (192, 256), (96, 64), (192, 64))
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 32)  # parts of K
K_SLICE: Annotated[int, "elements of K that a tile's loop processes at a time"] = 32
MIN_K_PER_PART: Annotated[int, "least elements of K in a part"] = 64
FILL_HALF_K: Annotated[int, "elements of K after which half of `fill` has passed"] = 64
LATE_TILES: Annotated[int, "tiles of 128 x 128 elements of C with which half of `late` passes"] = 32
UNSPLIT_K: Annotated[int, "largest K for `unsplit` = 1"] = 1024  # from L40S and RTX PRO 6000
SMALL_UNSPLIT_GEMM: Annotated[int, "a GEMM of fewer multiplications is small for `unsplit` = 1"] = 2**21
SMALL_UNSPLIT_K: Annotated[int, "largest K of a small GEMM for `unsplit` = 1"] = 8192
# From B200, GB200 and B300: up to 40 % more time than with a row or an element of K more.
UNSPLIT_ROWS: Annotated[int, "largest number of rows for `unsplit` = 2"] = 8
UNSPLIT_NARROW_ROWS: Annotated[
    int, "largest number of rows for `unsplit` = 2 with at most UNSPLIT_NARROW_COLUMNS columns"
] = 16
UNSPLIT_NARROW_COLUMNS: Annotated[int, "largest number of columns for which UNSPLIT_NARROW_ROWS is the limit"] = 1024
UNSPLIT_ABOVE_COLUMNS: Annotated[int, "`unsplit` = 2 needs more columns than this"] = 512
UNSPLIT_COLUMNS: Annotated[int, "largest number of columns for `unsplit` = 2"] = 4096
UNSPLIT_ROWS_K: Annotated[int, "largest K for `unsplit` = 2"] = 2048
# From L40S and RTX PRO 6000: such GEMMs take as long as one SM needs for a tile with all of K.
UNSPLIT_SHORT_SIDE: Annotated[
    int, "largest number of rows for `unsplit` = 3; for `unsplit` = 4, of rows or of columns"
] = 64
UNSPLIT_LONG_SIDE: Annotated[
    int, "smallest number of columns for `unsplit` = 3; for `unsplit` = 4, of the larger of columns and rows"
] = 1536
UNSPLIT_K_PER_LONG_SIDE: Annotated[
    int, "for `unsplit` = 4, K is shorter than this times the larger of columns and rows; for 3, than the columns"
] = 4
SUSTAINED_HALF_SECONDS: Annotated[float, "seconds at the peak after which half of `sustained` applies"] = 1.2e-3
RAMP_HALF_BYTES: Annotated[float, "bytes after which half of `ramp` has passed"] = 512e6
PARTIAL_SUM_BANDWIDTH: Annotated[float, "factor on the L2 ports' bandwidth for partial sums, mostly in L2"] = 0.31
EVICTION: Annotated[float, "share by which operands exceed the capacity of L2 when none of them stay"] = 0.2
C_AGAIN: Annotated[float, "fraction of C added to A, B and C: L2 keeps C if the sum fits"] = 0.5
L2_SHARE: Annotated[float, "fraction of L2 that keeps the quantized A for the next kernel"] = 0.7
OVERLAP: Annotated[float, "exponent p of overlap(a, b) = (a^p + b^p)^(1/p)"] = 3.5
ROUNDING_MARGIN = 1 - 1e-9  # factor on lower bounds of a time, because they round differently than the time itself
EXCLUSION_FACTOR = 1e3  # on the time of tiles and splits that a library does not use: they are never the best


def _shapes(tiles: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{rows} × {columns}" for rows, columns in tiles)


DESCRIPTION = FormulaDescription(
    name="gemm",
    title="GEMMs",
    summary="The kernel cuts C[m, n] into tiles and, where there are few tiles, K into `parts`. Each SM computes one "
    "tile at a time, so that the tiles run in waves. The library is assumed to choose well: the time is the minimum "
    "over a list of tile shapes and parts. Several shapes may take about as long: the library's kernel may "
    "have another.",
    equation="latency + extra_latency + fill + overlap(max(multiply, load, step) + store, stream) + split",
    terms=(
        ("extra_latency", "late × tiles / (tiles + 32), tiles of 128 × 128: their thread blocks start later"),
        ("multiply", "waves × FLOPs of a tile / (peak of one SM × pipe), × `slowdown` in long GEMMs (`sustained`)"),
        ("load", "waves × bytes of a tile's rows of A and columns of B, of all active SMs, / (L2 ports × l2)"),
        ("step", "⌈tiles / (SMs × tiles_per_sm)⌉ × K × the least time per element of K; small tiles share an SM"),
        ("store", "waves × bytes of a tile of C / (L2 port of one SM × store); the next tile waits for it"),
        ("stream", "compulsory bytes that are not in L2 / (DRAM bandwidth × dram) + ramp"),
        ("split", "a fixed time, a time per part, and all partial sums through L2"),
        ("overlap(a, b)", "(a^3.5 + b^3.5)^(1/3.5): the two overlap, but not perfectly"),
    ),
    notes=(
        f"Tiles (rows × columns): {_shapes(TILES)}; with `intermediate` also {_shapes(INTERMEDIATE_TILES)}. "
        f"Parts: {', '.join(map(str, SPLITS))}. An SM holds tiles_per_sm = 2 × 128 × 128 / (rows × columns) tiles at "
        "once, rounded down, at least 1 and at most 6.",
        "The time is at least `host`, where kernels were not captured in a graph.",
        "Some libraries have only tall tiles: at least `tall` rows, or all rows of C if fewer. `parts` is the largest "
        "number of parts into which a library splits K; with `unsplit` = 1, it splits neither a short K nor K of a "
        "small GEMM. With `unsplit` = 3, it also computes a GEMM of few rows without split-K, if K is shorter than the "
        "number of columns. With `unsplit` = 4, it does so for few rows or few columns, if K is shorter than four "
        "times the larger of the two numbers. With `unsplit` = 2, it computes a GEMM of few rows without split-K and "
        "with at least 128 columns per tile, and `step` is at least the time of an SM to load these columns over its "
        "own port. With `intermediate`, it also has tiles with heights between the powers of two.",
        "A stays in L2 if A, B and C fit in `resident` of it, and C if A, B and 1.5 C fit. B stays if a benchmark "
        "repeats the GEMM and all copies of A and B that it uses in turn fit. Relative to DRAM, a byte of A or B in L2 "
        "takes the time `cached`, and a byte of C `written`.",
        "With weights narrower than the compute format, each element of K of a part takes `convert` more. With A "
        "quantized at run time, a kernel reads and writes A first: what L2 does not keep at the DRAM bandwidth, slower "
        "by `spill` where A does not fit in L2, and at least `row` for each row or `cast` for each element of an SM.",
        "With `balanced`, the SMs share the tiles of the last wave: waves = tiles / SMs, at least 1.",
        "For at most `few` rows a library may have another kernel, of dot products on the CUDA cores, whose threads "
        "share K: latency + overlap(max(column × columns of an SM, dot × K), stream). The faster kernel is used.",
    ),
    source='Wave quantization: NVIDIA, "Matrix Multiplication Background User\'s Guide". '
    "Shared tiles: Osama et al., Stream-K, PPoPP 2023. "
    "Parameters: GemmTiming, fitted by `roof calibrate`. "
    f"Tile shapes, parts and constants: {UNFITTED} "
    "PARTIAL_SUM_BANDWIDTH is 1.5 × the DRAM bandwidth of an A100 / the bandwidth of its L2 ports.",
    constants=(
        "K_SLICE", "MIN_K_PER_PART", "FILL_HALF_K", "LATE_TILES", "UNSPLIT_K", "SMALL_UNSPLIT_GEMM",
        "SMALL_UNSPLIT_K", "UNSPLIT_ROWS", "UNSPLIT_NARROW_ROWS", "UNSPLIT_NARROW_COLUMNS", "UNSPLIT_ABOVE_COLUMNS",
        "UNSPLIT_COLUMNS", "UNSPLIT_ROWS_K",
        "UNSPLIT_SHORT_SIDE", "UNSPLIT_LONG_SIDE", "UNSPLIT_K_PER_LONG_SIDE", "SUSTAINED_HALF_SECONDS",
        "RAMP_HALF_BYTES", "PARTIAL_SUM_BANDWIDTH", "EVICTION", "C_AGAIN", "L2_SHARE", "OVERLAP",
    ),
)  # fmt: skip


class GemmWork(NamedTuple):
    """`batch` GEMMs C[m, n] = A[m, k] B[k, n]."""

    batch: Annotated[Number, "number of GEMMs"]
    m: Annotated[Number, "rows of A"]
    n: Annotated[Number, "columns of B"]
    k: Annotated[Number, "length of the contraction"]
    bytes: Annotated[Number, "compulsory bytes"]
    a: Annotated[float, "bytes per element of A"] = 2.0
    b: Annotated[float, "bytes per element of B"] = 2.0
    c: Annotated[float, "bytes per element of C"] = 2.0
    quantized: Annotated[Number, "bytes that the kernel that quantizes A reads and writes; 0: there is none"] = 0
    copies_a: Annotated[Number, "copies of A that a benchmark uses in turn"] = 1
    copies_b: Annotated[Number, "copies of B that a benchmark uses in turn; 0: B was not used before"] = 0


@formula
def seconds(work: GemmWork, chip: Chip, timing: GemmTiming) -> Number:
    """Seconds with the best tile and split, by DESCRIPTION; elementwise for arrays.

    Splits and tiles whose lower bound exceeds the best time so far are skipped.
    """
    moved = _dram_bytes(work, chip, timing)
    stream = _stream(moved.streamed, chip, timing)

    def least(split: int, stream: Number, *fields: Number) -> Number:
        return _least_seconds(GemmWork(*fields), split, chip, timing, stream)

    def by_split(split: int, best: Number, stream: Number, *fields: Number) -> Number:
        return minimum(best, _split_seconds(GemmWork(*fields), split, chip, timing, stream))

    def by_splits(best: Number, stream: Number, *fields: Number) -> Number:
        best = by_split(SPLITS[1], best, stream, *fields)
        for split in SPLITS[2:]:
            best = lowered(best, partial(least, split), partial(by_split, split), stream, *fields)
        return best

    def least_dots(_: Number, *fields: Number) -> Number:
        return either(GemmWork(*fields).m > timing.few, float("inf"), 0.0)

    def by_dots(best: Number, stream: Number, *fields: Number) -> Number:
        tried = GemmWork(*fields)
        return either(tried.m > timing.few, best, minimum(best, _dots_seconds(tried, chip, timing, stream)))

    best = _split_seconds(work, SPLITS[0], chip, timing, stream)
    best = lowered(best, partial(least, SPLITS[1]), by_splits, stream, *work)  # the lower bound grows with the parts
    best = lowered(best, least_dots, by_dots, stream, *work)
    return maximum(best + _quantize(work, moved.quantizing, chip, timing), timing.host)


CANDIDATES = tuple((*tile, parts) for tile in (*TILES, *INTERMEDIATE_TILES) for parts in SPLITS)
"""The rows and columns of a tile and the parts of K among which a library chooses."""


def candidate_seconds(work: GemmWork, candidate: Sequence[Number], chip: Chip, timing: GemmTiming) -> Number:
    """Seconds with the tile and parts (rows, columns, parts) `candidate`, each a number or an array.

    The minimum over CANDIDATES is `seconds`.
    """
    rows, columns, parts = candidate
    moved = _dram_bytes(work, chip, timing)
    stream = _stream(moved.streamed, chip, timing)
    k_per_part, fixed = _k_per_part(work, parts, chip, timing)
    whole = _whole_wide_tiles(work, timing)
    sm_seconds = _sm_seconds(*_stage_seconds(work, (rows, columns), parts, k_per_part, whole, chip, timing))
    seconds = fixed + overlap(sm_seconds, stream, OVERLAP)
    seconds = seconds * _exclusion(work, parts, timing)
    if timing.few:
        seconds = either(work.m > timing.few, seconds, minimum(seconds, _dots_seconds(work, chip, timing, stream)))
    return maximum(seconds + _quantize(work, moved.quantizing, chip, timing), timing.host)


class _DramBytes(NamedTuple):
    """Bytes between L2 and DRAM: what L2 does not keep."""

    quantizing: Number  # of the kernel that quantizes A
    streamed: Number  # of the GEMM, with bytes in L2 as the bytes that DRAM moves in the same time


def _dram_bytes(work: GemmWork, chip: Chip, timing: GemmTiming) -> _DramBytes:
    b = minimum(work.batch * work.n * work.k * work.b, work.bytes)
    c = minimum(work.batch * work.m * work.n * work.c, work.bytes - b)
    a = work.bytes - b - c
    once, in_turn = work.bytes, work.copies_a * a + work.copies_b * b + c  # bytes until an operand is used again
    capacity = part("resident_bytes", timing.resident * chip.l2, "B")
    of_a = _evicted(either(work.copies_a > 1, in_turn, once), capacity)
    of_b = either(work.copies_b > 0, _evicted(in_turn, capacity), 1)
    # On an L40S, a C of 0.6 times L2 is written at the rate of L2, a C of 0.75 times L2 at the rate of DRAM.
    of_c = _evicted(once + C_AGAIN * c, capacity)
    read = minimum(a, work.quantized)
    of_quantized = _evicted(work.quantized, capacity)
    written = work.quantized - read
    quantizing = part("quantizing_bytes", read * of_a + written * of_quantized, "B")
    of_a = either(work.quantized > 0, of_quantized, of_a)  # the GEMM reads A where the kernel before wrote it
    of_a, of_b = (share + timing.cached * (1 - share) for share in (of_a, of_b))
    of_c = of_c + timing.written * (1 - of_c)
    return _DramBytes(quantizing, part("streamed_bytes", a * of_a + b * of_b + c * of_c, "B"))


def _quantize(work: GemmWork, quantizing: Number, chip: Chip, timing: GemmTiming) -> Number:
    """Seconds of the kernel that quantizes A; 0 where there is none. `quantizing` are its bytes between L2 and DRAM."""
    rows = work.batch * work.m * (work.quantized > 0) / chip.multiprocessors
    spill_slowdown = part("spill_slowdown", 1 + timing.spill * (work.quantized > L2_SHARE * chip.l2))
    stream = quantizing / (timing.dram * chip.bandwidth) * spill_slowdown
    return part("quantize", maximum(stream, rows * maximum(timing.row, work.k * timing.cast)), "s")


def _stream(streamed: Number, chip: Chip, timing: GemmTiming) -> Number:
    ramp = timing.ramp * streamed / (streamed + RAMP_HALF_BYTES)
    return part("stream", streamed / (timing.dram * chip.bandwidth) + ramp, "s")


def _evicted(used: Number, capacity: Number) -> Number:
    """The share of an operand that L2 does not keep, if `used` bytes pass until the operand is used again."""
    return minimum(maximum(used - capacity, 0) / maximum(EVICTION * capacity, 1), 1)


def _split_seconds(work: GemmWork, split: int, chip: Chip, timing: GemmTiming, stream: Number) -> Number:
    """Seconds with the best tile and K in `split` parts."""
    split = part("parts", split)
    k_per_part, fixed = _k_per_part(work, split, chip, timing)
    sm_seconds = _best_tile(work, split, k_per_part, chip, timing)
    seconds = fixed + overlap(sm_seconds, stream, OVERLAP)
    return seconds * _exclusion(work, split, timing)


def _exclusion(work: GemmWork, parts: Number, timing: GemmTiming) -> Number:
    """A large factor on the time of parts that the library does not use, else 1."""
    small = (work.m * work.n * work.k < SMALL_UNSPLIT_GEMM) * (work.k <= SMALL_UNSPLIT_K)
    either_side = timing.unsplit > 3
    k_per_long_side = 1 + (UNSPLIT_K_PER_LONG_SIDE - 1) * either_side

    def thin(short: Number, long: Number) -> Number:
        return (short <= UNSPLIT_SHORT_SIDE) * (long >= UNSPLIT_LONG_SIDE) * (work.k < k_per_long_side * long)

    few = (work.batch <= 1) * (thin(work.m, work.n) + either_side * thin(work.n, work.m))
    whole = (work.k <= UNSPLIT_K) + small + (timing.unsplit > 2) * few
    unsplit = (parts > 1) * ((timing.unsplit > 0) * (timing.unsplit != 2) * whole + _whole_wide_tiles(work, timing))
    return 1 + EXCLUSION_FACTOR * ((parts > timing.parts) + unsplit)


def _whole_wide_tiles(work: GemmWork, timing: GemmTiming) -> Number:
    """1 for a GEMM of few rows that the library computes without split-K and with wide tiles, else 0."""
    columns = (work.n > UNSPLIT_ABOVE_COLUMNS) * (work.n <= UNSPLIT_COLUMNS)
    narrow = work.n <= UNSPLIT_NARROW_COLUMNS
    most = UNSPLIT_ROWS + (UNSPLIT_NARROW_ROWS - UNSPLIT_ROWS) * narrow
    rows = (work.batch <= 1) * (work.m <= most)  # measured without a batch
    return (timing.unsplit == 2) * rows * columns * (work.k <= UNSPLIT_ROWS_K)


def _best_tile(work: GemmWork, split: Number, k_per_part: Number, chip: Chip, timing: GemmTiming) -> Number:
    """Seconds of the SM with the most work, for the best tile.

    Tiles whose lower bound exceeds the best time so far are skipped.
    """

    def least(tile: tuple[int, int], k_per_part: Number, whole: Number, *fields: Number) -> Number:
        return _least_sm_seconds(GemmWork(*fields), tile, split, k_per_part, whole, chip, timing)

    def by_tile(tile: tuple[int, int], best: Number, k_per_part: Number, whole: Number, *fields: Number) -> Number:
        stages = _stage_seconds(GemmWork(*fields), tile, split, k_per_part, whole, chip, timing)
        return minimum(best, _sm_seconds(*stages))

    whole = _whole_wide_tiles(work, timing)
    best = _sm_seconds(*_stage_seconds(work, TILES[0], split, k_per_part, whole, chip, timing))
    for tile in (*TILES[1:], *INTERMEDIATE_TILES):
        best = lowered(best, partial(least, tile), partial(by_tile, tile), k_per_part, whole, *work)
    return best


def _least_sm_seconds(
    work: GemmWork, tile: tuple[int, int], split: Number, k_per_part: Number, whole: Number, chip: Chip,
    timing: GemmTiming,
) -> Number:  # fmt: skip
    """Lower bound for a tile shape: every tile and every wave is full."""
    rows, columns = tile
    multiply = 2 / (chip.peak * timing.pipe)
    load = (work.a / columns + work.b / rows) / (timing.l2 * chip.port)
    step = timing.step / (rows * columns * _resident_tiles(tile) * chip.multiprocessors)
    element = k_per_part * maximum(maximum(multiply, load), step) + work.c / (timing.store * chip.port)
    return ROUNDING_MARGIN * split * element * work.batch * work.n * work.m * _tile_exclusion(work, tile, whole, timing)


def _tile_exclusion(work: GemmWork, tile: tuple[Number, Number], whole: Number, timing: GemmTiming) -> Number:
    """A large factor on the time of tiles that the library does not use, else 1. `whole` is `_whole_wide_tiles`."""
    rows, columns = tile
    too_short = (rows < timing.tall) * (rows < work.m)
    intermediate = (rows > 64) * (rows % 128 > 0) * (1 - timing.intermediate)
    narrow = (columns < 128) * whole
    return 1 + EXCLUSION_FACTOR * (too_short + intermediate + narrow)


def _dots_seconds(work: GemmWork, chip: Chip, timing: GemmTiming, stream: Number) -> Number:
    """Seconds of the dot-product kernel for few rows: limited by its columns or by K."""
    columns = part("multiply", timing.column * (work.batch * work.n / chip.multiprocessors), "s")
    sm_seconds = part("sm_time", maximum(columns, part("step", timing.dot * work.k, "s")), "s")
    return timing.latency + overlap(sm_seconds, stream, OVERLAP)


def _least_seconds(work: GemmWork, split: int, chip: Chip, timing: GemmTiming, stream: Number) -> Number:
    """Lower bound for K in `split` parts: work and stores divided evenly, no padding at the edges."""
    area = 2 * work.batch * work.n * work.m
    multiply = area * (work.k / (chip.peak * timing.pipe)) * _sustained_slowdown(work, chip, timing)
    sm_seconds = multiply + area * (work.c / (timing.store * chip.port))
    fixed = timing.latency + _add_parts(work, split, chip, timing)
    return ROUNDING_MARGIN * (fixed + overlap(sm_seconds, stream, OVERLAP))


def _k_per_part(work: GemmWork, split: Number, chip: Chip, timing: GemmTiming) -> tuple[Number, Number]:
    """Elements of K per part, and the fixed seconds of the kernel."""
    k_per_part = part("k_per_part", K_SLICE * ceil_div(ceil_div(work.k, split), K_SLICE))
    partial_sums: Number = 0.0
    if _holds_somewhere(split > 1):
        least, partial_sums = MIN_K_PER_PART, _add_parts(work, split, chip, timing)
        if is_array(split):
            least, partial_sums = least * (split > 1), partial_sums * (split > 1)
        k_per_part = maximum(k_per_part, least)
    tiles = work.batch * ceil_div(work.m, 128) * ceil_div(work.n, 128)
    extra_latency = part("extra_latency", timing.late * (tiles / (tiles + LATE_TILES)), "s")
    start = (
        timing.latency
        + extra_latency
        + timing.fill * k_per_part / (k_per_part + FILL_HALF_K)
        + timing.convert * k_per_part
    )
    return k_per_part, part("fixed", start + partial_sums, "s")


def _sustained_slowdown(work: GemmWork, chip: Chip, timing: GemmTiming) -> Number:
    """Slowdown of the multiplication in long GEMMs, as a factor."""
    at_peak = part("seconds_at_peak", 2 * work.batch * work.n * work.m * work.k / chip.peak, "s")
    return part("slowdown", 1 + timing.sustained * at_peak / (at_peak + SUSTAINED_HALF_SECONDS))


def _add_parts(work: GemmWork, split: Number, chip: Chip, timing: GemmTiming) -> Number:
    """Seconds to add the partial sums of `split` parts."""
    sums = 4 * (split + 1) * work.batch * work.n * work.m
    return timing.split + timing.part * split + sums / (PARTIAL_SUM_BANDWIDTH * chip.port)


def _holds_somewhere(condition: Any) -> bool:
    """Whether a condition holds; for an array of conditions, True."""
    return is_array(condition) or bool(condition)


def _resident_tiles(tile: tuple[Number, Number]) -> Number:
    """How many tiles fit in the memory of an SM at once."""
    return minimum(maximum(2 * 128 * 128 // (tile[0] * tile[1]), 1), 6)


def _sm_seconds(multiply: Number, load: Number, step: Number, store: Number) -> Number:
    """Seconds of the SM with the most work."""
    return part("sm_time", maximum(maximum(multiply, load), step) + store, "s")


def _stage_seconds(
    work: GemmWork, tile: tuple[Number, Number], split: Number, k_per_part: Number, whole: Number, chip: Chip,
    timing: GemmTiming,
) -> tuple[Number, Number, Number, Number]:  # fmt: skip
    """Seconds in which the SM with the most work multiplies, loads, steps along K, and stores.

    Plain numbers are multiplied first, because operations on arrays are slower.
    """
    rows, columns = part("tile_rows", tile[0]), part("tile_columns", tile[1])
    tiles = work.batch * ceil_div(work.n, columns) * split * ceil_div(work.m, rows)
    tiles = part("tiles", tiles)
    waves = ceil_div(tiles, chip.multiprocessors)
    waves = part("waves", waves + timing.balanced * (maximum(tiles / chip.multiprocessors, 1) - waves))
    multiply = waves * (k_per_part * (2 * rows * columns / (chip.peak / chip.multiprocessors * timing.pipe)))
    multiply = multiply * _sustained_slowdown(work, chip, timing)
    multiply = part("multiply", multiply * _tile_exclusion(work, tile, whole, timing), "s")
    used_rows, used_columns = minimum(rows, work.m), minimum(columns, work.n)
    loaded = (used_rows * work.a + used_columns * work.b) * minimum(tiles, chip.multiprocessors)
    load = part("load", waves * loaded * (k_per_part / (timing.l2 * chip.port)), "s")
    tiles_per_sm = part("tiles_per_sm", _resident_tiles(tile))
    step = ceil_div(tiles, chip.multiprocessors * tiles_per_sm) * (k_per_part * timing.step)
    own_port = whole * (k_per_part * (used_columns * work.b * (chip.multiprocessors / chip.port)))
    step = part("step", maximum(step, own_port), "s")
    share = used_columns * work.c / (timing.store * chip.port / chip.multiprocessors)
    return multiply, load, step, part("store", waves * used_rows * share, "s")
