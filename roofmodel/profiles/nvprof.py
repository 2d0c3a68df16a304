"""Read nvprof output: GPU traces, summaries, metrics and events, as CSV or text.

nvprof supports devices up to compute capability 7.x. Its tables with GPU work:

    launch    a row per kernel, memory copy or memset, with its time (`--print-gpu-trace`)
    summary   a row per kernel name, with calls and total time (no option)
    metric    a row per kernel name and metric, with invocations and average (`-m`, `-e`)
    wide      a row per launch, a column per metric (`--print-gpu-trace -m`)

Copies and memsets are not kernels; a warning gives their number. A total is average x invocations. FLOPs are
flop_count_dp, _sp and _hp, which count a multiply-add as 2 (packed half precision as 4). DRAM bytes are
dram_read_bytes + dram_write_bytes, or transactions of 32 bytes; L2 bytes are l2_read_transactions +
l2_write_transactions, of 32 bytes. KB, MB and GB are powers of 1024: nvprof prints a copy of 256.00MB in 33.831ms as
7.3896GB/s, which is 2^28 B / 33.831 ms / 2^30.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.numbers import units
from roofmodel.profiles import cell_values
from roofmodel.profiles.kernel import (
    CopySize,
    Evidence,
    Extent,
    Flops,
    Kernel,
    Profile,
    ReaderWarning,
    Traffic,
    copies_warning,
    copy_direction,
    extent,
    host_memory,
    without_copies,
)
from roofmodel.profiles.nvprof_layouts import Row, TableEntry, entries
from roofmodel.profiles.streams import NO_LAST_NEWLINE, Lines, limited_name

_HOW_TO_COLLECT = "collect with `nvprof --csv --print-gpu-trace --log-file trace.csv COMMAND`"

_TRANSACTION = 32  # bytes of a DRAM or L2 transaction
_BYTES = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_SHARED_MEMORY = ("SSMem*", "DSMem*", "Static SMem", "Dynamic SMem")
_CONTEXT = {"Device", "Context", "Stream", "Kernel", "Name", "Correlation_ID", "Start", "Duration"}
# Column headers of wide tables are descriptions; these are the metrics used here, without blanks.
_DESCRIBED = {
    "floatingpointoperations(doubleprecision)": "flop_count_dp",
    "floatingpointoperations(singleprecision)": "flop_count_sp",
    "floatingpointoperations(halfprecision)": "flop_count_hp",
    "devicememoryreadtransactions": "dram_read_transactions",
    "devicememorywritetransactions": "dram_write_transactions",
    "totalbytesreadfromdramtol2cache": "dram_read_bytes",
    "totalbyteswrittenfroml2cachetodram": "dram_write_bytes",
    "l2readtransactions": "l2_read_transactions",
    "l2writetransactions": "l2_write_transactions",
    "achievedoccupancy": "achieved_occupancy",
}
_USED = {*_DESCRIBED.values(), "flop_count_sp_add", "flop_count_sp_mul", "flop_count_sp_fma"}


@dataclass
class _Counted:
    """Average metrics of a launch, or of all launches of a kernel name on a device."""

    process: str | None
    device: str
    stream: str | None
    name: str
    invocations: int
    averages: dict[str, Decimal | None] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)  # launches that were averaged, by metric

    def total(self, metric: str) -> Decimal | None:
        """The total over all launches; None unless the metric was collected in every launch."""
        average = self.averages.get(metric)
        return None if average is None or self.incomplete(metric) else average * self.invocations

    def incomplete(self, metric: str) -> bool:
        return self.times.get(metric, self.invocations) != self.invocations


@dataclass
class _NvprofContent:
    launches: list[Kernel] = field(default_factory=list)
    summary: list[Kernel] = field(default_factory=list)
    counted: dict[Hashable, _Counted] = field(default_factory=dict)
    devices: dict[str, Evidence] = field(default_factory=dict)
    tally: dict[str, int] = field(default_factory=dict)

    def count(self, kind: str, n: int = 1) -> None:
        self.tally[kind] = self.tally.get(kind, 0) + n


def read(file: BinaryIO, name: str) -> Profile:
    """The kernels in nvprof output; a summary gives one kernel per name.

    Raises ProfileError, with the line, for a damaged or ambiguous row, and for output without a table of GPU work.
    """
    content = _NvprofContent()
    with Lines(file, name) as lines:
        for entry in entries(lines):
            try:
                _add_entry(entry, content, name)
            except ValueError as error:
                raise ProfileError(f"{entry.where}: {error}") from None
            except KeyError as error:
                raise ProfileError(f"{entry.where}: the table has no column {error}") from None
    if not lines.ended:
        content.count("unended")
    work = content.launches or content.summary
    timed, copies = without_copies(work)
    kernels = (*timed, *(_counted_kernel(c, i, name) for i, c in enumerate(content.counted.values(), len(work))))
    if not kernels and not work and not content.tally.get("no kernels"):
        raise ProfileError(f"{name}: no nvprof table of GPU work; {_HOW_TO_COLLECT}")
    warnings = (
        *map(ReaderWarning, _warnings(content)),
        *copies_warning(sum(copy.invocations for copy in copies)),
        *(ReaderWarning(text, "counters") for text in _counter_warnings([*content.counted.values()])),
    )
    return Profile("nvprof", (name,), kernels, tuple(content.devices.values()), warnings, copies=tuple(copies))


def _add_entry(entry: TableEntry, content: _NvprofContent, file: str) -> None:
    """Add one row to the result."""
    row, unit_of = entry.row, entry.units
    if device := row.get("Device", "").strip("-"):
        content.devices.setdefault(device, Evidence(name=cell_values.split_device(device)[0]))
    if entry.kind == "note":
        if invalid := re.search(r"(\d{1,18}) records have invalid timestamps", row[""]):
            content.count("invalid", int(invalid[1]))
        content.count("no kernels", int(row[""] == "No kernels were profiled."))
    elif entry.kind == "launch":
        seconds = _seconds(row["Duration"], unit_of.get("Duration"))
        if seconds is None or row["Name"].startswith("[Unified Memory"):
            content.count("no work")
        else:
            content.launches.append(_launch(entry, seconds, len(content.launches), file))
    elif entry.kind == "summary":
        kind = row.get("Type", "GPU activities")
        if kind == "GPU activities":
            content.summary.append(_summary(entry, len(content.summary), file))
        elif not kind.startswith(("API calls", "OpenACC", "OpenMP")):
            raise ValueError(f"{shorten(kind)} is not a known type of activity")
    elif entry.kind == "metric":
        _add_metric(entry, content)
    elif entry.kind == "wide":
        counted = _Counted(entry.process, row["Device"], row["Stream"] or None, _name(row["Kernel"]), 1)
        for heading in row.keys() - _CONTEXT:
            metric = _DESCRIBED.get(heading.replace(" ", "").lower(), heading)
            counted.averages[metric] = _average(metric, row[heading])
        content.counted[entry.where] = counted
    elif entry.kind in ("stray", "cut"):
        content.count(entry.kind)


def _launch(entry: TableEntry, seconds: float, index: int, file: str) -> Kernel:
    row, unit_of = entry.row, entry.units
    shared = [size for column in _SHARED_MEMORY if (size := _size(entry, column)) is not None]
    return Kernel(
        id=str(index),
        file=file,
        name=_name(row["Name"]),
        process=entry.process,
        device=cell_values.split_device(row.get("Device", ""))[1],
        stream=row.get("Stream") or None,
        grid=_sizes(row, "Grid"),
        block=_sizes(row, "Block"),
        seconds=seconds,
        start=_seconds(row["Start"], unit_of.get("Start")),
        registers=cell_values.parse_count(row.get("Registers Per Thread", row.get("Regs*", ""))),
        shared_bytes=sum(shared) if len(shared) == 2 else None,
        copy=_copy_size(entry) if row["Name"].startswith("[CUDA mem") else None,
    )


def _copy_size(entry: TableEntry) -> CopySize:
    row = entry.row
    memory = host_memory(row.get("SrcMemType", "").strip("-"), row.get("DstMemType", "").strip("-"))
    size, direction = _size(entry, "Size"), copy_direction(row["Name"])
    return CopySize(size, direction, memory, _peer(row, "Src"), _peer(row, "Dst"))


def _size(entry: TableEntry, column: str) -> int | None:
    """A number of bytes; its unit is in the cell or in that of the column."""
    match = re.fullmatch(r"(.*?)\s*([KMGT]?B|)", entry.row.get(column, "").strip("- "))
    number = cell_values.parse_number(match[1]) if match else None
    unit = (match[2] if match else "") or entry.units.get(column, "")
    return None if number is None or unit not in _BYTES else round(number * _BYTES[unit])


def _peer(row: Row, side: str) -> str | None:
    """The ordinal of the source (`Src`) or destination (`Dst`) of a copy between GPUs.

    Text cuts device names to 15 characters and loses the ordinal of most: then the context, which belongs to one GPU.
    """
    device, context = row.get(f"{side} Dev", "").strip("-"), row.get(f"{side} Ctx", "")
    return cell_values.split_device(device)[1] or (f"context {context}" if device and context else None)


def _summary(entry: TableEntry, index: int, file: str) -> Kernel:
    row = entry.row
    calls, seconds = cell_values.parse_count(row["Calls"]), _seconds(row["Time"], entry.units.get("Time"))
    if not calls or seconds is None:
        raise ValueError(f"the summary row has no time or no calls: {shorten(row['Name'])}")
    return Kernel(str(index), file, _name(row["Name"]), process=entry.process, invocations=calls, seconds=seconds)


def _add_metric(entry: TableEntry, content: _NvprofContent) -> None:
    """Add one metric of one kernel name. An equal duplicate is ignored; a different one is an error."""
    row = entry.row
    metric = row.get("Metric Name") or row.get("Event Name") or ""
    kernel, invocations = _name(row["Kernel"]), cell_values.parse_count(row["Invocations"]) or 0
    counted = content.counted.setdefault(
        (entry.process, row["Device"], kernel), _Counted(entry.process, row["Device"], None, kernel, invocations)
    )
    average = _average(metric, row["Avg"])
    earlier_values = counted.averages.get(metric, average), counted.times.get(metric, invocations)
    if not invocations or earlier_values != (average, invocations):
        raise ValueError(
            f"{shorten(metric)} of {shorten(kernel)} contradicts an earlier row (different invocations or "
            "value); give the files of different runs one at a time"
        )
    counted.averages[metric], counted.times[metric] = average, invocations
    counted.invocations = max(counted.invocations, invocations)


def _counted_kernel(counted: _Counted, index: int, file: str) -> Kernel:
    total = counted.total

    def both(read_counter: str, write_counter: str, size: int = 1) -> float | None:
        parts = total(read_counter), total(write_counter)
        return None if parts[0] is None or parts[1] is None else float((parts[0] + parts[1]) * size)

    single = total("flop_count_sp")
    if single is None:
        add, multiply, fused = (total(f"flop_count_sp_{part}") for part in ("add", "mul", "fma"))
        if add is not None and multiply is not None and fused is not None:
            single = add + multiply + 2 * fused  # this counter counts a multiply-add once
    dram = both("dram_read_bytes", "dram_write_bytes")
    if dram is None:
        dram = both("dram_read_transactions", "dram_write_transactions", _TRANSACTION)
    return Kernel(
        id=str(index),
        file=file,
        name=counted.name,
        process=counted.process,
        device=cell_values.split_device(counted.device)[1],
        stream=counted.stream,
        invocations=counted.invocations,
        occupancy=_float(counted.averages.get("achieved_occupancy")),
        flops=Flops(fp64=_float(total("flop_count_dp")), fp32=_float(single), fp16=_float(total("flop_count_hp"))),
        bytes=Traffic(dram=dram, l2=both("l2_read_transactions", "l2_write_transactions", _TRANSACTION)),
    )


def _warnings(content: _NvprofContent) -> Iterable[str]:
    tally, counted = content.tally, list(content.counted.values())
    if not (content.launches or content.summary or counted):
        yield f"nvprof recorded no kernels; {_HOW_TO_COLLECT}"
    if content.launches and content.summary:
        yield "the summary is ignored: the file also has the GPU trace"
    if counted and (content.launches or content.summary):
        yield "times and metrics are in separate tables: the same kernel may be listed once with each"
    if tally.get("cut"):
        yield "the file is truncated in its last row, which is ignored: more rows may be missing"
    elif tally.get("unended"):
        yield NO_LAST_NEWLINE
    if tally.get("invalid"):
        yield f"nvprof dropped {tally['invalid']} records with invalid timestamps: the totals are too low"
    if tally.get("no work"):
        yield f"{tally['no work']} rows that are not kernels, copies or memsets (such as page faults) are ignored"
    if tally.get("stray"):
        yield f"skipped between the rows: {units.count(tally['stray'], 'line')} outside of tables"


def _counter_warnings(counted: Sequence[_Counted]) -> Iterable[str]:
    metrics = {metric for c in counted for metric in c.averages}
    if any(value is None and metric in _USED for c in counted for metric, value in c.averages.items()):
        yield "some metrics have no value (overflow or not available): they are unknown"
    if partial := sorted({metric for c in counted for metric in _USED & c.times.keys() if c.incomplete(metric)}):
        yield f"{', '.join(partial)} of some kernels was not collected in every launch: these totals are unknown"
    families = [{metric.rsplit("_", 1)[0] for metric in c.averages} for c in counted]
    for level in ("dram", "l2"):
        if any(len(family & {f"{level}_read", f"{level}_write"}) == 1 for family in families):
            yield f"only the reads or only the writes of {level} were collected: its bytes are unknown"
    if metrics & {"flop_count_sp", "flop_count_hp", "flop_count_dp"}:
        yield "nvprof cannot count tensor-core operations: on Volta and later the FLOPs are of CUDA cores only"
    if unused := sorted(metrics - _USED):
        listed = ", ".join(shorten(metric, 40).strip("'") for metric in unused[:8])
        yield f"unused metrics: {listed}{' and more' if len(unused) > 8 else ''}"


# Cells.


def _seconds(cell: str, unit: str | None) -> float | None:
    """A time in the unit of its suffix, or else of its column; None if missing."""
    match = re.fullmatch(r"(.*?)\s*([a-z]*)", cell.strip(), re.DOTALL)
    number, suffix = match.groups() if match else (cell, "")
    return cell_values.parse_seconds(number, suffix or unit or "")


def _average(metric: str, cell: str) -> Decimal | None:
    """The value of a metric in `_USED`: a count, or bytes with a binary prefix; None for an overflow."""
    if metric not in _USED:
        return None
    match = re.fullmatch(r"(.*?)\s*([KMGT]?B|)", cell)
    value = cell_values.parse_number(match[1]) if match else None
    if value is not None and value < 0:
        raise ValueError(f"{metric} is {shorten(cell)}, but counts cannot be negative")
    return None if value is None or match is None else value * _BYTES[match[2]]


def _sizes(row: Row, prefix: str) -> Extent | None:
    """A size from `Grid X`, `Grid Y`, `Grid Z`, or from `(32768 1 1)` in one cell; None if missing."""
    if f"{prefix} Size" in row:
        return cell_values.parse_extent(row[f"{prefix} Size"])
    return extent(cell_values.parse_count(row.get(f"{prefix} {axis}", "")) for axis in "XYZ")


def _name(cell: str) -> str:
    """A kernel name without the correlation number that some tables append."""
    name = re.sub(r" \[\d+\]$", "", cell).strip()
    if not name:
        raise ValueError("the row has no name")
    return limited_name(name)


def _float(value: Decimal | None) -> float | None:
    return None if value is None else float(value)
