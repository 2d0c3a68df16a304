"""A measured kernel, as every reader gives it, and the profile that a run of a tool amounts to.

One normalised form, whatever the tool: base units (seconds, FLOP, bytes, hertz), None for what was not
collected, 0 for what was collected and is zero. Readers fill it and never guess; what they could not
know, or would not add up, they say in `warnings`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Extent = tuple[int, int, int]  # of a grid or a block: (x, y, z)


def extent(sizes: Iterable[int | None]) -> Extent | None:
    """Three sizes as one; None where one is missing, or where there are not three."""
    found = tuple(size for size in sizes if size is not None)
    return found if len(found) == 3 else None


def unlisted(copies: int) -> list[str]:
    """What a reader says of the copies and sets of memory that it passed over."""
    many = "1 memory copy or set is" if copies == 1 else f"{copies} memory copies and sets are"
    return [f"{many} not listed among the kernels"] if copies else []


class Flops(NamedTuple):
    """Floating-point operations of a kernel by pipe; a multiply-add is 2.

    `fp16` counts a packed half-precision instruction as two lanes, `fp16_legacy` as one: bounds where
    nobody knows which it was. `tensor_low` and `tensor_high` are bounds where only tensor instructions
    were counted and their shape is not known.
    """

    fp64: float | None = None
    fp32: float | None = None
    fp16: float | None = None
    fp16_legacy: float | None = None
    tensor_fp16: float | None = None
    tensor_bf16: float | None = None
    tensor_tf32: float | None = None
    tensor_fp8: float | None = None
    tensor_int8: float | None = None
    tensor_fp64: float | None = None
    tensor_low: float | None = None
    tensor_high: float | None = None


class Traffic(NamedTuple):
    """Bytes moved at each level: DRAM, L2 (requests of all clients), L1."""

    dram: float | None = None
    l2: float | None = None
    l1: float | None = None


OF_AMD = "of AMD's GPUs, traces of the PyTorch profiler can be read"
NO_FLOPS, NO_TRAFFIC = Flops(), Traffic()


class Call(NamedTuple):
    """The framework's operator that launched a kernel; kernels of one call share its `id`."""

    id: int
    name: str  # aten::addmm
    shapes: tuple[tuple[int, ...], ...] = ()  # of its arguments; empty for what is no tensor


@dataclass(frozen=True)
class Kernel:
    """One launch, or, in a summary, all launches of one name (`invocations` says how many).

    `seconds`, `flops` and `bytes` are totals over the invocations. `nvtx` holds the enclosing ranges,
    outermost first, `call` the operator of the framework that launched it.
    """

    id: str
    file: str
    name: str
    process: str | None = None
    device: str | None = None
    stream: str | None = None
    grid: Extent | None = None
    block: Extent | None = None
    nvtx: tuple[str, ...] = ()
    call: Call | None = None
    invocations: int = 1
    seconds: float | None = None
    start: float | None = None  # seconds from the start of the trace
    occupancy: float | None = None  # achieved, as a fraction of the maximum
    registers: int | None = None  # per thread
    clock: float | None = None  # hertz at which the multiprocessors ran while it was measured
    flops: Flops = NO_FLOPS
    bytes: Traffic = NO_TRAFFIC


def without_copies(listed: Iterable[Kernel]) -> tuple[list[Kernel], int]:
    """The kernels among what nvprof and Nsight Systems list, and how many copies and sets stand beside them."""
    work = list(listed)
    kernels = [kernel for kernel in work if "[CUDA mem" not in kernel.name]
    return kernels, sum(kernel.invocations for kernel in work) - sum(kernel.invocations for kernel in kernels)


class Columns(Sequence[Kernel]):
    """Very many kernels, each of which is made when it is looked at, and which add themselves up."""

    def summed(self) -> tuple[Kernel, ...]:
        """A kernel for each name and range: the sums over its launches, None where one lacks a figure.

        Occupancy is weighted by time, registers and clock are the most of any. Launches without a time are apart.
        """
        raise NotImplementedError

    def longest(self, most: int) -> list[Kernel]:
        """The kernels that took most time, at most so many, longest first; those of one time in order."""
        raise NotImplementedError


@dataclass(frozen=True)
class Evidence:
    """What a file says of the device it was taken on; None where it says nothing."""

    name: str | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    l2_bytes: int | None = None
    dram_bandwidth: float | None = None  # bytes per second
    dram_bytes: int | None = None
    clock: float | None = None  # boost clock, hertz
    file: str | None = field(default=None, compare=False)  # which says so; others may say the same


@dataclass(frozen=True)
class Profile:
    """What one or several files of one tool hold."""

    tool: str  # "ncu", "nvprof", "nsys" or "torch"
    files: tuple[str, ...]
    kernels: Sequence[Kernel]
    evidence: tuple[Evidence, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    def summed(self) -> Sequence[Kernel]:
        """Few kernels that stand for all, wherever those of one name are added up."""
        return self.kernels.summed() if isinstance(self.kernels, Columns) else self.kernels

    def longest(self, most: int) -> list[Kernel]:
        """The kernels that took most time, at most so many, longest first; those of one time in order."""
        if isinstance(self.kernels, Columns):
            return self.kernels.longest(most)
        return heapq.nlargest(most, self.kernels, key=lambda kernel: kernel.seconds or 0)
