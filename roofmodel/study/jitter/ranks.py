"""The kernels of each rank that are compared between ranks: those of its main stream, and its collectives.

The main stream is the stream with the most computation; it is found per rank, because stream numbers differ between
processes. The order of collectives on other streams is not fixed, so they are matched by name and occurrence.

    gap of a kernel    from the end of the kernel before it on the main stream to its start; 0 on other streams
    own gap            the same, but from the end of the last collective if that ended later: waiting for other ranks
                       in a collective is no delay of this rank
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.profiles.timelines.timeline import RANK_IN_NAME, UNKNOWN, Timeline
from roofmodel.study.trace import idle, intervals, steps
from roofmodel.study.trace.ranks import Rank, ranks

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
NO_STEP = -1
_HOST_IN_NAME = re.compile(r"([^/\\]+?)_\d+\.\d+\.pt\.trace\.json(?:\.gz)?")  # of torch's tensorboard_trace_handler


class NameTable:
    """Codes of kernel names, shared by all ranks."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def codes(self, names: Iterable[str]) -> Integers:
        """The code of each name."""
        return np.array([self._codes.setdefault(name, len(self._codes)) for name in names], np.int64)

    @property
    def names(self) -> list[str]:
        """The name of each code."""
        return list(self._codes)


@dataclass
class Kernels:
    """The compared kernels of a rank, sorted by start; arrays of equal length, times in nanoseconds."""

    codes: Integers  # of the names
    starts: Integers
    ends: Integers
    launches: Integers  # start of the launching CUDA call, or UNKNOWN
    collective: Booleans
    main: Booleans  # on the main stream
    previous_ends: Integers  # end of the kernel before on the main stream; UNKNOWN for the first, and on other streams
    own_gaps: Integers  # 0 for the first, and on other streams
    input: Integers  # the part of the own gap in which the launching thread fetches a batch
    steps: Integers  # number of the step, or NO_STEP

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def none(cls) -> Kernels:
        """No kernels."""
        numbers, flags = np.zeros(0, np.int64), np.zeros(0, bool)
        return cls(numbers, numbers, numbers, numbers, flags, flags, numbers, numbers, numbers, numbers)

    def part(self, chosen: NDArray[np.int64] | Booleans | slice) -> Kernels:
        """Some of the kernels."""
        return Kernels(**{name: values[chosen] for name, values in vars(self).items()})


@dataclass
class ComparedRank:
    """A rank: one GPU of one process of one file, or of several files with different steps of it."""

    number: int
    file: str  # the ranks of one file have one clock
    process: str | None
    device: str | None
    host: str | None  # a label that the ranks of one host share; None if the files do not state it
    kernels: int  # all of them
    launch_to_start: Integers = field(repr=False)
    compared: Kernels = field(repr=False)
    other_seconds: float = 0.0  # of kernels on other streams, which are not compared

    @property
    def launch_to_start_median_seconds(self) -> float | None:
        """Median time from the launching call to the start of a kernel; None without launches."""
        return float(np.median(self.launch_to_start)) / 1e9 if len(self.launch_to_start) else None


class _Part(NamedTuple):
    """A rank of one file."""

    file: str
    tool: str
    process: str | None
    device: str | None
    stated: int | None
    kernels: int
    launch_to_start: Integers
    other_seconds: float
    compared: Kernels


def read_ranks(timelines: Iterable[Timeline], names: NameTable, warn: list[str]) -> list[ComparedRank]:
    """The ranks of all files, by number.

    The number is the one that the files state (in the range of the step, in PyTorch's `distributedInfo`, or in the name
    of the file), if they state a different one for each rank; else the order of the files. Of equal files one counts,
    with a warning.
    """
    parts: list[_Part] = []
    hosts: dict[str, int] = {}
    known: dict[int, str] = {}
    for timeline in timelines:
        warn += [f"{timeline.file}: {text}" for text in timeline.warnings]
        found = [rank for rank in ranks([timeline]) if rank.is_kernel.any()]
        if not found:
            warn.append(f"{timeline.file}: no kernels; this file is left out")
        hosts[timeline.file] = len(found)
        for rank in found:
            fingerprint = _fingerprint(rank)
            if known.get(fingerprint, timeline.file) != timeline.file:
                warn.append(f"{timeline.file}: the same run as {known[fingerprint]}; it counts once")
                continue
            known[fingerprint] = timeline.file
            parts.append(_part(rank, _stated(rank, len(found)), names))
    return _numbered(_merged(parts), hosts)


