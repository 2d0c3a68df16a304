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
    COPY,
    KERNEL,
    NO_FLOPS,
    NO_TRAFFIC,
    Evidence,
    Flops,
    KernelTable,
    ReaderWarning,
    Traffic,
    extent,
)
from roofmodel.profiles.signatures import is_sqlite
from roofmodel.profiles.streams import limited_name
from roofmodel.profiles.timelines.timeline import Timeline

# Lower-case names of the columns, of rocprofv3, of the older rocprof and of rocprof-compute.
_NAME, _DISPATCH, _QUEUE = ("kernel_name", "kernelname"), ("dispatch_id", "index"), ("queue_id", "queue-id")
_AGENT, _PROCESS = ("agent_id", "gpu-id", "gpu_id"), ("process_id", "pid")
_START, _END = ("start_timestamp", "beginns"), ("end_timestamp", "endns")
_WAVEFRONT, _MATRIX_OPERATION, _KIBI = 64, 512, 1024
_VECTOR = {form: [f"SQ_INSTS_VALU_{kind}_{form}" for kind in ("ADD", "MUL", "TRANS", "FMA")]
           for form in ("F16", "F32", "F64")}  # fmt: skip
_MATRIX = {"tensor_fp16": "F16", "tensor_bf16": "BF16", "tensor_tf32": "XF32", "tensor_fp8": "F8", "tensor_int8": "I8",
           "tensor_fp64": "F64"}  # fmt: skip
_HOW_TO_COLLECT = "collect with rocprofv3 --kernel-trace"
_CLONE = re.compile(r"(?: \[clone \.kd\]| \(\.kd\)|\.kd)$")
# Columns of rocprof-compute's and omniperf's sysinfo.csv, in megahertz, and of pmc_kernel_top.csv
_RENAMED = {
    "gpu_model": "name", "cu_per_gpu": "cu_count", "numcu": "cu_count", "max_sclk": "max_engine_clk_fcompute",
    "sclk": "max_engine_clk_fcompute", "count": "calls", "sum(ns)": "totaldurationns",
}  # fmt: skip
_MERGED = "pmc_perf.csv"  # rocprof-compute's table of all passes
_COUNTERS = ("sq_", "tcc_", "tcp_", "fetch_size", "write_size", "fetchsize", "writesize")


_Key = tuple[str | None, str | None, str]  # agent, dispatch and name


@dataclass
class _DispatchTable:
    """The content of one file; counters are metrics of its launches."""

    kind: str  # trace, counters, copies, stats or agents
    file: str
    launches: KernelTable = field(default_factory=KernelTable)
    rows: dict[_Key, int] = field(default_factory=dict)
    devices: list[Evidence] = field(default_factory=list)
    copies: KernelTable = field(default_factory=KernelTable)

    @property
    def counters(self) -> set[str]:
        return {*self.launches.metrics}


def read_all(files: Iterable[tuple[BinaryIO, str]], generation: str | None = None) -> Timeline:
    """The kernels and copies of the files, without their calls and ranges.

    Raises ProfileError, with the line, for a damaged row, and without kernels.
    """
    runs, summaries = list[_DispatchTable](), list[_DispatchTable]()
    devices, copies = dict[Evidence, None](), KernelTable()
    tables = [_table(stream, name) for stream, name in files]
    merged = {os.path.dirname(table.file) for table in tables if os.path.basename(table.file) == _MERGED}
    tables = [table for table in tables if not _is_merged(table, merged)]
    names = [table.file for table in tables]
    for table in tables:
        devices |= dict.fromkeys(table.devices)
        copies.append(table.copies)
        if table.kind == "stats":
            summaries.append(table)
        elif len(table.launches):
            _join(runs, table)
    kernels = KernelTable()
    for run in runs or summaries:
        kernels.append(run.launches)
    if not len(kernels):
        raise ProfileError(f"{', '.join(names[:3])}: no kernels; {_HOW_TO_COLLECT} -- COMMAND")
    counted = bool(kernels.metrics)
    if counted:
        _interpret(kernels)
    warnings = tuple(_warnings(kernels, counted))
    for each in (kernels, copies):
        each.set("number", range(len(each)))
    kernels.fill(kind=KERNEL)
    kernels.append(copies)
    starts = [start for start in kernels.cells("start") if start is not None]
    kernels.fill(begin=min(starts, default=0))
    evidence = tuple(replace(device, amd=True) for device in devices or [Evidence()])
    return Timeline(
        "rocprof",
        names[0],
        kernels,
        evidence=evidence,
        warnings=warnings,
        files=tuple(names),
        how_to_collect=_HOW_TO_COLLECT,
    )


