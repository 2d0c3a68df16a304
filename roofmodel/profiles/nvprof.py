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
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import repeat
from typing import Any, BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.numbers import units
from roofmodel.profiles import cell_values
from roofmodel.profiles.kernel import (
    KERNEL,
    STALLED_WARPS,
    Evidence,
    Extent,
    KernelTable,
    ReaderWarning,
    activity_kind,
    copy_direction,
    extent,
    host_memory,
    times,
)
from roofmodel.profiles.nvprof_layouts import Row, TableEntry, entries
from roofmodel.profiles.streams import NO_LAST_NEWLINE, Lines, limited_name
from roofmodel.profiles.timelines.timeline import Timeline

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
_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
# What explains the time of a kernel -> the metric of Nsight Compute with the same meaning, and its value for 1 (100 %).
_DIAGNOSTIC: Mapping[str, tuple[str, float]] = {
    "gld_efficiency": ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio", 32),
    "gst_efficiency": ("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio", 32),
    "shared_efficiency": ("shared_efficiency", 1),  # requested / required bytes
    "warp_execution_efficiency": ("smsp__thread_inst_executed_per_inst_executed.ratio", 32),
    "issue_slot_utilization": (f"smsp__issue_active{_ELAPSED}", 1),
    "dram_utilization": (f"gpu__dram_throughput{_ELAPSED}", 1), "l2_utilization": (f"lts__throughput{_ELAPSED}", 1),
    "tex_utilization": (f"l1tex__throughput{_ELAPSED}", 1), "shared_utilization": (f"l1tex__throughput{_ELAPSED}", 1),
    **{
        f"{fu}_fu_utilization": (f"sm__pipe_{pipe}_cycles_active{_ELAPSED}", 1)
        for fu, pipe in {
            "single_precision": "fma", "double_precision": "fp64", "half_precision": "fp16", "special": "xu",
            "ldst": "lsu", "cf": "cbu", "tex": "tex", "tensor_precision": "tensor",
        }.items()
    },
    **{
        f"stall_{wait}": (STALLED_WARPS.format(name), 1)
        for wait, name in {
            "memory_dependency": "long_scoreboard", "exec_dependency": "wait", "sync": "barrier",
            "inst_fetch": "no_instruction", "texture": "tex_throttle", "memory_throttle": "lg_throttle",
            "pipe_busy": "math_pipe_throttle", "constant_memory_dependency": "imc_miss", "other": "misc",
            "not_selected": "not_selected", "sleeping": "sleeping",
        }.items()
    },
}  # fmt: skip
_USED = {*_DESCRIBED.values(), "flop_count_sp_add", "flop_count_sp_mul", "flop_count_sp_fma", *_DIAGNOSTIC}
_LEVEL = re.compile(r"(?:Idle|Low|Mid|High|Max) \((\d+)\)")  # a utilization, of 10


@dataclass
class _NvprofContent:
    file: str
    launches: KernelTable = field(default_factory=KernelTable)
    summary: KernelTable = field(default_factory=KernelTable)
    counted: KernelTable = field(default_factory=KernelTable)  # kernels with averages of metrics
    averages: dict[str, dict[int, Decimal | None]] = field(default_factory=dict)  # metric -> row of `counted` -> value
    times: dict[tuple[str, int], int] = field(default_factory=dict)  # metric and row -> launches that were averaged
    rows: dict[Hashable, int] = field(default_factory=dict)  # process, device and name -> row of `counted`
    devices: dict[str, Evidence] = field(default_factory=dict)
    tally: dict[str, int] = field(default_factory=dict)

    def count(self, kind: str, n: int = 1) -> None:
        self.tally[kind] = self.tally.get(kind, 0) + n

    def incomplete(self, metric: str) -> list[int]:
        """The rows in which a metric was not collected in every launch."""
        launches = self.counted.launches()
        return [row for row in self.averages[metric] if self.times.get((metric, row), launches[row]) != launches[row]]

    def totals(self, metric: str) -> list[Decimal | None]:
        """The total of each row over all launches; None unless the metric was collected in every launch."""
        averages = self.averages.get(metric, {})
        incomplete = self.incomplete(metric) if averages else []
        return [
            None if (average := averages.get(row)) is None or row in incomplete else average * launches
            for row, launches in enumerate(self.counted.launches())
        ]


