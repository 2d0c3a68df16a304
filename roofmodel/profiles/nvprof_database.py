"""Read nvprof's own profiles (`nvprof -o run.nvprof`, also named .nvvp): SQLite databases with CUPTI's activity tables.

    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_KERNEL   launches, with the number of their name
    CUPTI_ACTIVITY_KIND_MEMCPY, _MEMCPY2, _MEMSET                       copies and memsets
    CUPTI_ACTIVITY_KIND_DEVICE                                          devices
    StringTable                                                         names

Times are nanoseconds, often since 1970, which would lose digits as seconds: starts are given from the first activity's.
Codes of copies and memory are those of cupti_activity.h. Metrics and CUDA calls are not read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import CopySize, Evidence, Kernel, Profile, copies_warning, extent, host_memory
from roofmodel.profiles.nsys import DIRECTIONS
from roofmodel.profiles.nsys_database import MAGIC, Database
from roofmodel.profiles.streams import as_file

_KERNELS = ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL")
_COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMCPY2")
_MEMSETS = "CUPTI_ACTIVITY_KIND_MEMSET"
_WHERE = ("start", "end", "deviceId", "contextId", "streamId")
_SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_MEMORY = {1: "pageable", 2: "pinned", 3: "device", 5: "managed"}
_HOW_TO_COLLECT = (
    "profile again with `nvprof -o run.nvprof COMMAND`, or export with `nvprof -i FILE --csv --print-gpu-trace`"
)


def recognize(head: bytes) -> bool:
    """Whether a file that starts with these bytes is a profile of nvprof: its schema is in its first page."""
    return (
        head.startswith(MAGIC)
        and b"StringTable" in head
        and b"CUPTI_ACTIVITY_KIND_" in head
        and b"StringIds" not in head  # of Nsight Systems
    )


def read(file: BinaryIO, name: str) -> Profile:
    """The launches and copies of a profile. Raises ProfileError for a damaged one, and for one without launches."""
    with as_file(file, MAGIC, name) as path:
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                return _profile(Database(connection, path.stat().st_size), name)
        except (sqlite3.Error, OverflowError, TypeError, ValueError):
            raise ProfileError(f"{name}: the database of nvprof is damaged; {_HOW_TO_COLLECT}") from None


def _profile(database: Database, name: str) -> Profile:
    names = {row["_id_"]: str(row["value"]) for row in database.rows("StringTable", ("_id_", "value"))}
    every = (row["start"] for table in (*_KERNELS, *_COPIES, _MEMSETS) for row in database.rows(table, ("start",)))
    begin = min(map(int, every), default=0)
    kernels = [
        Kernel(
            **_placed(row, name, begin),
            name=names.get(row["name"], str(row["name"])),
            grid=extent(row[column] for column in _SIZES[:3]),
            block=extent(row[column] for column in _SIZES[3:]),
            registers=row["registersPerThread"],
        )
        for table in _KERNELS
        for row in database.rows(table, (*_WHERE, "name", "registersPerThread", *_SIZES))
    ]
    copies = list(_copies(database, name, begin))
    if not kernels and not copies:
        raise ProfileError(f"{name}: no kernel launches in the database of nvprof; {_HOW_TO_COLLECT}")
    kernels.sort(key=lambda kernel: kernel.start or 0)
    numbered = tuple(Kernel(**{**vars(kernel), "id": str(index)}) for index, kernel in enumerate(kernels))
    devices = tuple(_devices(database, names))
    return Profile("nvprof", (name,), numbered, devices, tuple(copies_warning(len(copies))), copies=tuple(copies))


def _placed(row: sqlite3.Row, file: str, begin: int) -> dict[str, Any]:
    """The fields that kernels and copies share."""
    start, end = int(row["start"]), int(row["end"])
    return {
        "id": "",
        "file": file,
        "device": None if row["deviceId"] is None else str(row["deviceId"]),
        "stream": None if row["streamId"] is None else str(row["streamId"]),
        "start": (start - begin) / 1e9,
        "seconds": (end - start) / 1e9 if end >= start else None,
    }


def _copies(database: Database, file: str, begin: int) -> Iterator[Kernel]:
    for table in _COPIES:
        for row in database.rows(table, (*_WHERE, "bytes", "copyKind", "srcKind", "dstKind")):
            direction = DIRECTIONS.get(row["copyKind"], "PtoP" if table == _COPIES[1] else "DtoD")
            memory = host_memory(_MEMORY.get(row["srcKind"]), _MEMORY.get(row["dstKind"]))
            size = CopySize(row["bytes"], direction, memory)
            yield Kernel(**_placed(row, file, begin), name=f"[CUDA memcpy {direction}]", copy=size)
    for row in database.rows(_MEMSETS, (*_WHERE, "bytes")):
        yield Kernel(**_placed(row, file, begin), name="[CUDA memset]", copy=CopySize(row["bytes"]))


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
