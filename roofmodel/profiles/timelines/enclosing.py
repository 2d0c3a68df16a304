"""The ranges and operators that enclose the launch of each kernel, on the launching thread.

The CPU launches kernels milliseconds before they run, so an interval is compared with the time of the launch, never
with the time of the kernel. A thread without open ranges (autograd launches the backward pass on its own thread) takes
the ranges of the only other thread of its process that has some; if several threads have open ranges, it gets none.
Ranges without a thread are those of all threads of their process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.numbers import units
from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.kernel import KernelTable, ReaderWarning
from roofmodel.profiles.timelines.timeline import KERNEL, LATEST, UNKNOWN, common_codes

Integers = NDArray[np.int64]


class Nested(NamedTuple):
    """Intervals of several owners, such as threads, and the innermost one at each of some times; -1 if there is none.

    Intervals may overlap without nesting: then a parent is open at the start of the interval, and may end before it.
    """

    parents: Integers  # of each interval
    roots: Integers  # of each interval: the outermost one that was open at its start, or before it without a pause
    innermost: Integers  # at each time


def nested(owners: Any, starts: Any, ends: Any, time_owners: Any = (), times: Any = ()) -> Nested:
    """The parents of intervals [start, end), and the innermost one of its owner at each time; in linear time."""
    intervals, moments = len(starts), len(times)
    every = np.concatenate([starts, times]).astype(np.int64)
    owner = np.concatenate([owners, time_owners]).astype(np.int64)
    longest_first = np.concatenate([-np.asarray(ends, np.int64), np.zeros(moments, np.int64)])
    is_time = np.arange(len(every)) >= intervals
    order = np.lexsort((longest_first, is_time, every, owner))
    last = np.asarray(ends, np.int64).tolist()
    innermost = np.full(len(every), -1, np.int64)
    roots = np.full(intervals, -1, np.int64)
    open_now: list[int] = []
    current = None
    for i, now, whose in zip(order.tolist(), every[order].tolist(), owner[order].tolist(), strict=True):
        if whose != current:
            current, open_now = whose, []
        while open_now and last[open_now[-1]] <= now:
            open_now.pop()
        if open_now:
            innermost[i] = open_now[-1]
        if i < intervals:
            open_now.append(i)
            roots[i] = open_now[0]
    return Nested(innermost[:intervals], roots, innermost[intervals:])


class EnclosingRanges(NamedTuple):
    """The ranges that enclose the launch of each kernel, and the number of uncertain assignments."""

    of_thread: Integers  # the innermost range of the thread; -1 if there is none
    of_process: Integers  # the innermost range of all threads of the process
    parents: Integers  # of each range, among those of its thread
    from_other_thread: int  # launches assigned by time to the ranges of another thread
    ambiguous: int  # launches without ranges because several other threads had open ranges

    def warnings(self) -> list[ReaderWarning]:
        """Warnings about launches whose ranges come from another thread or are ambiguous."""
        texts = []
        if self.from_other_thread:
            texts.append(
                f"launched by a thread without NVTX ranges (such as autograd's): "
                f"{units.count(self.from_other_thread, 'kernel')}, assigned to the ranges open at that time "
                "in the only thread with NVTX ranges"
            )
        if self.ambiguous:
            texts.append(
                f"launched by a thread without NVTX ranges while several other threads had open ranges: "
                f"{units.count(self.ambiguous, 'kernel')}, assigned to no range"
            )
        return list(map(ReaderWarning, texts))


def place(work: KernelTable, ranges: ColumnTable) -> EnclosingRanges:
    """The ranges that enclose the launch of each activity."""
    times = work.array("launch_start")
    launched = np.flatnonzero(times != UNKNOWN)
    processes, of_launch, _ = common_codes((ranges, "process"), (work, "process"))
    threads, thread_of_launch, _ = common_codes((ranges, "thread"), (work, "launch_thread"))
    of_launch, thread_of_launch = of_launch[launched], thread_of_launch[launched]
    count = int(max(threads.max(initial=-1), thread_of_launch.max(initial=-1))) + 2
    of_launch += 1  # the owner -1 is none
    owners = (processes + 1) * count + threads + 1
    wanted = np.concatenate([of_launch * count + thread_of_launch + 1, of_launch * count])
    wanted[: len(launched)][thread_of_launch < 0] = -1  # of an unknown thread
    starts, ends, moments = ranges.array("start"), ranges.array("end"), times[launched]
    nesting = nested(owners, starts, ends, wanted, np.concatenate([moments, moments]))
    of_thread, of_process = nesting.innermost[: len(launched)].copy(), nesting.innermost[len(launched) :]
    # The time in which a thread has open ranges is a few intervals; those of one process are counted by time.
    roots = np.flatnonzero((nesting.roots == np.arange(len(starts))) & (threads >= 0))
    last = np.zeros(len(starts), np.int64)
    np.maximum.at(last, nesting.roots, ends)
    several = ambiguous = 0
    lost = np.flatnonzero(of_thread < 0)
    lost_of = rows_by_value(of_launch[lost])
    others = np.full(len(launched), -1, np.int64)
    for process, mine in rows_by_value(processes[roots] + 1).items():
        if (rows := lost_of.get(process)) is None:
            continue
        begins, whose = starts[roots[mine]], owners[roots[mine]]
        number, owner = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for sign, edges in ((1, begins), (-1, last[roots[mine]])):
            order = np.argsort(edges)
            before = np.searchsorted(edges[order], moments[lost[rows]], side="right")
            number += sign * before
            owner += sign * np.concatenate([[0], np.cumsum(whose[order])])[before]
        others[lost[rows]] = np.where(number == 1, owner, -1)
        several += int((number == 1).sum())
        ambiguous += int((number > 1).sum())
    if several:
        rows = np.flatnonzero(others >= 0)
        of_thread[rows] = nested(owners, starts, ends, others[rows], moments[rows]).innermost
    enclosing_rows = np.full((2, len(work)), -1, np.int64)
    enclosing_rows[:, launched] = of_thread, of_process
    return EnclosingRanges(enclosing_rows[0], enclosing_rows[1], nesting.parents, several, ambiguous)


def calls(work: KernelTable, operators: ColumnTable) -> tuple[Integers, Integers]:
    """For each activity, the innermost operator of the launching thread that encloses the launch; for each operator,
    the one that called it; -1 if there is none.
    """
    times = work.array("launch_start")
    launched = np.flatnonzero(times != UNKNOWN)
    processes, of_launch, _ = common_codes((operators, "process"), (work, "process"))
    threads, thread_of_launch, _ = common_codes((operators, "thread"), (work, "launch_thread"))
    of_launch, thread_of_launch = of_launch[launched], thread_of_launch[launched]
    count = int(max(threads.max(initial=-1), thread_of_launch.max(initial=-1))) + 2
    nesting = nested(
        processes * count + threads, operators.array("start"), operators.array("end"),
        of_launch * count + thread_of_launch, times[launched],
    )  # fmt: skip
    innermost = np.full(len(work), -1, np.int64)
    innermost[launched] = nesting.innermost
    return innermost, nesting.parents


def with_captured_launches(work: KernelTable, calls: ColumnTable) -> KernelTable:
    """The activities, where kernels of a CUDA graph have the launches that were captured into it, if the file has them.

    A replay is one call for all its kernels; the capture has a launch for each, inside its operator, and with shapes.
    The calls do not name the graph: a replay on one stream belongs to the only capture with its number of kernels, and
    its kernels run in the order of the launches.
    """
    starts, threads, ids = (calls.array(column) for column in ("start", "thread", "correlation"))

    def named(pattern: str) -> Integers:
        return np.flatnonzero(calls.mapped("name", re.compile(pattern).search, False, bool))

    begins, ends, launches = named("BeginCapture"), named("EndCapture"), named(r"Launch\w*Kernel")
    if not len(begins):
        return work
    launches = launches[~np.isin(ids[launches], work.array("correlation"))]
    captures: dict[int, list[Integers]] = {}  # by the number of launches, their rows
    for begin in begins.tolist():
        of_thread = (threads == threads[begin]) & (threads != UNKNOWN) & (starts >= starts[begin])
        end = starts[ends[of_thread[ends] & (ends != begin)]].min(initial=LATEST)
        captured = launches[of_thread[launches] & (starts[launches] <= end) & (end < LATEST)]
        captures.setdefault(len(captured), []).append(captured[np.argsort(starts[captured], kind="stable")])
    in_graph = work.mapped("kind", KERNEL.__eq__, False, bool)
    in_graph &= work.mapped("launch_call", lambda call: "GraphLaunch" in call, False, bool)
    replays: dict[tuple[int, int], list[int]] = {}
    graph_calls = zip(work.array("launch_start").tolist(), work.array("correlation").tolist(), strict=True)
    for row, (call, is_replay) in enumerate(zip(graph_calls, in_graph.tolist(), strict=True)):
        if is_replay:
            replays.setdefault(call, []).append(row)
    streams = work.array("stream")
    call_of: dict[int, int] = {}
    for replay in replays.values():
        only, *others = captures.get(len(replay), [None])
        if only is not None and not others and len(set(streams[replay].tolist()) - {UNKNOWN}) == 1:
            call_of |= zip(replay, only.tolist(), strict=True)
    if not call_of:
        return work
    joined = work.copy()
    columns = {"launch_start": "start", "launch_end": "end", "launch_thread": "thread", "launch_call": "name"}
    for column, of_call in columns.items():
        cells = work.cells(column)
        for row, launch in call_of.items():
            cells[row] = calls.cell(of_call, launch)
        joined.set(column, cells)
    return joined


def innermost_names(work: KernelTable, ranges: ColumnTable) -> list[str | None]:
    """For each activity, the name of the innermost range that encloses its launch; None if unknown."""
    enclosing_ranges = place(work, ranges)
    starts, ends = ranges.array("start"), ranges.array("end")
    inner = enclosing_ranges.of_thread.copy()
    for i in np.flatnonzero((enclosing_ranges.of_process >= 0) & (enclosing_ranges.of_thread >= 0)).tolist():
        inner[i] = max(
            enclosing_ranges.of_thread[i], enclosing_ranges.of_process[i], key=lambda r: (starts[r], -ends[r])
        )
    inner = np.where(inner < 0, enclosing_ranges.of_process, inner)
    names = ranges.cells("name")
    return [names[i] if i >= 0 else None for i in inner.tolist()]


def names_outermost_first(
    work: KernelTable, ranges: ColumnTable, enclosing_ranges: EnclosingRanges
) -> list[tuple[str, ...]]:
    """For each activity, the names of the ranges that enclose its launch, outermost first.

    Its time does not grow with the ranges that ended before the launch, except below one that is still open.
    """
    names = ranges.cells("name")
    starts, ends = ranges.array("start").tolist(), ranges.array("end").tolist()
    parents = enclosing_ranges.parents.tolist()

    reach = ends.copy()  # the latest end of a range and the ranges around it
    for i in sorted(range(len(starts)), key=lambda r: (starts[r], -ends[r])):  # parents first
        if parents[i] >= 0:
            reach[i] = max(reach[i], reach[parents[i]])

    def chain(innermost: int, time: int) -> Iterator[int]:
        while innermost >= 0 and reach[innermost] > time:
            if ends[innermost] > time:
                yield innermost
            innermost = parents[innermost]

    labels: dict[tuple[str, ...], tuple[str, ...]] = {}  # one tuple for all kernels of a range
    result = []
    for time, *inner in zip(
        work.array("launch_start").tolist(),
        enclosing_ranges.of_thread.tolist(),
        enclosing_ranges.of_process.tolist(),
        strict=True,
    ):
        rows = sorted({row for each in inner for row in chain(each, time)}, key=lambda r: (starts[r], -ends[r]))
        label = tuple(names[row] for row in rows)
        result.append(labels.setdefault(label, label))
    return result


def rows_by_value(values: NDArray[Any]) -> dict[int, Integers]:
    """The positions of each value, in order."""
    if not len(values):
        return {}
    order = np.argsort(values, kind="stable")
    distinct_values, firsts = np.unique(values[order], return_index=True)
    return dict(zip(distinct_values.tolist(), np.split(order, firsts[1:]), strict=True))
