"""Groups of GPU work, copies and collectives, summed over the ranks of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from roofmodel.trace.achieved import Achieved, sum_achieved
from roofmodel.trace.communication import CollectiveCalls
from roofmodel.trace.copies import Copies
from roofmodel.trace.groups import GroupTime

Number = TypeVar("Number", int, float)


class MergedGroup(NamedTuple):
    """Launches of one group on all ranks of a run; `seconds` is the sum of their durations."""

    group: str
    kernels: int
    seconds: float
    share: float  # of the summed time of all ranks
    mean: float
    least: tuple[float, int]  # the sum of the rank with the shortest one, and its number
    most: tuple[float, int]
    achieved: Achieved | None = None


def merged_groups(rows: Iterable[GroupTime]) -> list[MergedGroup]:
    """The groups of several ranks, longest first. A rank without a group does not count in `least`."""
    by_group: dict[str, list[GroupTime]] = {}
    for row in rows:
        by_group.setdefault(row.group, []).append(row)
    total = sum(row.seconds for each in by_group.values() for row in each) or 1.0
    merged = []
    for group, each in by_group.items():
        seconds, kernels = sum(row.seconds for row in each), sum(row.kernels for row in each)
        by_time = sorted((row.seconds, row.rank) for row in each)
        achieved = sum_achieved([row.achieved for row in each if row.achieved is not None])
        merged.append(
            MergedGroup(group, kernels, seconds, seconds / total, seconds / kernels, by_time[0], by_time[-1], achieved)
        )
    return sorted(merged, key=lambda row: (-row.seconds, row.group))


def merged_copies(copies: Iterable[Copies]) -> list[Copies]:
    """The copies of several ranks by direction and kind of memory, longest first."""
    by_kind: dict[tuple[str, str | None], list[Copies]] = {}
    for each in copies:
        by_kind.setdefault((each.kind, each.memory), []).append(each)
    merged = []
    for every in by_kind.values():
        seconds = sum(each.seconds for each in every)
        hidden = sum(each.overlapped * each.seconds for each in every)
        merged.append(
            every[0]._replace(
                number=sum(each.number for each in every),
                bytes=_sum([each.bytes for each in every]),
                seconds=seconds,
                exposed_seconds=sum(each.exposed_seconds for each in every),
                overlapped=hidden / seconds if seconds else 0.0,
            )
        )
    return sorted(merged, key=lambda row: -row.seconds)


def merged_collectives(calls: Iterable[CollectiveCalls]) -> list[CollectiveCalls]:
    """The collectives of several ranks by name and group size, longest first; bandwidths of the slowest rank."""
    by_kind: dict[tuple[str, int | None, str | None], list[CollectiveCalls]] = {}
    for each in calls:
        by_kind.setdefault((each.name, each.group_size, each.link), []).append(each)
    merged = []
    for every in by_kind.values():
        slowest = min(every, key=lambda each: each.bus_bytes_per_second or 0)
        merged.append(
            slowest._replace(
                number=sum(each.number for each in every),
                seconds=sum(each.seconds for each in every),
                exposed_seconds=sum(each.exposed_seconds for each in every),
                bytes=_sum([each.bytes for each in every]),
                waiting_seconds=_sum([each.waiting_seconds for each in every]),
            )
        )
    return sorted(merged, key=lambda row: -row.seconds)


def _sum(values: Sequence[Number | None]) -> Number | None:
    """The sum; None if one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
