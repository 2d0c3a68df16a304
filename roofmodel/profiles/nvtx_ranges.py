"""Which named ranges (NVTX, user annotations) a kernel's launch lies in.

Launches run ahead of the kernels, by milliseconds, so a range is compared with the time of the *launch*,
never with that of the kernel. Times are integer nanoseconds of one clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

FOREVER = 1 << 63  # the end of a range that was still open when the trace ended


class Range(NamedTuple):
    """A named range on a thread, or, where `thread` is None, on all threads of its process."""

    process: Hashable
    thread: Hashable | None
    start: int
    end: int
    label: str


class Launch(NamedTuple):
    """The call that launched a kernel."""

    process: Hashable
    thread: Hashable
    time: int


class Placed(NamedTuple):
    """The enclosing ranges of each launch, outermost first, and how sure that is."""

    labels: list[tuple[str, ...]]
    borrowed: int  # launches placed by time in the ranges of another thread
    ambiguous: int  # launches left alone, as several other threads had a range open


def place(launches: Sequence[Launch | None], ranges: Iterable[Range]) -> Placed:
    """The ranges with start <= launch < end on the launching thread, outermost first, for each launch.

    A thread that has none open (backward passes launch on autograd's thread) borrows those of the one
    other thread of its process that has; where several have, nobody knows whose they are.
    """
    of_process: dict[Hashable, list[Range]] = defaultdict(list)
    for item in ranges:
        of_process[item.process].append(item)
    labels: list[tuple[str, ...]] = [()] * len(launches)
    borrowed = ambiguous = 0
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
            borrowed += 1
        else:
            ambiguous += 1
            threads = set()
        labels[i] = tuple(r.label for r in enclosing if r.thread is None or r.thread in threads)
    return Placed(labels, borrowed, ambiguous)


def remarks(placed: Placed) -> list[str]:
    """What a reader must know of launches that did not simply lie in a range of their own thread."""
    said = []
    if placed.borrowed:
        said.append(
            f"{placed.borrowed} kernels were launched on a thread without an open range (backward passes are); "
            "they are placed, by time, in the ranges of the one other thread that had some"
        )
    if placed.ambiguous:
        said.append(
            f"{placed.ambiguous} kernels were launched while several other threads had ranges open; "
            "they are placed in none of them"
        )
    return said
