"""Memory copies and memsets by direction and kind of memory; copies between GPUs by source and destination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roofmodel.profiles.timelines.timeline import COPY, MEMSET
from roofmodel.trace import intervals
from roofmodel.trace.ranks import Rank, Run, natural

if TYPE_CHECKING:
    import pandas

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
    groups: dict[tuple[Run | None, str, str], list[pandas.DataFrame]] = {}
    for rank in ranks:
        work = rank.work[rank.work["direction"] == "PtoP"]
        places = [work[side].astype(object).fillna("") for side in ("source", "destination")]
        for (source, destination), group in work.groupby(places, sort=False):
            groups.setdefault((rank.run, str(source), str(destination)), []).append(group)
    runs = [*dict.fromkeys(run for run, _, _ in groups)]
    rows = []
    for run, source, destination in sorted(groups, key=lambda key: (runs.index(key[0]), natural(*key[1:]))):
        parts = groups[run, source, destination]
        sizes = np.concatenate([part["bytes"].to_numpy() for part in parts])
        rows.append(
            PeerCopies(
                run=run,
                source=source or None,
                destination=destination or None,
                number=len(sizes),
                bytes=None if np.any(sizes < 0) else int(sizes.sum()),
                seconds=sum(float((part["end"] - part["start"]).sum()) for part in parts) / 1e9,
            )
        )
    return rows


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
