"""Read Nsight Systems files: the SQLite export (here) and the CSV of `nsys stats` (`nsys_stats.py`).

The SQLite schema changes with every release, and tables exist only if they have rows. So tables and columns are found
by name, and the schema version is ignored. Times are integer nanoseconds from the start of the session.

    kernel  -> launch   correlationId and the process of globalPid or globalTid (NVIDIA's own join)
    kernel  -> device   deviceId = TARGET_INFO_GPU.cuDevice, which is not TARGET_INFO_GPU.id
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from roofmodel.errors import ProfileError
from roofmodel.numbers import units
from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.kernel import COPY, KERNEL, MEMSET, Evidence, Extent, KernelTable
from roofmodel.profiles.nsys_database import HOW_TO_COLLECT, Database, opened
from roofmodel.profiles.signatures import is_sqlite
from roofmodel.profiles.timelines.timeline import (
    CALLS,
    CLOCK,
    LATEST,
    POWER,
    RANGES,
    Samples,
    Timeline,
    check_times,
    kernel_rows,
    places,
    with_launches,
)

_KERNELS, _CALLS, _NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_NAMES = ("demangledName", "shortName", "mangledName")
SHARED = ("staticSharedMemory", "dynamicSharedMemory")
_SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_TIMES = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_THREAD_BITS = 24  # globalTid = hardware (8 bits), virtual machine (8), process (24), thread (24)
# NVTX_EVENTS.eventType. Push/pop ranges belong to a thread; start/end ranges may end on another thread.
_PUSH_POP, _START_END = {59, 70}, {60, 71}
_NEVER = (1 << 63) - 1  # the end of a range that is open at the end of the trace
_GPU_COLUMNS = (
    *("id", "cuDevice", "name", "l2CacheSize", "totalMemory", "memoryBandwidth", "clockRate", "smCount"),
    *("computeMajor", "computeMinor"),
)
PEERS = ("srcDeviceId", "dstDeviceId")  # of copies between GPUs
# CUPTI's copyKind and memory kinds (ENUM_CUDA_MEMCPY_OPER, ENUM_CUDA_MEM_KIND of an export).
DIRECTIONS = {
    1: "HtoD", 2: "DtoH", 3: "HtoD", 4: "DtoH", 5: "DtoD", 6: "DtoD", 7: "DtoD", 8: "DtoD", 9: "HtoH", 10: "PtoP",
    11: "unified_HtoD", 12: "unified_DtoH", 13: "PtoP",
}  # fmt: skip
_MEMORY = {0: "pageable", 1: "pinned", 2: "device", 3: "device", 4: "managed", 5: "device", 6: "managed"}
Row = Any

# Names of GPU_METRICS, in sets of several architectures: `GPC Clock Frequency [MHz]`. The graphics processing clusters
# (GPC) contain the SMs.
_CLOCK_METRIC = "GPC Clock Frequency"
_POWER_METRIC = re.compile(r"(?:GPU )?Power(?: Draw| Usage)? ?[\[(](m?W)[\])]")
LEAST_HERTZ = 1e6  # below every clock in hertz, above every clock in megahertz


def read(file: BinaryIO, name: str, with_samples: bool = False) -> Timeline:
    """The events of a file; times in nanoseconds from the start of the session.

    With `with_samples`, also the samples of clock and power. Raises ProfileError for a file that is damaged, is not an
    nsys export, or has no work of a GPU.
    """
    if not is_sqlite(file):
        from roofmodel.profiles import nsys_stats

        return nsys_stats.read(file, name)
    with opened(file, name) as database:
        timeline = _timeline(database, name)
        return replace(timeline, samples=_samples(timeline, database)) if with_samples else timeline


def _without_kernels(database: Database) -> str:
    """Why an export has no kernels, and what to do."""
    graphs = database.count("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    text = f"the export contains no kernels {f'but {graphs} CUDA graphs traced as a whole ' * bool(graphs)}"
    if calls := database.count(_CALLS):
        return (
            f"{text}but {units.count(calls, 'CUDA call')} of the CPU: nsys did not trace the GPU, as in WSL with an "
            "older nsys or driver, or when the program ends abnormally; update them, or profile outside of WSL"
        )
    return f"{text}(table {_KERNELS}); {HOW_TO_COLLECT}"


def _timeline(database: Database, name: str) -> Timeline:
    strings = {row["id"]: str(row["value"]) for row in database.rows("StringIds", ("id", "value")) if row["value"]}
    work = KernelTable()
    for kind, row, cells in _activities(database, strings):
        process = None if row["globalPid"] is None else _process_id(row["globalPid"])
        add_activity(work, kind, row, process=process, **cells)
    if not len(work):
        raise ProfileError(f"{name}: {_without_kernels(database)}")
    calls = ColumnTable(CALLS)
    for row in database.rows(_CALLS, ("start", "end", "globalTid", "correlationId", "nameId")):
        if row["globalTid"] is not None and row["start"] is not None:
            label = strings.get(row["nameId"], "CUDA call")
            calls.add(name=label, correlation=row["correlationId"], **_place(row))
    ranges = ColumnTable(RANGES)
    for row in database.rows(_NVTX, ("start", "end", "eventType", "text", "textId", "globalTid")):
        label = strings.get(row["textId"], "") if row["text"] is None else str(row["text"])
        if label and row["globalTid"] is not None and row["eventType"] in _PUSH_POP | _START_END:
            of_thread = {} if row["eventType"] in _PUSH_POP else {"thread": None}
            ranges.add(name=label, **(_place(row) | of_thread))
    check_times(work, calls, ranges)
    evidence, warnings = _evidence(database, work)
    if graphs := database.count("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        warnings.append(f"{units.count(graphs, 'CUDA graph')} traced as a whole, without kernels; {HOW_TO_COLLECT}")
    if nameless := work.cells("name").count(_NAMELESS):
        warnings.append(f"{units.count(nameless, 'kernel')} without a name in StringIds; export the report again")
    timeline = Timeline("nsys", name, work, calls, range_table=ranges, evidence=evidence, warnings=tuple(warnings))
    return with_launches(timeline)


def add_activity(work: KernelTable, kind: str, row: Row, **cells: Any) -> None:
    """Add a row of a table of kernels, copies or memsets. Raises OverflowError for a time that no run has."""
    start = int(row["start"])
    end = start - 1 if row["end"] is None else int(row["end"])
    if end >= LATEST:
        raise OverflowError("a time is too large")
    work.add(
        kind=kind, start=start, end=max(start, end), untimed=1 if end < start else None, device=row["deviceId"],
        stream=row["streamId"], correlation=row["correlationId"], **cells,
    )  # fmt: skip


def copy_cells(row: Row, direction: str, memories: Mapping[int, str]) -> dict[str, Any]:
    """The cells of a copy. Its memory is that of the host, and device if both sides are on a GPU."""
    source, destination = row["srcDeviceId"], row["dstDeviceId"]
    if direction == "DtoD" and None not in (source, destination) and source != destination:
        direction = "PtoP"
    kinds = {memories.get(row["srcKind"]), memories.get(row["dstKind"])}
    memory = next((kind for kind in ("pageable", "pinned", "managed", "device") if kind in kinds), None)
    cells = {"name": f"[CUDA memcpy {direction}]", "bytes": row["bytes"], "direction": direction, "memory": memory}
    return cells | {"source": source, "destination": destination} if direction == "PtoP" else cells


_NAMELESS = "unnamed kernel"


def _activities(database: Database, strings: dict[Any, str]) -> Iterator[tuple[str, Row, dict[str, Any]]]:
    for row in database.rows(_KERNELS, (*_TIMES, "registersPerThread", *SHARED, *_NAMES, *_SIZES)):
        sizes = [row[column] for column in _SIZES]
        yield KERNEL, row, {
            "name": next((strings[row[column]] for column in _NAMES if row[column] in strings), _NAMELESS),
            "registers": None if row["registersPerThread"] is None else int(row["registersPerThread"]),
            "shared_bytes": shared_bytes(row), "grid": size(*sizes[:3]), "block": size(*sizes[3:]),
        }  # fmt: skip
    columns = (*_TIMES, "bytes", "copyKind", "srcKind", "dstKind", *PEERS)
    for row in database.rows("CUPTI_ACTIVITY_KIND_MEMCPY", columns):
        yield COPY, row, copy_cells(row, DIRECTIONS.get(row["copyKind"], "DtoD"), _MEMORY)
    for row in database.rows("CUPTI_ACTIVITY_KIND_MEMSET", (*_TIMES, "bytes", "memKind")):
        yield MEMSET, row, {"name": "[CUDA memset]", "bytes": row["bytes"], "memory": _MEMORY.get(row["memKind"])}


def size(x: Any, y: Any, z: Any) -> Extent | None:
    """A grid or block; None if a part is missing."""
    return None if x is None or y is None or z is None else (int(x), int(y), int(z))


def shared_bytes(row: Row) -> int | None:
    """The shared memory of a block; None if a part is missing."""
    parts = [row[column] for column in SHARED]
    return None if None in parts else sum(map(int, parts))


def _place(row: Row) -> dict[str, Any]:
    """Start, end, process and thread of a call or range."""
    return {
        "start": row["start"], "end": _NEVER if row["end"] is None else row["end"],
        "process": _process_id(row["globalTid"]), "thread": row["globalTid"],
    }  # fmt: skip


def _process_id(global_id: object) -> int:
    """globalTid or globalPid -> the process id."""
    return (int(str(global_id)) >> _THREAD_BITS) & 0xFFFFFF


def thread_id(global_id: object) -> int:
    """globalTid -> the thread id."""
    return int(str(global_id)) & (1 << _THREAD_BITS) - 1


def _evidence(database: Database, work: KernelTable) -> tuple[tuple[Evidence, ...], list[str]]:
    """Attributes of the GPUs that the kernels ran on, and warnings; no attributes if the GPUs are ambiguous."""
    of_process = _gpus_by_process(database)
    gpus = _cuda_gpus(database)  # last: an error names the table that was opened last
    if not gpus:
        return (), []
    used: dict[Evidence, None] = {}
    for process, device in places(work.select(rows) if (rows := kernel_rows(work)) else work):
        matches = [gpu for gpu in gpus if str(gpu["cuDevice"]) == device]
        if len(matches) != 1 and (process, device) in of_process:
            matches = [gpu for gpu in gpus if gpu["id"] == of_process[process, device]]
        candidates = {_attributes(gpu) for gpu in matches or gpus}
        if len(candidates) > 1:
            text = "the export has several GPUs and does not show which of them ran the kernels: specify the device"
            return (), [text]
        used.update(dict.fromkeys(candidates))
    return tuple(used), []


def _cuda_gpus(database: Database) -> list[Row]:
    """The GPUs that can run CUDA. On Windows the table also has the adapters of other vendors, without SMs."""
    gpus = list(database.rows("TARGET_INFO_GPU", _GPU_COLUMNS))
    return [gpu for gpu in gpus if gpu["smCount"]] or gpus


def _gpus_by_process(database: Database) -> dict[tuple[str | None, str | None], int]:
    """TARGET_INFO_GPU.id by process and device."""
    return {
        (str(row["pid"]), str(row["cudaId"])): int(row["gpuId"])
        for row in database.rows("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"))
        if None not in tuple(row)
    }


def _attributes(gpu: Row) -> Evidence:
    def positive(column: str) -> int | None:
        return int(gpu[column]) if gpu[column] else None

    major, minor = gpu["computeMajor"], gpu["computeMinor"]
    return Evidence(
        name=None if gpu["name"] is None else str(gpu["name"]),
        compute_capability=f"{int(major)}.{int(minor or 0)}" if major else None,
        multiprocessors=positive("smCount"),
        l2_bytes=positive("l2CacheSize"),
        dram_bandwidth=positive("memoryBandwidth"),
        dram_bytes=positive("totalMemory"),
        clock=positive("clockRate"),
    )


def _samples(timeline: Timeline, database: Database) -> dict[tuple[str | None, str | None, str], Samples]:
    """Clock and power of the GPU of each process and device, from `nsys profile --gpu-metrics-devices=all`.

    The low 8 bits of typeId are TARGET_INFO_GPU.id. Clocks have the unit MHz in their name and are stored in hertz.
    """
    quantities: dict[int, tuple[str, float]] = {}
    for row in database.rows("TARGET_INFO_GPU_METRICS", ("metricId", "metricName")):
        text = str(row["metricName"])
        if row["metricId"] is not None and text.startswith(_CLOCK_METRIC):
            quantities[int(row["metricId"])] = (CLOCK, 1.0)
        elif row["metricId"] is not None and (unit := _POWER_METRIC.fullmatch(text)):
            quantities[int(row["metricId"])] = (POWER, 1e-3 if unit[1] == "mW" else 1.0)
    if not quantities:
        return {}
    series: dict[tuple[int, str], tuple[array[int], array[float]]] = {}  # times and values: a run has millions of them
    columns = ("timestamp", "typeId", "metricId", "value")
    for row in database.rows("GPU_METRICS", columns, ("metricId", quantities)):
        if None not in tuple(row):
            quantity, factor = quantities[int(row["metricId"])]
            place = int(row["typeId"]) & 0xFF, quantity
            if place not in series:
                series[place] = array("q"), array("d")
            times, values = series[place]
            times.append(int(row["timestamp"]))
            values.append(float(row["value"]) * factor)
    every = {place: _sorted_samples(place[1], *series[place]) for place in series}
    gpus = _gpus(timeline, database, {gpu for gpu, _ in every})
    return {
        (process, device, quantity): samples
        for (process, device), gpu in gpus.items()
        for (number, quantity), samples in every.items()
        if number == gpu
    }


def _sorted_samples(quantity: str, stored_times: array[int], stored_values: array[float]) -> Samples:
    times, values = np.frombuffer(stored_times, np.int64), np.frombuffer(stored_values, np.float64)
    if (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
    if quantity == CLOCK and float(np.median(values)) < LEAST_HERTZ:  # in MHz, as the name of the metric states
        values = values * 1e6
    return Samples(times, values)


def _gpus(timeline: Timeline, database: Database, sampled: set[int]) -> dict[tuple[str | None, str | None], int]:
    """TARGET_INFO_GPU.id of each process and device; the only sampled GPU if the export has one device."""
    by_process = _gpus_by_process(database)
    by_device: dict[str | None, int] = {
        str(row["cuDevice"]): int(row["id"]) for row in _cuda_gpus(database) if None not in (row["cuDevice"], row["id"])
    }
    gpus: dict[tuple[str | None, str | None], int] = {}
    ranks = places(timeline.work_table)
    for process, device in ranks:
        gpu = by_process.get((process, device), by_device.get(device))
        if gpu is None and len(ranks) == len(sampled) == 1:
            gpu = next(iter(sampled))
        if gpu is not None:
            gpus[process, device] = gpu
    return gpus
