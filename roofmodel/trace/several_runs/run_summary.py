"""Runs side by side: what each one takes, whether it does the work of the first one, and its GPU work by group.

    times as fast = time of the first run / time of this one           for the same work
                  = that × GPUs of this run / GPUs of the first one    for the same work per GPU (weak scaling)

The time is the mean step, or the longest wall time of a rank if a run has no complete step. Other work has no speed-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from roofmodel.trace.findings import Finding
from roofmodel.trace.ranks import Run
from roofmodel.trace.several_runs.comparison import RunTotals, different_work
from roofmodel.trace.several_runs.merged import MergedGroup

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
