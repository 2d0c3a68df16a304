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
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import numpy as np

from roofmodel.profiles.timelines.enclosing import rows_by_value
from roofmodel.profiles.timelines.timeline import UNKNOWN, Timeline
from roofmodel.trace import intervals
from roofmodel.trace.intervals import Intervals
from roofmodel.trace.ranks import Rank

if TYPE_CHECKING:
    import pandas

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
_NUMBER = r"[\s_#:-]*\d+$"  # of an iteration, at the end of a name
_STEP = "ProfilerStep"
_MAX_NAMES = 50
_WORKERS = "_MultiProcessingDataLoaderIter"  # PyTorch's iterator with num_workers >= 1
_OTHER_RANK = re.compile(r"barrier|gloo:|store.*wait|monitored", re.I)
SYNCHRONIZES = re.compile(
    r"(?:cuda|hip)(?:Device|Stream|Event)Synchronize|cu(?:Ctx|Stream|Event)Synchronize|(?:cuda|hip)Memcpy(?!\w*Async)|"
    r"cuMemcpy(?!\w*Async)|(?:cuda|hip)Free(?!\w*Async)|cuMemFree(?!\w*Async)|"
    r"aten::(?:item|_local_scalar_dense)$"
)
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
    launches = rank.work["launch_start"].to_numpy().copy()
    returned = rank.work["launch_end"].to_numpy().copy()
    categories = rank.work["launch_thread"].cat.categories
    threads = rank.work["launch_thread"].cat.codes.to_numpy().copy()
    moved = rank.work["direction"].isin(MIGRATIONS).to_numpy() & (launches == UNKNOWN)
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
        thread, gaps_of_thread = str(categories[code]), delays[rows]
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
    tables = [named(events, pattern) for events in (timeline.calls, timeline.operators, timeline.ranges)]
    return _time_by_thread(*tables)


def _time_by_thread(*tables: pandas.DataFrame) -> dict[str, Intervals]:
    """The time in the events of each thread."""
    times: dict[str, list[Intervals]] = {}
    for events in tables:
        starts, ends = events["start"].to_numpy(), events["end"].to_numpy()
        for thread, rows in events.groupby("thread", observed=True).indices.items():
            times.setdefault(str(thread), []).append(intervals.union(starts[rows], ends[rows]))
    return {thread: intervals.join(*sets) for thread, sets in times.items()}


def _call_time(timeline: Timeline) -> dict[str, Intervals]:
    return _time_by_thread(timeline.calls)


def names_of(rank: Rank, times: Intervals) -> list[tuple[str, float]]:
    """What the launching threads did in these times: names of operators and ranges, each with its seconds.

    The longest first; an operator or range inside a listed one is not listed. Those without CUDA calls do something
    else than launch, so the outermost of them are listed. If they take less than half of the times, the innermost of
    all that take more than half comes first: the range of a step is around every gap.
    """
    import pandas

    by_thread = rank.timeline.once(_named_work)
    tables = [by_thread[thread] for thread in _threads(rank) if thread in by_thread]
    if not tables:
        return []
    events = pandas.concat(tables)
    events = events[intervals.covered(times, events["start"], events["end"]) > 0]
    events = events[~events["name"].str.match(_STEP).to_numpy(dtype=bool)]
    events = events.assign(name=events["name"].str.replace(_NUMBER, "", regex=True))
    half = intervals.length(times) / 2
    durations = (events["end"] - events["start"]).groupby(events["name"])
    lengths = durations.mean()
    alone, every = (
        {name: intervals.intersect(_union(table[table["name"] == name]), times) for name in names}
        for table in (events[events["calls"] == 0], events)
        for names in [_longest(table)]
    )
    if intervals.length(intervals.join(*alone.values())) > half:
        ordered = sorted(alone, key=lambda name: -intervals.length(alone[name]))
    else:
        alone, large = every, [name for name in every if intervals.length(every[name]) > half]
        ordered = sorted(large, key=lengths.__getitem__) + sorted(
            every.keys() - {*large}, key=lambda name: -intervals.length(every[name])
        )
    listed, listed_times = [], intervals.NONE
    for name in ordered:
        if 2 * intervals.length(intervals.subtract(alone[name], listed_times)) > intervals.length(alone[name]):
            listed.append((name, intervals.length(alone[name]) / 1e9))
            listed_times = intervals.join(listed_times, alone[name])
    return listed


