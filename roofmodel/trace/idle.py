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
from typing import TYPE_CHECKING

import numpy as np

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
    threads = rank.work["launch_thread"].astype(object).to_numpy().copy()
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
    parts_by_cause["launch"].append(delays[late & ~_is_text(threads)])
    for thread in sorted({each for each in threads[late] if isinstance(each, str)}):
        of_thread = late & (threads == thread)
        gaps_of_thread = delays[of_thread]
        before_launch = np.stack([gaps_of_thread[:, 0], np.minimum(launches[of_thread], gaps_of_thread[:, 1])], axis=1)
        explained = intervals.NONE
        for cause, pattern in (("input", LOADER), ("other_rank", _OTHER_RANK), ("allocation", _ALLOCATES)):
            in_cause = intervals.intersect(thread_time(rank, thread, pattern), before_launch)
            parts_by_cause[cause].append(intervals.subtract(in_cause, explained))
            explained = intervals.join(explained, in_cause)
        calls = _of_thread(rank.timeline.calls, thread)
        synchronizing = thread_time(rank, thread, SYNCHRONIZES)
        for cause, times in (("synchronization", synchronizing), ("allocation", _long_calls(calls))):
            in_cause = intervals.subtract(intervals.intersect(times, gaps_of_thread), explained)
            parts_by_cause[cause].append(in_cause)
            explained = intervals.join(explained, in_cause)
        outside = intervals.subtract(before_launch, explained)
        outside = intervals.subtract(outside, intervals.union(calls["start"], calls["end"]))
        outside_of_gap = intervals.covered(outside, gaps_of_thread[:, 0], gaps_of_thread[:, 1])
        work = intervals.join(
            intervals.intersect(outside, gaps_of_thread[(outside_of_gap > MIN_CPU_WORK) | moved[of_thread]]),
            intervals.intersect(outside, _union(_without_calls(_named(rank, thread), calls))),
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
    return rank.timeline.once(_time_by_thread, pattern).get(thread, intervals.NONE)


def _time_by_thread(timeline: Timeline, pattern: re.Pattern[str]) -> dict[str, Intervals]:
    times: dict[str, list[Intervals]] = {}
    for events in (timeline.calls, timeline.operators, timeline.ranges):
        for thread, matching in named(events, pattern).groupby("thread", observed=True):
            times.setdefault(str(thread), []).append(intervals.union(matching["start"], matching["end"]))
    return {thread: intervals.join(*sets) for thread, sets in times.items()}


def names_of(rank: Rank, times: Intervals) -> list[tuple[str, float]]:
    """What the launching threads did in these times: names of operators and ranges, each with its seconds.

    The longest first; an operator or range inside a listed one is not listed. Those without CUDA calls do something
    else than launch, so the outermost of them are listed. If they take less than half of the times, the innermost of
    all that take more than half comes first: the range of a step is around every gap.
    """
    threads = {each for each in rank.unrestricted.work["launch_thread"].astype(object) if isinstance(each, str)}
    half = intervals.length(times) / 2
    alone: dict[str, Intervals] = {}
    every: dict[str, Intervals] = {}
    lengths: dict[str, float] = {}
    for thread in sorted(threads):
        events = _named(rank, thread)
        events = events[intervals.covered(times, events["start"], events["end"]) > 0]
        events = events[~events["name"].str.match(_STEP).to_numpy(dtype=bool)]
        events = events.assign(name=events["name"].str.replace(_NUMBER, "", regex=True))
        without = _without_calls(events, _of_thread(rank.timeline.calls, thread))
        for by_name, table in ((alone, without), (every, events)):
            durations = (table["end"] - table["start"]).groupby(table["name"])
            for name in durations.sum().nlargest(_MAX_NAMES).index:
                inside = intervals.intersect(_union(table[table["name"] == name]), times)
                by_name[name] = intervals.join(by_name.get(name, intervals.NONE), inside)
                lengths[name] = durations.mean()[name]
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


def call_of(rank: Rank, times: Intervals) -> str | None:
    """The CUDA call that takes most of these times; None if calls take less than half."""
    calls = rank.timeline.calls
    inside = intervals.covered(times, calls["start"], calls["end"])
    seconds = calls.assign(inside=inside).groupby(calls["name"].astype(object))["inside"].sum()
    return str(seconds.idxmax()) if len(seconds) and 2 * seconds.max() > intervals.length(times) else None


def _named(rank: Rank, thread: str) -> pandas.DataFrame:
    """The operators and ranges of a thread that are long enough to count as work of the CPU."""
    import pandas

    tables = [_of_thread(table, thread) for table in (rank.timeline.ranges, rank.timeline.operators)]
    columns = ["name", "start", "end"]
    every = pandas.concat([table[columns].astype({"name": object}) for table in tables], ignore_index=True)
    return every[every["end"] - every["start"] > MIN_NAMED_WORK]


def _of_thread(events: pandas.DataFrame, thread: str) -> pandas.DataFrame:
    return events[events["thread"] == thread]


def _without_calls(events: pandas.DataFrame, calls: pandas.DataFrame) -> pandas.DataFrame:
    """The events that contain no CUDA call."""
    starts = np.sort(calls["start"].to_numpy())
    first, last = (np.searchsorted(starts, events[column].to_numpy(), side="left") for column in ("start", "end"))
    counted = events.assign(calls=last - first)
    return counted[counted["calls"] == 0]


def _union(events: pandas.DataFrame) -> Intervals:
    return intervals.union(events["start"], events["end"])


def _long_calls(calls: pandas.DataFrame) -> Intervals:
    """Calls that neither wait nor copy, and take so long that they initialize something."""
    names = calls["name"].astype(object).str
    quick = names.contains("Memcpy|Memset|Synchronize|Wait|Query", na=True).to_numpy(dtype=bool)
    return _union(calls[~quick & (calls["end"] - calls["start"] > LONG_CALL).to_numpy()])


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


def _is_text(values: np.ndarray) -> np.ndarray:
    return np.array([isinstance(value, str) for value in values], dtype=bool)


def _contains(intervals_: Intervals, times: np.ndarray) -> np.ndarray:
    """Whether each time lies inside one of the intervals, ends included."""
    index = np.searchsorted(intervals_[:, 0], times, side="right") - 1
    inside = index >= 0
    inside[inside] = intervals_[index[inside], 1] >= times[inside]
    return np.asarray(inside)


def loader_time(rank: Rank) -> Intervals:
    """The time in the data loader of the launching thread that spends most there; empty if none does."""
    threads = {each for each in rank.work["launch_thread"].astype(object) if isinstance(each, str)}
    in_cause = [thread_time(rank, thread, LOADER) for thread in sorted(threads)]
    return max(in_cause, key=intervals.length, default=intervals.NONE)


def loader_has_workers(rank: Rank) -> bool:
    """Whether the ranges of PyTorch's data loader are those of one with worker processes."""
    tables = (rank.timeline.ranges, rank.timeline.operators)
    return any(_WORKERS in name for table in tables for name in table["name"].cat.categories)