def _is_merged(table: _DispatchTable, folders: set[str]) -> bool:
    """Whether the launches of the table are in the pmc_perf.csv of its folder, too."""
    folder, name = os.path.split(table.file)
    return table.kind != "agents" and folder in folders and name != _MERGED


def _join(runs: list[_DispatchTable], table: _DispatchTable) -> None:
    """Add a table to the run that has its launches and none of its counters, or as a run of its own."""
    for run in runs:
        small, large = sorted((run.rows.keys(), table.rows.keys()), key=len)
        traces = run.kind == table.kind == "trace"
        if traces or run.counters & table.counters or not small <= large:
            continue
        both = KernelTable()
        both.append(run.launches)
        both.append(table.launches)
        added = {key: len(run.launches) + row for key, row in table.rows.items()}
        # without counters kernels run as they do in production
        sources = {**run.rows, **added} if table.kind == "trace" else {**added, **run.rows}
        keys = {**run.rows, **added}
        joined = both.select([sources[key] for key in keys])
        for side in (run, table):
            for counter in side.counters:
                cells = [side.launches.cell(counter, side.rows[key]) if key in side.rows else None for key in keys]
                joined.set(counter, cells)
        run.launches, run.rows = joined, {key: row for row, key in enumerate(keys)}
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
    from roofmodel.profiles.timelines.kernels import profile

    found = profile(rocprof_database.read(stream, file))
    kernels, counted = found.kernels, bool(found.kernels.metrics)
    if counted:
        kernels.drop("grid")  # as in the tables: it marks launches one by one
    keys = zip(*(kernels.cells(column) for column in ("device", "dispatch", "name")), strict=True)
    rows = {key: row for row, key in enumerate(keys)}
    kind = "counters" if counted else "trace"
    return _DispatchTable(kind, file, kernels, rows, list(found.evidence), found.copies)


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
    counters: dict[str, dict[int, float]] = {}
    for cells in rows:
        if not cells:
            continue
        where = f"{file}:{rows.line_num}"
        if len(cells) != len(columns):
            raise ProfileError(f"{where}: the row has {len(cells)} cells but the header {len(columns)} columns")
        try:
            _add(table, dict(zip(columns, cells, strict=True)), counters)
        except (ValueError, OverflowError) as error:
            raise ProfileError(f"{where}: {error}") from None
        except KeyError as error:
            raise ProfileError(f"{where}: the column {error} is missing") from None
    table.launches.declare(**dict.fromkeys(counters, float))
    for counter, values in counters.items():
        table.launches.set(counter, [values.get(row) for row in range(len(table.launches))])
    for each in (table.launches, table.copies):
        each.fill(file=file)
    return table


