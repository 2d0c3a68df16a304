"""The tables of a comparison of ranks: ranks, steps, and deviations by rank and by kernel."""

from typing import Any, NamedTuple

import numpy as np

from roofmodel.jitter.jitter import Jitter, RankSummary
from roofmodel.jitter.reduced_steps import StepSummary
from roofmodel.numbers import units
from roofmodel.report.table import COUNT, NAME, SECONDS, Column, Table, Unit
from roofmodel.roofline.naming import short_name

TOOLS = {"steps": "tables of kernels by step"}
"""Sources of kernels that are no tool, as outputs name them."""
DEVIATION = Unit(units.signed_seconds)
FOUR_DIGITS = Unit(lambda seconds: units.seconds(seconds, 4))


class RankSummaryRow(NamedTuple):
    """A rank with the name of its file, its mean deviation, and the number of steps in which it is the latest."""

    summary: RankSummary
    file: str
    mean: float | None
    latest: int


def rank_rows(jitter: Jitter) -> list[RankSummaryRow]:
    """A row for each rank."""
    latest = [step.latest_rank for step in jitter.steps if step.has_latest]
    return [
        RankSummaryRow(summary, jitter.names[summary.rank.file], mean, latest.count(summary.rank.number))
        for summary, mean in zip(jitter.ranks, jitter.mean_deviations, strict=True)
    ]


def _rank_label(row: RankSummaryRow) -> str:
    rank = row.summary.rank
    labels = [f"GPU {rank.device}"] * (rank.device is not None) + [f"process {rank.process}"] * bool(rank.process)
    return f"{rank.number}: {', '.join([*labels, row.file])}"


def ranks_table() -> Table:
    """The columns of the ranks (RankSummaryRow)."""
    return Table(
        "ranks",
        (
            Column("rank", unit=COUNT, value="summary.rank.number", meaning="a GPU of a process of a file"),
            Column(None, "rank", NAME, text=_rank_label),
            Column("file", meaning="its file"),
            Column("process", value="summary.rank.process", meaning="its process"),
            Column("device", unit=COUNT, value="summary.rank.device", meaning="the index of its GPU"),
            Column("host", value="summary.rank.host", meaning="its host, if the files identify it"),
            Column(
                "kernels", "kernels", COUNT, "summary.rank.kernels", priority=1,
                meaning="the number of kernels",
            ),
            Column(
                "common_compute_seconds", "compute", FOUR_DIGITS,
                "summary.common_compute_seconds", unknown="–",
                legend="compute: time of the kernels that all ranks run, without collectives",
                meaning="summed time of the kernels that all ranks share, without collectives",
            ),
            Column(
                "compute_seconds", unit=SECONDS, value="summary.compute_seconds",
                meaning="summed time of all kernels, without collectives",
            ),
            Column(
                "launch_to_start_median_seconds", "launch → start", SECONDS, "summary.launch_to_start_median_seconds",
                unknown="–", priority=2,
                legend="launch → start: median time from a kernel's launch on the CPU to its start",
                meaning="median time from the launching call to the kernel's start",
            ),
            Column(None, "latest", COUNT, text=lambda row: units.count(row.latest, "step") if row.latest else ""),
            Column(
                "mean_deviation_seconds", "mean deviation", DEVIATION, "mean", unknown="–",
                meaning="mean over steps of the time to the last kernel before the last collective, as deviation from "
                "the mean over ranks; null for a rank that is not compared",
            ),
        ),
    )  # fmt: skip


def _if_latest(step: StepSummary, text: Any) -> str | None:
    return str(text) if step.has_latest else None


def _first_late(step: StepSummary) -> str:
    """Index and name of the first kernel at which the latest rank is late, such as `6 layer_norm`."""
    if step.diverges_at_kernel is None:
        return ""
    return f"{step.diverges_at_kernel} {short_name(step.kernel_name) if step.kernel_name else ''}".rstrip()


def _lateness_legend(jitter: Jitter) -> str:
    meaning = (
        "late by, early by: deviation of the latest and of the earliest rank from the mean over ranks, before the "
        "last collective of the step"
    )
    threshold = units.seconds(jitter.threshold)
    if all(step.diverges_at_kernel is None for step in jitter.steps):
        return f"{meaning}; no rank is late by more than {threshold}"
    return f"{meaning}; from kernel: the first kernel at which the latest rank is late by more than {threshold}"


