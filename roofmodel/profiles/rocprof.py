"""Read the CSV of AMD's profilers: rocprofv3 (kernel_trace, counter_collection, kernel_stats, agent_info), rocprof, and
the workload folder of rocprof-compute or omniperf (pmc_perf, pmc_perf_0 …, timestamps, sysinfo); and the databases of
`rocprof_database`.

rocprofv3 writes a file for each pass of counters, and its trace to another one. Files that have the same launches
(agent, dispatch and name) and different counters are one run: their launches are joined; other files are concatenated.
rocprof-compute joins its passes in pmc_perf.csv, so the other tables of launches in its folder are not read again.

FLOPs and bytes by the formulas of AMD's rocprof-compute ("Performance model", and OLCF's guide for Frontier):

    FLOPs of vector units = 64 × (ADD + MUL + TRANS + 2 FMA)    instructions of a wavefront of 64 lanes, all active
    FLOPs of matrix cores = 512 × MOPS
    bytes read            = 32 × RDREQ_32B + 64 × (RDREQ - RDREQ_32B - BUBBLE) + 128 × BUBBLE    BUBBLE: MI300, else 0
    bytes written         = 64 × WRREQ_64B + 32 × (WRREQ - WRREQ_64B)
                          or 1024 × FETCH_SIZE and 1024 × WRITE_SIZE, where these were collected
    bytes of L2           = 64 × (TCP_TCC writes + atomics) + 64 × reads, on MI300 128 × reads
                          (calc_ai in roofline_calc.py; gfx942/1600_L1_cache.yaml "L1-L2 BW")
    bytes of L1           = 64 × TCP_TOTAL_CACHE_ACCESSES (calc_ai)

FLOPs of vector units are an upper bound: masked lanes count. So are bytes of L1: whole lines count. Bytes of DRAM are
those between L2 and Infinity Fabric, so traffic that the Infinity Cache of an MI300 serves counts as DRAM traffic.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.files.text_files import printable
from roofmodel.profiles import rocprof_database
from roofmodel.profiles.kernel import (
    AMD_COUNTERS,
    NO_FLOPS,
    NO_TRAFFIC,
    CopySize,
    Evidence,
    Flops,
    Kernel,
    Profile,
    ReaderWarning,
    Traffic,
    copies_warning,
    extent,
)
from roofmodel.profiles.signatures import is_sqlite
from roofmodel.profiles.streams import limited_name

# Lower-case names of the columns, of rocprofv3, of the older rocprof and of rocprof-compute.
_NAME, _DISPATCH, _QUEUE = ("kernel_name", "kernelname"), ("dispatch_id", "index"), ("queue_id", "queue-id")
_AGENT, _PROCESS = ("agent_id", "gpu-id", "gpu_id"), ("process_id", "pid")
_START, _END = ("start_timestamp", "beginns"), ("end_timestamp", "endns")
_WAVEFRONT, _MATRIX_OPERATION, _KIBI = 64, 512, 1024
_VECTOR = {form: [f"SQ_INSTS_VALU_{kind}_{form}" for kind in ("ADD", "MUL", "TRANS", "FMA")]
           for form in ("F16", "F32", "F64")}  # fmt: skip
_MATRIX = {"tensor_fp16": "F16", "tensor_bf16": "BF16", "tensor_tf32": "XF32", "tensor_fp8": "F8", "tensor_int8": "I8",
           "tensor_fp64": "F64"}  # fmt: skip
_CLONE = re.compile(r"(?: \[clone \.kd\]| \(\.kd\)|\.kd)$")
# Columns of rocprof-compute's and omniperf's sysinfo.csv, in megahertz, and of pmc_kernel_top.csv
_RENAMED = {
    "gpu_model": "name", "cu_per_gpu": "cu_count", "numcu": "cu_count", "max_sclk": "max_engine_clk_fcompute",
    "sclk": "max_engine_clk_fcompute", "count": "calls", "sum(ns)": "totaldurationns",
}  # fmt: skip
_MERGED = "pmc_perf.csv"  # rocprof-compute's table of all passes
_COUNTERS = ("sq_", "tcc_", "tcp_", "fetch_size", "write_size", "fetchsize", "writesize")


@dataclass
class _DispatchRow:
    """One launch: what the tables have of it. Times in nanoseconds."""

    name: str
    file: str
    agent: str | None = None
    queue: str | None = None
    process: str | None = None
    start: int | None = None
    end: int | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    invocations: int = 1
    seconds: float | None = None  # of a summary
    counters: dict[str, float] = field(default_factory=dict)
    kernel: Kernel | None = None  # of a database, with its ranges; or a copy of it
    copy: CopySize | None = None  # of a memory copy


_Dispatches = dict[tuple[str | None, str, str], _DispatchRow]  # by agent, dispatch and name


@dataclass
class _DispatchTable:
    """The content of one file."""

    kind: str  # trace, counters, copies, stats or agents
    file: str
    launches: _Dispatches = field(default_factory=dict)
    devices: list[Evidence] = field(default_factory=list)
    copies: list[_DispatchRow] = field(default_factory=list)

    @property
    def counters(self) -> set[str]:
        return {name for launch in self.launches.values() for name in launch.counters}


def read_all(files: Iterable[tuple[BinaryIO, str]]) -> Profile:
    """The kernels of the files. Raises ProfileError, with the line, for a damaged row, and without kernels."""
    runs, summaries = list[_DispatchTable](), list[_DispatchTable]()
    devices, copies = dict[Evidence, None](), list[_DispatchRow]()
    tables = [_table(stream, name) for stream, name in files]
    merged = {os.path.dirname(table.file) for table in tables if os.path.basename(table.file) == _MERGED}
    tables = [table for table in tables if not _is_merged(table, merged)]
    names = [table.file for table in tables]
    for table in tables:
        devices |= dict.fromkeys(table.devices)
        copies += table.copies
        if table.kind == "stats":
            summaries.append(table)
        elif table.launches:
            _join(runs, table)
    launches = [launch for run in runs or summaries for launch in run.launches.values()]
    if not launches:
        raise ProfileError(f"{', '.join(names[:3])}: no kernels; collect with rocprofv3 --kernel-trace -- COMMAND")
    starts = [launch.start for launch in (*launches, *copies) if launch.start is not None]
    origin = min(starts, default=0)
    counted = any(launch.counters for launch in launches)
    kernels = tuple(_kernel(number, launch, origin) for number, launch in enumerate(launches))
    warnings = (*_warnings(kernels, counted), *copies_warning(len(copies)))
    copied = tuple(_kernel(number, copy, origin) for number, copy in enumerate(copies))
    evidence = tuple(replace(device, amd=True) for device in devices or [Evidence()])
    return Profile("rocprof", tuple(names), kernels, evidence, warnings, copied)


def _is_merged(table: _DispatchTable, folders: set[str]) -> bool:
    """Whether the launches of the table are in the pmc_perf.csv of its folder, too."""
    folder, name = os.path.split(table.file)
    return table.kind != "agents" and folder in folders and name != _MERGED


def _join(runs: list[_DispatchTable], table: _DispatchTable) -> None:
    """Add a table to the run that has its launches and none of its counters, or as a run of its own."""
    for run in runs:
        small, large = sorted((run.launches.keys(), table.launches.keys()), key=len)
        traces = run.kind == table.kind == "trace"
        if traces or run.counters & table.counters or not small <= large:
            continue
        for key, launch in table.launches.items():
            known = run.launches.setdefault(key, launch)
            if known is launch:
                continue
            known.counters |= launch.counters
            if table.kind == "trace":  # without counters kernels run as they do in production
                launch.counters = known.counters
                run.launches[key] = launch
        run.kind = "trace" if table.kind == "trace" else run.kind
        return
    runs.append(table)


def _table(stream: BinaryIO, file: str) -> _DispatchTable:
    if is_sqlite(stream):
        return _database(stream, file)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
    try:
        return _read(csv.reader(text), file)
    except csv.Error as error:
        raise ProfileError(f"{file}: {error}; the file is damaged") from None
    finally:
        text.detach()  # the caller closes the stream


def _database(stream: BinaryIO, file: str) -> _DispatchTable:
    kernels, profile, begin = rocprof_database.read_kernels(stream, file)
    counted = any(each.counters for each in kernels)
    table = _DispatchTable("counters" if counted else "trace", file, devices=list(profile.evidence))
    for kernel, number, start, counters in kernels:
        kernel = replace(kernel, grid=None) if counted else kernel  # as in the tables: it marks launches one by one
        launch = _DispatchRow(kernel.name, file, kernel.device, start=start, counters=counters, kernel=kernel)
        table.launches[kernel.device, number, kernel.name] = launch
    for copy in profile.copies:
        start = begin + round((copy.start or 0.0) * 1e9)
        table.copies.append(_DispatchRow(copy.name, file, copy.device, start=start, kernel=copy))
    return table


def _read(rows: Any, file: str) -> _DispatchTable:
    columns = [_RENAMED.get(name, name) for name in (name.strip().lower() for name in next(rows, []))]
    if "calls" in columns:
        kind = "stats"
    elif "direction" in columns:
        kind = "copies"
    elif "logical_node_id" in columns or "workload_name" in columns:
        kind = "agents"
    else:
        kind = "trace" if "kind" in columns else "counters"
    table = _DispatchTable(kind, file)
    for cells in rows:
        if not cells:
            continue
        where = f"{file}:{rows.line_num}"
        if len(cells) != len(columns):
            raise ProfileError(f"{where}: the row has {len(cells)} cells but the header {len(columns)} columns")
        try:
            _add(table, dict(zip(columns, cells, strict=True)), file)
        except (ValueError, OverflowError) as error:
            raise ProfileError(f"{where}: {error}") from None
        except KeyError as error:
            raise ProfileError(f"{where}: the column {error} is missing") from None
    return table


def _add(table: _DispatchTable, row: Mapping[str, str], file: str) -> None:
    if table.kind == "agents":
        if row.get("agent_type", "GPU") == "GPU":
            clock, units = _number(row.get("max_engine_clk_fcompute")), _number(row.get("cu_count"))
            name = row.get("product_name") or row.get("name")
            if "workload_name" in row and name:  # MI300X_A1, with the revision of the chip
                name = f"AMD Instinct {name.upper().partition('_')[0]}"
            clock = clock * 1e6 if clock else None
            table.devices.append(Evidence(name, multiprocessors=int(units) if units else None, clock=clock, file=file))
        return
    if table.kind == "stats":
        name = _kernel_name(row["kernel_name"] if "kernel_name" in row else row["name"])
        seconds = _count(row["totaldurationns"]) / 1e9
        launch = _DispatchRow(name, file, invocations=int(row["calls"]), seconds=seconds)
        table.launches[None, str(len(table.launches)), name] = launch
        return
    if table.kind == "copies":
        if rocprof_database.copy_direction(row["direction"]) != "HtoH":  # of no GPU
            table.copies.append(_copy(row, file))
        return
    if row.get("kind", "KERNEL_DISPATCH") != "KERNEL_DISPATCH":
        return
    name = _kernel_name(_first(row, _NAME))
    agent = _agent(_first(row, _AGENT))
    key = agent, _first(row, _DISPATCH) or str(len(table.launches)), name
    launch = table.launches.setdefault(key, _DispatchRow(name, file, agent, _first(row, _QUEUE), _first(row, _PROCESS)))
    launch.start, launch.end = _whole(_first(row, _START)), _whole(_first(row, _END))
    if "workgroup_size_x" in row:
        block = [_whole(row[f"workgroup_size_{axis}"]) or 1 for axis in "xyz"]
        threads = [_whole(row[f"grid_size_{axis}"]) or 1 for axis in "xyz"]  # AMD's grid counts threads, not blocks
        launch.block = extent(block)
        launch.grid = extent(-(-total // size) for total, size in zip(threads, block, strict=True))
    launch.registers = _whole(row.get("vgpr_count") or row.get("arch_vgpr"))
    if "counter_name" in row:
        counter = row["counter_name"].upper()
        launch.counters[counter] = launch.counters.get(counter, 0.0) + _count(row["counter_value"])
    else:
        for column, cell in row.items():
            if column.startswith(_COUNTERS) and cell and "[" not in column:  # not those of single channels
                launch.counters[column.upper()] = _count(cell)


def _kernel_name(text: str | None) -> str:
    name = limited_name(printable(_CLONE.sub("", text or "")))
    if not name.strip():
        raise ValueError("the kernel has no name")
    return name


def _copy(row: Mapping[str, str], file: str) -> _DispatchRow:
    direction = rocprof_database.copy_direction(row["direction"])
    source, destination = _agent(row["source_agent_id"]), _agent(row["destination_agent_id"])
    device = source if direction == "DtoH" else destination
    start, end, size = (_whole(row.get(column)) for column in (*_START[:1], *_END[:1], "bytes"))
    copy = CopySize(size, direction)
    if direction == "DtoD" and source != destination:
        direction = "PtoP"
        copy = CopySize(size, direction, "device", source, destination)
    name = rocprof_database.copy_name(direction)
    return _DispatchRow(name, file, device, row.get("stream_id"), start=start, end=end, copy=copy)


def _agent(text: str | None) -> str | None:
    """The number of an agent: `Agent 2` and `2` are one."""
    return re.sub(r"^\D+", "", text or "") or None


def _first(row: Mapping[str, str], columns: Iterable[str]) -> str | None:
    return next((row[column] for column in columns if row.get(column)), None)


def _number(text: str | None) -> float | None:
    return _count(text) if text else None


def _count(text: str) -> float:
    value = float(text)
    if not 0 <= value <= rocprof_database.LARGEST:
        raise ValueError(f"{text} is not a count")
    return value


def _whole(text: str | None) -> int | None:
    if text and "E+" in text.upper():
        return None  # a time of which a spreadsheet kept six digits
    return int(float(text)) if text and "." in text else int(text) if text else None


def _kernel(number: int, launch: _DispatchRow, origin: int) -> Kernel:
    if launch.kernel is not None and launch.start is not None:
        return _of_database(number, launch, launch.kernel, origin)
    known = launch.start is not None and launch.end is not None
    seconds = ((launch.end or 0) - (launch.start or 0)) / 1e9 if known else launch.seconds
    return Kernel(
        id=str(number), file=launch.file, name=launch.name, process=launch.process, device=launch.agent,
        stream=launch.queue, grid=launch.grid, block=launch.block, invocations=launch.invocations, seconds=seconds,
        start=(launch.start - origin) / 1e9 if launch.start is not None else None, registers=launch.registers,
        flops=flops(launch.counters), bytes=traffic(launch.counters), copy=launch.copy,
    )  # fmt: skip


def _of_database(number: int, launch: _DispatchRow, kernel: Kernel, origin: int) -> Kernel:
    start = ((launch.start or 0) - origin) / 1e9
    return replace(
        kernel,
        id=str(number),
        start=start,
        launch=None if kernel.launch is None else start + kernel.launch - (kernel.start or 0.0),
        flops=flops(launch.counters),
        bytes=traffic(launch.counters),
    )


def flops(counters: Mapping[str, float]) -> Flops:
    """FLOPs by pipe; None where a counter of it is missing. Those of fp32 matrix cores count as fp32."""
    if not counters:
        return NO_FLOPS
    vector: dict[str, float | None] = {}
    for form, names in _VECTOR.items():
        add, multiply, other, fused = (counters.get(name) for name in names)
        if add is None or multiply is None or other is None or fused is None:
            vector[form] = None
        else:
            vector[form] = _WAVEFRONT * (add + multiply + other + 2 * fused)
    matrix = {field: counters.get(f"SQ_INSTS_VALU_MFMA_MOPS_{form}") for field, form in _MATRIX.items()}
    fp32_matrix = counters.get("SQ_INSTS_VALU_MFMA_MOPS_F32")
    fp32 = vector["F32"]
    if fp32_matrix is not None:
        fp32 = (fp32 or 0.0) + _MATRIX_OPERATION * fp32_matrix
    return Flops(
        fp64=vector["F64"],
        fp32=fp32,
        fp16=vector["F16"],
        **{field: None if mops is None else _MATRIX_OPERATION * mops for field, mops in matrix.items()},
    )


def traffic(counters: Mapping[str, float]) -> Traffic:
    """Bytes between L2 and memory, between L1 and L2, and of the lines that L1 looks up; None if a counter is missing.

    The counters of MI300 have the prefix TCC_EA0. Its L1 reads lines of 128 bytes, that of MI200 of 64.
    """
    if not counters:
        return NO_TRAFFIC
    generation = {name.split("_")[1] for name in counters if name.startswith(("TCC_EA_", "TCC_EA0_"))}
    line = {"EA": 64, "EA0": 128}.get(generation.pop()) if len(generation) == 1 else None
    requests = ("READ", "WRITE", "ATOMIC_WITH_RET", "ATOMIC_WITHOUT_RET")
    reads, *others = (_sum(counters, f"TCP_TCC_{kind}_REQ") for kind in requests)
    l2 = None
    if line is not None and reads is not None and None not in others:
        l2 = line * reads + 64 * sum(other or 0.0 for other in others)
    accesses = _sum(counters, "TCP_TOTAL_CACHE_ACCESSES")
    return Traffic(_dram_bytes(counters), l2, None if accesses is None else 64 * accesses)


def _sum(counters: Mapping[str, float], name: str) -> float | None:
    """A counter's sum over its instances: rocprofv3 also writes it under the plain name."""
    return counters.get(f"{name}_SUM", counters.get(name))


