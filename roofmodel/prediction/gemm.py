"""How long a matrix product takes: tiles in waves over the multiprocessors.

A kernel cuts C[m, n] into tiles, and K into `split` parts where tiles are few; each multiprocessor takes a tile at a
time. The library is assumed to choose well: the time is that of the best of a few tile shapes and splits,

    latency + late + fill + join(max(multiply, load, step) + store, stream) + split

  late      for more than 16 rows where there is little to multiply, for which libraries have slower kernels
  multiply  waves x tile's FLOPs / (multiprocessor's peak x pipe), longer by `sustained` where all of it lasts
  load      waves x a tile's rows of A and columns of B, of all multiprocessors at once, over (ports x l2)
  step      waves x K x what the loop over K takes at least
  store     waves x tile of C over (the multiprocessor's port x store); the next tile waits for it
  stream    compulsory bytes over the DRAM bandwidth, plus the ramp
  split     a fixed time, one for each part, and all partial sums over L2
  join      (a^3.5 + b^3.5)^(1/3.5): the two overlap, but not perfectly

and never less than `host`, where a kernel was not captured in a graph. Some libraries have tall tiles only, so that no
tile is shorter than the product or `tall` rows, or split K into few `parts` or not at all. Where weights are narrower
than the product, each element of a part's K takes `convert` more. Where A is quantized on the way in, a kernel before
reads and writes it, longer by `spill` where L2 does not hold it, or takes `row` for each of a multiprocessor's rows.

For products of a `few` rows a library may have a kernel beside, of dot products on the CUDA cores, whose threads share
K; the quicker one is taken:

    latency + join(max(column x columns of a multiprocessor, dot x K), stream)

The form follows the wave quantisation that NVIDIA's "Matrix Multiplication Background User's Guide" describes; the
parameters are `GemmTiming`, fitted by `roof calibrate`. The same code takes ints and arrays.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from roofmodel.algebra import Number, ceil_div, either, formula, lowered, maximum, minimum, part
from roofmodel.devices.calibration import GemmTiming
from roofmodel.prediction.chip import Chip

TILES = (
    (256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64),
    (128, 32), (32, 128), (64, 32), (32, 64), (16, 128), (16, 64),
)  # fmt: skip
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
SLICE = 32  # elements of K that a tile's loop takes at a time
LEAST = 64  # elements of K below which splitting makes no sense
FILLED = 64  # elements of K over which the pipeline of loads fills
THIN = 16  # rows up to which libraries have kernels of their own
LITTLE = 2.5e6  # multiplications below which more rows than these take a kernel that starts later
LASTING = 1.2e-3  # seconds of multiplying at the peak, after which half of what sustained work loses is lost
LONG = 512e6  # bytes after which half of the ramp is lost
PARTIAL = 0.31  # of the ports, at which partial sums, which L2 mostly holds, are joined
HELD = 0.7  # of L2, that holds what is quantized from one kernel to the next
OVERLAP = 3.5  # power by which what overlaps is joined
ROUNDED = 1 - 1e-9  # of a least time, since it is rounded elsewhere than the time itself
NEVER = 1e3  # times longer, so that a tile that a library does not have is not the best


class GemmWork(NamedTuple):
    """`batch` products C[m, n] = A[m, k] B[k, n]."""

    batch: Number  # products
    m: Number  # rows of A
    n: Number  # columns of B
    k: Number  # elements that are summed over
    bytes: Number  # that must move
    a: float = 2.0  # bytes of an element of A
    b: float = 2.0  # bytes of an element of B
    c: float = 2.0  # bytes of an element of C
    quantized: Number = 0  # bytes that a kernel before moves, to bring A to the format of the product; 0: there is none


@formula
def seconds(product: GemmWork, chip: Chip, timing: GemmTiming) -> Number:
    """The time of the best tile and split, in seconds; elementwise for arrays.

    Splits and tiles are tried where what was found so far is slower than the least that they can take.
    """
    streamed = _stream(product, chip, timing) ** OVERLAP

    def least(split: int, streamed: Number, *fields: Number) -> Number:
        return _least_seconds(GemmWork(*fields), split, chip, timing, streamed)

    def by_split(split: int, best: Number, streamed: Number, *fields: Number) -> Number:
        return minimum(best, _split_seconds(GemmWork(*fields), split, chip, timing, streamed))

    def by_splits(best: Number, streamed: Number, *fields: Number) -> Number:
        best = by_split(SPLITS[1], best, streamed, *fields)
        for split in SPLITS[2:]:
            best = lowered(best, partial(least, split), partial(by_split, split), streamed, *fields)
        return best

    def least_dots(_: Number, *fields: Number) -> Number:
        return either(GemmWork(*fields).m > timing.few, float("inf"), 0.0)

    def by_dots(best: Number, streamed: Number, *fields: Number) -> Number:
        asked = GemmWork(*fields)
        return either(asked.m > timing.few, best, minimum(best, _dots_seconds(asked, chip, timing, streamed)))

    best = _split_seconds(product, SPLITS[0], chip, timing, streamed)
    best = lowered(best, partial(least, SPLITS[1]), by_splits, streamed, *product)  # more parts take no less
    best = lowered(best, least_dots, by_dots, streamed, *product)
    return maximum(best + _quantise(product, chip, timing), timing.host)


def _quantise(product: GemmWork, chip: Chip, timing: GemmTiming) -> Number:
    """Of the kernel before that brings A to its format; 0 where there is none."""
    rows = product.batch * product.m * (product.quantized > 0) / chip.multiprocessors
    longer = part("longer", 1 + timing.spill * (product.quantized > HELD * chip.l2))
    moved = product.quantized / (timing.dram * chip.bandwidth) * longer
    return part("quantise", maximum(moved, rows * timing.row), "s")


def _stream(product: GemmWork, chip: Chip, timing: GemmTiming) -> Number:
    ramp = timing.ramp * product.bytes / (product.bytes + LONG)
    return part("stream", product.bytes / (timing.dram * chip.bandwidth) + ramp, "s")


def _split_seconds(product: GemmWork, split: int, chip: Chip, timing: GemmTiming, streamed: Number) -> Number:
    """The time of the best tile with K in so many parts; `streamed` is the stream's, to the power of OVERLAP."""
    split = part("parts", split)
    depth, fixed = _cut(product, split, chip, timing)
    busy = _best_tile(product, split, depth, chip, timing)
    seconds = fixed + (busy**OVERLAP + streamed) ** (1 / OVERLAP)
    return seconds * (1 + NEVER * (split > timing.parts))


