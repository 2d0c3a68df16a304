"""The common result of all profile readers: a `Profile` with its `KernelTable`, of which a `Kernel` is a row.

Values are in base units (seconds, FLOP, bytes, hertz). None means not collected; 0 means collected and zero. Readers
never guess: `Profile.warnings` lists what is unknown or incomplete.
"""

from __future__ import annotations

import heapq
import re
from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from math import nan
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar, overload

from roofmodel.profiles.columns import MANY, UNKNOWN, ColumnTable, Kind

KERNEL, COPY, MEMSET = "kernel", "copy", "memset"
STALLED_WARPS = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
"""The counter of the warps that wait for something, per issued instruction, also in files of other tools."""


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


def activity_kind(name: str) -> str:
    """Whether a name that nvprof or Nsight Systems lists with kernels is of a kernel, a copy or a memset."""
    return KERNEL if "[CUDA mem" not in name else MEMSET if "memset" in name else COPY


def times(start: float | None, seconds: float | None) -> dict[str, int | float | None]:
    """The cells of times that a table states in seconds, to nanoseconds."""
    if start is None or seconds is None:
        return {"seconds": seconds}
    begin = round(start * 1e9)
    return {"seconds": seconds, "start": begin, "end": begin + round(seconds * 1e9)}


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


class ToolRule(NamedTuple):
    """What a rule of the profiler itself says of a launch."""

    reason: str  # a name in `roofline.reasons.REASONS`
    evidence: str
    saves: float | None  # the share of the time that following it saves, as the tool estimates; None: not stated


class SourceLine(NamedTuple):
    """A line of source, or an instruction where the file has no line, and its share of a launch."""

    place: str  # gemm.cu:42; without the folder, which may name a person
    share: float
    measure: str  # of what it is a share


class Limit(NamedTuple):
    """The largest possible value of a column, for one launch, and how a warning names the column.

    Larger (and negative) values come from damaged or edited files. They would distort totals and pictures.
    """

    maximum: float
    noun: str
    category: Literal["times", "counters"]


MAX_EXTENT = 2**31 - 1  # CUDA's largest grid
Value = TypeVar("Value")


class Attribute(Generic[Value]):
    """An attribute of a kernel, which is a column of its table: its kind (`columns.Kind`) and its limit.

    For several launches it is their `total`: "sum", "max" or "mean" (weighted by time); with None it is unknown.
    The table stores it under `name`, if that is another one than the attribute's. An unknown cell is `default`.
    """

    def __init__(
        self, kind: Kind, total: str | None = None, limit: Limit | None = None, name: str = "", default: Any = None
    ) -> None:
        self.kind, self.total, self.limit, self.name, self.default = kind, total, limit, name, default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    @overload
    def __get__(self, kernel: None, owner: type) -> Self: ...

    @overload
    def __get__(self, kernel: Kernel, owner: type) -> Value: ...

    def __get__(self, kernel: Kernel | None, owner: type) -> Any:
        if kernel is None:
            return self
        value = kernel.table.cell(self.name, kernel.row)
        if value is None:
            return self.default
        return int(value) if self.total == "sum" and self.kind is float and value.is_integer() else value


