"""Collectives and memory copies of a rank: time, exposed time, and bandwidth where the file records sizes.

Algorithm bandwidth is the message size over the time; bus bandwidth multiplies it by the share of the message that
passes each link, which makes it comparable with the link's rate (NVIDIA nccl-tests, doc/PERFORMANCE.md). A
collective's kernel runs from the start of this rank until the last rank has taken part, so its time includes waiting.
Among ranks of one file, which has one clock, the wait is known and not part of the bandwidth; else the bandwidth is a
lower bound.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Link
from roofmodel.profiles.timelines.timeline import MEMSET, UNKNOWN
from roofmodel.trace import intervals
from roofmodel.trace.ranks import CLOCK_TOLERANCE, Rank, Run, natural

# Words of kernel names, longer ones first. NVSHMEM: rdxn is an all-reduce, fcollect an all-gather. vLLM and
# SGLang: cross_device_reduce is an all-reduce. DeepEP: dispatch, combine.
_NAME = re.compile(
    r"(all_?reduce|cross_device_reduce|rdxn|reduce_?scatter|all_?gather|fcollect|all_?to_?all|broadcast|send_?recv|"
    r"dispatch|combine|barrier|sync_all|reduce|send|recv)", re.I
)  # fmt: skip

_SYNONYMS = {"cross_device_reduce": "allreduce", "rdxn": "allreduce", "fcollect": "allgather", "sync_all": "barrier"}


class CollectiveCalls(NamedTuple):
    """All calls of one collective on one rank, in groups of one size."""

    name: str  # allreduce, allgather, ...
    number: int
    seconds: float
    exposed_seconds: float  # without computation at the same time
    bytes: int | None  # of the messages; None if the file does not record them all
    bytes_per_second: float | None  # algorithm bandwidth
    bus_bytes_per_second: float | None
    group_size: int | None = None  # ranks; None if the file does not record it
    link: str | None = None  # the link of the device that the group uses; None if either is unknown
    link_share: float | None = None  # bus bandwidth over the link's rate in one direction
    waiting_seconds: float | None = None  # part of `seconds` before the last rank started; None: unknown


Waits = NDArray[np.int64]
"""For each collective of a rank, in the order of their starts, nanoseconds until the last rank started it, or UNKNOWN.
"""


class GroupWaits(NamedTuple):
    """The collectives of a group of ranks."""

    ranks: list[Rank]
    calls: list[NDArray[np.int64]]  # of each rank, their places among its collectives
    waits: Waits  # one row per rank, one column per call


def waits(ranks: Iterable[Rank]) -> list[GroupWaits]:
    """The waits of each group of ranks: ranks of one file, because the clocks of files are not aligned.

    A group is known where the file records the members of each collective and has all of them; else it is the ranks
    with the same sequence of collectives. No collective ends before its last rank starts it: other calls are UNKNOWN.
    """
    groups: dict[tuple[int, str, tuple[str, ...]], list[tuple[Rank, NDArray[np.int64]]]] = {}
    for rank in ranks:
        names = rank.work.mapped("name", str)[rank.is_collective]
        members = rank.work.mapped("group_members", str, "")[rank.is_collective]
        for listed in sorted(set(members)):
            calls = np.flatnonzero(members == listed)
            groups.setdefault((id(rank.timeline), listed, tuple(names[calls])), []).append((rank, calls))
    group_waits = []
    for (_, listed, _), group in groups.items():
        if len(group) < 2 or (listed and len(group) != len(listed.split(","))):
            continue
        starts = np.stack([rank.starts[rank.is_collective][calls] for rank, calls in group])
        ends = np.stack([rank.ends[rank.is_collective][calls] for rank, calls in group])
        last = starts.max(axis=0)
        together = last <= ends.min(axis=0) + CLOCK_TOLERANCE
        waited = np.where(together, last - starts, UNKNOWN)
        group_waits.append(GroupWaits([rank for rank, _ in group], [calls for _, calls in group], waited))
    return group_waits


def waits_by_rank(groups: Iterable[GroupWaits]) -> dict[int, Waits]:
    """The waits of all collectives of each rank, by its number."""
    rank_waits: dict[int, Waits] = {}
    for group in groups:
        for rank, calls, waited in zip(group.ranks, group.calls, group.waits, strict=True):
            every = rank_waits.setdefault(rank.number, np.full(int(rank.is_collective.sum()), UNKNOWN))
            every[calls] = waited
    return rank_waits


def collectives(rank: Rank, device: Device | None = None, waiting: Waits | None = None) -> list[CollectiveCalls]:
    """The collectives of a rank, longest first; with a device against its links.

    Bandwidths leave out the time of `waiting`, if it is known.
    """
    work = rank.work.select(np.flatnonzero(rank.is_collective))
    stated_names = work.mapped("collective", str)
    names = np.where(stated_names == None, work.mapped("name", collective_name, "other"), stated_names)  # noqa: E711
    starts, ends, every_size = (work.array(column) for column in ("start", "end", "message_bytes"))
    keys = zip(
        (name.lower().replace("_", "") for name in names),
        work.array("group_size").tolist(),
        work.array("group_span").tolist(),
        strict=True,
    )
    rows = []
    for (name, members, span), group in sorted(_rows_by_key(keys).items()):
        durations = ends[group] - starts[group]
        wait = None
        if waiting is not None and not ((waited := np.minimum(waiting[group], durations)) == UNKNOWN).any():
            wait = float(waited.sum()) / 1e9
        covered = intervals.union(starts[group], ends[group])
        sizes = every_size[group]
        known = not (sizes == UNKNOWN).any()
        seconds, size = float(durations.sum()) / 1e9, int(sizes.sum()) if known else None
        moving = seconds - (wait or 0.0)
        rate = size / moving if size is not None and moving > 0 else None
        known_members = members if members > 0 else None
        bus = None if rate is None or known_members is None else rate * bus_factor(name, known_members)
        link = link_of(device, max(span, members)) if device and known_members else None
        rows.append(
            CollectiveCalls(
                name=name,
                number=len(group),
                seconds=seconds,
                exposed_seconds=intervals.length(intervals.subtract(covered, rank.unrestricted.compute)) / 1e9,
                bytes=size,
                bytes_per_second=rate,
                bus_bytes_per_second=bus,
                group_size=known_members,
                link=link and link.name,
                link_share=None if bus is None or link is None else bus / (link.bandwidth / 2),
                waiting_seconds=wait,
            )
        )
    return sorted(rows, key=lambda row: -row.seconds)


def _rows_by_key(keys: Iterable[Hashable]) -> dict[Any, list[int]]:
    """The positions of each key, in the order of the keys' first occurrences."""
    rows: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return rows


