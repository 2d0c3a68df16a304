"""The kernels of one rank, and those of them that are compared: the kernels of the main stream, and the collectives.

The main stream is the stream with the most computation; it is found per rank, because stream numbers differ between
processes. The order of collectives on other streams is not fixed, so they are matched by name and occurrence.

    gap of a kernel    from the end of the kernel before it on the main stream to its start; 0 on other streams
    net gap            the same, but from the end of the last collective if that ended later: waiting for other ranks
                       in a collective is no delay of this rank
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.trace import idle, intervals, steps
from roofmodel.trace.ranks import Rank

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
NO_STEP = -1


@lru_cache(maxsize=1 << 16)
def name_code(name: str) -> int:
    """A number for a name of a kernel: equal in all processes, and different for different names."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


TIMES = ("start", "end", "launch_start")  # columns of a `KernelTable`
COLUMNS = {
    "communicates": int,  # whether it is a collective
    "main": int,  # whether it is on the main stream
    "step": int,  # its number, or NO_STEP
    "input": int,  # the part of the net gap in which the launching thread fetches a batch
}
"""The columns that all kernels of a rank in one file have besides their name and TIMES."""
COMPARED = {
    "code": int,  # of the name
    "previous_end": int,  # of the kernel before on the main stream; UNKNOWN for the first, and on other streams
    "net_gap": int,  # 0 for the first, and on other streams
}
"""The columns that the compared kernels have besides those and instead of the name."""


def table_of(columns: Mapping[str, NDArray[Any]], rows: int) -> KernelTable:
    """The kernels of a rank, sorted by start, from arrays with an element for each of them."""
    kernels = KernelTable()
    kernels.declare(**COLUMNS, **COMPARED)
    kernels.extend(rows)
    for column, values in columns.items():
        kernels.put(column, values)
    return kernels


def name_codes(kernels: KernelTable) -> Integers:
    """The code of the name of each kernel."""
    codes: Integers = kernels.mapped("name", name_code, 0, np.int64)
    return codes


def compared_rows(kernels: KernelTable) -> Booleans:
    """Which kernels are compared."""
    compared: Booleans = kernels.array("main") | kernels.array("communicates")
    return compared


def compared_kernels(tables: Sequence[KernelTable]) -> KernelTable:
    """The compared kernels of a rank from its files, which have different steps of it."""
    chosen = [compared_rows(table) for table in tables]

    def joined(parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
        kept = [_kept(part, rows) for part, rows in zip(parts, chosen, strict=True)]
        return kept[0] if len(kept) == 1 else np.concatenate(kept)

    columns = {name: joined(table.array(name) for table in tables) for name in (*TIMES, "main", "communicates", "step")}
    starts, main, numbers = columns["start"], columns["main"], columns["step"]
    previous, net = _gaps(starts, columns["end"], main, columns["communicates"])
    edge = 0
    for kept in chosen[:-1]:
        before, edge = edge, edge + int(kept.sum())
        after = np.flatnonzero(main[edge:])
        if len(after) and (edge == before or numbers[edge] != numbers[edge - 1] + 1):
            # The kernels between the two steps are not in the files.
            previous[edge + after[0]], net[edge + after[0]] = UNKNOWN, 0
    columns |= {
        "code": joined(map(name_codes, tables)),
        "previous_end": previous,
        "net_gap": net,
        "input": joined(
            table.array("input") if table.has("input") else np.broadcast_to(np.int64(0), len(table)) for table in tables
        ),
    }
    return table_of(columns, len(starts))


def _kept(values: NDArray[Any], kept: Booleans) -> NDArray[Any]:
    """The chosen values, without a copy if all are chosen."""
    return values if kept.all() else values[kept]


def _gaps(starts: Integers, ends: Integers, main: Booleans, collective: Booleans) -> tuple[Integers, Integers]:
    """Previous ends and net gaps; see the module."""
    previous = np.full(len(starts), UNKNOWN, np.int64)
    net = np.zeros(len(starts), np.int64)
    places = np.flatnonzero(main)
    if len(places) < 2:
        return previous, net
    begins = starts[places[1:]]  # sorted
    ended = ends[places[:-1]]
    if (ended[1:] < ended[:-1]).any():
        ended = np.maximum.accumulate(ended)
    previous[places[1:]] = ended
    finished = np.sort(ends[collective])
    at = np.searchsorted(begins, finished)
    inside = at < len(begins)
    # Later kernels of the main stream start after the collective's end, so only the first one is changed.
    ended[at[inside]] = np.maximum(ended[at[inside]], finished[inside])
    net[places[1:]] = np.maximum(begins - ended, 0)
    return previous, net


def kernel_table(rank: Rank) -> KernelTable:
    """The kernels of a rank of a profiler file."""
    chosen = np.flatnonzero(rank.is_kernel)
    starts, ends, launches = rank.starts[chosen], rank.ends[chosen], rank.launches[chosen]
    communicates, main = rank.is_collective[chosen], _main_stream(rank)[chosen]
    _, net = _gaps(starts, ends, main, communicates)
    columns = {
        "start": starts, "end": ends, "launch_start": launches, "communicates": communicates, "main": main,
        "step": _steps(rank, np.where(launches == UNKNOWN, starts, launches)),
    }  # fmt: skip
    fetches = _input(rank, chosen, starts, launches, net)
    kernels = table_of(columns | ({"input": fetches} if fetches.any() else {}), len(chosen))
    kernels.set_array("name", rank.work.array("name")[chosen], rank.work.distinct("name"))
    return kernels


def _main_stream(rank: Rank) -> Booleans:
    """Whether each activity is on the stream with the most computation (without any: with the most kernel time)."""
    streams = rank.work.array("stream")
    durations = rank.ends - rank.starts
    kernels = rank.is_kernel & ~rank.is_collective
    if not kernels.any():
        kernels = rank.is_kernel
    times = np.bincount(streams[kernels] + 1, weights=durations[kernels])
    return np.asarray(streams + 1 == int(times.argmax()), bool)


def _input(rank: Rank, chosen: Integers, starts: Integers, launches: Integers, net: Integers) -> Integers:
    """Nanoseconds of each net gap before the launch in which the launching thread fetches a batch."""
    fetches = np.zeros(len(chosen), np.int64)
    codes = rank.work.array("launch_thread")[chosen]
    for code in np.unique(codes[codes >= 0]).tolist():
        loader = idle.thread_time(rank, rank.work.distinct("launch_thread")[code], idle.LOADER)
        of_thread = (codes == code) & (net > 0)
        if len(loader) and of_thread.any():
            ends = np.minimum(launches[of_thread], starts[of_thread])
            fetches[of_thread] = intervals.covered(
                loader, (starts - net)[of_thread], np.maximum(ends, (starts - net)[of_thread])
            )
    return fetches


def _steps(rank: Rank, times: Integers) -> Integers:
    """The number of the marked step that contains each launch; all NO_STEP without marks."""
    marks = steps.marks(rank)
    numbers = np.full(len(times), NO_STEP, np.int64)
    if not marks:
        return numbers
    starts, ends = (np.array([mark[place] for mark in marks], np.int64) for place in (1, 2))
    labels = np.array([int(mark[0]) for mark in marks], np.int64)
    index = np.searchsorted(starts, times, side="right") - 1
    inside = (index >= 0) & (times < ends[np.maximum(index, 0)])
    numbers[inside] = labels[index[inside]]
    return numbers
