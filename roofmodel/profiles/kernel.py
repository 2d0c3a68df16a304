"""The common result of all profile readers: `Kernel` (one launch) and `Profile` (the kernels of a run).

Values are in base units (seconds, FLOP, bytes, hertz). None means not collected; 0 means collected and zero. Readers
never guess: `Profile.warnings` lists what is unknown or incomplete.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple


class ReaderWarning(str):
    """A warning of a reader: a text, and the category of what is unknown, approximate or unusual.

    "times" is about times, "counters" about FLOPs, bytes and other counts, "other" about anything else.
    """

    __slots__ = ("category",)

    category: Literal["times", "counters", "other"]

    def __new__(cls, text: str, category: Literal["times", "counters", "other"] = "other") -> ReaderWarning:
        warning = super().__new__(cls, text)
        warning.category = category
        return warning


Extent = tuple[int, int, int]  # grid or block size (x, y, z)


def extent(sizes: Iterable[int | None]) -> Extent | None:
    """Three sizes as (x, y, z); None unless there are exactly three and none is missing."""
    known_sizes = tuple(size for size in sizes if size is not None)
    return known_sizes if len(known_sizes) == 3 else None


_DIRECTIONS = {
    "peer-to-peer": "PtoP", "host-to-device": "HtoD", "device-to-host": "DtoH", "device-to-device": "DtoD",
    "htoa": "HtoD", "atoh": "DtoH",
}  # fmt: skip


class CopySize(NamedTuple):
    """What a memory copy or memset moves. `memory` is the kind of memory on the host's side of a copy."""

    bytes: int | None = None
    direction: str | None = None  # HtoD, DtoH, DtoD, PtoP; None for a memset
    memory: str | None = None  # pageable, pinned, managed; device if both sides are on a GPU
    source: str | None = None  # device of a copy between GPUs
    destination: str | None = None


def copy_direction(name: str) -> str | None:
    """The direction in a name such as `[CUDA memcpy HtoD]` or `Memcpy DtoH (Device -> Pinned)`; None if unknown."""
    if match := re.search(
        r"mem(?:cpy|ory copy).*?\b(HtoD|DtoH|DtoD|PtoP|HtoH|Peer-to-Peer|Host-to-Device|Device-to-Host"
        r"|Device-to-Device|HtoA|AtoH)",
        name,
        re.I,
    ):
        return _DIRECTIONS.get(match[1].lower(), match[1])
    return None


def host_memory(source: str | None, destination: str | None) -> str | None:
    """The kind of memory on the host's side of a copy; `device` for copies within or between GPUs; None if unknown."""
    kinds = {each.lower() for each in (source, destination) if each}
    if kinds == {"device"}:
        return "device"
    return next((kind for kind in ("pageable", "pinned", "managed") if kind in kinds), None)


def copies_warning(copies: int) -> list[ReaderWarning]:
    """The warning about memory copies and memsets, which are not kernels; empty if there are none."""
    subject = "1 memory copy or memset is" if copies == 1 else f"{copies} memory copies and memsets are"
    return [ReaderWarning(f"{subject} not listed as kernels")] if copies else []


class Flops(NamedTuple):
    """Floating-point operations of a kernel by pipe; a multiply-add counts as 2.

    `fp16` counts a packed half-precision instruction as two lanes, `fp16_legacy` as one. `tensor_low` and
    `tensor_high` are bounds for profiles that count tensor instructions of unknown shape instead of operations.
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


AMD_ALTERNATIVE = (
    "for AMD GPUs, give the database or the CSV of rocprofv3 (rocprofv3 --kernel-trace) or a PyTorch trace"
)
AMD_COUNTERS = (
    "rocprofv3 --pmc FETCH_SIZE WRITE_SIZE, and --pmc SQ_INSTS_VALU_MFMA_MOPS_F16 SQ_INSTS_VALU_MFMA_MOPS_BF16 "
    "… in other passes, and give all files"
)
NO_FLOPS, NO_TRAFFIC = Flops(), Traffic()


Sizes = tuple[int, ...]


class RecordedInputs(NamedTuple):
    """The arguments of a framework operator, as PyTorch records them with `record_shapes=True`; one entry each.

    A shape is a tuple of sizes; a tuple of such tuples for a list of tensors; () for a scalar and for a tensor without
    dimensions. A type is a C++ name (`c10::BFloat16`), `TensorList`, `Scalar` or `ScalarList`. A value is the text of
    an argument that is no tensor (`[2, 2]`, `False`); PyTorch records values and strides since 2.1.
    """

    shapes: tuple[Sizes | tuple[Sizes, ...], ...] = ()
    types: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    strides: tuple[Sizes | tuple[Sizes, ...], ...] = ()


class Call(NamedTuple):
    """The framework operator that launched a kernel; kernels of the same call share its `id`."""

    id: int
    name: str  # aten::addmm
    shapes: tuple[Sizes, ...] = ()  # of the arguments; () for an argument that is not a tensor
    inputs: RecordedInputs | None = None  # None: not recorded
    parent: Call | None = None  # the operator that called this one; None: none, or unknown
    in_graph: bool = False  # it launched a CUDA graph: the kernel is one of the graph, not one of the operator


@dataclass(frozen=True)
class Kernel:
    """One launch or, in a summary, all `invocations` of a kernel name.

    `seconds`, `flops` and `bytes` are totals over the invocations. `nvtx` lists the enclosing ranges, outermost
    first; `call` is the framework operator that launched the kernel.
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
    launch: float | None = None  # start of the API call that launched it, in the same seconds
    occupancy: float | None = None  # achieved, as a fraction of the maximum warps
    registers: int | None = None  # per thread
    shared_bytes: int | None = None  # static and dynamic shared memory of a block
    clock: float | None = None  # SM clock in hertz during the measurement
    flops: Flops = NO_FLOPS
    bytes: Traffic = NO_TRAFFIC
    copy: CopySize | None = None  # of a memory copy or memset
    counters: Mapping[str, float] | None = field(default=None, repr=False, compare=False)
    """Metrics of Nsight Compute by name, for one launch in base units: what explains its time."""


