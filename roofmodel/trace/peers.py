"""Copies between GPUs: by run, source and destination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roofmodel.trace.ranks import Rank, Run, natural

if TYPE_CHECKING:
    import pandas


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
