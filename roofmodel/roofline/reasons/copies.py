"""Memory copies beside the kernels of a profile: their time, their share of it, and whether they are too small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.profiles.kernel import MEMSET, KernelTable

NOTABLE = 0.1  # of the GPU time of kernels and copies: copies are named
LARGE = 1 << 20  # bytes of a copy that reaches the rate of the link
SLOW = 0.5  # of the rate of large copies
_LINK_SHARE = 0.8  # of the rate of a PCIe link in one direction, by large copies from pinned memory


class CopiesOfKind(NamedTuple):
    """The copies of one direction, or the memsets, and the kind of memory; None where the file does not state it."""

    kind: str
    memory: str | None
    number: int
    bytes: int | None
    seconds: float | None
    bytes_per_second: float | None


def copies_by_kind(copies: KernelTable) -> list[CopiesOfKind]:
    """The copies and memsets by direction and kind of memory, the longest first."""
    groups: dict[tuple[str, str | None], list[tuple[int, int | None, float | None]]] = {}
    for each in copies:
        kind = "memset" if each.kind == MEMSET else each.direction or "copy"
        groups.setdefault((kind, each.memory), []).append((each.invocations, each.copied_bytes, each.seconds))
    rows = []
    for (kind, memory), members in groups.items():
        sizes, times = [size for _, size, _ in members], [time for _, _, time in members]
        size = None if None in sizes else sum(each or 0 for each in sizes)
        seconds = None if None in times else sum(each or 0.0 for each in times)
        rate = size / seconds if size and seconds else None
        rows.append(CopiesOfKind(kind, memory, sum(number for number, _, _ in members), size, seconds, rate))
    return sorted(rows, key=lambda row: -(row.seconds or 0.0))


def copies_texts(copies: KernelTable, kernels: KernelTable, device: Device | None) -> Iterator[str]:
    """A sentence on the time of the copies, and one on those that are too small to reach the rate of their link.

    Nothing if copies take less than NOTABLE of the GPU time.
    """
    rows = copies_by_kind(copies)
    known = sum(row.seconds or 0.0 for row in rows)
    total = known + sum(seconds or 0.0 for seconds in kernels.seconds())
    if not total or known < NOTABLE * total:
        return
    listed = ", ".join(f"{row.number} {row.kind} {units.seconds(row.seconds)}" for row in rows if row.seconds)
    yield f"memory copies: {units.seconds(known)}, {known / total:.0%} of the GPU time ({listed})"
    for row in rows:
        small = [
            (each.invocations, size, seconds)
            for each in copies
            if each.direction == row.kind and each.memory == row.memory
            and (size := each.copied_bytes) and (seconds := each.seconds) and size < LARGE * each.invocations
        ]  # fmt: skip
        number, size, seconds = (sum(column) for column in zip(*small, strict=True)) if small else (0, 0, 0.0)
        best = _best_rate(copies, row.kind, device)
        if best is not None and seconds >= NOTABLE * total and size / seconds < SLOW * best:
            yield (
                f"{row.kind}: copies of {units.si(size / number, 'B')} on average are too small for the link: "
                f"{units.si(size / seconds, 'B/s')}, large ones reach {units.si(best, 'B/s')}; copy more at once"
            )


def _best_rate(copies: KernelTable, kind: str, device: Device | None) -> float | None:
    """The rate of the file's large copies of a direction, else what the device's link to the host allows."""
    rates = (
        size / seconds
        for each in copies
        if each.direction == kind and (size := each.copied_bytes) and size >= LARGE and (seconds := each.seconds)
    )
    if best := max(rates, default=None):
        return best
    link = device and device.links.get("pcie")
    return _LINK_SHARE * link.bandwidth / 2 if link and kind in ("HtoD", "DtoH") else None