def _best_tile(product: GemmWork, split: Number, depth: Number, chip: Chip, timing: GemmTiming) -> Number:
    """How long the busiest multiprocessor works, by the best tile; the others are tried where they may be better."""

    def least(tile: tuple[int, int], depth: Number, *fields: Number) -> Number:
        return _least_busy(GemmWork(*fields), tile, split, depth, chip, timing)

    def by_tile(tile: tuple[int, int], best: Number, depth: Number, *fields: Number) -> Number:
        return minimum(best, _busy(*_parts(GemmWork(*fields), tile, split, depth, chip, timing)))

    best = _busy(*_parts(product, TILES[0], split, depth, chip, timing))
    for tile in TILES[1:]:
        best = lowered(best, partial(least, tile), partial(by_tile, tile), depth, *product)
    return best


def _least_busy(
    product: GemmWork, tile: tuple[int, int], split: Number, depth: Number, chip: Chip, timing: GemmTiming
) -> Number:
    """What no tile of this shape can beat: every tile full, and every wave."""
    rows, columns = tile
    multiply = 2 / (chip.peak * timing.pipe)
    load = (product.a / columns + product.b / rows) / (timing.l2 * chip.port)
    step = timing.step / (rows * columns * _at_once(tile) * chip.multiprocessors)
    element = depth * maximum(maximum(multiply, load), step) + product.c / (timing.store * chip.port)
    return ROUNDED * split * element * product.batch * product.n * product.m


