"""The kernels of one rank, and those of them that are compared: the kernels of the main stream, and the collectives.

The main stream is the stream with the most computation; it is found per rank, because stream numbers differ between
processes. The order of collectives on other streams is not fixed, so they are matched by name and occurrence.

    gap of a kernel    from the end of the kernel before it on the main stream to its start; 0 on other streams
    net gap            the same, but from the end of the last collective if that ended later: waiting for other ranks
                       in a collective is no delay of this rank
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.trace import idle, intervals, steps
from roofmodel.trace.ranks import Rank

Integers = NDArray[np.int64]
Indices = NDArray[np.int32]
Booleans = NDArray[np.bool_]
NO_STEP = -1


@lru_cache(maxsize=1 << 16)
def name_code(name: str) -> int:
    """A number for a name of a kernel: equal in all processes, and different for different names."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


@dataclass(frozen=True)
class RankKernels:
    """All kernels of a rank in one file, sorted by start; arrays of equal length, times in nanoseconds."""

    names: tuple[str, ...]
    name_indices: Indices  # into `names`
    starts: Integers
    ends: Integers
    launches: Integers  # start of the launching CUDA call, or UNKNOWN
    collective: Booleans
    main: Booleans  # on the main stream
    steps: Integers  # number of the step, or NO_STEP
    input: Integers | None = None  # part of the net gap in which the launching thread fetches a batch; None: none

    def __len__(self) -> int:
        return len(self.starts)

    def load(self, steps: frozenset[int] | None = None) -> RankKernels:
        """The table itself; it is in memory."""
        return self

    def load_sequence(self) -> RankKernels:
        """The table itself; it is in memory."""
        return self

    def rows(self, kept: Booleans) -> RankKernels:
        """Some of the kernels."""
        columns = ("name_indices", "starts", "ends", "launches", "collective", "main", "steps")
        chosen = {name: getattr(self, name)[kept] for name in columns}
        return replace(self, **chosen, input=None if self.input is None else self.input[kept])

    @property
    def sequences(self) -> None:
        """Digests of sequences are in Parquet files only."""
        return None

    @property
    def codes(self) -> Integers:
        """The code of the name of each kernel."""
        codes = np.array([name_code(name) for name in self.names], np.int64)
        return np.asarray(codes[self.name_indices])


@dataclass(frozen=True)
class Kernels:
    """The compared kernels of a rank, sorted by start; arrays of equal length, times in nanoseconds."""

    codes: Integers  # of the names
    starts: Integers
    ends: Integers
    launches: Integers  # start of the launching CUDA call, or UNKNOWN
    collective: Booleans
    main: Booleans  # on the main stream
    previous_ends: Integers  # end of the kernel before on the main stream; UNKNOWN for the first, and on other streams
    net_gaps: Integers  # 0 for the first, and on other streams
    input: Integers  # the part of the net gap in which the launching thread fetches a batch
    steps: Integers  # number of the step, or NO_STEP

    def __len__(self) -> int:
        return len(self.codes)


def compared_kernels(tables: Sequence[RankKernels]) -> Kernels:
    """The compared kernels of a rank from its files, which have different steps of it."""
    chosen = [table.main | table.collective for table in tables]

    def joined(column: str) -> NDArray[np.generic]:
        parts = [_kept(getattr(table, column), kept) for table, kept in zip(tables, chosen, strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    starts, ends, main, collective = (joined(name) for name in ("starts", "ends", "main", "collective"))
    numbers = joined("steps")
    previous, net = _gaps(starts, ends, main, collective)  # type: ignore[arg-type]
    edge = 0
    for kept in chosen[:-1]:
        before, edge = edge, edge + int(kept.sum())
        after = np.flatnonzero(main[edge:])
        if len(after) and (edge == before or numbers[edge] != numbers[edge - 1] + 1):
            # The kernels between the two steps are not in the files.
            previous[edge + after[0]], net[edge + after[0]] = UNKNOWN, 0
    fetches = [
        np.broadcast_to(np.int64(0), int(kept.sum())) if table.input is None else _kept(table.input, kept)
        for table, kept in zip(tables, chosen, strict=True)
    ]
    return Kernels(
        codes=joined("codes"),  # type: ignore[arg-type]
        starts=starts,  # type: ignore[arg-type]
        ends=ends,  # type: ignore[arg-type]
        launches=joined("launches"),  # type: ignore[arg-type]
        collective=collective,  # type: ignore[arg-type]
        main=main,  # type: ignore[arg-type]
        previous_ends=previous,
        net_gaps=net,
        input=fetches[0] if len(fetches) == 1 else np.concatenate(fetches),
        steps=numbers,  # type: ignore[arg-type]
    )


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


def kernel_table(rank: Rank) -> RankKernels:
    """The kernels of a rank of a profiler file."""
    chosen = np.flatnonzero(rank.is_kernel)
    work = rank.work
    categories = work["name"].cat
    starts, ends, collective = rank.starts[chosen], rank.ends[chosen], rank.is_collective[chosen]
    launches, main = work["launch_start"].to_numpy()[chosen], _main_stream(rank)[chosen]
    _, net = _gaps(starts, ends, main, collective)
    fetches = _input(rank, chosen, starts, launches, net)
    return RankKernels(
        names=tuple(map(str, categories.categories)),
        name_indices=categories.codes.to_numpy()[chosen].astype(np.int32),
        starts=starts,
        ends=ends,
        launches=launches,
        collective=collective,
        main=main,
        steps=_steps(rank, np.where(launches == UNKNOWN, starts, launches)),
        input=fetches if fetches.any() else None,
    )


def _main_stream(rank: Rank) -> Booleans:
    """Whether each activity is on the stream with the most computation (without any: with the most kernel time)."""
    streams = rank.work["stream"].cat.codes.to_numpy()
    durations = rank.ends - rank.starts
    kernels = rank.is_kernel & ~rank.is_collective
    if not kernels.any():
        kernels = rank.is_kernel
    times = np.bincount(streams[kernels] + 1, weights=durations[kernels])
    return np.asarray(streams + 1 == int(times.argmax()), bool)


def _input(rank: Rank, chosen: Integers, starts: Integers, launches: Integers, net: Integers) -> Integers:
    """Nanoseconds of each net gap before the launch in which the launching thread fetches a batch."""
    fetches = np.zeros(len(chosen), np.int64)
    threads = rank.work["launch_thread"].cat
    codes = threads.codes.to_numpy()[chosen]
    for code in np.unique(codes[codes >= 0]).tolist():
        loader = idle.thread_time(rank, str(threads.categories[code]), idle.LOADER)
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
