"""Read nvprof's own profiles (`nvprof -o run.nvprof`, also named .nvvp): SQLite databases with CUPTI's activity tables.

    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_KERNEL   launches, with the number of their name
    CUPTI_ACTIVITY_KIND_MEMCPY, _MEMCPY2, _MEMSET                       copies and memsets
    CUPTI_ACTIVITY_KIND_RUNTIME, _DRIVER                                CUDA calls, with the number of their function
    CUPTI_ACTIVITY_KIND_MARKER                                          NVTX ranges: a start and an end with one id
    CUPTI_ACTIVITY_KIND_DEVICE                                          devices
    CUPTI_ACTIVITY_KIND_ENVIRONMENT                                     clock, temperature and power, sampled
    StringTable                                                         names

Codes of copies, memory and markers are those of cupti_activity.h. Metrics and events have the numbers that CUPTI gives
them on one GPU, and no names: only nvprof itself can print them.
"""

from __future__ import annotations

import sqlite3
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from roofmodel.errors import ProfileError
from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.kernel import COPY, KERNEL, MEMSET, Evidence, KernelTable
from roofmodel.profiles.nsys import DIRECTIONS, PEERS, SHARED, add_activity, copy_cells, shared_bytes, size
from roofmodel.profiles.nsys_database import Database, opened
from roofmodel.profiles.timelines.timeline import (
    CALLS,
    CLOCK,
    POWER,
    POWER_LIMIT,
    RANGES,
    TEMPERATURE,
    THROTTLED,
    Samples,
    Timeline,
    check_times,
    places,
    with_launches,
)

_KERNELS = ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL")
_COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMCPY2")
_MEMSETS, _MARKERS = "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_MARKER"
_COUNTERS = ("_METRIC", "_METRIC_INSTANCE", "_EVENT", "_EVENT_INSTANCE")
_WHERE = ("start", "end", "deviceId", "streamId", "correlationId")
_SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_MEMORY = {1: "pageable", 2: "pinned", 3: "device", 4: "device", 5: "managed"}
_START, _END = 2, 4  # CUpti_ActivityFlag of a marker
_OF_THREAD = 2  # CUpti_ActivityObjectKind: its number is a process (4 bytes) and a thread (8 bytes)
_SPEED, _TEMPERATURE, _POWER = 1, 2, 3  # CUpti_ActivityEnvironmentKind
_THROTTLE, _UNKNOWN_REASONS = 0x4 | 0x8, 0xC0000000  # CUpti_EnvironmentClocksThrottleReason: power cap, slowdown
_EXPORT = "`nvprof -i FILE --csv --print-gpu-trace`"
_AGAIN = f"profile again with `nvprof -o run.nvprof COMMAND`, or export with {_EXPORT}"
# Functions that launch, copy, wait or allocate, by their number in cupti_runtime_cbid.h and cupti_driver_cbid.h, which
# never changes; other calls keep the number as name.
_FUNCTIONS = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": {
        13: "cudaLaunch", 20: "cudaMalloc", 21: "cudaMallocPitch", 22: "cudaFree", 25: "cudaMallocHost",
        26: "cudaFreeHost", 27: "cudaHostAlloc", 31: "cudaMemcpy", 41: "cudaMemcpyAsync", 51: "cudaMemsetAsync",
        126: "cudaThreadSynchronize", 129: "cudaStreamCreate", 131: "cudaStreamSynchronize", 135: "cudaEventRecord",
        137: "cudaEventSynchronize", 138: "cudaEventQuery", 147: "cudaStreamWaitEvent", 152: "cudaHostRegister",
        165: "cudaDeviceSynchronize", 198: "cudaStreamCreateWithFlags", 202: "cudaStreamCreateWithPriority",
        206: "cudaMallocManaged", 211: "cudaLaunchKernel", 269: "cudaLaunchCooperativeKernel", 311: "cudaGraphLaunch",
    },
    "CUPTI_ACTIVITY_KIND_DRIVER": {
        17: "cuCtxSynchronize", 20: "cuModuleLoadDataEx", 115: "cuLaunch", 121: "cuEventSynchronize",
        126: "cuStreamSynchronize", 243: "cuMemAlloc", 245: "cuMemFree", 271: "cuMemHostAlloc", 276: "cuMemcpyHtoD",
        277: "cuMemcpyHtoDAsync", 278: "cuMemcpyDtoH", 279: "cuMemcpyDtoHAsync", 307: "cuLaunchKernel",
        371: "cuMemAllocManaged", 386: "cuDevicePrimaryCtxRetain",
    },
}  # fmt: skip


def read(file: BinaryIO, name: str) -> Timeline:
    """The events of a profile. Raises ProfileError for a damaged one, and for one without launches and copies."""
    with opened(file, name, _AGAIN, lambda database, name: None) as database:
        names = {row["_id_"]: str(row["value"]) for row in database.rows("StringTable", ("_id_", "value"))}
        work = KernelTable()
        for kind, row, cells in _activities(database, names):
            add_activity(work, kind, row, **cells)
        if not len(work):
            raise ProfileError(f"{name}: no kernel launches in the database of nvprof; {_AGAIN}")
        calls = ColumnTable(CALLS)
        for table, functions in _FUNCTIONS.items():
            for row in database.rows(table, ("start", "end", "cbid", "processId", "threadId", "correlationId")):
                calls.add(
                    name=functions.get(row["cbid"], f"CUDA function {row['cbid']}"), start=row["start"], end=row["end"],
                    process=row["processId"], thread=row["threadId"], correlation=row["correlationId"],
                )  # fmt: skip
        ranges = _ranges(database, names)
        warnings = []
        if counters := sum(database.count(f"CUPTI_ACTIVITY_KIND{table}") for table in _COUNTERS):
            warnings.append(
                f"{counters} values of metrics and events are ignored: the database has their numbers and not their "
                f"names. Print them with {_EXPORT} and give that file"
            )
        devices = tuple(_devices(database, names))
        series = _environment(database)
        check_times(work, calls, ranges)
    timeline = Timeline(
        "nvprof", name, work, calls, range_table=ranges, evidence=devices, warnings=tuple(warnings),
        begin=min(work.stored("start")),
    )  # fmt: skip
    timeline = with_launches(timeline)
    return replace(timeline, samples=_samples(timeline.work_table, series))


