"""Sets of time as sorted, disjoint, half-open intervals: arrays of shape (n, 2), integer nanoseconds.

Summed durations of overlapping kernels exceed the time that passed. All shares of wall time are therefore lengths of
such sets. These are our own because the libraries (portion, intervaltree, pandas' IntervalArray) have no unions and
gaps of arrays: they take a Python object an interval, and a trace has millions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Intervals = NDArray[np.int64]

NONE: Intervals = np.empty((0, 2), np.int64)


def union(starts: Any, ends: Any) -> Intervals:
    """The set that the intervals [start, end) cover; intervals that end at or before their start are empty."""
    starts, ends = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    valid = ends > starts
    if not valid.any():
        return NONE
    order = np.argsort(starts[valid], kind="stable")
    starts, ends = starts[valid][order], np.maximum.accumulate(ends[valid][order])
    first = np.concatenate([[True], starts[1:] > ends[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.stack([starts[first], ends[last]], axis=1)


def join(*sets: Intervals) -> Intervals:
    """The union of sets."""
    every = np.concatenate([NONE, *sets])
    return union(every[:, 0], every[:, 1])


def length(intervals: Intervals) -> int:
    """Nanoseconds covered."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def gaps(intervals: Intervals, start: int, end: int) -> Intervals:
    """The part of [start, end) that the set does not cover."""
    edges = np.concatenate([[start], clip(intervals, start, end).ravel(), [end]]).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def clip(intervals: Intervals, start: int, end: int) -> Intervals:
    """The part of the set within [start, end)."""
    first, last = np.searchsorted(intervals[:, 1], start, "right"), np.searchsorted(intervals[:, 0], end, "left")
    clipped = np.clip(intervals[first:last], start, max(start, end))
    return clipped[clipped[:, 1] > clipped[:, 0]]


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The time that both sets cover."""
    if not len(a) or not len(b):
        return NONE
    low, high = int(min(a[0, 0], b[0, 0])), int(max(a[-1, 1], b[-1, 1]))
    return gaps(join(gaps(a, low, high), gaps(b, low, high)), low, high)


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The time that the first set covers and the second does not."""
    return intersect(a, gaps(b, int(a[0, 0]), int(a[-1, 1]))) if len(a) else NONE


def covered_before(intervals: Intervals, times: Any) -> NDArray[np.int64]:
    """Nanoseconds of the set before each of the times."""
    times = np.asarray(times, np.int64)
    if not len(intervals):
        return np.zeros(times.shape, np.int64)
    lengths = intervals[:, 1] - intervals[:, 0]
    before = np.concatenate([[0], np.cumsum(lengths)])
    index = np.searchsorted(intervals[:, 0], times, side="right")
    last = np.maximum(index - 1, 0)
    result = before[index] - np.where(index > 0, np.maximum(intervals[last, 1] - times, 0), 0)
    return np.asarray(result, np.int64)


def covered(intervals: Intervals, starts: Any, ends: Any) -> NDArray[np.int64]:
    """Nanoseconds of the set within each window [start, end)."""
    return covered_before(intervals, ends) - covered_before(intervals, starts)