def migrations(rank: Rank) -> Intervals:
    """The time in which pages of managed memory move."""
    moved = rank.work["direction"].isin(MIGRATIONS).to_numpy()
    return intervals.union(rank.starts[moved], rank.ends[moved])


def before_migrations(rank: Rank, times: Intervals) -> Intervals:
    """The part of these times in gaps that end because pages of managed memory move."""
    every = rank.unrestricted
    first = np.minimum(np.searchsorted(every.starts, rank.idle[:, 1], side="left"), len(every.starts) - 1)
    moved = every.work["direction"].isin(MIGRATIONS).to_numpy()
    return intervals.intersect(times, rank.idle[moved[first]])


def call_of(rank: Rank, times: Intervals) -> str | None:
    """The CUDA call that takes most of these times; None if calls take less than half."""
    calls = rank.timeline.calls
    inside = intervals.covered(times, calls["start"], calls["end"])
    seconds = calls.assign(inside=inside).groupby(calls["name"].astype(object))["inside"].sum()
    return str(seconds.idxmax()) if len(seconds) and 2 * seconds.max() > intervals.length(times) else None


def _threads(rank: Rank) -> list[str]:
    """The threads that launched work of the rank."""
    return sorted(map(str, rank.unrestricted.work["launch_thread"].dropna().unique()))


def _named_work(timeline: Timeline) -> dict[str, pandas.DataFrame]:
    """By thread, its operators and ranges that are long enough to count as work of the CPU, with the number of CUDA
    calls in each.
    """
    import pandas

    columns = ["name", "start", "end", "thread"]
    every = pandas.concat([table[columns].astype(object) for table in (timeline.ranges, timeline.operators)])
    every = every.astype({"start": np.int64, "end": np.int64})
    every = every[every["end"] - every["start"] > MIN_NAMED_WORK]
    calls = {thread: np.sort(starts) for thread, starts in timeline.calls.groupby("thread", observed=True)["start"]}
    tables = {}
    for thread, events in every.groupby("thread"):
        first, last = (
            np.searchsorted(calls.get(thread, []), events[column], side="left") for column in ("start", "end")
        )
        tables[str(thread)] = events.assign(calls=last - first)
    return tables


def _work_without_calls(timeline: Timeline) -> dict[str, Intervals]:
    """The time of each thread in operators and ranges that contain no CUDA call: they do something else than launch."""
    return {thread: _union(table[table["calls"] == 0]) for thread, table in timeline.once(_named_work).items()}


def _longest(events: pandas.DataFrame) -> list[str]:
    """The names that take most time."""
    durations = (events["end"] - events["start"]).groupby(events["name"]).sum()
    return list(durations.nlargest(_MAX_NAMES).index)


def _union(events: pandas.DataFrame) -> Intervals:
    return intervals.union(events["start"], events["end"])


def _long_calls(timeline: Timeline) -> dict[str, Intervals]:
    """Calls that neither wait nor copy, and take so long that they initialize something."""
    calls = timeline.calls
    names = calls["name"].astype(object).str
    quick = names.contains("Memcpy|Memset|Synchronize|Wait|Query", na=True).to_numpy(dtype=bool)
    return _time_by_thread(calls[~quick & (calls["end"] - calls["start"] > LONG_CALL).to_numpy()])


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


def named(events: pandas.DataFrame, pattern: re.Pattern[str]) -> pandas.DataFrame:
    """The events whose names match."""
    names = events["name"].cat
    codes = [code for code, name in enumerate(names.categories) if pattern.search(name)]
    return events[names.codes.isin(codes)]


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
    tables = (rank.timeline.ranges, rank.timeline.operators)
    return any(_WORKERS in name for table in tables for name in table["name"].cat.categories)
