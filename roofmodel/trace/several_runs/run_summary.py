"""Runs side by side: what each one takes, whether it does the work of the first one, and its GPU work by group.

    times as fast = time of the first run / time of this one           for the same work
                  = that × GPUs of this run / GPUs of the first one    for the same work per GPU (weak scaling)

The time is the mean step, or the longest wall time of a rank if a run has no complete step. Other work has no speed-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeVar

from roofmodel.trace.achieved import Achieved, sum_achieved
from roofmodel.trace.findings import Finding
from roofmodel.trace.groups import GroupTime
from roofmodel.trace.ranks import Run
from roofmodel.trace.several_runs.comparison import RunTotals, different_work
from roofmodel.trace.transfers import CollectiveCalls, Copies

WorkMatch = Literal["first", "same", "same_per_gpu", "different"]


class RunSummary(NamedTuple):
    """One of several runs. `groups` and `names` sum over its ranks."""

    run: Run | None
    files: tuple[str, ...]
    totals: RunTotals
    groups: tuple[MergedGroup, ...]
    names: tuple[MergedGroup, ...]
    idle_by_cause: dict[str, float]
    work: WorkMatch = "first"
    difference: Finding | None = None
    speedup: float | None = None


def against_first(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs with their work and their speed against the first one."""
    if not runs:
        return []
    first = runs[0].totals
    by_steps = all(run.totals.step_mean for run in runs)

    def seconds(totals: RunTotals) -> float:
        return float(totals.step_mean or 0) if by_steps else float(totals.longest_wall)

    compared = [runs[0]._replace(speedup=1.0)]
    for run in runs[1:]:
        (work, difference), speedup = _work(first, run.totals), None
        if work != "different" and seconds(run.totals):
            gpus = run.totals.ranks / first.ranks if work == "same_per_gpu" else 1
            speedup = gpus * seconds(first) / seconds(run.totals)
        if difference is not None:
            difference = difference._replace(text=f"run {run.run} against run {runs[0].run}: {difference.text}")
        compared.append(run._replace(work=work, difference=difference, speedup=speedup))
    return compared


def _work(first: RunTotals, other: RunTotals) -> tuple[WorkMatch, Finding | None]:
    """Whether a run does the work of the first one, or as much per GPU; else why not."""
    if (difference := different_work(first, other)) is None:
        return "same", None
    if first.ranks != other.ranks and different_work(_of_one_gpu(first), _of_one_gpu(other)) is None:
        return "same_per_gpu", None
    return "different", difference


def _of_one_gpu(run: RunTotals) -> RunTotals:
    return run._replace(
        ranks=1,
        compute_kernels=round(run.compute_kernels / run.ranks),
        compute=round(run.compute / run.ranks),
        gemm=round(run.gemm / run.ranks),
        flops=None if run.flops is None else run.flops / run.ranks,
    )


# --- Sums over the ranks of a run -----------------------------------------------------------------

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