def _dots_seconds(product: GemmWork, chip: Chip, timing: GemmTiming, streamed: Number) -> Number:
    """The time of dot products of a few rows, by their columns or by K."""
    columns = part("multiply", timing.column * (product.batch * product.n / chip.multiprocessors), "s")
    busy = part("busy", maximum(columns, part("step", timing.dot * product.k, "s")), "s")
    return timing.latency + (busy**OVERLAP + streamed) ** (1 / OVERLAP)


def _least_seconds(product: GemmWork, split: int, chip: Chip, timing: GemmTiming, streamed: Number) -> Number:
    """What no tile can beat, with K in so many parts: work and stores shared evenly, and no edge for nothing."""
    area = 2 * product.batch * product.n * product.m
    multiply = area * (product.k / (chip.peak * timing.pipe)) * _slower(product, chip, timing)
    busy = multiply + area * (product.c / (timing.store * chip.port))
    begun = timing.latency + _join(product, split, chip, timing)
    return ROUNDED * (begun + (busy**OVERLAP + streamed) ** (1 / OVERLAP))


def _cut(product: GemmWork, split: int, chip: Chip, timing: GemmTiming) -> tuple[Number, Number]:
    """The elements of K that are left to a part, and the seconds that no part escapes."""
    depth = part("depth", SLICE * ceil_div(ceil_div(product.k, split), SLICE))
    join: Number = 0.0
    if split > 1:
        depth, join = maximum(depth, LEAST), _join(product, split, chip, timing)
    little = product.batch * product.m * product.n * product.k < LITTLE
    late = part("late", timing.late * (product.m > THIN) * little, "s")
    begun = timing.latency + late + timing.fill * depth / (depth + FILLED) + timing.convert * depth
    return depth, part("fixed", begun + join, "s")


def _slower(product: GemmWork, chip: Chip, timing: GemmTiming) -> Number:
    """How many times longer it takes to multiply, where that lasts."""
    lasts = part("lasts", 2 * product.batch * product.n * product.m * product.k / chip.peak, "s")
    return part("slower", 1 + timing.sustained * lasts / (lasts + LASTING))


def _join(product: GemmWork, split: int, chip: Chip, timing: GemmTiming) -> Number:
    """What it takes to add up so many parts."""
    sums = 4 * (split + 1) * product.batch * product.n * product.m
    return timing.split + timing.part * split + sums / (PARTIAL * chip.port)


def _at_once(tile: tuple[int, int]) -> int:
    """How many tiles a multiprocessor's memory holds."""
    return min(max(2 * 128 * 128 // (tile[0] * tile[1]), 1), 6)


def _busy(multiply: Number, load: Number, step: Number, store: Number) -> Number:
    """How long the busiest multiprocessor works."""
    return part("busy", maximum(maximum(multiply, load), step) + store, "s")


def _parts(
    product: GemmWork, tile: tuple[int, int], split: int, depth: Number, chip: Chip, timing: GemmTiming
) -> tuple[Number, Number, Number, Number]:
    """How long the busiest multiprocessor multiplies, loads, steps along K, and stores.

    Plain numbers are multiplied first: arrays take longer.
    """
    rows, columns = part("rows", tile[0]), part("columns", tile[1])
    tiles = product.batch * ceil_div(product.n, columns) * split * ceil_div(product.m, rows)
    tiles = part("tiles", tiles)
    waves = part("waves", ceil_div(tiles, chip.multiprocessors))
    multiply = waves * (depth * (2 * rows * columns / (chip.peak / chip.multiprocessors * timing.pipe)))
    multiply = multiply * _slower(product, chip, timing)
    if rows < timing.tall:
        multiply = multiply * (1 + NEVER * (rows < minimum(product.m, timing.tall)))
    multiply = part("multiply", multiply, "s")
    used_rows, used_columns = minimum(rows, product.m), minimum(columns, product.n)
    loaded = (used_rows * product.a + used_columns * product.b) * minimum(tiles, chip.multiprocessors)
    load = part("load", waves * loaded * (depth / (timing.l2 * chip.port)), "s")
    step = part("step", ceil_div(tiles, chip.multiprocessors * _at_once(tile)) * (depth * timing.step), "s")
    share = used_columns * product.c / (timing.store * chip.port / chip.multiprocessors)
    return multiply, load, step, part("store", waves * used_rows * share, "s")