class Kernel:
    """One launch, or in a summary all `invocations` of a kernel name: a row of a `KernelTable`.

    `seconds`, FLOPs and bytes are totals over the invocations. `nvtx` lists the enclosing ranges, outermost first;
    `call` is the framework operator that launched the kernel. Times of events are integer nanoseconds of the file's
    clock. A new quantity is a line here, a column that a reader fills, and its use.
    """

    __slots__ = ("row", "table")

    def __init__(self, table: KernelTable, row: int) -> None:
        self.table, self.row = table, row

    number = Attribute[int](int, default=0)  # as the profiler counts, or in the order of the file
    part = Attribute[str](str, default="")  # `2/` in the second table of a file
    file = Attribute[str](str)
    name = Attribute[str](str)
    kind = Attribute[str](str, default=KERNEL)
    category = Attribute[str](str, default="other")  # of a group of kernels
    invocations = Attribute[int](int, "sum", default=1)
    # Where, and from where
    process = Attribute[str | None](str)
    device = Attribute[str | None](str)
    stream = Attribute[str | None](str)
    grid = Attribute[Extent | None](Hashable)
    block = Attribute[Extent | None](Hashable)
    nvtx = Attribute[tuple[str, ...]](Hashable, default=())
    call = Attribute[Call | None](object)
    correlation = Attribute[int | None](int)  # of the call that launched it
    operator = Attribute[int | None](int)  # number of the operator that launched it, if the file states one
    launch_thread = Attribute[str | None](str)
    launch_call = Attribute[str | None](str)  # name of the API call
    # When
    begin = Attribute[int](int, default=0)  # start of the trace
    start_time = Attribute[int | None](int, name="start")
    end_time = Attribute[int | None](int, name="end")
    launch_time = Attribute[int | None](int, name="launch_start")
    launch_end = Attribute[int | None](int)
    untimed = Attribute[int | None](int)  # 1: the file has no valid end, and `end` is the start
    stated_seconds = Attribute[float | None](float, "sum", Limit(1e6, "a time", "times"), name="seconds")  # eleven days
    # What was measured
    clock = Attribute[float | None](float, "max", Limit(1e11, "a clock", "times"))
    """SM clock in hertz during the measurement; the limit is fifty times the fastest GPU's."""
    occupancy = Attribute[float | None](float, "mean", Limit(1.05, "an occupancy", "counters"))
    """Achieved, as a fraction of the maximum warps; separate passes and rounding may exceed 1 slightly."""
    registers = Attribute[int | None](Hashable, "max", Limit(1024, "a number of registers", "counters"))
    """Per thread; at most 255 on NVIDIA GPUs, 512 on AMD's."""
    shared_bytes = Attribute[int | None](Hashable, "max", Limit(2**20, "a size of shared memory", "counters"))
    """Static and dynamic shared memory of a block; at most 227 KiB on an H100."""
    fp64 = Attribute[float | None](float, "sum")  # FLOPs by pipe: `Flops`
    fp32 = Attribute[float | None](float, "sum")
    fp16 = Attribute[float | None](float, "sum")
    fp16_legacy = Attribute[float | None](float, "sum")
    tensor_fp16 = Attribute[float | None](float, "sum")
    tensor_bf16 = Attribute[float | None](float, "sum")
    tensor_tf32 = Attribute[float | None](float, "sum")
    tensor_fp8 = Attribute[float | None](float, "sum")
    tensor_int8 = Attribute[float | None](float, "sum")
    tensor_fp64 = Attribute[float | None](float, "sum")
    tensor_low = Attribute[float | None](float, "sum")
    tensor_high = Attribute[float | None](float, "sum")
    dram = Attribute[float | None](float, "sum")  # bytes by memory level: `Traffic`
    l2 = Attribute[float | None](float, "sum")
    l1 = Attribute[float | None](float, "sum")
    rules = Attribute[tuple[ToolRule, ...]](Hashable, default=())  # of the tool
    lines = Attribute[tuple[SourceLine, ...]](Hashable, default=())  # that cost most
    # Of copies and memsets: `CopySize`
    copied_bytes = Attribute[int | None](int, name="bytes")
    direction = Attribute[str | None](str)
    memory = Attribute[str | None](str)
    source = Attribute[str | None](str)
    destination = Attribute[str | None](str)
    # Of communication kernels, if the file states it
    collective = Attribute[str | None](str)  # allreduce, allgather, ...
    message_bytes = Attribute[int | None](int)  # of one rank, as the collective's metadata state them
    group_size = Attribute[int | None](int)  # ranks of the collective
    group_members = Attribute[str | None](str)  # these ranks, sorted: `0,1`
    group_span = Attribute[int | None](int)  # from its first to its last rank: more than those of a node on a network

    @property
    def id(self) -> str:
        return f"{self.part}{self.number}"

    @property
    def seconds(self) -> float | None:
        stated, start, end = self.stated_seconds, self.start_time, self.end_time
        if stated is not None or start is None or end is None or self.untimed:
            return stated
        return (end - start) / 1e9

    @property
    def start(self) -> float | None:
        """Seconds from the start of the trace."""
        return None if self.start_time is None else (self.start_time - self.begin) / 1e9

    @property
    def launch(self) -> float | None:
        """Start of the API call that launched it, in the same seconds."""
        return None if self.launch_time is None else (self.launch_time - self.begin) / 1e9

    @property
    def flops(self) -> Flops:
        return Flops._make(getattr(self, pipe) for pipe in Flops._fields)

    @property
    def bytes(self) -> Traffic:
        return Traffic(self.dram, self.l2, self.l1)

    @property
    def copy(self) -> CopySize | None:
        """What a memory copy or memset moves; None for a kernel."""
        if self.kind == KERNEL:
            return None
        return CopySize(self.copied_bytes, self.direction, self.memory, self.source, self.destination)

    @property
    def counters(self) -> Mapping[str, float]:
        """Metrics of Nsight Compute by name, for one launch in base units: what explains its time."""
        return LaunchCounters(self.table, self.row)

    def _known(self) -> dict[str, object]:
        cells = {name: self.table.cell(name, self.row) for name in COLUMNS}
        return {name: cell for name, cell in cells.items() if cell not in (None, COLUMNS[name].default)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self._known() == other._known()

    def __hash__(self) -> int:
        return hash((self.name, self.row))

    def __repr__(self) -> str:
        return f"Kernel({', '.join(f'{name}={cell!r}' for name, cell in self._known().items())})"


COLUMNS: Mapping[str, Attribute[Any]] = {
    each.name: each for each in vars(Kernel).values() if isinstance(each, Attribute)
}
_KINDS = {name: column.kind for name, column in COLUMNS.items()}


class LaunchCounters(Mapping[str, float]):
    """The metrics of one launch in base units, percentages as fractions; only those that were collected."""

    __slots__ = ("_row", "_table")

    def __init__(self, table: KernelTable, row: int) -> None:
        self._table, self._row = table, row

    def __getitem__(self, name: str) -> float:
        value = None if name in COLUMNS else self._table.cell(name, self._row)
        if value is None:
            raise KeyError(name)
        return float(value)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._table.metrics if self._table.cell(name, self._row) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class KernelTable(ColumnTable, Sequence[Kernel]):
    """Kernels, or copies and memsets, as columns. `metrics` names columns that are not those of `Kernel`."""

    def __init__(self) -> None:
        super().__init__(_KINDS)

    @property
    def metrics(self) -> Sequence[str]:
        """The columns of metrics that rows give."""
        declared = islice(self.columns.items(), len(_KINDS), None)
        return [name for name, kind in declared if kind is float and self.has(name)]

    def __iter__(self) -> Iterator[Kernel]:
        return (Kernel(self, row) for row in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Kernel: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Kernel]: ...

    def __getitem__(self, index: int | slice) -> Kernel | Sequence[Kernel]:
        rows = range(len(self))[index]
        return Kernel(self, rows) if isinstance(rows, int) else [Kernel(self, row) for row in rows]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def seconds(self) -> list[float | None]:
        """The time of each row."""
        stated = self.cells("seconds")
        if not self.has("end"):
            return stated
        every = zip(stated, self.cells("start"), self.cells("end"), self.cells("untimed"), strict=True)
        return [
            known if known is not None or start is None or end is None or untimed else (end - start) / 1e9
            for known, start, end, untimed in every
        ]

    def launches(self) -> list[int]:
        """The invocations of each row."""
        return [1 if number is None else number for number in self.cells("invocations")]

    def longest(self, limit: int) -> list[Kernel]:
        """At most `limit` kernels with the longest times, longest first; equal times keep their order."""
        seconds = [each or 0.0 for each in self.seconds()]
        return [Kernel(self, row) for row in heapq.nlargest(limit, range(len(self)), key=seconds.__getitem__)]

    def grouped(self, keys: Iterable[Hashable]) -> KernelTable:
        """One row for each distinct key of the rows, in their order; its columns are totals over the launches.

        A sum is unknown if the value of one launch is; a maximum is that of the known values.
        """
        numbers: dict[Hashable, int] = {}
        group_of = array("q", (numbers.setdefault(key, len(numbers)) for key in keys))
        groups, seconds = self.like(), array("d", (nan if each is None else each for each in self.seconds()))
        groups.extend(len(numbers))

        def summed(values: array[float]) -> array[float]:
            if len(values) >= MANY:
                import numpy as np

                return array("d", np.bincount(np.frombuffer(group_of, np.int64), values, len(numbers)).tobytes())
            sums = array("d", bytes(8 * len(numbers)))
            for group, value in zip(group_of, values, strict=True):
                sums[group] += value
            return sums

        def weighted(values: array[float]) -> list[float]:
            known = (0.0 if time != time else time for time in seconds)
            sums = summed(array("d", (value * time for value, time in zip(values, known, strict=True))))
            return [value / time if time else nan for value, time in zip(sums, summed(seconds), strict=True)]

        def largest(values: Sequence[Any]) -> list[Any]:
            most: list[Any] = [None] * len(numbers)
            for group, value in zip(group_of, values, strict=True):
                if value is not None and (most[group] is None or value > most[group]):
                    most[group] = value
            return most

        of_every_table: dict[str, Any] = {"seconds": seconds, "invocations": array("d", self.launches())}
        for name, column in COLUMNS.items():
            if column.total is not None and (name in of_every_table or self.has(name)):
                if column.total == "max":
                    totals: Sequence[Any] = largest(self.cells(name))
                else:
                    values = of_every_table[name] if name in of_every_table else self.stored(name)
                    totals = summed(values) if column.total == "sum" else weighted(values)
                groups.set(name, totals)
        return groups

    def without_impossible_values(self) -> list[ReaderWarning]:
        """Make impossible values unknown; returns a warning for each column with such values."""
        counts = {}
        for name, column in COLUMNS.items():
            if column.limit is None or not (self.has(name) or name == "seconds"):
                continue
            values, most = self.seconds() if name == "seconds" else self.cells(name), column.limit.maximum
            launches: Iterable[int] = self.launches() if column.total == "sum" else repeat(1)
            wrong = [
                row
                for row, (value, times) in enumerate(zip(values, launches, strict=False))
                if value is not None and not 0 <= value <= most * times
            ]
            if wrong:
                counts[name] = len(wrong)
                for row in wrong:
                    self.stored(name)[row] = nan if column.kind is float else UNKNOWN
                    if name == "seconds":
                        self.stored("untimed")[row] = 1
        for name in ("grid", "block"):
            possible = [all(1 <= size <= MAX_EXTENT for size in sizes) for sizes in self.distinct(name)]
            if not all(possible):
                codes = self.stored(name)
                codes[:] = array("i", (code if code >= 0 and possible[code] else UNKNOWN for code in codes))
        return [
            ReaderWarning(
                f"{count} {'kernel has' if count == 1 else 'kernels have'} {limit.noun} below zero or impossibly "
                "large: it is treated as unknown",
                limit.category,
            )
            for name, count in counts.items()
            if (limit := COLUMNS[name].limit)
        ]


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
    """The kernels of one or several files of one tool, for analyses of single kernels.

    A reader returns a `Timeline`: the events of one file, with those of the CPU, as the file has them.
    `timelines.kernels.profile` makes a profile of it: kernels with the ranges and operators around their launches,
    apart from copies, without impossible values. Several files are one profile, and stay several timelines, because
    each has its own clock.
    """

    tool: str  # "ncu", "nvprof", "nsys", "rocprof" or "torch"
    files: tuple[str, ...]
    kernels: KernelTable
    evidence: tuple[Evidence, ...] = ()
    warnings: tuple[ReaderWarning, ...] = field(default=())
    copies: KernelTable = field(default_factory=KernelTable, repr=False)  # memory copies and memsets
