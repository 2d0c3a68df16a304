"""Nsight Systems: the SQLite export and the CSV of `nsys stats` -> a Profile.

The SQLite schema changes with every release, and tables are created only when they get a row, so tables
and columns are looked for by name and versions are not asked for. Times are integer nanoseconds from the
start of the session.

    kernel  -> launch   correlationId and globalPid = globalTid without its 24 thread bits (NVIDIA's own join)
    launch  -> NVTX     ranges of the launching thread with start <= launch < end, see `ranges`
    kernel  -> device   deviceId = TARGET_INFO_GPU.cuDevice, which is not TARGET_INFO_GPU.id

Only kernels, strings, ranges, API calls and attributes of GPUs are read: the export also holds environment
variables, paths and user names, which never leave it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.profiles import nsys_stats
from roofmodel.profiles.kernel import OF_AMD, Evidence, Extent, Kernel, Profile, extent, unlisted
from roofmodel.profiles.nvtx_ranges import FOREVER, Launch, Range, place, remarks
from roofmodel.profiles.streams import on_disk, printable

_MAGIC = b"SQLite format 3\0"
_HOW = (
    "collect with `nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o report COMMAND` "
    "and export with `nsys export --type sqlite report.nsys-rep`"
)
_KERNELS, _CALLS, _NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_THREAD_BITS = 24  # globalTid = hardware (8 bits), virtual machine (8), process (24), thread (24)
# NVTX_EVENTS.eventType. Push/pop ranges belong to a thread; start/end ranges may end on another one.
_PUSH_POP, _START_END = {59, 70}, {60, 71}


def recognise(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an SQLite database or a table of `nsys stats`."""
    return head.startswith(_MAGIC) or nsys_stats.recognise(head)


def read(file: BinaryIO, name: str) -> Profile:
    """The kernels of an export, by start; times in seconds from the start of the session.

    Raises ProfileError for a database that is damaged, is no export, or holds no kernels.
    """
    file.seek(0)
    magic = file.read(len(_MAGIC))
    file.seek(0)
    if magic != _MAGIC:
        return nsys_stats.read(file, name)
    with on_disk(file, _MAGIC) as path:
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                connection.text_factory = lambda raw: printable(raw.decode("utf-8", errors="replace"))
                connection.row_factory = sqlite3.Row
                return _profile(_Database(connection), name)
        except sqlite3.Error as error:
            why = getattr(error, "sqlite_errorname", "no valid database")  # the message would quote what it holds
            raise ProfileError(f"{name}: the SQLite database cannot be read ({why}); export it again") from None
        except (TypeError, ValueError, OverflowError):
            raise ProfileError(f"{name}: the database holds text where numbers belong; export it again") from None


