"""Why a GPU idles, from what the CPU did in the meantime.

A gap ends with the start of an activity. Neither the kernel after a gap nor the call before it is the cause. The cause
is what the thread that launched the next activity did during the gap:

    queued           it had launched the activity: that waited for its stream, an event, or another device
    input            it fetched a batch from the data loader
    other_rank       it waited for other ranks (a barrier, a collective on the CPU)
    allocation       it allocated or freed memory, created a stream, or loaded a module (a launch of milliseconds)
    cpu_work         it did other work, outside CUDA calls: an operator, a named range, or unnamed code
    synchronization  it was blocked until the GPU had finished, so the queue was empty when it continued
    launch           it launched work, but more slowly than the GPU
    unknown          the file does not have the launch, or the clocks of CPU and GPU differ

The time after the launching call has returned is `queued`, except for the latency of a launch (MAX_LAUNCH_LATENCY).
Pages of managed memory that the driver moves have no launch: the CPU or a kernel touched them. Before they move, the
thread of the next launched activity did `cpu_work` outside its calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.timelines.enclosing import rows_by_value
from roofmodel.profiles.timelines.timeline import UNKNOWN, Timeline
from roofmodel.trace import intervals
from roofmodel.trace.intervals import Intervals
from roofmodel.trace.ranks import Rank

CAUSES = ("input", "synchronization", "launch", "cpu_work", "other_rank", "queued", "allocation", "unknown")
# Nanoseconds after the return of a launching call that still count as `launch`; the rest until the kernel starts is
# `queued`. A choice of this project: an idle GPU usually starts a kernel within 10 us, and this limit holds for each
# kernel, also for the slowest one.
MAX_LAUNCH_LATENCY = 50_000
# Nanoseconds outside CUDA calls, in one gap, from which they are `cpu_work` and not the overhead of a launch; those of
# an operator or range without CUDA calls, which does something else than launch; and of one call, from which it loads a
# module or initializes a library. Choices of this project. In public traces of eager PyTorch, the time between two
# launches is 20 to 150 us, and a launch takes 5 to 20 us unless the queue is full, when the GPU does not idle.
MIN_CPU_WORK, MIN_NAMED_WORK, LONG_CALL = 200_000, 50_000, 1_000_000
LOADER = re.compile(
    r"dataloader.*(?:__next__|_next_data|_get_data)|enumerate\(dataloader\)|get_batch|data_?load|next_batch", re.I
)
MIGRATIONS = ("unified_HtoD", "unified_DtoH")
_NUMBER = re.compile(r"[\s_#:-]*\d+$")  # of an iteration, at the end of a name
_STEP = "ProfilerStep"
_MAX_NAMES = 50
_WORKERS = "_MultiProcessingDataLoaderIter"  # PyTorch's iterator with num_workers >= 1
_OTHER_RANK = re.compile(r"barrier|gloo:|store.*wait|monitored", re.I)
SYNCHRONIZES = re.compile(
    r"(?:cuda|hip)(?:Device|Stream|Event)Synchronize|cu(?:Ctx|Stream|Event)Synchronize|(?:cuda|hip)Memcpy(?!\w*Async)|"
    r"cuMemcpy(?!\w*Async)|(?:cuda|hip)Free(?!\w*Async)|cuMemFree(?!\w*Async)|"
    r"aten::(?:item|_local_scalar_dense)$"
)
_QUICK = re.compile("Memcpy|Memset|Synchronize|Wait|Query")  # calls that wait or copy
_ALLOCATES = re.compile(
    r"(?:cuda|hip)(?:Malloc|Free|Host(?:Alloc|Malloc|Free|Register|Unregister)|StreamCreate|ModuleLoad)(?!\w*Async)|"
    r"cu(?:Mem(?:Alloc|Free|HostAlloc|HostRegister|Create|Map|Unmap|AddressReserve)|StreamCreate|ModuleLoad|LibraryLoad|"
    r"CtxCreate|DevicePrimaryCtxRetain)(?!\w*Async)"
)


def by_cause(rank: Rank) -> dict[str, Intervals]:
    """The idle time by cause as disjoint sets, whose union is the rank's idle time; only causes that occur."""
    if rank.clock_error:  # then the order of launches and gaps is unknown
        return {"unknown": rank.idle} if len(rank.idle) else {}
    every = rank.unrestricted  # the activity that ends a gap may start after the selected steps
    low, high = every.span
    gaps = intervals.gaps(every.active, min(low, rank.span[0]), max(high, rank.span[1]))
    within = {cause: intervals.intersect(times, rank.windows) for cause, times in _gaps_by_cause(every, gaps).items()}
    return {cause: times for cause, times in within.items() if len(times)}


