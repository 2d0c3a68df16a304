"""Why a GPU idles, from what the CPU did in the meantime.

A gap ends with the start of an activity. The kernel after a gap is not its cause. The cause is why that kernel had not
started earlier:

    queued           it was already launched: it waited for its stream, an event, or another device
    input            the launching thread fetched a batch from the data loader
    other_rank       the launching thread waited for other ranks (a barrier, a collective on the CPU)
    allocation       the launching thread allocated or freed memory, loaded a module, or created a stream
    synchronization  the thread was blocked until the GPU had finished, so the queue was empty when it continued
    launch           the CPU had work to launch, but was slower than the GPU
    unknown          the file does not have the launch, or the clocks of CPU and GPU differ

The time after the launching call has returned is `queued`, except for the latency of a launch (MAX_LAUNCH_LATENCY).
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

CAUSES = ("input", "synchronization", "launch", "other_rank", "queued", "allocation", "unknown")
# Nanoseconds after the return of a launching call that still count as `launch`; the rest until the kernel starts is
# `queued`. A choice of this project: an idle GPU usually starts a kernel within 10 us, and this limit holds for each
# kernel, also for the slowest one.
MAX_LAUNCH_LATENCY = 50_000
LOADER = re.compile(
    r"dataloader.*(?:__next__|_next_data|_get_data)|enumerate\(dataloader\)|get_batch|data_?load|next_batch", re.I
)
_WORKERS = "_MultiProcessingDataLoaderIter"  # PyTorch's iterator with num_workers >= 1
_OTHER_RANK = re.compile(r"barrier|gloo:|store.*wait|monitored", re.I)
SYNCHRONIZES = re.compile(
    r"(?:cuda|hip)(?:Device|Stream|Event)Synchronize|cu(?:Ctx|Stream|Event)Synchronize|(?:cuda|hip)Memcpy(?!\w*Async)|"
    r"cuMemcpy\w*(?<!Async)(?:_v\d+)?$|(?:cuda|hip)Free(?!\w*Async)|cuMemFree(?!\w*Async)|"
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
    found = {cause: [intervals.NONE] for cause in CAUSES}
    ended = np.searchsorted(rank.starts, gaps[:, 1], side="left") < len(rank.starts)
    found["unknown"].append(gaps[~ended])  # after the last activity
    gaps = gaps[ended]
    first = np.searchsorted(rank.starts, gaps[:, 1], side="left")  # the activity that ends each gap
    launches = rank.work["launch_start"].to_numpy()[first]
    threads = rank.work["launch_thread"].astype(object).to_numpy()[first]
    returned = rank.work["launch_end"].to_numpy()[first]
    known = launches != UNKNOWN
    late = known & (launches > gaps[:, 0])
    # The end of the time in which the CPU delays the kernel: after it, the kernel waits for something on the GPU.
    delayed = np.where(returned == UNKNOWN, gaps[:, 1], np.minimum(returned + MAX_LAUNCH_LATENCY, gaps[:, 1]))
    found["unknown"].append(gaps[~known])
    found["queued"] += [gaps[known & ~late], intervals.union(delayed[late], gaps[late, 1])]
    whole = np.stack([gaps[:, 0], delayed], axis=1)
    found["launch"].append(whole[late & ~_is_text(threads)])
    for thread in sorted({each for each in threads[late] if isinstance(each, str)}):
        of_thread = late & (threads == thread)
        gaps_of_thread = whole[of_thread]
        before_launch = np.stack([gaps_of_thread[:, 0], np.minimum(launches[of_thread], gaps_of_thread[:, 1])], axis=1)
        explained = intervals.NONE
        for cause, pattern in (("input", LOADER), ("other_rank", _OTHER_RANK), ("allocation", _ALLOCATES)):
            in_cause = intervals.intersect(thread_time(rank, thread, pattern), before_launch)
            found[cause].append(intervals.subtract(in_cause, explained))
            explained = intervals.join(explained, in_cause)
        blocked = _contains(thread_time(rank, thread, SYNCHRONIZES), gaps_of_thread[:, 0])
        found["synchronization"].append(intervals.subtract(gaps_of_thread[blocked], explained))
        found["launch"].append(intervals.subtract(gaps_of_thread[~blocked], explained))
    return {cause: joined for cause, sets in found.items() if len(joined := intervals.join(*sets))}


def thread_time(rank: Rank, thread: str, pattern: re.Pattern[str]) -> Intervals:
    """The time that a thread spends in CUDA calls, operators and ranges whose names match."""
    return rank.timeline.once(_time_by_thread, pattern).get(thread, intervals.NONE)


def _time_by_thread(timeline: Timeline, pattern: re.Pattern[str]) -> dict[str, Intervals]:
    found: dict[str, list[Intervals]] = {}
    for events in (timeline.calls, timeline.operators, timeline.ranges):
        for thread, matching in named(events, pattern).groupby("thread", observed=True):
            found.setdefault(str(thread), []).append(intervals.union(matching["start"], matching["end"]))
    return {thread: intervals.join(*sets) for thread, sets in found.items()}


def operator_at(rank: Rank, gap: Intervals) -> str | None:
    """The innermost operator that covers more than half of a gap, on the thread that launched the next activity."""
    every, events = rank.unrestricted, rank.timeline.operators
    following = int(np.searchsorted(every.starts, gap[1], side="left"))
    thread = every.work["launch_thread"].iloc[following] if following < len(every.starts) else None
    if not isinstance(thread, str) or not len(events):
        return None
    events = events[events["thread"].astype(object) == thread]
    within = np.minimum(events["end"], gap[1]) - np.maximum(events["start"], gap[0])
    events = events[within > 0.5 * (gap[1] - gap[0])]
    return str(events["name"].iloc[int((events["end"] - events["start"]).argmin())]) if len(events) else None


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
