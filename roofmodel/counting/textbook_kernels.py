"""Textbook kernels for roofline lectures: matrix multiplication, vector updates (STREAM), stencil, SpMV, FFT, N-body.

Each has a single size n: n x n matrices, vectors of n elements, a grid of n x n x n points, n bodies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.tensors import Widths
from roofmodel.numbers.algebra import Number, log2


class TextbookKernel(NamedTuple):
    """A kernel: operator line, vector FLOPs per element of its first input, and the number of its reads.

    `total_flops` are the vector FLOPs for size n, where they are not proportional to the elements.
    """

    about: str
    line: str
    kind: str = "elementwise"
    flops: int = 0
    passes: int = 1
    total_flops: Callable[[Number], Number] | None = None


KERNELS: dict[str, TextbookKernel] = {
    "matmul": TextbookKernel("C = A B: A and B are read, C is written", "a[M K] b[K N] -> c[M N]", kind="gemm"),
    "matmul-accumulate": TextbookKernel(
        "C = A B + C: A, B and C are read, C is written", "a[M K] b[K N] + c[M N] -> c[M N]", kind="gemm"
    ),
    # one multiplication and one addition per element
    "saxpy": TextbookKernel("y = a x + y", "x[E] y[E] -> y[E]", flops=2),
    "triad": TextbookKernel("a = b + s c", "b[E] c[E] -> a[E]", flops=2),
    # one multiplication, and additions of 6 neighbors without coefficients: 7 FLOPs, as in the lectures
    "stencil7": TextbookKernel(
        "each point and its 6 neighbors, with a cache: one read per point", "u[X Y Z] -> v[X Y Z]", flops=7
    ),
    "stencil7-uncached": TextbookKernel(
        "each point and its 6 neighbors, without a cache: 7 reads per point",
        "u[X Y Z] -> v[X Y Z]",
        flops=7,
        passes=7,
    ),
    # one multiplication and one addition per nonzero; CSR has a value and a column per nonzero, and n + 1 row offsets
    "spmv": TextbookKernel(
        "y = A x, A sparse in CSR with 27 nonzeros per row; x is read once",
        "a[E nz] index.column[E nz] index.row[E1] x[E] => y[E]",
        flops=2,
    ),
    # the count by which FFTs are rated (Frigo and Johnson, Proc. IEEE 93(2), 2005); a cache that holds all n points
    "fft": TextbookKernel(
        "FFT of n complex points: 5 n log2(n) FLOPs; each point is read once and written once",
        "x[E ri] -> y[E ri]",
        total_flops=lambda n: 5 * n * log2(n),
    ),
    # Nyland, Harris and Prins, GPU Gems 3, chapter 31
    "nbody": TextbookKernel(
        "forces between all pairs of n bodies, 20 FLOPs a pair; each body is read once, its acceleration written",
        "body[E xyzm] -> acceleration[E xyz]",
        total_flops=lambda n: 20 * n**2,
    ),
}
NONZEROS_PER_ROW = 27
"""Of the matrix of HPCG, a 27-point stencil (Dongarra, Heroux and Luszczek, IJHPCA 30(1), 2016)."""


def operator(name: str, size: Number, widths: Widths) -> Operator:
    """The operator of a kernel of KERNELS, for size n = `size`."""
    kernel = KERNELS[name]
    sizes = dict.fromkeys(("M", "N", "K", "E", "X", "Y", "Z"), size)
    sizes |= {"nz": NONZEROS_PER_ROW, "E1": size + 1, "ri": 2, "xyzm": 4, "xyz": 3}
    once = Builder(sizes, widths).operator(name, "kernel", kernel.line, kind=kernel.kind, flops=kernel.flops)
    if kernel.total_flops:
        return replace(once, vector_flops=kernel.total_flops(size))
    first = once.reads[0]
    return replace(once, touched={first.name: kernel.passes * first.elements(sizes)}) if kernel.passes > 1 else once