class _Database:
    """Tables and columns that may or may not be there."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        self.tables = {str(table["name"]) for table in tables}

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[sqlite3.Row]:
        """The rows of a table, None for a column it lacks; no rows where the table itself is lacking."""
        if table not in self.tables:
            return
        there = {str(info["name"]) for info in self._connection.execute(f'PRAGMA table_info("{table}")')}
        picked = ", ".join(f'"{column}"' if column in there else f'NULL AS "{column}"' for column in columns)
        yield from self._connection.execute(f'SELECT {picked} FROM "{table}"')

    def count(self, table: str) -> int:
        if table not in self.tables:
            return 0
        return int(self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])


def _profile(database: _Database, name: str) -> Profile:
    if database.tables & {"CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "StringTable"}:
        raise ProfileError(
            f"{name}: is a database of nvprof's, which only nvprof reads; print it with "
            "`nvprof --csv --print-gpu-trace -i FILE --log-file trace.csv` and give that"
        )
    if any(table.startswith("rocpd_") for table in database.tables) or {"HIP", "KERN"} <= database.tables:
        raise ProfileError(f"{name}: is a database of AMD's rocprof, which is not read; {OF_AMD}")
    if "StringIds" not in database.tables:
        raise ProfileError(f"{name}: is an SQLite database, but no export of nsys (no table StringIds); {_HOW}")
    graphs = database.count("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    if not database.count(_KERNELS):
        why = f"only {graphs} CUDA graphs traced as a whole, " if graphs else ""
        raise ProfileError(f"{name}: the export holds {why}no kernels (table {_KERNELS}); {_HOW}")
    rows = _kernel_rows(database)
    placed, warnings = _nvtx(database, rows)
    evidence, unknown = _evidence(database, rows)
    names = _strings(database, {row[column] for row in rows for column in _NAMES})
    kernels = tuple(_kernel(row, i, name, names, placed[i]) for i, row in enumerate(rows))
    if nameless := sum(not kernel.name for kernel in kernels):
        raise ProfileError(f"{name}: {nameless} kernels have no name among StringIds; export the report again")
    warnings += unknown
    if broken := sum(kernel.seconds is None for kernel in kernels):
        warnings.append(f"{broken} kernels end before they start: their time is unknown")
    if graphs:
        warnings.append(f"{graphs} CUDA graphs were traced as a whole: their kernels are missing; {_HOW}")
    warnings += unlisted(sum(database.count(f"CUPTI_ACTIVITY_KIND_{what}") for what in ("MEMCPY", "MEMSET")))
    return Profile("nsys", (name,), kernels, evidence, tuple(warnings))


_NAMES = ("demangledName", "shortName", "mangledName")
_GRID, _BLOCK = ("gridX", "gridY", "gridZ"), ("blockX", "blockY", "blockZ")
_COLUMNS = (
    *("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "registersPerThread"),
    *_NAMES,
    *_GRID,
    *_BLOCK,
)


def _kernel_rows(database: _Database) -> list[sqlite3.Row]:
    rows = list(database.rows(_KERNELS, _COLUMNS))
    rows.sort(key=lambda row: int(row["start"]))
    return rows


def _kernel(row: sqlite3.Row, index: int, file: str, names: dict[object, str], nvtx: tuple[str, ...]) -> Kernel:
    nanoseconds = int(row["end"]) - int(row["start"])
    return Kernel(
        id=str(index),
        file=file,
        name=next((names[row[column]] for column in _NAMES if row[column] in names), ""),
        process=None if row["globalPid"] is None else str(_pid(row["globalPid"])),
        device=_text(row["deviceId"]),
        stream=_text(row["streamId"]),
        grid=_sizes(row, _GRID),
        block=_sizes(row, _BLOCK),
        nvtx=nvtx,
        seconds=nanoseconds / 1e9 if nanoseconds >= 0 else None,
        start=int(row["start"]) / 1e9,
        registers=None if row["registersPerThread"] is None else int(row["registersPerThread"]),
    )


def _nvtx(database: _Database, rows: list[sqlite3.Row]) -> tuple[list[tuple[str, ...]], list[str]]:
    """The NVTX ranges around the launch of each kernel, and what is uncertain about them."""
    ranges = list(_ranges(database))
    nothing: list[tuple[str, ...]] = [()] * len(rows)
    if not ranges:
        return nothing, []
    wanted = {row["correlationId"] for row in rows} - {None}
    calls: dict[tuple[object, int], Launch] = {}
    for call in database.rows(_CALLS, ("correlationId", "globalTid", "start")):
        if call["correlationId"] in wanted and call["globalTid"] is not None:
            launch = Launch(_process(call["globalTid"]), int(call["globalTid"]), int(call["start"]))
            key = (call["correlationId"], _process(call["globalTid"]))
            calls[key] = min(calls.get(key, launch), launch, key=lambda found: found.time)
    processes = {process for _, process in calls}
    alone = next(iter(processes)) if len(processes) == 1 else None  # for kernels that name no process

    def launch_of(row: sqlite3.Row) -> Launch | None:
        process = alone if row["globalPid"] is None else _process(row["globalPid"])
        return None if process is None else calls.get((row["correlationId"], process))

    launches = [launch_of(row) for row in rows]
    placed = place(launches, ranges)
    warnings = remarks(placed)
    if lost := launches.count(None):
        warnings.append(f"the launches of {lost} kernels are not in the export: their NVTX ranges are unknown")
    return placed.labels, warnings


def _ranges(database: _Database) -> Iterator[Range]:
    columns = ("start", "end", "eventType", "text", "textId", "globalTid")
    events = [event for event in database.rows(_NVTX, columns) if event["eventType"] in _PUSH_POP | _START_END]
    texts = _strings(database, {event["textId"] for event in events})
    for event in events:
        label = texts.get(event["textId"]) if event["text"] is None else str(event["text"])
        if label and event["globalTid"] is not None:
            end = FOREVER if event["end"] is None else int(event["end"])
            thread = int(event["globalTid"]) if event["eventType"] in _PUSH_POP else None
            yield Range(_process(event["globalTid"]), thread, int(event["start"]), end, label)


def _evidence(database: _Database, rows: list[sqlite3.Row]) -> tuple[tuple[Evidence, ...], list[str]]:
    """The attributes of the GPUs that the kernels ran on; none where the export leaves open which those are."""
    columns = ("id", "cuDevice", "name", "l2CacheSize", "totalMemory", "memoryBandwidth", "clockRate", "smCount")
    gpus = list(database.rows("TARGET_INFO_GPU", (*columns, "computeMajor", "computeMinor")))
    if not gpus:
        return (), []
    ordinals = {
        (int(device["pid"]), device["cudaId"]): device["gpuId"]
        for device in database.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
        if device["pid"] is not None
    }
    used: dict[Evidence, None] = {}
    for process, device in Counter((row["globalPid"], row["deviceId"]) for row in rows):
        matches = [gpu for gpu in gpus if device is not None and gpu["cuDevice"] == device]
        if not matches and process is not None and (_pid(process), device) in ordinals:
            matches = [gpu for gpu in gpus if gpu["id"] == ordinals[_pid(process), device]]
        said = {_attributes(gpu) for gpu in matches or gpus}
        if len(said) > 1:
            return (), ["the export does not say on which of its GPUs the kernels ran: name the device with --hw"]
        used.update(dict.fromkeys(said))
    return tuple(used), []


def _attributes(gpu: sqlite3.Row) -> Evidence:
    def positive(column: str) -> int | None:
        return int(gpu[column]) if gpu[column] else None

    major, minor = gpu["computeMajor"], gpu["computeMinor"]
    return Evidence(
        name=_text(gpu["name"]),
        compute_capability=f"{int(major)}.{int(minor or 0)}" if major else None,
        multiprocessors=positive("smCount"),
        l2_bytes=positive("l2CacheSize"),
        dram_bandwidth=positive("memoryBandwidth"),
        dram_bytes=positive("totalMemory"),
        clock=positive("clockRate"),
    )


def _strings(database: _Database, wanted: set[object]) -> dict[object, str]:
    """The strings of these ids."""
    wanted.discard(None)
    rows = database.rows("StringIds", ("id", "value")) if wanted else ()
    return {row["id"]: str(row["value"]) for row in rows if row["id"] in wanted and row["value"]}


def _process(global_id: object) -> int:
    """globalTid or globalPid -> globalPid."""
    return int(str(global_id)) >> _THREAD_BITS << _THREAD_BITS


def _pid(global_id: object) -> int:
    """globalTid or globalPid -> the process id of the operating system."""
    return (int(str(global_id)) >> _THREAD_BITS) & 0xFFFFFF


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _sizes(row: sqlite3.Row, columns: tuple[str, str, str]) -> Extent | None:
    return extent(None if row[column] is None else int(row[column]) for column in columns)