def _environment(database: Database) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """What `nvprof --system-profiling on` samples, by device and quantity: time and value."""
    series: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    columns = ("deviceId", "timestamp", "environmentKind", "data")
    for row in database.rows("CUPTI_ACTIVITY_KIND_ENVIRONMENT", columns):
        if not isinstance(row["data"], bytes):
            continue
        first, second, _, _, reasons = struct.unpack_from("<5I", row["data"].ljust(20, b"\0"))
        values: dict[str, float] = {}
        if row["environmentKind"] == _SPEED:
            values[CLOCK] = first * 1e6
            if not reasons & _UNKNOWN_REASONS:
                values[THROTTLED] = float(bool(reasons & _THROTTLE))
        elif row["environmentKind"] == _TEMPERATURE:
            values[TEMPERATURE] = float(first)
        elif row["environmentKind"] == _POWER:
            values |= {POWER: first / 1e3, POWER_LIMIT: second / 1e3}  # of mW
        for quantity, value in values.items():
            series[str(row["deviceId"]), quantity].append((int(row["timestamp"]), value))
    return series


def _samples(
    work: KernelTable, series: Mapping[tuple[str, str], list[tuple[int, float]]]
) -> dict[tuple[str | None, str | None, str], Samples]:
    """The samples of the GPU of each process and device."""
    arrays = {
        place: Samples(np.array([time for time, _ in pairs], np.int64), np.array([value for _, value in pairs]))
        for place, pairs in ((place, sorted(pairs)) for place, pairs in series.items())
    }
    return {
        (process, device, quantity): samples
        for process, device in places(work)
        for (sampled, quantity), samples in arrays.items()
        if sampled == device
    }


def _activities(database: Database, names: Mapping[object, str]) -> Iterator[tuple[str, sqlite3.Row, dict[str, Any]]]:
    for table in _KERNELS:
        for row in database.rows(table, (*_WHERE, "name", "registersPerThread", *SHARED, *_SIZES)):
            sizes = [row[column] for column in _SIZES]
            yield KERNEL, row, {
                "name": names.get(row["name"], str(row["name"])), "registers": row["registersPerThread"],
                "shared_bytes": shared_bytes(row), "grid": size(*sizes[:3]), "block": size(*sizes[3:]),
            }  # fmt: skip
    for table in _COPIES:
        for row in database.rows(table, (*_WHERE, "bytes", "copyKind", "srcKind", "dstKind", *PEERS)):
            direction = DIRECTIONS.get(row["copyKind"], "PtoP" if table == _COPIES[1] else "DtoD")
            yield COPY, row, copy_cells(row, direction, _MEMORY)
    for row in database.rows(_MEMSETS, (*_WHERE, "bytes")):
        yield MEMSET, row, {"name": "[CUDA memset]", "bytes": row["bytes"]}


def _ranges(database: Database, names: Mapping[object, str]) -> ColumnTable:
    ranges, starts = ColumnTable(RANGES), dict[int, sqlite3.Row]()
    columns = ("flags", "timestamp", "id", "objectKind", "objectId", "name")
    for row in database.rows(_MARKERS, columns, ("flags", (_START, _END))):
        if row["flags"] == _START:
            starts[row["id"]] = row
        elif row["id"] in starts:
            start = starts.pop(row["id"])
            if not (name := names.get(start["name"])):
                continue
            process = thread = None
            if start["objectKind"] == _OF_THREAD and isinstance(start["objectId"], bytes):
                process, thread = struct.unpack_from("<iq", start["objectId"].ljust(12, b"\0"))
            ranges.add(
                name=name, start=start["timestamp"], end=row["timestamp"], process=process,
                thread=thread,
            )  # fmt: skip
    return ranges


def _devices(database: Database, names: Mapping[object, str]) -> Iterator[Evidence]:
    columns = (
        "name", "computeCapabilityMajor", "computeCapabilityMinor", "numMultiprocessors", "l2CacheSize",
        "globalMemoryBandwidth", "globalMemorySize", "coreClockRate",
    )  # fmt: skip
    for row in database.rows("CUPTI_ACTIVITY_KIND_DEVICE", columns):
        major, minor = row["computeCapabilityMajor"], row["computeCapabilityMinor"]
        bandwidth, clock = row["globalMemoryBandwidth"], row["coreClockRate"]  # kB/s, kHz
        yield Evidence(
            name=names.get(row["name"], row["name"] if isinstance(row["name"], str) else None),
            compute_capability=None if major is None else f"{major}.{minor or 0}",
            multiprocessors=row["numMultiprocessors"],
            l2_bytes=row["l2CacheSize"],
            dram_bandwidth=None if bandwidth is None else bandwidth * 1e3,
            dram_bytes=row["globalMemorySize"],
            clock=None if clock is None else clock * 1e3,
        )