def _gaps_by_cause(rank: Rank, gaps: Intervals) -> dict[str, Intervals]:
    """The gaps between activities by cause."""
    parts_by_cause = {cause: [intervals.NONE] for cause in CAUSES}
    ended = np.searchsorted(rank.starts, gaps[:, 1], side="left") < len(rank.starts)
    parts_by_cause["unknown"].append(gaps[~ended])  # after the last activity
    gaps = gaps[ended]
    first = np.searchsorted(rank.starts, gaps[:, 1], side="left")  # the activity that ends each gap
    launches, returned, threads = (
        rank.work.array(column).copy() for column in ("launch_start", "launch_end", "launch_thread")
    )
    moved = _migrates(rank) & (launches == UNKNOWN)
    _launch_migrations(rank, moved, launches, returned, threads)
    moved, launches, returned, threads = moved[first], launches[first], returned[first], threads[first]
    known = launches != UNKNOWN
    late = known & (launches > gaps[:, 0])
    # The end of the time in which the CPU delays the kernel: after it, the kernel waits for something on the GPU.
    delayed = np.where(returned == UNKNOWN, gaps[:, 1], np.minimum(returned + MAX_LAUNCH_LATENCY, gaps[:, 1]))
    parts_by_cause["unknown"].append(gaps[~known])
    parts_by_cause["queued"] += [gaps[known & ~late], intervals.union(delayed[late], gaps[late, 1])]
    delays = np.stack([gaps[:, 0], delayed], axis=1)
    parts_by_cause["launch"].append(delays[late & (threads < 0)])
    rows_by_thread = rows_by_value(np.where(late, threads, -1))
    rows_by_thread.pop(-1, None)
    for code, rows in rows_by_thread.items():
        thread, gaps_of_thread = rank.work.distinct("launch_thread")[code], delays[rows]
        before_launch = np.stack([gaps_of_thread[:, 0], np.minimum(launches[rows], gaps_of_thread[:, 1])], axis=1)
        explained = intervals.NONE
        for cause, pattern in (("input", LOADER), ("other_rank", _OTHER_RANK), ("allocation", _ALLOCATES)):
            in_cause = intervals.intersect(thread_time(rank, thread, pattern), before_launch)
            parts_by_cause[cause].append(intervals.subtract(in_cause, explained))
            explained = intervals.join(explained, in_cause)
        calls = _time_of(rank, _call_time, thread)
        synchronizing = thread_time(rank, thread, SYNCHRONIZES)
        for cause, times in (("synchronization", synchronizing), ("allocation", _time_of(rank, _long_calls, thread))):
            in_cause = intervals.subtract(intervals.intersect(times, gaps_of_thread), explained)
            parts_by_cause[cause].append(in_cause)
            explained = intervals.join(explained, in_cause)
        outside = intervals.subtract(intervals.subtract(before_launch, explained), calls)
        outside_of_gap = intervals.covered(outside, gaps_of_thread[:, 0], gaps_of_thread[:, 1])
        work = intervals.join(
            intervals.intersect(outside, gaps_of_thread[(outside_of_gap > MIN_CPU_WORK) | moved[rows]]),
            intervals.intersect(outside, _time_of(rank, _work_without_calls, thread)),
        )
        parts_by_cause["cpu_work"].append(work)
        explained = intervals.join(explained, work)
        busy = intervals.covered(work, gaps_of_thread[:, 0], gaps_of_thread[:, 1]) > 0
        blocked = _contains(synchronizing, gaps_of_thread[:, 0]) & ~busy
        parts_by_cause["synchronization"].append(intervals.subtract(gaps_of_thread[blocked], explained))
        parts_by_cause["launch"].append(intervals.subtract(gaps_of_thread[~blocked], explained))
    return {cause: joined for cause, sets in parts_by_cause.items() if len(joined := intervals.join(*sets))}


def thread_time(rank: Rank, thread: str, pattern: re.Pattern[str]) -> Intervals:
    """The time that a thread spends in CUDA calls, operators and ranges whose names match."""
    return _time_of(rank, _matching_time, thread, pattern)


def _time_of(rank: Rank, find: Callable[..., dict[str, Intervals]], thread: str, *options: Hashable) -> Intervals:
    return rank.timeline.once(find, *options).get(thread, intervals.NONE)