def _dram_bytes(counters: Mapping[str, float]) -> float | None:
    sizes = [counters.get(name, counters.get(name.replace("_", ""))) for name in ("FETCH_SIZE", "WRITE_SIZE")]
    if sizes[0] is not None and sizes[1] is not None:
        return _KIBI * (sizes[0] + sizes[1])
    for prefix in ("TCC_EA0", "TCC_EA"):
        every = [_sum(counters, f"{prefix}_{name}") for name in ("RDREQ", "RDREQ_32B", "WRREQ", "WRREQ_64B")]
        bubble = 0.0 if prefix == "TCC_EA" else _sum(counters, "TCC_BUBBLE")
        if bubble is None or None in every:
            continue
        reads, small, writes, large = (value or 0.0 for value in every)
        medium = max(reads - small - bubble, 0.0)  # counted in different passes, the difference may be below zero
        return 32 * small + 64 * medium + 128 * bubble + 64 * large + 32 * max(writes - large, 0.0)
    return None


def _warnings(kernels: Iterable[Kernel], counted: bool) -> Iterator[ReaderWarning]:
    if any(kernel.seconds is None for kernel in kernels):
        yield ReaderWarning("kernels without times: their tables have none, or a spreadsheet rounded them", "times")
    if not counted:
        yield ReaderWarning(f"no counters: kernels have times only; collect them with {AMD_COUNTERS}", "counters")
    elif any(kernel.flops.fp32 or kernel.flops.fp64 or kernel.flops.fp16 for kernel in kernels):
        yield ReaderWarning(
            "FLOPs of vector units count all lanes of a wavefront: an upper bound where lanes are masked", "counters"
        )
