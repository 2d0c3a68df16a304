"""The events of one run as tables: GPU work, CUDA calls, framework operators, and named ranges.

Times are integer nanoseconds of one clock per file. A time of UNKNOWN means that the file does not record it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from roofmodel.profiles.columns import UNKNOWN, ColumnTable
from roofmodel.profiles.kernel import COPY, KERNEL, MEMSET, Evidence, KernelTable

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from numpy.typing import NDArray

__all__ = ["COPY", "KERNEL", "MEMSET", "UNKNOWN"]

T = TypeVar("T")
LATEST = 1 << 62
"""No event is later than this, or earlier than its negative, in nanoseconds: differences of times fit in 64 bits."""
RANK_IN_NAME = re.compile(r"(?<![a-z])rank[ _=-]?(\d{1,6})(?!\d)", re.I)  # in `epoch1_step2003-rank0-640_8`

WORK = (
    "kind", "start", "end", "process", "device", "stream", "name", "correlation", "untimed", "grid", "operator",
    "bytes", "direction", "memory", "source", "destination", "collective", "message_bytes", "group_size",
    "group_members", "group_span", "launch_start", "launch_end", "launch_thread", "launch_call",
)  # fmt: skip
"""The columns of `kernel.Kernel` that timelines are analyzed by."""
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
    """The events of one file. The work is sorted by start; the ranges are NVTX ranges and user annotations."""

    tool: str  # "nvprof", "nsys", "rocprof", "torch" or "steps"
    file: str
    work_table: KernelTable
    call_table: ColumnTable = field(default_factory=lambda: ColumnTable(CALLS))
    operator_table: ColumnTable = field(default_factory=lambda: ColumnTable(OPERATORS))
    range_table: ColumnTable = field(default_factory=lambda: ColumnTable(RANGES))
    evidence: tuple[Evidence, ...] = ()
    warnings: tuple[str, ...] = ()
    begin: int = 0  # time zero in lists of kernels
    stated_rank: int | None = None  # of a distributed run, if the file states one rank
    world_size: int | None = None  # ranks of that run
    samples: Mapping[tuple[str | None, str | None, str], Samples] = field(default_factory=dict)
    """By process, device and quantity, such as CLOCK."""
    files: tuple[str, ...] = ()  # all files of the run, if there are several
    how_to_collect: str = ""  # of a table that may be a summary: how to collect the start of each kernel
    without_kernels: str = ""  # why a file of kernels has none, and what to do
    _results: dict[tuple[object, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def work(self) -> pandas.DataFrame:
        return self.work_table.frame(WORK)

    @cached_property
    def calls(self) -> pandas.DataFrame:
        return self.call_table.frame()

    @cached_property
    def operators(self) -> pandas.DataFrame:
        return self.operator_table.frame()

    @cached_property
    def ranges(self) -> pandas.DataFrame:
        return self.range_table.frame()

    @property
    def origin(self) -> int:
        """The start of the first activity."""
        return int(self.work_table.stored("start")[0]) if len(self.work_table) else 0

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


def check_times(*tables: ColumnTable) -> None:
    """Raises OverflowError for a start beyond LATEST."""
    for table in tables:
        starts = table.stored("start")
        if starts and not -LATEST < min(starts) <= max(starts) < LATEST:
            raise OverflowError("a time is too large")


def with_launches(timeline: Timeline) -> Timeline:
    """Add to each activity the CUDA call that launched it, and sort the activities by start.

    The key is (process, correlation id), or the correlation id alone for activities whose process is unknown and whose
    id belongs to calls of one process. Of a driver call inside a runtime call with the same id, the outer one counts;
    of calls that use an id again, the last one before the activity. Kernels of one CUDA graph share a launch.
    """
    import numpy as np

    work, calls = timeline.work_table, timeline.call_table
    check_times(work, calls, timeline.operator_table, timeline.range_table)
    process, process_of_call, processes = common_codes((work, "process"), (calls, "process"))
    identified = np.flatnonzero(calls.array("correlation") != UNKNOWN)
    ids, numbers = np.unique(
        np.concatenate([calls.array("correlation")[identified], work.array("correlation")]), return_inverse=True
    )
    of_call, of_work = numbers[: len(identified)], numbers[len(identified) :]
    keys = (process_of_call[identified] + 1) * len(ids) + of_call
    starts, ends = calls.array("start")[identified], calls.array("end")[identified]
    outer = _outermost(keys, starts, ends)
    identified, keys, starts, of_call = identified[outer], keys[outer], starts[outer], of_call[outer]
    known = (process >= 0) & (work.array("correlation") != UNKNOWN)
    pairs = np.unique(np.stack([of_call, process_of_call[identified]])[:, process_of_call[identified] >= 0], axis=1)
    unique = np.bincount(pairs[0], minlength=len(ids))[of_call] == 1
    launches = np.full(len(work), -1)  # rows of the calls
    begins = work.array("start")
    for rows, wanted, among, of_key in (
        (known, (process + 1) * len(ids) + of_work, slice(None), keys), (~known, of_work, unique, of_call),
    ):  # fmt: skip
        found = _last_before_start(wanted[rows], begins[rows], of_key[among], starts[among])
        launches[rows] = np.where(found < 0, -1, identified[among][found] if len(identified[among]) else -1)
    joined = work.copy()
    launched = launches >= 0
    for column in ("start", "end"):
        joined.set_array(f"launch_{column}", np.where(launched, _taken(calls.array(column), launches), UNKNOWN))
    for column, of_launch in (("thread", "launch_thread"), ("name", "launch_call")):
        codes = np.where(launched, _taken(calls.array(column), launches), UNKNOWN)
        joined.set_array(of_launch, codes, calls.distinct(column))
    process = np.where(process < 0, np.where(launched, _taken(process_of_call, launches), -1), process)
    process = _with_only_process(process, work.array("device"))
    process = _with_only_process(process, np.zeros(len(work), np.int64))
    joined.set_array("process", process, processes)
    return replace(timeline, work_table=joined.select(np.lexsort((work.array("end"), begins))))


def _taken(values: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """The values at the rows; any value at a row of -1."""
    import numpy as np

    return values[rows] if len(values) else np.full(len(rows), UNKNOWN)


def common_codes(*columns: tuple[ColumnTable, str]) -> tuple[Any, ...]:
    """Codes of several columns, in which equal texts have equal codes, and the texts by code."""
    import numpy as np

    texts: dict[str, int] = {}
    every: list[Any] = []
    for table, column in columns:
        codes = np.array([*(texts.setdefault(text, len(texts)) for text in table.distinct(column)), UNKNOWN], np.int64)
        every.append(codes[table.array(column)])
    return (*every, list(texts))


def _outermost(keys: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The calls without those that run inside another call with the same key, by start."""
    import numpy as np

    if not len(keys):
        return np.empty(0, np.int64)
    order = np.lexsort((starts, keys))
    group = np.cumsum(np.concatenate([[0], np.diff(keys[order]) != 0]))
    by_end = np.argsort(ends, kind="stable")
    rank = np.empty(len(ends), np.int64)
    rank[by_end] = np.arange(len(ends))
    # The ranks of a group are above all of the groups before it, so that one pass finds the maxima of all groups.
    latest = ends[by_end[np.maximum.accumulate(group * len(ends) + rank[order]) - group * len(ends)]]
    inside = np.zeros(len(keys), bool)
    inside[1:] = (group[1:] == group[:-1]) & (starts[order][1:] < latest[:-1])
    kept = order[~inside]
    return kept[np.lexsort((kept, starts[kept]))]


