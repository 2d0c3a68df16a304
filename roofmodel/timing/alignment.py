"""What a GEMM on tensor cores loses where the rows of its matrices are not multiples of 16 bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import Format
from roofmodel.numbers.algebra import Number, ceil_div, either

if TYPE_CHECKING:
    from roofmodel.devices.parts import Unaligned
    from roofmodel.timing.gemm import GemmWork

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