def _fingerprint(rank: Rank) -> int:
    """Equal for copies of a file. Simulated ranks may have equal times, so the times alone do not suffice."""
    times = (rank.starts, rank.ends, rank.work["launch_start"].to_numpy())
    ranges = tuple(map(str, rank.timeline.ranges["name"].cat.categories))
    return hash((*(each.tobytes() for each in times), rank.process, rank.device, rank.timeline.stated_rank, ranges))


def _part(rank: Rank, stated: int | None, names: NameTable) -> _Part:
    launches = rank.work["launch_start"].to_numpy()
    known = rank.is_kernel & (launches != UNKNOWN)
    compared = _kernels(rank, names)
    return _Part(
        file=rank.timeline.file,
        tool=rank.timeline.tool,
        process=rank.process,
        device=rank.device,
        stated=stated,
        kernels=int(rank.is_kernel.sum()),
        launch_to_start=(rank.starts - launches)[known],
        other_seconds=rank.kernel_seconds - float((compared.ends - compared.starts).sum()) / 1e9,
        compared=compared,
    )


def _stated(rank: Rank, ranks_of_file: int) -> int | None:
    if rank.timeline.tool == "steps" and (found := RANK_IN_NAME.search(rank.process or "")):
        return int(found[1])
    if ranks_of_file != 1:
        return None
    if rank.timeline.stated_rank is not None:
        return rank.timeline.stated_rank
    in_name = RANK_IN_NAME.findall(rank.timeline.file.replace("\\", "/").rpartition("/")[2])
    return int(in_name[0]) if len(set(in_name)) == 1 else None


def _merged(parts: list[_Part]) -> list[list[_Part]]:
    """Parts of one rank: tables of the lecture hold one step of one rank each."""
    groups: dict[object, list[_Part]] = {}
    for number, part in enumerate(parts):
        key = part.stated if part.tool == "steps" and part.stated is not None else ("part", number)
        groups.setdefault(key, []).append(part)
    return list(groups.values())


def _numbered(groups: list[list[_Part]], ranks_of_file: dict[str, int]) -> list[ComparedRank]:
    stated = [group[0].stated for group in groups]
    by_statement = None not in stated and len(set(stated)) == len(stated)
    found = []
    for order, group in enumerate(groups):
        group.sort(key=lambda part: int(part.compared.starts[0]) if len(part.compared) else 0)
        first = group[0]
        found.append(
            ComparedRank(
                number=stated[order] if by_statement else order,  # type: ignore[arg-type]
                file=first.file,
                process=first.process,
                device=first.device,
                host=_host(first.file, ranks_of_file[first.file]),
                kernels=sum(part.kernels for part in group),
                launch_to_start=np.concatenate([part.launch_to_start for part in group]),
                compared=_joined([part.compared for part in group]),
                other_seconds=sum(part.other_seconds for part in group),
            )
        )
    found.sort(key=lambda rank: rank.number)
    if found and all(rank.host is None for rank in found):
        _hosts_by_device(found)
    return found


def _host(file: str, ranks_of_file: int) -> str | None:
    name = file.replace("\\", "/").rpartition("/")[2]
    if matched := _HOST_IN_NAME.fullmatch(name):
        return matched[1]
    return name if ranks_of_file > 1 else None


def _hosts_by_device(found: list[ComparedRank]) -> None:
    """Set the hosts if the devices count up within blocks of equal length: rank = host x block + device."""
    devices = [rank.device for rank in found]
    if not all(device is not None and device.isdecimal() for device in devices):
        return
    block = max(int(device or 0) for device in devices) + 1
    if block > 1 and all(int(rank.device or 0) == rank.number % block for rank in found):
        for rank in found:
            first = rank.number // block * block
            rank.host = f"ranks {first} to {first + block - 1}"


