"""The CPU interval (operator or range) that encloses a launch, on the launching thread.

The CPU launches kernels long before they run, so a range is compared with the time of the launch, never with the time
of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roofmodel.profiles.nvtx_ranges import Launch, Range, enclosing_ranges
from roofmodel.profiles.timelines.timeline import UNKNOWN

if TYPE_CHECKING:
    import pandas


def innermost(starts: Any, ends: Any, times: Any) -> NDArray[np.int64]:
    """For each time, the index of the innermost interval with start <= time < end; -1 if there is none.

    The intervals nest, as calls of one thread do.
    """
    starts, ends, times = (np.asarray(each, np.int64) for each in (starts, ends, times))
    if not len(starts):
        return np.full(len(times), -1, np.int64)
    order = np.lexsort((-ends, starts))
    starts, ends = starts[order], ends[order]
    parents = _parents(starts, ends)
    found = np.searchsorted(starts, times, side="right") - 1
    while (outside := (found >= 0) & (ends[found] <= times)).any():
        found[outside] = parents[found[outside]]
    return np.where(found >= 0, order[found], -1)


def parents(starts: Any, ends: Any) -> NDArray[np.int64]:
    """For each interval, the index of the innermost other interval that encloses it; -1 if there is none."""
    starts, ends = (np.asarray(each, np.int64) for each in (starts, ends))
    order = np.lexsort((-ends, starts))
    of_sorted = _parents(starts[order], ends[order])[:-1]
    found = np.full(len(starts), -1, np.int64)
    found[order] = np.where(of_sorted >= 0, order[of_sorted], -1) if len(order) else found
    return found


def _parents(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The enclosing interval of each, for intervals sorted by start and then by falling end; the last entry is -1."""
    result = np.full(len(starts) + 1, -1, np.int64)
    last = ends.tolist()
    open_now: list[int] = []
    for i, start in enumerate(starts.tolist()):
        while open_now and last[open_now[-1]] <= start:
            open_now.pop()
        result[i] = open_now[-1] if open_now else -1
        open_now.append(i)
    return result


def labels(work: pandas.DataFrame, events: pandas.DataFrame) -> list[str | None]:
    """For each activity, the name of the innermost event that encloses its launch; None if unknown.

    The threads whose events count are those of `profiles/nvtx_ranges.py`.
    """
    if not len(events):
        return [None] * len(work)
    ranges = [
        Range(_text(process), _text(thread), start, end, name)
        for process, thread, start, end, name in _rows(events, "process", "thread", "start", "end", "name")
    ]
    launches = [
        None if time == UNKNOWN else Launch(_text(process), _text(thread), time)
        for process, thread, time in _rows(work, "process", "launch_thread", "launch_start")
    ]
    return [found[-1] if found else None for found in enclosing_ranges(launches, ranges).labels]


def _rows(table: pandas.DataFrame, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[column].astype(object).tolist() for column in columns), strict=True)


def _text(value: object) -> str | None:
    """The text; None for a missing one."""
    return value if isinstance(value, str) else None
