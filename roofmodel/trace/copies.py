"""Memory copies and memsets by direction and kind of memory, and their bandwidth against the link."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from roofmodel.profiles.timelines.timeline import COPY, MEMSET
from roofmodel.trace import intervals
from roofmodel.trace.ranks import Rank

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
    work = rank.work[(rank.work["kind"] == COPY) | (rank.work["kind"] == MEMSET)]
    kinds = work["direction"].astype(object).where(work["kind"] == COPY, MEMSET).fillna("unknown")
    memory = work["memory"].astype(object).fillna("")
    rows = []
    for (kind, where), group in work.groupby([kinds, memory], sort=False):
        sizes, durations = group["bytes"].to_numpy(), (group["end"] - group["start"]).to_numpy()
        covered = intervals.union(group["start"], group["end"])
        length = intervals.length(covered)
        hidden = intervals.length(intervals.intersect(covered, rank.unrestricted.kernels))
        rows.append(
            Copies(
                kind=str(kind),
                memory=str(where) or None,
                number=len(group),
                bytes=None if np.any(sizes < 0) else int(sizes.sum()),
                seconds=float(durations.sum()) / 1e9,
                exposed_seconds=(length - hidden) / 1e9,
                overlapped=hidden / length if length else 0.0,
            )
        )
    return sorted(rows, key=lambda row: -row.seconds)
