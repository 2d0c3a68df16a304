"""Read Nsight Systems files: the SQLite export (here) and the CSV of `nsys stats` (`nsys_stats.py`).

The SQLite schema changes with every release, and tables exist only if they have rows. So tables and columns are found
by name, and the schema version is ignored. Times are integer nanoseconds from the start of the session.

    kernel  -> launch   correlationId and globalPid = globalTid without its 24 thread bits (NVIDIA's own join)
    launch  -> NVTX     ranges of the launching thread with start <= launch < end, see `nvtx_ranges.py`
    kernel  -> device   deviceId = TARGET_INFO_GPU.cuDevice, which is not TARGET_INFO_GPU.id

Only kernels, strings, NVTX ranges, API calls, GPU attributes and GPU metrics are read. The export also contains
environment variables, paths and user names, which are never read.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.files.file_names import printable
from roofmodel.profiles import nsys_stats
from roofmodel.profiles.kernel import (
    AMD_ALTERNATIVE,
    Evidence,
    Extent,
    Kernel,
    Profile,
    ReaderWarning,
    copies_warning,
    extent,
)
from roofmodel.profiles.nvtx_ranges import NEVER_ENDED, Launch, Range, enclosing_ranges, placement_warnings
from roofmodel.profiles.streams import as_file, limited_name

_MAGIC = b"SQLite format 3\0"
_HOW_TO_COLLECT = (
    "collect with `nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o report COMMAND` "
    "and export with `nsys export --type sqlite report.nsys-rep`"
)
_KERNELS, _CALLS, _NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
MAX_VALUE = 2**20  # bytes of a value in a column; kernel names have some kilobytes
_ROW_BYTES = 4  # of the shortest row: its pointer, its length, its number and an empty header
_THREAD_BITS = 24  # globalTid = hardware (8 bits), virtual machine (8), process (24), thread (24)
# NVTX_EVENTS.eventType. Push/pop ranges belong to a thread; start/end ranges may end on another thread.
PUSH_POP, START_END = {59, 70}, {60, 71}


def recognize(head: bytes) -> bool:
    """Whether a file that starts with these bytes is an SQLite database or output of `nsys stats`."""
    return head.startswith(_MAGIC) or nsys_stats.recognize(head)


def read(file: BinaryIO, name: str) -> Profile:
    """The kernels of an export in order of start; times in seconds from the start of the session.

    Raises ProfileError for a database that is damaged, is not an nsys export, or has no kernels.
    """
    if not is_database(file):
        return nsys_stats.read(file, name)
    with opened(file, name) as database:
        return _profile(database, name)


def is_database(file: BinaryIO) -> bool:
    """Whether the stream is an SQLite database."""
    file.seek(0)
    magic = file.read(len(_MAGIC))
    file.seek(0)
    return magic == _MAGIC


@contextmanager
def opened(file: BinaryIO, name: str) -> Iterator[Database]:
    """The tables of an nsys export, opened read-only.

    Raises ProfileError, within the context too, for a database that is damaged or is not an nsys export.
    """
    with as_file(file, _MAGIC, name) as path:
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                database = Database(connection, path.stat().st_size)
                _check_export(database, name)
                yield database
        except sqlite3.Error as error:
            why = getattr(error, "sqlite_errorname", "not a valid database")  # the message itself would quote content
            raise ProfileError(f"{name}: the SQLite database cannot be read ({why}); export it again") from None
        except OverflowError:
            raise ProfileError(f"{name}: the database contains times that no run has; export it again") from None
        except (TypeError, ValueError):
            raise ProfileError(f"{name}: the database contains text in a numeric column; export it again") from None


class Database:
    """Access to tables and columns that may be missing, in a database of unknown origin.

    Only tables that SQLite stores are read: no views and no virtual tables, whose queries may never end. `size` is that
    of the file in bytes. A damaged or forged file may link a page to itself, so the rows and the text of a query are
    limited to what a file of this size can contain.
    """

    def __init__(self, connection: sqlite3.Connection, size: int) -> None:
        self._connection, self._size = connection, size
        self._text_left = 0  # bytes
        self._connection.text_factory = self._text
        self._connection.row_factory = sqlite3.Row
        self._connection.set_authorizer(_authorize)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(MAX_VALUE, size))
        # rootpage is 0 for views and virtual tables
        self.tables = {
            str(table["name"])
            for table in self._limited("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
        }

    def rows(
        self, table: str, columns: Sequence[str], only: tuple[str, Collection[int]] | None = None
    ) -> Iterator[sqlite3.Row]:
        """The rows of a table, with None for missing columns; no rows if the table is missing.

        `only` is a column and its values in the rows; no rows if the column is missing.
        """
        if table not in self.tables:
            return
        existing = {str(info["name"]) for info in self._connection.execute(f'PRAGMA table_info("{table}")')}
        if only is not None and only[0] not in existing:
            return
        selected = ", ".join(f'"{column}"' if column in existing else f'NULL AS "{column}"' for column in columns)
        condition = "" if only is None else f' WHERE "{only[0]}" IN ({", ".join(map(str, only[1]))})'
        yield from self._limited(f'SELECT {selected} FROM "{table}"{condition}')

    def count(self, table: str) -> int:
        """The number of rows of a table; 0 if the table is missing."""
        return sum(1 for _ in self._limited(f'SELECT 1 FROM "{table}"')) if table in self.tables else 0

    def _limited(self, query: str) -> Iterator[sqlite3.Row]:
        """The rows of a query. Raises sqlite3.DatabaseError for more rows or text than the file can contain."""
        most = self._size // _ROW_BYTES
        self._text_left = self._size
        for number, row in enumerate(self._connection.execute(query)):
            if number >= most:
                raise sqlite3.DatabaseError("more rows than the file can contain")
            yield row

    def _text(self, raw: bytes) -> str:
        self._text_left -= len(raw)
        if self._text_left < 0:
            raise sqlite3.DatabaseError("more text than the file can contain")
        return limited_name(printable(raw.decode("utf-8", errors="replace")))


def _authorize(action: int, *_: object) -> int:
    """Allow SQLite to read columns and list them, nothing else."""
    allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA)
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY


def _check_export(database: Database, name: str) -> None:
    """Raises ProfileError unless the database is an nsys export."""
    if database.tables & {"CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "StringTable"}:
        raise ProfileError(
            f"{name}: an nvprof database, which only nvprof can read; convert it with "
            "`nvprof --csv --print-gpu-trace -i FILE --log-file trace.csv` and give trace.csv"
        )
    if any(table.startswith("rocpd_") for table in database.tables) or {"HIP", "KERN"} <= database.tables:
        raise ProfileError(f"{name}: a database of AMD's rocprof, which is not supported; {AMD_ALTERNATIVE}")
    if "StringIds" not in database.tables:
        raise ProfileError(
            f"{name}: an SQLite database, but not an nsys export (no table StringIds); {_HOW_TO_COLLECT}"
        )


def _profile(database: Database, name: str) -> Profile:
    graphs = database.count("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    if not database.count(_KERNELS):
        graph_note = f"but {graphs} CUDA graphs traced as a whole " if graphs else ""
        raise ProfileError(f"{name}: the export contains no kernels {graph_note}(table {_KERNELS}); {_HOW_TO_COLLECT}")
    rows = _kernel_rows(database)
    launches = _launches(database, rows)
    placed, warnings = _nvtx(database, launches)
    evidence, unknown = _evidence(database, rows)
    names = _strings(database, {row[column] for row in rows for column in _NAMES})
    kernels = tuple(_kernel(row, i, name, names, launches[i], placed[i]) for i, row in enumerate(rows))
    if nameless := sum(not kernel.name for kernel in kernels):
        raise ProfileError(f"{name}: {nameless} kernels have no name in StringIds; export the report again")
    warnings += unknown
    if negative := sum(kernel.seconds is None for kernel in kernels):
        text = f"{negative} kernels end before they start: their times are unknown"
        warnings.append(ReaderWarning(text, "times"))
    if graphs:
        text = f"{graphs} CUDA graphs were traced as a whole, so their kernels are missing; {_HOW_TO_COLLECT}"
        warnings.append(ReaderWarning(text))
    warnings += copies_warning(sum(database.count(f"CUPTI_ACTIVITY_KIND_{what}") for what in ("MEMCPY", "MEMSET")))
    return Profile("nsys", (name,), kernels, evidence, tuple(warnings))


_NAMES = ("demangledName", "shortName", "mangledName")
_GRID, _BLOCK = ("gridX", "gridY", "gridZ"), ("blockX", "blockY", "blockZ")
_COLUMNS = (
    *("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "registersPerThread"),
    *_NAMES,
    *_GRID,
    *_BLOCK,
)


def _kernel_rows(database: Database) -> list[sqlite3.Row]:
    rows = list(database.rows(_KERNELS, _COLUMNS))
    rows.sort(key=lambda row: int(row["start"]))
    return rows


def _kernel(
    row: sqlite3.Row, index: int, file: str, names: dict[object, str], launch: Launch | None, nvtx: tuple[str, ...]
) -> Kernel:
    nanoseconds = int(row["end"]) - int(row["start"])
    return Kernel(
        id=str(index),
        file=file,
        name=next((names[row[column]] for column in _NAMES if row[column] in names), ""),
        process=None if row["globalPid"] is None else str(process_id(row["globalPid"])),
        device=_text(row["deviceId"]),
        stream=_text(row["streamId"]),
        grid=_sizes(row, _GRID),
        block=_sizes(row, _BLOCK),
        nvtx=nvtx,
        seconds=nanoseconds / 1e9 if nanoseconds >= 0 else None,
        start=int(row["start"]) / 1e9,
        launch=None if launch is None else launch.time / 1e9,
        registers=None if row["registersPerThread"] is None else int(row["registersPerThread"]),
    )


def _launches(database: Database, rows: list[sqlite3.Row]) -> list[Launch | None]:
    """The API call that launched each kernel; None if the export lacks it."""
    is_read = {row["correlationId"] for row in rows} - {None}
    calls: dict[tuple[object, int], Launch] = {}
    for call in database.rows(_CALLS, ("correlationId", "globalTid", "start")):
        if call["correlationId"] in is_read and call["globalTid"] is not None:
            launch = Launch(_process(call["globalTid"]), int(call["globalTid"]), int(call["start"]))
            key = (call["correlationId"], _process(call["globalTid"]))
            calls[key] = min(calls.get(key, launch), launch, key=lambda found: found.time)
    processes = {process for _, process in calls}
    only_process = next(iter(processes)) if len(processes) == 1 else None  # for kernels without a process

    def launch_of(row: sqlite3.Row) -> Launch | None:
        process = only_process if row["globalPid"] is None else _process(row["globalPid"])
        return None if process is None else calls.get((row["correlationId"], process))

    return [launch_of(row) for row in rows]


def _nvtx(database: Database, launches: list[Launch | None]) -> tuple[list[tuple[str, ...]], list[ReaderWarning]]:
    """The NVTX ranges that enclose the launch of each kernel, and warnings."""
    ranges = list(_ranges(database))
    if not ranges:
        return [()] * len(launches), []
    placed = enclosing_ranges(launches, ranges)
    warnings = placement_warnings(placed)
    if missing := launches.count(None):
        warnings.append(
            ReaderWarning(f"the export has no launches for {missing} kernels: their NVTX ranges are unknown")
        )
    return placed.labels, warnings


def _ranges(database: Database) -> Iterator[Range]:
    columns = ("start", "end", "eventType", "text", "textId", "globalTid")
    events = [event for event in database.rows(_NVTX, columns) if event["eventType"] in PUSH_POP | START_END]
    texts = _strings(database, {event["textId"] for event in events})
    for event in events:
        label = texts.get(event["textId"]) if event["text"] is None else str(event["text"])
        if label and event["globalTid"] is not None:
            end = NEVER_ENDED if event["end"] is None else int(event["end"])
            thread = int(event["globalTid"]) if event["eventType"] in PUSH_POP else None
            yield Range(_process(event["globalTid"]), thread, int(event["start"]), end, label)


_GPU_COLUMNS = (
    *("id", "cuDevice", "name", "l2CacheSize", "totalMemory", "memoryBandwidth", "clockRate", "smCount"),
    *("computeMajor", "computeMinor"),
)


def devices(database: Database) -> tuple[Evidence, ...]:
    """The distinct GPUs of the export."""
    return tuple(dict.fromkeys(_attributes(gpu) for gpu in database.rows("TARGET_INFO_GPU", _GPU_COLUMNS)))


def _evidence(database: Database, rows: list[sqlite3.Row]) -> tuple[tuple[Evidence, ...], list[ReaderWarning]]:
    """Attributes of the GPUs that the kernels ran on, and warnings; no attributes if the GPUs are ambiguous."""
    gpus = list(database.rows("TARGET_INFO_GPU", _GPU_COLUMNS))
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
        if not matches and process is not None and (process_id(process), device) in ordinals:
            matches = [gpu for gpu in gpus if gpu["id"] == ordinals[process_id(process), device]]
        candidates = {_attributes(gpu) for gpu in matches or gpus}
        if len(candidates) > 1:
            text = "the export has several GPUs and does not show which of them ran the kernels: specify the device"
            return (), [ReaderWarning(text)]
        used.update(dict.fromkeys(candidates))
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


def _strings(database: Database, is_read: set[object]) -> dict[object, str]:
    """The strings with these ids."""
    is_read.discard(None)
    rows = database.rows("StringIds", ("id", "value")) if is_read else ()
    return {row["id"]: str(row["value"]) for row in rows if row["id"] in is_read and row["value"]}


def _process(global_id: object) -> int:
    """globalTid or globalPid -> globalPid."""
    return int(str(global_id)) >> _THREAD_BITS << _THREAD_BITS


def process_id(global_id: object) -> int:
    """globalTid or globalPid -> the process id."""
    return (int(str(global_id)) >> _THREAD_BITS) & 0xFFFFFF


def thread_id(global_id: object) -> int:
    """globalTid -> the thread id."""
    return int(str(global_id)) & (1 << _THREAD_BITS) - 1


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _sizes(row: sqlite3.Row, columns: tuple[str, str, str]) -> Extent | None:
    return extent(None if row[column] is None else int(row[column]) for column in columns)