def steps_table(jitter: Jitter | None = None) -> Table:
    """The columns of the steps (StepSummary); with the comparison, also the title and the legend of its terminal table.

    Deviations are those before the last collective, from the mean over the ranks.
    """
    return Table(
        "steps",
        (
            Column("step", "step", COUNT, meaning="the step"),
            Column(None, "latest", COUNT, unknown="–", text=lambda row: _if_latest(row, row.latest_rank)),
            Column(
                None, "late by", COUNT, unknown="–", legend=_lateness_legend(jitter) if jitter else "",
                text=lambda row: _if_latest(row, units.seconds(row.latest_seconds)),
            ),
            Column(
                "earliest_rank", "earliest", COUNT, unknown="–", priority=2,
                text=lambda row: _if_latest(row, row.earliest_rank),
                meaning="the rank with the least time to the last kernel before the last collective",
            ),
            Column("latest_rank", unit=COUNT, meaning="the rank with the largest time"),
            Column(
                "deviation_seconds", unit=DEVIATION, value="latest_seconds",
                meaning="of the latest rank: deviation of this time from the mean over ranks",
            ),
            Column(
                "earliest_deviation_seconds", "early by", DEVIATION, "earliest_seconds", unknown="–", priority=1,
                text=lambda row: _if_latest(row, units.seconds(max(-row.earliest_seconds, 0))),
                meaning="the same of the earliest rank",
            ),
            Column(
                "diverges_at_kernel", unit=COUNT,
                meaning="the first kernel at which the latest rank is late by more than the threshold, from 0; null if "
                "it is not late before the last collective",
            ),
            Column(
                "kernel_name", "from kernel", NAME, text=_first_late,
                meaning="the name of this kernel",
            ),
            Column("cause", "cause", meaning="the kind of the largest delay of the latest rank"),
        ),
    )  # fmt: skip


DEVIATIONS = Table(
    "deviations",
    (
        Column("step", meaning="the step"),
        Column("rank", meaning="the rank"),
        Column(
            "deviation_seconds",
            meaning="its time to the last kernel before the last collective, minus the mean over ranks; null where the "
            "rank does not have the step",
        ),
    ),
)
"""A row for each step and rank."""


def deviation_rows(jitter: Jitter) -> list[dict[str, Any]]:
    """One record per step and rank; the deviation is None where the rank does not have the step."""
    return [
        {"step": step.step, "rank": rank.rank.number, "deviation_seconds": None if np.isnan(late) else float(late)}
        for step, values in zip(jitter.steps, jitter.lateness, strict=True)
        for rank, late in zip(jitter.ranks, values, strict=True)
    ]


_OVER_RANKS = ", minus the mean over ranks"
KERNEL_DEVIATIONS = Table(
    "kernels",
    (
        Column("step", meaning="the step with the largest deviation"),
        Column("rank", meaning="the rank"),
        Column("kernel", meaning="the index of the kernel in the step, from 0"),
        Column("name", meaning="its name"),
        Column("duration_seconds", meaning=f"its duration{_OVER_RANKS}"),
        Column("gap_seconds", meaning=f"the gap before it{_OVER_RANKS}"),
        Column("time_to_end_seconds", meaning=f"the sum of gaps and durations up to its end{_OVER_RANKS}"),
        Column(
            "launch_to_start_seconds",
            meaning=f"the time from its launch to its start{_OVER_RANKS}; null without launches",
        ),
    ),
)
"""A row for each rank and kernel of the step with the largest deviation."""


def kernel_rows(jitter: Jitter) -> list[dict[str, Any]]:
    """One record per rank and kernel of the step with the largest deviation; deviations from the mean, in seconds."""
    curves = jitter.curves
    if curves is None:
        return []
    deviations = curves.deviations
    delays = deviations.launch_to_start
    return [
        {
            "step": curves.step,
            "rank": rank,
            "kernel": kernel,
            "name": name,
            "duration_seconds": float(deviations.durations[place, kernel]),
            "gap_seconds": float(deviations.gaps[place, kernel]),
            "time_to_end_seconds": float(deviations.times_to_end[place, kernel]),
            "launch_to_start_seconds": None
            if delays is None or np.isnan(delays[place, kernel])
            else float(delays[place, kernel]),
        }
        for place, rank in enumerate(curves.ranks)
        for kernel, name in enumerate(curves.names)
    ]