def _matching_time(timeline: Timeline, pattern: re.Pattern[str]) -> dict[str, Intervals]:
    tables = (timeline.call_table, timeline.operator_table, timeline.range_table)
    return _time_by_thread((events, events.mapped("name", pattern.search, None, bool)) for events in tables)


def _time_by_thread(tables: Iterable[tuple[ColumnTable, Any]]) -> dict[str, Intervals]:
    """The time of each thread in the chosen events (a mask) of each table."""
    times: dict[str, list[Intervals]] = {}
    for events, chosen in tables:
        starts, ends = events.array("start")[chosen], events.array("end")[chosen]
        for code, rows in rows_by_value(events.array("thread")[chosen]).items():
            if code != UNKNOWN:
                thread = events.distinct("thread")[code]
                times.setdefault(thread, []).append(intervals.union(starts[rows], ends[rows]))
    return {thread: intervals.join(*sets) for thread, sets in times.items()}


def _call_time(timeline: Timeline) -> dict[str, Intervals]:
    return _time_by_thread([(timeline.call_table, slice(None))])


class NamedEvents(NamedTuple):
    """Operators and ranges that have a name, or all of them that have the same one."""

    names: NDArray[np.object_]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    calls: NDArray[np.int64]  # CUDA calls in each

    def rows(self, chosen: Any) -> NamedEvents:
        """Some of the events (a mask or indices)."""
        return NamedEvents(*(column[chosen] for column in self))

    def by_name(self) -> dict[str, NamedEvents]:
        """The events of each name, by name."""
        names, codes = np.unique(self.names, return_inverse=True)
        return {names[code]: self.rows(rows) for code, rows in rows_by_value(codes).items()}

    def durations(self) -> NDArray[np.int64]:
        return self.ends - self.starts

    def time(self) -> Intervals:
        return intervals.union(self.starts, self.ends)


def names_of(rank: Rank, times: Intervals) -> list[tuple[str, float]]:
    """What the launching threads did in these times: names of operators and ranges, each with its seconds.

    The longest first; an operator or range inside a listed one is not listed. Those without CUDA calls do something
    else than launch, so the outermost of them are listed. If they take less than half of the times, the innermost of
    all that take more than half comes first: the range of a step is around every gap.
    """
    by_thread = rank.timeline.once(_named_work)
    tables = [by_thread[thread] for thread in _threads(rank) if thread in by_thread]
    if not tables:
        return []
    events = NamedEvents(*map(np.concatenate, zip(*tables, strict=True)))
    events = events.rows(intervals.covered(times, events.starts, events.ends) > 0)
    events = events.rows([not name.startswith(_STEP) for name in events.names])
    names: NDArray[np.object_] = np.array([_NUMBER.sub("", name) for name in events.names], object)
    named_events = events._replace(names=names)
    half = intervals.length(times) / 2
    lengths = {name: each.durations().mean() for name, each in named_events.by_name().items()}
    alone, every = (
        {name: intervals.intersect(each.time(), times) for name, each in _longest(chosen)}
        for chosen in (named_events.rows(events.calls == 0), named_events)
    )
    if intervals.length(intervals.join(*alone.values())) > half:
        ordered = sorted(alone, key=lambda name: -intervals.length(alone[name]))
    else:
        alone, large = every, [name for name in every if intervals.length(every[name]) > half]
        small = [name for name in every if name not in large]
        ordered = sorted(large, key=lengths.__getitem__) + sorted(
            small, key=lambda name: -intervals.length(every[name])
        )
    listed, listed_times = [], intervals.NONE
    for name in ordered:
        if 2 * intervals.length(intervals.subtract(alone[name], listed_times)) > intervals.length(alone[name]):
            listed.append((name, intervals.length(alone[name]) / 1e9))
            listed_times = intervals.join(listed_times, alone[name])
    return listed


def migrations(rank: Rank) -> Intervals:
    """The time in which pages of managed memory move."""
    moved = _migrates(rank)
    return intervals.union(rank.starts[moved], rank.ends[moved])


def _migrates(rank: Rank) -> NDArray[np.bool_]:
    """Which activities move pages of managed memory."""
    moved: NDArray[np.bool_] = rank.work.mapped("direction", MIGRATIONS.__contains__, False, bool)
    return moved


def before_migrations(rank: Rank, times: Intervals) -> Intervals:
    """The part of these times in gaps that end because pages of managed memory move."""
    every = rank.unrestricted
    first = np.minimum(np.searchsorted(every.starts, rank.idle[:, 1], side="left"), len(every.starts) - 1)
    return intervals.intersect(times, rank.idle[_migrates(every)[first]])