def read(file: BinaryIO, name: str) -> Timeline:
    """The kernels and copies in nvprof output; a summary gives one kernel per name.

    Raises ProfileError, with the line, for a damaged or ambiguous row, and for output without a table of GPU work.
    """
    content = _NvprofContent(name)
    with Lines(file, name) as lines:
        for entry in entries(lines):
            try:
                _add_entry(entry, content)
            except ValueError as error:
                raise ProfileError(f"{entry.where}: {error}") from None
            except KeyError as error:
                raise ProfileError(f"{entry.where}: the table has no column {error}") from None
    if not lines.ended:
        content.count("unended")
    work = content.launches if len(content.launches) else content.summary
    if not len(work) and not len(content.counted) and not content.tally.get("no kernels"):
        raise ProfileError(f"{name}: no nvprof table of GPU work; {_HOW_TO_COLLECT}")
    warnings = (
        *map(ReaderWarning, _warnings(content)),
        *(ReaderWarning(text, "counters") for text in _counter_warnings(content)),
    )
    if len(content.counted):
        _interpret(content)
        work.append(content.counted)
    work.fill(file=name)
    work.set("number", range(len(work)))
    return Timeline(
        "nvprof",
        name,
        work,
        evidence=tuple(content.devices.values()),
        warnings=warnings,
        how_to_collect=_HOW_TO_COLLECT,
    )


def _add_entry(entry: TableEntry, content: _NvprofContent) -> None:
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
            content.launches.add(**_launch(entry, seconds))
    elif entry.kind == "summary":
        kind = row.get("Type", "GPU activities")
        if kind == "GPU activities":
            content.summary.add(**_summary(entry))
        elif not kind.startswith(("API calls", "OpenACC", "OpenMP")):
            raise ValueError(f"{shorten(kind)} is not a known type of activity")
    elif entry.kind == "metric":
        _add_metric(entry, content)
    elif entry.kind == "wide":
        for heading in row.keys() - _CONTEXT:
            metric = _DESCRIBED.get(heading.replace(" ", "").lower(), heading)
            content.averages.setdefault(metric, {})[len(content.counted)] = _average(metric, row[heading])
        content.counted.add(
            name=_name(row["Kernel"]), process=entry.process, device=_ordinal(row["Device"]),
            stream=row["Stream"] or None,
        )  # fmt: skip
    elif entry.kind in ("stray", "cut"):
        content.count(entry.kind)


def _launch(entry: TableEntry, seconds: float) -> dict[str, object]:
    row, unit_of = entry.row, entry.units
    shared = [size for column in _SHARED_MEMORY if (size := _size(entry, column)) is not None]
    cells: dict[str, object] = {
        "kind": KERNEL, "name": _name(row["Name"]), "process": entry.process, "device": _ordinal(row.get("Device", "")),
        "stream": row.get("Stream") or None, "grid": _sizes(row, "Grid"), "block": _sizes(row, "Block"),
        "registers": cell_values.parse_count(row.get("Registers Per Thread", row.get("Regs*", ""))),
        "shared_bytes": sum(shared) if len(shared) == 2 else None,
        **times(_seconds(row["Start"], unit_of.get("Start")), seconds),
    }  # fmt: skip
    if (kind := activity_kind(row["Name"])) == KERNEL:
        return cells
    memory = host_memory(row.get("SrcMemType", "").strip("-"), row.get("DstMemType", "").strip("-"))
    return cells | {
        "kind": kind, "bytes": _size(entry, "Size"), "direction": copy_direction(row["Name"]), "memory": memory,
        "source": _peer(row, "Src"), "destination": _peer(row, "Dst"),
    }  # fmt: skip


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


def _summary(entry: TableEntry) -> dict[str, object]:
    row = entry.row
    calls, seconds = cell_values.parse_count(row["Calls"]), _seconds(row["Time"], entry.units.get("Time"))
    if not calls or seconds is None:
        raise ValueError(f"the summary row has no time or no calls: {shorten(row['Name'])}")
    cells: dict[str, object] = {"name": _name(row["Name"]), "process": entry.process}
    cells |= {"invocations": calls, "seconds": seconds, "kind": activity_kind(row["Name"])}
    return cells if cells["kind"] == KERNEL else cells | {"direction": copy_direction(row["Name"])}


