"""The ranks of a run: their numbers, hosts and kernels, from the profiler files of all ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple, Protocol

import numpy as np

from roofmodel.files.text_files import display_names
from roofmodel.jitter.kernels import NO_STEP, compared_kernels, kernel_table
from roofmodel.jitter.sequences import SequencesByStep
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines.timeline import CLOCK, POWER, UNKNOWN, Timeline
from roofmodel.trace.ranks import Rank, ranks, stated_rank

_HOST_IN_NAME = re.compile(r"([^/\\]+?)_\d+\.\d+\.pt\.trace\.json(?:\.gz)?")  # of torch's tensorboard_trace_handler


class KernelFile(Protocol):
    """The kernels of a rank in a Parquet file."""

    @property
    def sequences(self) -> SequencesByStep:
        """The digests of the sequences of kernels."""

    def load(self, steps: frozenset[int] | None = None) -> KernelTable:
        """The kernels; with `steps` at least those of these marked steps."""

    def load_sequence(self) -> KernelTable:
        """The kernels with their names, streams and steps; the times may be missing."""


class RankPart(NamedTuple):
    """A rank of one file."""

    file: str
    source_name: str  # of the profiler file, without folders
    tool: str
    process: str | None
    device: str | None
    stated_rank: int | None
    ranks_of_file: int
    kernels: int
    start: int  # of the first kernel
    marked: bool  # whether steps are marked
    fingerprint: str  # equal for copies of a file
    source: KernelTable | KernelFile
    clock: float | None = None  # median of the SM clock during computation, hertz
    power: float | None = None  # the same of the GPU's power, watts


@dataclass(frozen=True)
class ComparedRank:
    """A rank: one GPU of one process of one file, or of several files with different steps of it."""

    number: int
    file: str
    process: str | None
    device: str | None
    host: str | None  # a label that the ranks of one host share; None if the files do not state it
    kernels: int  # all of them
    marked: bool = False  # whether steps are marked
    sources: tuple[KernelTable | KernelFile, ...] = field(default=(), repr=False)
    skipped: tuple[int, int] = 0, 0  # the first kernels of the main stream, and the first collectives of others
    clock: float | None = None  # median of the SM clock during computation, hertz; None if the file does not have it
    power: float | None = None  # the same of the GPU's power, watts
    several_clocks: bool = False  # whether each rank of its file has a clock of its own

    @property
    def time_base(self) -> str:
        """Equal for ranks whose times are of one clock."""
        return f"{self.file}, rank {self.number}" if self.several_clocks else self.file

    def load_tables(self, steps: frozenset[int] | None = None) -> list[KernelTable]:
        """The kernels by file (`kernels.COLUMNS`); with `steps` at least those of these marked steps."""
        tables = [source if isinstance(source, KernelTable) else source.load(steps) for source in self.sources]
        return [_without_first(table, *self.skipped) for table in tables] if any(self.skipped) else tables

    def load_sequences(self) -> list[KernelTable]:
        """The kernels by file, at least their names, streams and steps; the times may be missing."""
        if any(self.skipped):
            return self.load_tables()  # the order of launches decides which collectives are skipped
        return [source if isinstance(source, KernelTable) else source.load_sequence() for source in self.sources]

    def stored_sequences(self) -> list[SequencesByStep] | None:
        """The digests of the sequences of kernels by file; None if they are not known without the kernels."""
        stored = [source.sequences for source in self.sources if not isinstance(source, KernelTable)]
        return stored if len(stored) == len(self.sources) and not any(self.skipped) else None

    def load(self, steps: frozenset[int] | None = None) -> KernelTable:
        """The compared kernels; with `steps` at least those of these marked steps."""
        return compared_kernels(self.load_tables(steps))


def marked_steps(rank: ComparedRank) -> set[int]:
    """The steps that the files of a rank mark."""
    stored = rank.stored_sequences()
    if stored is not None:
        return {step for sequences in stored for step in sequences if step is not None}
    return {step for table in rank.load_sequences() for step in np.unique(table.array("step")).tolist()} - {NO_STEP}


def _without_first(kernels: KernelTable, main: int, others: int) -> KernelTable:
    """The kernels without the first `main` of the main stream, and the first `others` collectives of other streams."""
    on_main, communicates = kernels.array("main"), kernels.array("communicates")
    kept = on_main & (np.cumsum(on_main) > main)
    side = np.flatnonzero(communicates & ~on_main)
    launches = kernels.array("launch_start")[side]
    if not (launches == UNKNOWN).any():
        side = side[np.argsort(launches, kind="stable")]
    kept[side[others:]] = True
    first = int(kept.argmax()) if kept.any() else len(kept)
    kept[first:] |= ~(on_main | communicates)[first:]
    return kernels.select(np.flatnonzero(kept))


def rank_parts(timeline: Timeline) -> list[RankPart]:
    """The ranks of a file that have kernels."""
    kernel_ranks = [rank for rank in ranks([timeline]) if rank.is_kernel.any()]
    return [_part(rank, len(kernel_ranks)) for rank in kernel_ranks]


def _part(rank: Rank, ranks_of_file: int) -> RankPart:
    table = kernel_table(rank)
    return RankPart(
        file=rank.timeline.file,
        source_name=rank.timeline.file.replace("\\", "/").rpartition("/")[2],
        tool=rank.timeline.tool,
        process=rank.process,
        device=rank.device,
        stated_rank=stated_rank(rank.timeline, rank.process, ranks_of_file),
        ranks_of_file=ranks_of_file,
        kernels=len(table),
        start=int(table.array("start")[0]),
        marked=bool((table.array("step") != NO_STEP).any()),
        fingerprint=_fingerprint(rank),
        source=table,
        clock=_median_sample(rank, table, CLOCK),
        power=_median_sample(rank, table, POWER),
    )


def _median_sample(rank: Rank, table: KernelTable, quantity: str) -> float | None:
    """The median of the samples during computation; None without such samples."""
    samples = rank.timeline.samples.get((rank.process, rank.device, quantity))
    starts, ends, main, communicates = (table.array(column) for column in ("start", "end", "main", "communicates"))
    computes = main & ~communicates
    if samples is None or not computes.any():
        return None
    place = np.searchsorted(starts[computes], samples.times, side="right") - 1
    inside = (place >= 0) & (samples.times < ends[computes][np.maximum(place, 0)])
    return float(np.median(samples.values[inside])) if inside.any() else None


def _fingerprint(rank: Rank) -> str:
    """Equal for copies of a file. Simulated ranks may have equal times, so the times alone do not suffice."""
    digest = blake2b(digest_size=16)
    for times in (rank.starts, rank.ends, rank.launches):
        digest.update(times.tobytes())
    texts = (rank.process, rank.device, rank.timeline.stated_rank, rank.timeline.once(_range_names))
    digest.update(repr(texts).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _range_names(timeline: Timeline) -> bytes:
    names = sorted(timeline.range_table.distinct("name"))
    return blake2b(repr(names).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def compared_ranks(parts: Iterable[RankPart], warn: list[str]) -> list[ComparedRank]:
    """The ranks of all files, by number.

    The number is the one that the files state (in the range of the step, in PyTorch's `distributedInfo`, or in the name
    of the file), if they state a different one for each rank; else the order of the files. Of equal files one counts,
    with a warning.
    """
    file_of: dict[str, str] = {}
    unique_parts = []
    for part in parts:
        if file_of.setdefault(part.fingerprint, part.file) != part.file:
            warn.append(f"{part.file}: the same run as {file_of[part.fingerprint]}; it counts once")
        else:
            unique_parts.append(part)
    groups = _parts_by_rank(unique_parts)
    labels = display_names(part.file for part in unique_parts)
    stated_ranks = [group[0].stated_rank for group in groups]
    by_statement = None not in stated_ranks and len(set(stated_ranks)) == len(stated_ranks)
    numbered_ranks = []
    for order, group in enumerate(groups):
        first = group[0]
        numbered_ranks.append(
            ComparedRank(
                number=stated_ranks[order] if by_statement else order,  # type: ignore[arg-type]
                file=first.file,
                process=first.process,
                device=first.device,
                host=_host(first, labels[first.file]),
                kernels=sum(part.kernels for part in group),
                marked=any(part.marked for part in group),
                sources=tuple(part.source for part in group),
                clock=first.clock,
                power=first.power,
                several_clocks=first.tool == "steps",  # tables of kernels join the exports of several hosts
            )
        )
    numbered_ranks.sort(key=lambda rank: rank.number)
    return (
        _with_hosts_by_device(numbered_ranks) if all(rank.host is None for rank in numbered_ranks) else numbered_ranks
    )


def _parts_by_rank(parts: Sequence[RankPart]) -> list[list[RankPart]]:
    """The parts of each rank, by time: tables of the lecture have one step of one rank each."""
    groups: dict[object, list[RankPart]] = {}
    for number, part in enumerate(parts):
        stated_number = part.stated_rank if part.tool == "steps" else None
        groups.setdefault(("part", number) if stated_number is None else stated_number, []).append(part)
    return [sorted(group, key=lambda part: part.start) for group in groups.values()]


def _host(part: RankPart, label: str) -> str | None:
    if matched := _HOST_IN_NAME.fullmatch(part.source_name):
        return matched[1]
    return label if part.ranks_of_file > 1 else None


def _with_hosts_by_device(numbered_ranks: list[ComparedRank]) -> list[ComparedRank]:
    """The ranks with hosts, if the devices count up within blocks of equal length: rank = host x block + device."""
    devices = [rank.device for rank in numbered_ranks]
    if not numbered_ranks or not all(device is not None and device.isdecimal() for device in devices):
        return numbered_ranks
    block = max(int(device or 0) for device in devices) + 1
    if block <= 1 or any(int(rank.device or 0) != rank.number % block for rank in numbered_ranks):
        return numbered_ranks
    firsts = [rank.number // block * block for rank in numbered_ranks]
    return [
        replace(rank, host=f"ranks {first} to {first + block - 1}")
        for rank, first in zip(numbered_ranks, firsts, strict=True)
    ]


def launch_to_start_median(tables: Iterable[KernelTable]) -> float | None:
    """Median seconds from the launching call to the start of a kernel; None without launches."""
    delays = []
    for table in tables:
        launches = table.array("launch_start")
        launched, every = launches != UNKNOWN, table.array("start") - launches
        delays.append(every if launched.all() else every[launched])
    joined = delays[0] if len(delays) == 1 else np.concatenate(delays)
    return float(np.median(joined)) / 1e9 if len(joined) else None
