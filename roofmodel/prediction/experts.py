"""How long a mixture's experts take: products of matrices with few rows each, whose weights are read once.

A fused mixture sorts the tokens by expert, multiplies, activates, multiplies again and sums:

    latency + experts that have a row x expert + products + bytes of tokens and rows / (DRAM x rows)

    product   join(waves x max(multiply, load), weights of those experts / (DRAM x dram)), with the best of a few tiles
    multiply  a tile's FLOPs / (multiprocessor's peak x pipe)
    load      a tile's rows of A and columns of B, of all multiprocessors at once, over (ports x l2)
    join      (a^1.6 + b^1.6)^(1/1.6)

Rows are spread unevenly. Where an expert has r of them on average, and their number is distributed exponentially, it
has 1 / (1 - exp(-height / r)) tiles of that height on average: one where rows are few, r / height + 1/2 where many.

Where experts are spread over GPUs, kernels differ in what they do with the pairs of a token and an expert that is
elsewhere: `elsewhere`. The parameters are `ExpertsTiming`, fitted by `roof calibrate` to fused mixtures. The same code
takes ints and arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from roofmodel.algebra import Number, ceil_div, expm1, formula, maximum, minimum, part
from roofmodel.devices.calibration import ExpertsTiming
from roofmodel.prediction.chip import Chip

TILES = ((16, 128), (32, 128), (64, 128), (128, 128), (128, 256))
SLICE = 64  # elements of K that a tile's loop takes at a time
OVERLAP = 1.6  # power by which what overlaps is joined


class GroupedGemmWork(NamedTuple):
    """C[rows, n] = A[rows, k] B[k, n], where each of `experts` has a B of its own and some of the rows."""

    experts: Number  # that have a row
    rows: Number  # of all of them together
    n: Number  # columns of each B
    k: Number  # elements that are summed over
    a: float = 2.0  # bytes of an element of A as it is multiplied
    b: float = 2.0  # bytes of an element of B


class MoeWork(NamedTuple):
    """One GPU's part of a fused mixture."""

    products: Sequence[GroupedGemmWork]
    tokens: Number
    pairs: Number  # of a token and an expert on any GPU
    token_bytes: Number  # that move for the tokens, in and out
    row_bytes: Number  # that move between the kernels, for the rows of this GPU's experts


def seconds(mixture: MoeWork, chip: Chip, timing: ExpertsTiming) -> Number:
    """Seconds of the fused mixture; elementwise for arrays."""
    first = mixture.products[0]
    rows, pairs, idle = first.rows, mixture.pairs, 0
    moved = rows if timing.elsewhere == 0 else pairs
    if timing.elsewhere == 2:
        active = pairs / mixture.tokens
        reaching = mixture.tokens * (1 - (1 - rows / pairs) ** active)  # tokens with an expert here
        moved = maximum(reaching * active, rows)
        idle = moved - rows
    data = mixture.token_bytes + mixture.row_bytes * (moved / rows)
    products = sum(product_seconds(product, chip, timing, idle) for product in mixture.products)
    return timing.latency + first.experts * timing.expert + products + data / (timing.rows * chip.bandwidth)


@formula
def apart_seconds(product: GroupedGemmWork, moved: Number, chip: Chip, timing: ExpertsTiming) -> Number:
    """Seconds of one of the two products as a kernel of its own that moves so many bytes beside the weights: half of
    what is fixed is its."""
    fixed = part("fixed", (timing.latency + product.experts * timing.expert) / 2, "s")
    return fixed + product_seconds(product, chip, timing) + moved / (timing.rows * chip.bandwidth)


def product_seconds(product: GroupedGemmWork, chip: Chip, timing: ExpertsTiming, idle: Number = 0) -> Number:
    """Seconds of a product without what is fixed; `idle` rows more are multiplied for nothing."""
    stream = part("stream", product.experts * product.n * product.k * product.b / (timing.dram * chip.bandwidth), "s")
    depth = part("depth", SLICE * ceil_div(product.k, SLICE))
    each = part("each", product.rows / product.experts)
    best: Number = float("inf")
    for tile in TILES:
        height, width = part("height", tile[0]), part("width", tile[1])
        high = product.experts / -expm1(-height / each) + idle / height
        tiles = part("tiles", high * ceil_div(product.n, width))
        waves = part("waves", maximum(tiles / chip.multiprocessors + 0.5, 1))
        multiply = part("multiply", 2 * height * width / (chip.peak / chip.multiprocessors * timing.pipe), "s")
        loaded = part("loaded", minimum(height, maximum(each, 1)) * product.a + width * product.b, "B")
        load = part("load", loaded * minimum(tiles, chip.multiprocessors) / (timing.l2 * chip.port), "s")
        busy = part("busy", waves * depth * maximum(multiply, load), "s")
        best = minimum(best, (busy**OVERLAP + stream**OVERLAP) ** (1 / OVERLAP))
    return best
