"""Collectives of a rank: time, exposed time, and bandwidth where the file records message sizes.

Algorithm bandwidth is the message size over the time; bus bandwidth multiplies it by the share of the message that
passes each link, which makes it comparable with the link's rate (NVIDIA nccl-tests, doc/PERFORMANCE.md). A
collective's kernel runs from the start of this rank until the last rank has taken part, so its time includes waiting.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Link
from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.study.trace import intervals
from roofmodel.study.trace.ranks import Rank

_NAME = re.compile(
    r"(?:nccl|rccl|mscclpp?|nvshmem|deep_?ep|msccl)\w*?(all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|broadcast|"
    r"send_?recv|reduce|send|recv|dispatch|combine|barrier)", re.I
)  # fmt: skip


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


def collectives(rank: Rank, device: Device | None = None) -> list[CollectiveCalls]:
    """The collectives of a rank, longest first; with a device against its links."""
    work = rank.work[rank.is_collective]
    if not len(work):
        return []
    stated = work["collective"].astype(object)
    from_name = work["name"].astype(object).map(collective_name)
    names = stated.where(stated.notna(), from_name).map(lambda name: name.lower().replace("_", ""))
    rows = []
    for (name, members, span), group in work.groupby([names, work["group_size"], work["group_span"]]):
        durations = (group["end"] - group["start"]).to_numpy()
        covered = intervals.union(group["start"], group["end"])
        sizes = group["message_bytes"].to_numpy()
        known = len(sizes) > 0 and not (sizes == UNKNOWN).any()
        seconds, size = float(durations.sum()) / 1e9, int(sizes.sum()) if known else None
        rate = size / seconds if size is not None and seconds else None
        known_members = int(members) if members > 0 else None
        bus = None if rate is None or known_members is None else rate * bus_factor(str(name), known_members)
        link = link_of(device, max(int(span), int(members))) if device and known_members else None
        rows.append(
            CollectiveCalls(
                name=str(name),
                number=len(group),
                seconds=seconds,
                exposed_seconds=intervals.length(intervals.subtract(covered, rank.compute)) / 1e9,
                bytes=size,
                bytes_per_second=rate,
                bus_bytes_per_second=bus,
                group_size=known_members,
                link=link and link.name,
                link_share=None if bus is None or link is None else bus / (link.bandwidth / 2),
            )
        )
    return sorted(rows, key=lambda row: -row.seconds)


def link_of(device: Device, span: int) -> Link | None:
    """The link that limits a group whose ranks span this number of GPUs: the network if that is more than a node has.

    Ranks are assumed to be numbered node by node. None for a device file without links.
    """
    network, bridge = device.network, device.bridge
    if network and network.beyond and span > network.beyond:
        return network
    return bridge if bridge and bridge.joins and span <= bridge.joins else device.inside


def collective_name(kernel: str) -> str:
    """The collective that a kernel name shows (`ncclDevKernel_AllReduce_Sum_f32_RING_LL`: allreduce)."""
    found = _NAME.search(kernel)
    return found[1].lower().replace("_", "") if found else "other"


def bus_factor(name: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
    if name.startswith("allreduce"):
        return 2 * (ranks - 1) / ranks
    if "gather" in name or "scatter" in name or "alltoall" in name:
        return (ranks - 1) / ranks
    return 1.0