def _joined(parts: list[Kernels]) -> Kernels:
    """The kernels of a rank from several files; gaps across files follow from the kernels before."""
    if len(parts) == 1:
        return parts[0]
    joined = Kernels(**{name: np.concatenate([vars(p)[name] for p in parts]) for name in vars(parts[0])})
    firsts = np.cumsum([0, *map(len, parts)])[:-1]
    for file, (before, part) in enumerate(pairwise(parts), 1):
        if not len(before) or not len(part) or not part.main.any():
            continue
        if int(part.steps[0]) != int(before.steps[-1]) + 1:
            continue  # the kernels between the two steps are not in the files
        first = int(firsts[file]) + int(np.flatnonzero(part.main)[0])
        previous = before.ends[before.main]
        if not len(previous):
            continue
        joined.previous_ends[first] = int(previous[-1])
        joined.own_gaps[first] = max(0, int(joined.starts[first]) - int(before.ends.max()))
    return joined


def _kernels(rank: Rank, names: NameTable) -> Kernels:
    main = _main_stream(rank)
    chosen = np.flatnonzero(rank.is_kernel & (main | rank.is_collective))
    work = rank.work
    categories = work["name"].cat
    codes = names.codes(map(str, categories.categories))
    starts, ends, on_main = rank.starts[chosen], rank.ends[chosen], main[chosen]
    collective, launches = rank.is_collective[chosen], work["launch_start"].to_numpy()[chosen]
    previous, own = _gaps(starts, ends, on_main, collective)
    return Kernels(
        codes=codes[categories.codes.to_numpy()[chosen]],
        starts=starts,
        ends=ends,
        launches=launches,
        collective=collective,
        main=on_main,
        previous_ends=previous,
        own_gaps=own,
        input=_input(rank, chosen, starts, launches, own),
        steps=_steps(rank, np.where(launches == UNKNOWN, starts, launches)),
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


def _gaps(starts: Integers, ends: Integers, main: Booleans, collective: Booleans) -> tuple[Integers, Integers]:
    """Previous ends and own gaps; see the module."""
    previous = np.full(len(starts), UNKNOWN, np.int64)
    own = np.zeros(len(starts), np.int64)
    places = np.flatnonzero(main)
    if len(places) < 2:
        return previous, own
    ended = np.maximum.accumulate(ends[places])[:-1]
    previous[places[1:]] = ended
    finished = np.sort(ends[collective])
    index = np.searchsorted(finished, starts[places[1:]], side="right") - 1
    latest = np.where(index >= 0, finished[np.maximum(index, 0)] if len(finished) else ended, ended)
    own[places[1:]] = np.maximum(starts[places[1:]] - np.maximum(ended, latest), 0)
    return previous, own


def _input(rank: Rank, chosen: Integers, starts: Integers, launches: Integers, own: Integers) -> Integers:
    """Nanoseconds of each own gap before the launch in which the launching thread fetches a batch."""
    found = np.zeros(len(chosen), np.int64)
    threads = rank.work["launch_thread"].cat
    codes = threads.codes.to_numpy()[chosen]
    for code, thread in enumerate(threads.categories):
        loader = idle.thread_time(rank, str(thread), idle.LOADER)
        mine = (codes == code) & (own > 0)
        if len(loader) and mine.any():
            ends = np.minimum(launches[mine], starts[mine])
            found[mine] = intervals.covered(loader, (starts - own)[mine], np.maximum(ends, (starts - own)[mine]))
    return found


def _steps(rank: Rank, times: Integers) -> Integers:
    """The number of the marked step that contains each launch; all NO_STEP without marks."""
    marks = steps.marks(rank)
    found = np.full(len(times), NO_STEP, np.int64)
    if not marks:
        return found
    starts, ends = (np.array([mark[place] for mark in marks], np.int64) for place in (1, 2))
    labels = np.array([int(mark[0]) for mark in marks], np.int64)
    index = np.searchsorted(starts, times, side="right") - 1
    inside = (index >= 0) & (times < ends[np.maximum(index, 0)])
    found[inside] = labels[index[inside]]
    return found