def without_copies(activities: Iterable[Kernel]) -> tuple[list[Kernel], list[Kernel]]:
    """Separate kernels from the memory copies and memsets that nvprof and Nsight Systems list with them."""
    work = list(activities)
    copies = [activity for activity in work if "[CUDA mem" in activity.name]
    return [activity for activity in work if "[CUDA mem" not in activity.name], copies


class Limit(NamedTuple):
    """The largest possible value of a kernel's field, for one launch, and how a warning names the field."""

    maximum: float
    noun: str
    category: Literal["times", "counters"]


# Larger (and negative) values come from damaged or edited files. They would distort totals and pictures.
LIMITS = {
    "seconds": Limit(1e6, "a time", "times"),  # eleven days
    "clock": Limit(1e11, "a clock", "times"),  # hertz; fifty times the fastest GPU's
    "occupancy": Limit(1.05, "an occupancy", "counters"),  # separate passes and rounding may exceed 1 slightly
    "registers": Limit(1024, "a number of registers", "counters"),  # per thread; 255 on NVIDIA GPUs, 512 on AMD's
    "shared_bytes": Limit(2**20, "a size of shared memory", "counters"),  # of a block; 227 KiB on an H100
}
MAX_EXTENT = 2**31 - 1  # CUDA's largest grid


def without_impossible_values(kernels: Iterable[Kernel]) -> tuple[tuple[Kernel, ...], list[ReaderWarning]]:
    """The kernels with None in place of impossible values, and a warning for each field with such values."""
    checked_kernels, counts = [], dict.fromkeys(LIMITS, 0)
    for kernel in kernels:
        wrong: dict[str, None] = {}
        for name, limit in LIMITS.items():
            value = getattr(kernel, name)
            launches = kernel.invocations if name == "seconds" else 1
            if value is not None and not 0 <= value <= limit.maximum * launches:
                wrong[name] = None
                counts[name] += 1
        for name in ("grid", "block"):
            sizes = getattr(kernel, name)
            if sizes is not None and not all(1 <= size <= MAX_EXTENT for size in sizes):
                wrong[name] = None
        checked_kernels.append(replace(kernel, **wrong) if wrong else kernel)  # type: ignore[arg-type]
    return tuple(checked_kernels), impossible_value_warnings(counts)


def impossible_value_warnings(counts: Mapping[str, int]) -> list[ReaderWarning]:
    """A warning for each field with impossible values, from the numbers of such kernels."""
    return [
        ReaderWarning(
            f"{count} {'kernel has' if count == 1 else 'kernels have'} {LIMITS[name].noun} below zero or impossibly "
            "large: it is treated as unknown",
            LIMITS[name].category,
        )
        for name, count in counts.items()
        if count
    ]


class KernelColumns(Sequence[Kernel]):
    """A long sequence of kernels stored as columns: `Kernel` objects are created on access."""

    def summed(self) -> tuple[Kernel, ...]:
        """One kernel per name and NVTX range: sums over its launches, None if a launch lacks the value.

        Occupancy is averaged over time; registers and clock are maxima. Launches without a time are summed separately.
        """
        raise NotImplementedError

    def longest(self, limit: int) -> list[Kernel]:
        """At most `limit` kernels with the longest times, longest first; equal times keep their order."""
        raise NotImplementedError


@dataclass(frozen=True)
class Evidence:
    """Device attributes that a profile records; None if it does not record them."""

    name: str | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    l2_bytes: int | None = None
    dram_bandwidth: float | None = None  # bytes per second
    dram_bytes: int | None = None
    clock: float | None = None  # boost clock, hertz
    file: str | None = field(default=None, compare=False)  # the file that records it; other files may record the same
    amd: bool = field(default=False, compare=False)  # a GPU of AMD, whatever its name


@dataclass(frozen=True)
class Profile:
    """The content of one or several files of one tool."""

    tool: str  # "ncu", "nvprof", "nsys", "rocprof" or "torch"
    files: tuple[str, ...]
    kernels: Sequence[Kernel]
    evidence: tuple[Evidence, ...] = ()
    warnings: tuple[ReaderWarning, ...] = field(default=())
    copies: tuple[Kernel, ...] = field(default=(), repr=False)  # memory copies and memsets

    def summed(self) -> Sequence[Kernel]:
        """The kernels summed by name and NVTX range if there are very many (`KernelColumns`), else all kernels."""
        return self.kernels.summed() if isinstance(self.kernels, KernelColumns) else self.kernels

    def longest(self, limit: int) -> list[Kernel]:
        """At most `limit` kernels with the longest times, longest first; equal times keep their order."""
        if isinstance(self.kernels, KernelColumns):
            return self.kernels.longest(limit)
        return heapq.nlargest(limit, self.kernels, key=lambda kernel: kernel.seconds or 0)