def call_of(rank: Rank, times: Intervals) -> str | None:
    """The CUDA call that takes most of these times; None if calls take less than half."""
    calls = rank.timeline.call_table
    inside = intervals.covered(times, calls.array("start"), calls.array("end"))
    rows_of = rows_by_value(calls.array("name"))
    time = {name: int(inside[rows_of[code]].sum()) for code, name in enumerate(calls.distinct("name"))}
    name = max(sorted(time), key=time.__getitem__, default=None)
    return name if name is not None and 2 * time[name] > intervals.length(times) else None


def _threads(rank: Rank) -> list[str]:
    """The threads that launched work of the rank."""
    work = rank.unrestricted.work
    return sorted(work.distinct("launch_thread")[code] for code in np.unique(work.array("launch_thread")) if code >= 0)


def _named_work(timeline: Timeline) -> dict[str, NamedEvents]:
    """By thread, its operators and ranges that are long enough to count as work of the CPU."""
    calls = timeline.call_table
    starts_of_calls = {
        calls.distinct("thread")[code]: np.sort(calls.array("start")[rows])
        for code, rows in rows_by_value(calls.array("thread")).items()
        if code >= 0
    }
    parts: dict[str, list[NamedEvents]] = {}
    for table in (timeline.range_table, timeline.operator_table):
        starts, ends, threads = (table.array(column) for column in ("start", "end", "thread"))
        names = table.mapped("name", str)
        long = (ends - starts > MIN_NAMED_WORK) & (table.array("name") >= 0)
        for code, rows in rows_by_value(np.where(long, threads, UNKNOWN)).items():
            if code != UNKNOWN:
                thread = table.distinct("thread")[code]
                begins = starts_of_calls.get(thread, np.empty(0, np.int64))
                first, last = (np.searchsorted(begins, times[rows], side="left") for times in (starts, ends))
                events = NamedEvents(names[rows], starts[rows], ends[rows], last - first)
                parts.setdefault(thread, []).append(events)
    return {thread: NamedEvents(*map(np.concatenate, zip(*each, strict=True))) for thread, each in parts.items()}


def _work_without_calls(timeline: Timeline) -> dict[str, Intervals]:
    """The time of each thread in operators and ranges that contain no CUDA call: they do something else than launch."""
    return {thread: each.rows(each.calls == 0).time() for thread, each in timeline.once(_named_work).items()}


def _longest(events: NamedEvents) -> list[tuple[str, NamedEvents]]:
    """The names that take most time, with their events."""
    return sorted(events.by_name().items(), key=lambda item: -item[1].durations().sum())[:_MAX_NAMES]


def _long_calls(timeline: Timeline) -> dict[str, Intervals]:
    """Calls that neither wait nor copy, and take so long that they initialize something."""
    calls = timeline.call_table
    quick = calls.mapped("name", _QUICK.search, True, bool)
    return _time_by_thread([(calls, ~quick & (calls.array("end") - calls.array("start") > LONG_CALL))])


def _launch_migrations(
    rank: Rank, moved: np.ndarray, launches: np.ndarray, returned: np.ndarray, threads: np.ndarray
) -> None:
    """Give moved pages of managed memory the launch of the next activity that has one.

    After the last launch, the thread of the last one has not launched anything before they end.
    """
    others = np.flatnonzero(launches != UNKNOWN)
    if not moved.any() or not len(others):
        return
    places = np.flatnonzero(moved)
    index = np.searchsorted(others, places)
    last = index == len(others)
    source = others[np.minimum(index, len(others) - 1)]
    launches[places] = np.where(last, rank.ends[places], launches[source])
    returned[places] = np.where(last, UNKNOWN, returned[source])
    threads[places] = threads[source]


def _contains(intervals_: Intervals, times: np.ndarray) -> np.ndarray:
    """Whether each time lies inside one of the intervals, ends included."""
    index = np.searchsorted(intervals_[:, 0], times, side="right") - 1
    inside = index >= 0
    inside[inside] = intervals_[index[inside], 1] >= times[inside]
    return np.asarray(inside)


def loader_time(rank: Rank) -> Intervals:
    """The time in the data loader of the launching thread that spends most there; empty if none does."""
    in_cause = [thread_time(rank, thread, LOADER) for thread in _threads(rank)]
    return max(in_cause, key=intervals.length, default=intervals.NONE)


def loader_has_workers(rank: Rank) -> bool:
    """Whether the ranges of PyTorch's data loader are those of one with worker processes."""
    tables = (rank.timeline.range_table, rank.timeline.operator_table)
    return any(_WORKERS in name for table in tables for name in table.distinct("name"))