def _add(table: _DispatchTable, row: Mapping[str, str], counters: dict[str, dict[int, float]]) -> None:
    """Add a row of a file to its table; `counters` has the value by counter and launch."""
    if table.kind == "agents":
        if row.get("agent_type", "GPU") == "GPU":
            clock, units = _number(row.get("max_engine_clk_fcompute")), _number(row.get("cu_count"))
            name = row.get("product_name") or row.get("name")
            if "workload_name" in row and name:  # MI300X_A1, with the revision of the chip
                name = f"AMD Instinct {name.upper().partition('_')[0]}"
            clock = clock * 1e6 if clock else None
            device = Evidence(name, multiprocessors=int(units) if units else None, clock=clock, file=table.file)
            table.devices.append(device)
        return
    launches = table.launches
    if table.kind == "stats":
        name = _kernel_name(row["kernel_name"] if "kernel_name" in row else row["name"])
        launches.add(name=name, invocations=int(row["calls"]), seconds=_count(row["totaldurationns"]) / 1e9)
        return
    if table.kind == "copies":
        if rocprof_database.copy_direction(row["direction"]) != "HtoH":  # of no GPU
            table.copies.add(**_copy(row))
        return
    if row.get("kind", "KERNEL_DISPATCH") != "KERNEL_DISPATCH":
        return
    name, agent = _kernel_name(_first(row, _NAME)), _agent(_first(row, _AGENT))
    key = agent, _first(row, _DISPATCH) or str(len(launches)), name
    if (number := table.rows.get(key)) is None:
        number = table.rows[key] = len(launches)
        grid = block = None
        if "workgroup_size_x" in row:
            sizes = [_whole(row[f"workgroup_size_{axis}"]) or 1 for axis in "xyz"]
            threads = [_whole(row[f"grid_size_{axis}"]) or 1 for axis in "xyz"]  # AMD's grid counts threads, not blocks
            block, grid = extent(sizes), extent(-(-each // size) for each, size in zip(threads, sizes, strict=True))
        launches.add(
            name=name, device=agent, stream=_first(row, _QUEUE), process=_first(row, _PROCESS), grid=grid, block=block,
            registers=_whole(row.get("vgpr_count") or row.get("arch_vgpr")),
            **_times(_first(row, _START), _first(row, _END)),
        )  # fmt: skip
    if "counter_name" in row:
        values = counters.setdefault(row["counter_name"].upper(), {})
        values[number] = values.get(number, 0.0) + _count(row["counter_value"])
    else:
        for column, cell in row.items():
            if column.startswith(_COUNTERS) and cell and "[" not in column:  # not those of single channels
                counters.setdefault(column.upper(), {})[number] = _count(cell)


def _times(start: str | None, end: str | None) -> dict[str, float | None]:
    """The cells of times in nanoseconds."""
    first, last = _whole(start), _whole(end)
    return {"start": first, "end": last, "seconds": None if first is None or last is None else (last - first) / 1e9}


def _kernel_name(text: str | None) -> str:
    name = limited_name(printable(_CLONE.sub("", text or "")))
    if not name.strip():
        raise ValueError("the kernel has no name")
    return name


def _copy(row: Mapping[str, str]) -> dict[str, object]:
    direction = rocprof_database.copy_direction(row["direction"])
    source, destination = _agent(row["source_agent_id"]), _agent(row["destination_agent_id"])
    cells = {"device": source if direction == "DtoH" else destination}
    if direction == "DtoD" and source != destination:
        direction = "PtoP"
        cells |= {"memory": "device", "source": source, "destination": destination}
    return {
        **cells, "kind": COPY, "name": rocprof_database.copy_name(direction), "direction": direction,
        "stream": row.get("stream_id"), "bytes": _whole(row.get("bytes")),
        **_times(row.get(_START[0]), row.get(_END[0])),
    }  # fmt: skip


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


def _interpret(kernels: KernelTable) -> None:
    """Set FLOPs and bytes of the kernels from their counters, which are then dropped."""
    counted = [kernel.counters for kernel in kernels]
    for form, interpret in ((Flops, flops), (Traffic, traffic)):
        every = [interpret({**counters}) for counters in counted]
        for name in form._fields:
            kernels.set(name, [getattr(each, name) for each in every])
    kernels.drop(*kernels.metrics)


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


def _warnings(kernels: KernelTable, counted: bool) -> Iterator[ReaderWarning]:
    if None in kernels.seconds():
        yield ReaderWarning("kernels without times: their tables have none, or a spreadsheet rounded them", "times")
    if not counted:
        yield ReaderWarning(f"no counters: kernels have times only; collect them with {AMD_COUNTERS}", "counters")
    elif any(any(kernels.cells(pipe)) for pipe in ("fp32", "fp64", "fp16")):
        yield ReaderWarning(
            "FLOPs of vector units count all lanes of a wavefront: an upper bound where lanes are masked", "counters"
        )
