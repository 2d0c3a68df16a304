"""The events of one run as tables: GPU work, CUDA calls, framework operators, and named ranges.

Times are integer nanoseconds of one clock per file. A time of UNKNOWN means that the file does not record it. Text
columns are categorical, so that a name that occurs a million times is stored once.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from roofmodel.profiles.kernel import Evidence

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")
UNKNOWN = -1
LATEST = 1 << 62
"""No event is later than this, or earlier than its negative, in nanoseconds: differences of times fit in 64 bits."""
RANK_IN_NAME = re.compile(r"(?<![a-z])rank[ _=-]?(\d{1,6})(?!\d)", re.I)  # in `epoch1_step2003-rank0-640_8`
KERNEL, COPY, MEMSET = "kernel", "copy", "memset"

WORK = {
    "kind": str,  # KERNEL, COPY or MEMSET
    "start": int,
    "end": int,
    "process": str,
    "device": str,
    "stream": str,
    "name": str,
    "correlation": int,  # of the call that launched it
    "untimed": int,  # 1: the file has no valid end, and `end` is the start
    "grid": str,  # of kernels: `64,2,1`
    "block": str,
    "registers": str,  # per thread
    "shared_bytes": str,  # of a block, static and dynamic
    "occupancy": str,  # percent, a decimal number
    "operator": int,  # number of the operator that launched it, if the file states one: `number` of OPERATORS
    "bytes": int,  # of copies and memsets
    "direction": str,  # of copies: HtoD, DtoH, DtoD, PtoP, HtoH, unified_HtoD, unified_DtoH
    "memory": str,  # of the host side of a copy: pinned, pageable or managed; device if both sides are on a GPU
    "source": str,  # device of a copy between GPUs
    "destination": str,
    "collective": str,  # of communication kernels, if the file names it: allreduce, allgather, ...
    "message_bytes": int,  # of one rank, as the collective's metadata state them
    "group_size": int,  # ranks of the collective
    "group_members": str,  # these ranks, sorted: `0,1`
    "group_span": int,  # from its first to its last rank: more than those of a node if it uses the network
    "launch_start": int,
    "launch_end": int,
    "launch_thread": str,
    "launch_call": str,  # name of the CUDA call
}
CALLS = {"name": str, "start": int, "end": int, "process": str, "thread": str, "correlation": int}
OPERATORS = {
    "name": str, "start": int, "end": int, "process": str, "thread": str,
    "inputs": str,  # shapes and types of its arguments: `torch_fields.parse_inputs`
    "number": int,
}  # fmt: skip
RANGES = {"name": str, "start": int, "end": int, "process": str, "thread": str}  # thread: missing for all threads


class Samples(NamedTuple):
    """A quantity of a GPU, sampled during the run."""

    times: NDArray[np.int64]  # nanoseconds of the file's clock, sorted
    values: NDArray[np.float64]


CLOCK, POWER, POWER_LIMIT, TEMPERATURE = "SM clock", "power", "power limit", "temperature"  # hertz, watts, °C
THROTTLED = "throttled"  # 1 while power or temperature limits the clock, else 0


@dataclass(frozen=True)
class Timeline:
    """The events of one file. `work` is sorted by start; `ranges` has the NVTX ranges and user annotations."""

    tool: str  # "nvprof", "nsys", "torch" or "steps"
    file: str
    work: pandas.DataFrame
    calls: pandas.DataFrame
    operators: pandas.DataFrame
    ranges: pandas.DataFrame
    evidence: tuple[Evidence, ...] = ()
    warnings: tuple[str, ...] = ()
    begin: int = 0  # time zero in lists of kernels
    stated_rank: int | None = None  # of a distributed run, if the file states one rank
    world_size: int | None = None  # ranks of that run
    samples: Mapping[tuple[str | None, str | None, str], Samples] = field(default_factory=dict)
    """By process, device and quantity, such as CLOCK."""
    _results: dict[tuple[object, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def origin(self) -> int:
        """The start of the first activity."""
        return int(self.work["start"].iloc[0]) if len(self.work) else 0

    @property
    def rank(self) -> int | None:
        """The rank that the file states, or else the one in its name."""
        in_name = set(RANK_IN_NAME.findall(self.file.replace("\\", "/").rpartition("/")[2]))
        return int(in_name.pop()) if self.stated_rank is None and len(in_name) == 1 else self.stated_rank

    def once(self, find: Callable[..., T], *options: Hashable) -> T:
        """What `find(timeline, *options)` returns, found at the first call: thousands of ranks may share a file."""
        if (find, *options) not in self._results:
            self._results[find, *options] = find(self, *options)
        result: T = self._results[find, *options]
        return result


class _Codes(dict[Any, int]):
    """The number of each text: of the text of a value, so that 7 and `7` have one; -1 for None."""

    def __init__(self) -> None:
        super().__init__({None: -1})
        self.texts: dict[str, int] = {}

    def __missing__(self, value: object) -> int:
        self[value] = code = self.texts.setdefault(str(value), len(self.texts))
        return code


class TableBuilder:
    """Rows collected column by column: integers in 8 bytes each, texts as codes of the distinct texts.

    A column that no row gives takes no time until the table is made.
    """

    def __init__(self, columns: Mapping[str, type]) -> None:
        self._rows = 0
        self._values = {column: array("q" if kind is int else "i") for column, kind in columns.items()}
        self._codes = {column: _Codes() for column, kind in columns.items() if kind is str}

    def __len__(self) -> int:
        return self._rows

    def add(self, **cells: int | str | None) -> None:
        """Add a row; columns that are not given are UNKNOWN or missing."""
        self.extend(1, **{column: [cell] for column, cell in cells.items()})

    def extend(self, rows: int, **columns: Sequence[int | str | None]) -> None:
        """Add rows; columns that are not given are UNKNOWN or missing."""
        for column, cells in columns.items():
            values = self._filled(column)
            if column in self._codes:
                values.extend(map(self._codes[column].__getitem__, cells))
            else:
                values.extend(array("q", [UNKNOWN if cell is None else int(cell) for cell in cells]))
        self._rows += rows

    def _filled(self, column: str) -> array[int]:
        """The values of a column, UNKNOWN (or the code of a missing text, which is the same) where not given."""
        values = self._values[column]
        if missing := self._rows - len(values):
            values.extend(array(values.typecode, [UNKNOWN]) * missing)
        return values

    def frame(self) -> pandas.DataFrame:
        """The table. Raises OverflowError for a start beyond LATEST."""
        import pandas

        starts = self._filled("start")
        if starts and not -LATEST < min(starts) <= max(starts) < LATEST:
            raise OverflowError("a time is too large")

        def column(name: str, values: array[int]) -> object:
            if name not in self._codes:
                return np.frombuffer(values, dtype=np.int64) if values else np.empty(0, np.int64)
            codes = np.frombuffer(values, dtype=np.int32) if values else np.empty(0, np.int32)
            return pandas.Categorical.from_codes(
                codes, categories=pandas.Index(list(self._codes[name].texts), dtype=object)
            )

        return pandas.DataFrame({name: column(name, self._filled(name)) for name in self._values})


def table(columns: Mapping[str, type], rows: int, values: Mapping[str, Any]) -> pandas.DataFrame:
    """A table of these columns, UNKNOWN or missing where they are not in `values`."""
    import pandas

    missing = pandas.Categorical.from_codes(np.full(rows, -1, np.int32), categories=pandas.Index([], dtype=object))
    unknown = {name: missing if kind is str else np.full(rows, UNKNOWN) for name, kind in columns.items()}
    return pandas.DataFrame(unknown | dict(values))


def with_launches(timeline: Timeline) -> Timeline:
    """Add to each activity the CUDA call that launched it, and sort the activities by start.

    The key is (process, correlation id), or the correlation id alone for activities whose process is unknown and whose
    id belongs to calls of one process. Of a driver call inside a runtime call with the same id, the outer one counts;
    of calls that use an id again, the last one before the activity. Kernels of one CUDA graph share a launch.
    """
    import pandas

    work, calls = timeline.work, timeline.calls
    first = _outermost(calls[calls["correlation"] != UNKNOWN]).reset_index(drop=True)
    joined = work.reset_index(drop=True).astype({"process": object})
    known = joined["process"].notna() & (joined["correlation"] != UNKNOWN)
    unique = first[first.groupby("correlation")["process"].transform("nunique") == 1]
    launches = np.full(len(joined), -1)  # rows of `first`
    for rows, of_key, keys in ((known, first, ["process", "correlation"]), (~known, unique, ["correlation"])):
        wanted = joined.loc[rows, ["start", *keys]].sort_values("start", kind="stable")
        launches[wanted.index] = _last_before_start(wanted, of_key, keys)
    for column in ("start", "end"):
        joined[f"launch_{column}"] = first[column].reindex(launches, fill_value=UNKNOWN).to_numpy()
    joined["launch_thread"] = first["thread"].astype(object).reindex(launches).to_numpy()
    joined["launch_call"] = first["name"].reindex(launches).array
    of_launch = pandas.Series(first["process"].reindex(launches).to_numpy(object), joined.index)
    joined["process"] = joined["process"].where(joined["process"].notna(), of_launch)
    joined = joined.sort_values(["start", "end"], kind="stable").reset_index(drop=True)
    joined["process"] = joined["process"].fillna(_only_process(joined.astype({"device": object}).groupby("device")))
    joined["process"] = joined["process"].fillna(_only_process(joined.groupby(np.zeros(len(joined)))))
    joined = joined.astype(dict.fromkeys(("process", "launch_thread", "launch_call"), "category"))
    return replace(timeline, work=joined[list(WORK)])


def _outermost(calls: pandas.DataFrame) -> pandas.DataFrame:
    """The calls without those that run inside another call of the same process and id, by start."""
    keys = ["process", "correlation"]
    ordered = calls.sort_values("start", kind="stable").astype({"process": object})
    latest = ordered.groupby(keys, dropna=False)["end"].cummax()
    before = latest.groupby([ordered[key] for key in keys], dropna=False).shift()
    return ordered[~(ordered["start"] < before)]


def _last_before_start(work: pandas.DataFrame, calls: pandas.DataFrame, keys: list[str]) -> NDArray[np.int64]:
    """For each activity the row of the last call with its keys before its start, else of the first one; -1 for none.

    Both are sorted by start.
    """
    import pandas

    calls = calls[[*keys, "start"]].assign(row=calls.index).rename(columns={"start": "launch_start"})
    last = pandas.merge_asof(work, calls, left_on="start", right_on="launch_start", by=keys)["row"]
    first = work.merge(calls.drop_duplicates(keys), how="left", on=keys)["row"]
    return last.fillna(first).fillna(-1).to_numpy(np.int64)


def _only_process(groups: Any) -> pandas.Series:
    """For each activity the process of its group; missing where the group has none or several."""
    processes: pandas.Series = groups["process"].transform("first")
    return processes.where(groups["process"].transform("nunique") == 1)


def places(work: pandas.DataFrame) -> list[tuple[str | None, str | None]]:
    """The processes and devices of the activities, each pair once; None if unknown."""
    pairs = work[["process", "device"]].drop_duplicates().astype(object)
    return [*map(tuple, pairs.where(pairs.notna(), None).to_numpy().tolist())]


def empty(columns: Mapping[str, type]) -> pandas.DataFrame:
    """A table without rows."""
    return TableBuilder(columns).frame()


def count_joined(timeline: Timeline) -> tuple[int, int]:
    """Kernels, and kernels with a known launch."""
    kernels = timeline.work[timeline.work["kind"] == KERNEL]
    return len(kernels), int((kernels["launch_start"] != UNKNOWN).sum())
