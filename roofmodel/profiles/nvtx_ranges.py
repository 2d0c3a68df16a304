"""Find the named ranges (NVTX, user annotations) that enclose each kernel launch.

The CPU launches kernels milliseconds before they run, so a range is compared with the time of the *launch*, never
with the start of the kernel. All times are integer nanoseconds of the same clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from roofmodel.profiles.kernel import ReaderWarning

NEVER_ENDED = 1 << 63  # end of a range that is still open at the end of the trace


class Range(NamedTuple):
    """A named range on a thread or, if `thread` is None, on all threads of its process."""

    process: Hashable
    thread: Hashable | None
    start: int
    end: int
    label: str


class Launch(NamedTuple):
    """The API call that launched a kernel."""

    process: Hashable
    thread: Hashable
    time: int


class EnclosingRanges(NamedTuple):
    """The enclosing ranges of each launch, outermost first, and the number of uncertain assignments."""

    labels: list[tuple[str, ...]]
    from_other_thread: int  # launches assigned by time to the ranges of another thread
    ambiguous: int  # launches without ranges because several other threads had open ranges


def enclosing_ranges(launches: Sequence[Launch | None], ranges: Iterable[Range]) -> EnclosingRanges:
    """For each launch, the ranges with start <= launch < end on the launching thread, outermost first.

    A thread without open ranges (autograd launches the backward pass on its own thread) takes the ranges of the only
    other thread of its process that has some. If several threads have open ranges, the launch gets none.
    """
    of_process: dict[Hashable, list[Range]] = defaultdict(list)
    for item in ranges:
        of_process[item.process].append(item)
    labels: list[tuple[str, ...]] = [()] * len(launches)
    from_other_thread = ambiguous = 0
    queues = {process: sorted(items, key=lambda r: (r.start, -r.end)) for process, items in of_process.items()}
    upcoming = dict.fromkeys(queues, 0)
    open_now: dict[Hashable, list[Range]] = {process: [] for process in queues}
    in_time = sorted(((launch.time, i, launch) for i, launch in enumerate(launches) if launch), key=lambda t: t[:2])
    for time, i, launch in in_time:
        queue = queues.get(launch.process)
        if queue is None:
            continue
        first = last = upcoming[launch.process]
        while last < len(queue) and queue[last].start <= time:
            last += 1
        upcoming[launch.process] = last
        enclosing = [r for r in open_now[launch.process] + queue[first:last] if r.end > time]
        open_now[launch.process] = enclosing
        threads = {r.thread for r in enclosing} - {None}
        if launch.thread in threads or not threads:
            threads = {launch.thread}
        elif len(threads) == 1:
            from_other_thread += 1
        else:
            ambiguous += 1
            threads = set()
        labels[i] = tuple(r.label for r in enclosing if r.thread is None or r.thread in threads)
    return EnclosingRanges(labels, from_other_thread, ambiguous)


def placement_warnings(placed: EnclosingRanges) -> list[ReaderWarning]:
    """Warnings about launches whose ranges come from another thread or are ambiguous."""
    texts = []
    if placed.from_other_thread:
        texts.append(
            f"{placed.from_other_thread} kernels were launched by a thread without NVTX ranges (such as autograd's); "
            "they are assigned, by time, to the open ranges of the only other thread that has some"
        )
    if placed.ambiguous:
        texts.append(
            f"{placed.ambiguous} kernels were launched by a thread without NVTX ranges while several other threads had "
            "open ranges; they are assigned to no range"
        )
    return list(map(ReaderWarning, texts))