def link_of(device: Device, span: int) -> Link | None:
    """The link that limits a group whose ranks span this number of GPUs: the network if that is more than a node has.

    Ranks are assumed to be numbered node by node. None for a device file without links.
    """
    network = device.network
    if network and network.beyond and span > network.beyond:
        return network
    groups = (link for link in (device.bridge, device.half) if link and link.joins and span <= link.joins)
    return next(groups, device.inside)


def collective_name(kernel: str) -> str:
    """The collective that a kernel name shows (`ncclDevKernel_AllReduce_Sum_f32_RING_LL`: allreduce)."""
    match = _NAME.search(kernel)
    if not match:
        return "other"
    name = match[1].lower()
    return _SYNONYMS.get(name, name.replace("_", ""))


def bus_factor(name: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
    if name.startswith("allreduce"):
        return 2 * (ranks - 1) / ranks
    if "gather" in name or "scatter" in name or "alltoall" in name:
        return (ranks - 1) / ranks
    return 1.0


# --- Copies ---------------------------------------------------------------------------------------

HOST_LINKS = {"PCIe 3.0 x16": 16e9, "PCIe 4.0 x16": 32e9, "PCIe 5.0 x16": 64e9}
"""Bytes per second in one direction, before packet overhead (PCI-SIG: 8, 16, 32 GT/s per lane, 128b/130b)."""
HOST_DIRECTIONS = ("HtoD", "DtoH")


class Copies(NamedTuple):
    """All copies of one rank with the same direction and kind of host memory."""

    kind: str  # a direction such as HtoD, or memset
    memory: str | None
    number: int
    bytes: int | None  # None if the file does not record a size
    seconds: float  # sum of the durations
    exposed_seconds: float  # while no kernel runs
    overlapped: float  # share of the time that they cover during which a kernel runs

    @property
    def bytes_per_second(self) -> float | None:
        return self.bytes / self.seconds if self.bytes is not None and self.seconds else None


def copies(rank: Rank) -> list[Copies]:
    """The copies of a rank, longest first."""
    chosen = np.flatnonzero(rank.is_copy | rank.is_memset)
    work = rank.work.select(chosen)
    kinds = np.where(rank.is_memset[chosen], MEMSET, work.mapped("direction", str, "unknown"))
    starts, ends, every_size = (work.array(column) for column in ("start", "end", "bytes"))
    rows = []
    for (kind, memory), group in _rows_by_key(zip(kinds, work.mapped("memory", str, ""), strict=True)).items():
        sizes, covered = every_size[group], intervals.union(starts[group], ends[group])
        length = intervals.length(covered)
        hidden = intervals.length(intervals.intersect(covered, rank.unrestricted.kernels))
        rows.append(
            Copies(
                kind=kind,
                memory=memory or None,
                number=len(group),
                bytes=None if np.any(sizes < 0) else int(sizes.sum()),
                seconds=float((ends[group] - starts[group]).sum()) / 1e9,
                exposed_seconds=(length - hidden) / 1e9,
                overlapped=hidden / length if length else 0.0,
            )
        )
    return sorted(rows, key=lambda row: -row.seconds)


# --- Copies between GPUs -------------------------------------------------------------------------------


class PeerCopies(NamedTuple):
    """All copies of a run from one GPU to another one."""

    run: Run | None
    source: str | None  # None if the file does not state it
    destination: str | None
    number: int
    bytes: int | None  # None if the file does not record a size
    seconds: float  # sum of the durations

    @property
    def bytes_per_second(self) -> float | None:
        return self.bytes / self.seconds if self.bytes is not None and self.seconds else None


def peer_copies(ranks: Iterable[Rank]) -> list[PeerCopies]:
    """The copies between GPUs, by run, source and destination."""
    groups: dict[tuple[Run | None, str, str], list[tuple[NDArray[np.int64], int]]] = {}
    for rank in ranks:
        between = rank.work.mapped("direction", "PtoP".__eq__, False, bool)
        work = rank.work.select(np.flatnonzero(between))
        durations = work.array("end") - work.array("start")
        places = zip(work.mapped("source", str, ""), work.mapped("destination", str, ""), strict=True)
        for place, rows in _rows_by_key(places).items():
            copied = work.array("bytes")[rows], int(durations[rows].sum())
            groups.setdefault((rank.run, *place), []).append(copied)
    runs = [*dict.fromkeys(run for run, _, _ in groups)]
    sums = []
    for run, source, destination in sorted(groups, key=lambda key: (runs.index(key[0]), natural(*key[1:]))):
        sizes = np.concatenate([each for each, _ in groups[run, source, destination]])
        sums.append(
            PeerCopies(
                run=run,
                source=source or None,
                destination=destination or None,
                number=len(sizes),
                bytes=None if np.any(sizes < 0) else int(sizes.sum()),
                seconds=sum(time for _, time in groups[run, source, destination]) / 1e9,
            )
        )
    return sums


class PeerMatrix(NamedTuple):
    """The copies of a run between the GPUs that its files name."""

    run: Run | None
    devices: list[str]
    copies: dict[tuple[str, str], PeerCopies]  # by source and destination

    @property
    def title(self) -> str:
        """Such as `copies between GPUs, run 2`."""
        run = f"run {self.run}" if isinstance(self.run, int) else self.run
        return ", ".join(filter(None, ("copies between GPUs", run)))


def matrices(copies: Sequence[PeerCopies]) -> list[PeerMatrix]:
    """A matrix for each run, without copies whose source or destination is unknown."""
    by_run: dict[Run | None, dict[tuple[str, str], PeerCopies]] = {}
    for each in copies:
        if each.source is not None and each.destination is not None:
            by_run.setdefault(each.run, {})[each.source, each.destination] = each
    return [
        PeerMatrix(run, sorted({device for pair in every for device in pair}, key=natural), every)
        for run, every in by_run.items()
    ]