def _add_metric(entry: TableEntry, content: _NvprofContent) -> None:
    """Add one metric of one kernel name. An equal duplicate is ignored; a different one is an error."""
    row = entry.row
    metric = row.get("Metric Name") or row.get("Event Name") or ""
    kernel, invocations = _name(row["Kernel"]), cell_values.parse_count(row["Invocations"]) or 0
    key = entry.process, row["Device"], kernel
    if key not in content.rows:
        content.rows[key] = len(content.counted)
        device = _ordinal(row["Device"])
        content.counted.add(name=kernel, process=entry.process, device=device, invocations=invocations)
    number, averages = content.rows[key], content.averages.setdefault(metric, {})
    average = _average(metric, row["Avg"])
    earlier_values = averages.get(number, average), content.times.get((metric, number), invocations)
    if not invocations or earlier_values != (average, invocations):
        raise ValueError(
            f"{shorten(metric)} of {shorten(kernel)} contradicts an earlier row (different invocations or "
            "value); give the files of different runs one at a time"
        )
    averages[number], content.times[metric, number] = average, invocations
    launches = content.counted.stored("invocations")
    launches[number] = max(launches[number], invocations)


def _interpret(content: _NvprofContent) -> None:
    """Set FLOPs, bytes and occupancy of the kernels from their metrics."""

    def both(read_counter: str, write_counter: str, size: int = 1) -> list[Decimal | None]:
        every = zip(content.totals(read_counter), content.totals(write_counter), strict=True)
        return [None if reads is None or writes is None else (reads + writes) * size for reads, writes in every]

    parts = [content.totals(f"flop_count_sp_{part}") for part in ("add", "mul", "fma")]
    by_parts = [
        None if add is None or multiply is None or fused is None else add + multiply + 2 * fused
        for add, multiply, fused in zip(*parts, strict=True)  # the counter counts a multiply-add once
    ]
    dram = both("dram_read_bytes", "dram_write_bytes")
    sectors = both("dram_read_transactions", "dram_write_transactions", _TRANSACTION)
    achieved = content.averages.get("achieved_occupancy", {})
    columns = {
        "fp64": content.totals("flop_count_dp"), "fp32": _first_known(content.totals("flop_count_sp"), by_parts),
        "fp16": content.totals("flop_count_hp"), "dram": _first_known(dram, sectors),
        "l2": both("l2_read_transactions", "l2_write_transactions", _TRANSACTION),
        "occupancy": [achieved.get(row) for row in range(len(content.counted))],
    }  # fmt: skip
    for name, cells in columns.items():
        content.counted.set(name, [None if cell is None else float(cell) for cell in cells])
    for metric in sorted(content.averages.keys() & _DIAGNOSTIC.keys()):
        counter, whole = _DIAGNOSTIC[metric]
        known = content.counted.cells(counter) if counter in content.counted.columns else repeat(None)
        values = [
            before if average is None else max(float(average) * whole, before or 0.0)
            for average, before in zip(
                map(content.averages[metric].get, range(len(content.counted))), known, strict=False
            )
        ]
        content.counted.declare(**{counter: float})
        content.counted.set(counter, values)


def _first_known(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    return [other if value is None else value for value, other in zip(first, second, strict=True)]


def _warnings(content: _NvprofContent) -> Iterable[str]:
    tally, launches, summary = content.tally, len(content.launches), len(content.summary)
    if not (launches or summary or len(content.counted)):
        yield f"nvprof recorded no kernels; {_HOW_TO_COLLECT}"
    if launches and summary:
        yield "the summary is ignored: the file also has the GPU trace"
    if len(content.counted) and (launches or summary):
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


def _counter_warnings(content: _NvprofContent) -> Iterable[str]:
    metrics = content.averages.keys()
    if any(None in content.averages[metric].values() for metric in metrics & _USED):
        yield "some metrics have no value (overflow or not available): they are unknown"
    if partial := sorted(metric for metric in metrics & _USED if content.incomplete(metric)):
        yield f"{', '.join(partial)} of some kernels was not collected in every launch: these totals are unknown"
    families: list[set[str]] = [set() for _ in range(len(content.counted))]
    for metric, averages in content.averages.items():
        for row in averages:
            families[row].add(metric.rsplit("_", 1)[0])
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
    if level := _LEVEL.fullmatch(cell.strip()):
        return Decimal(level[1]) / 10
    match = re.fullmatch(r"(.*?)\s*([KMGT]?B|%|)", cell)
    value = cell_values.parse_number(match[1]) if match else None
    if value is not None and match is not None and match[2] == "%":
        return value / 100
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


def _ordinal(device: str) -> str | None:
    """The number of a device: `Tesla V100 (0)` -> `0`."""
    return cell_values.split_device(device)[1]