def _last_before_start(
    keys: NDArray[np.int64], times: NDArray[np.int64], of_calls: NDArray[np.int64], starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each activity the number of the last call with its key before its time, else of the first; -1 for none."""
    import numpy as np

    if not len(of_calls):
        return np.full(len(keys), -1)
    every, is_work = np.concatenate([of_calls, keys]), np.arange(len(of_calls) + len(keys)) >= len(of_calls)
    order = np.lexsort((is_work, np.concatenate([starts, times]), every))
    last = np.maximum.accumulate(np.where(is_work[order], -1, np.arange(len(order))))
    last = np.where(last < 0, -1, order[last])
    before = np.empty(len(order), np.int64)
    before[order] = last
    before = before[len(of_calls) :]
    by_key = np.lexsort((starts, of_calls))
    first = by_key[np.minimum(np.searchsorted(of_calls[by_key], keys), len(by_key) - 1)]
    first = np.where(of_calls[first] == keys, first, -1)
    return np.where((before >= 0) & (of_calls[before] == keys), before, first)


def _with_only_process(process: NDArray[np.int64], group: NDArray[Any]) -> NDArray[np.int64]:
    """The process of each activity; where it is unknown, that of its group if the group has only one."""
    import numpy as np

    pairs = np.unique(np.stack([group, process])[:, (process >= 0) & (group >= 0)], axis=1)
    groups, first, count = np.unique(pairs[0], return_index=True, return_counts=True)
    if not len(groups):
        return process
    at = np.minimum(np.searchsorted(groups, group), len(groups) - 1)
    only = (groups[at] == group) & (count[at] == 1) & (process < 0)
    return np.where(only, pairs[1][first[at]], process)


def places(work: KernelTable) -> list[tuple[str | None, str | None]]:
    """The processes and devices of the activities, each pair once; None if unknown."""
    return list(dict.fromkeys(zip(work.cells("process"), work.cells("device"), strict=True)))


def kernel_rows(work: KernelTable, others: bool = False) -> array[int]:
    """The rows of the kernels; with `others` those of copies and memsets."""
    is_kernel = [*(kind == KERNEL for kind in work.distinct("kind")), True]
    return array("q", (row for row, code in enumerate(work.stored("kind")) if is_kernel[code] is not others))


def count_joined(timeline: Timeline) -> tuple[int, int]:
    """Kernels, and kernels with a known launch."""
    launches = timeline.work_table.cells("launch_start")
    kernels = kernel_rows(timeline.work_table)
    return len(kernels), sum(launches[row] is not None for row in kernels)
