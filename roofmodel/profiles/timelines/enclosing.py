"""The CPU interval (operator or range) that encloses a launch, on the launching thread.

The CPU launches kernels long before they run, so a range is compared with the time of the launch, never with the time
of the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
    """For each activity, the name of the innermost event that encloses its launch on its thread; None if unknown.

    An event without a thread belongs to all threads of its process. A thread without events at that time (autograd
    launches the backward pass on its own) takes those of the only other thread of the process that has some.
    """
    result: list[str | None] = [None] * len(work)
    if not len(events):
        return result
    launched = np.flatnonzero((work["launch_start"] != UNKNOWN).to_numpy())
    process = work["process"].astype(object).to_numpy()[launched]
    thread = work["launch_thread"].astype(object).to_numpy()[launched]
    time = work["launch_start"].to_numpy()[launched]
    by_thread = {
        key: (group["start"].to_numpy(), group["end"].to_numpy(), group["name"].astype(object).to_numpy())
        for key, group in events.astype({"process": object, "thread": object}).groupby(
            ["process", "thread"], observed=True, dropna=False
        )
    }
    own: dict[tuple[Any, Any], list[int]] = {}
    for i, key in enumerate(zip(process, thread, strict=True)):
        own.setdefault(key, []).append(i)
    for (owner, name), indices in own.items():
        candidates = [(key, value) for key, value in by_thread.items() if key[0] == owner]
        candidates.sort(key=lambda item: item[0][1] != name)  # the launching thread first
        missing = np.asarray(indices)
        for (_, other), (starts, ends, names) in candidates:
            if other != name and isinstance(other, str) and len(candidates) > 2:
                continue  # several other threads: which of them caused the launch is unknown
            found = innermost(starts, ends, time[missing])
            for i, index in zip(missing[found >= 0], found[found >= 0], strict=True):
                result[launched[i]] = names[index]
            missing = missing[found < 0]
    return result
