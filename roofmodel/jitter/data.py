"""The comparison of ranks as a JSON document, records, CSV and files."""

from __future__ import annotations

from typing import Any

import numpy as np

from roofmodel.files import output_files
from roofmodel.jitter.columns import rank_rows, ranks_table, steps_table
from roofmodel.jitter.jitter import Jitter

SUFFIXES = (*output_files.PICTURES, "html", "json", "csv")


def document(jitter: Jitter) -> dict[str, Any]:
    """The document `roofmodel.jitter/1`; times in seconds."""
    difference = jitter.difference
    return {
        "schema": "roofmodel.jitter/1",
        "source": {"tool": jitter.tool, "files": list(jitter.names.values())},
        "threshold_seconds": jitter.threshold,
        "step_seconds": jitter.step_seconds,
        "ranks": ranks_table().records(rank_rows(jitter)),
        "alignment": {
            "by": jitter.aligned_by,
            "first_gap": jitter.first_gap,
            "common_kernels": jitter.common_kernels,
            "first_difference": difference and difference.kernel,
            "difference": difference and difference._asdict(),
            "clock_error_seconds": jitter.clocks.error_seconds,
            "collective_start_skew_seconds": jitter.clocks.start_skew_seconds and [*jitter.clocks.start_skew_seconds],
        },
        "steps": steps_table().records(jitter.steps),
        "causes": [cause._asdict() | {"ranks": list(cause.ranks)} for cause in jitter.causes],
        "findings": list(jitter.findings),
        "warnings": list(map(str, jitter.warnings)),
    }


def deviation_rows(jitter: Jitter) -> list[dict[str, Any]]:
    """One record per step and rank; the deviation is None where the rank does not have the step."""
    return [
        {"step": step.step, "rank": rank.rank.number, "deviation_seconds": None if np.isnan(late) else float(late)}
        for step, values in zip(jitter.steps, jitter.lateness, strict=True)
        for rank, late in zip(jitter.ranks, values, strict=True)
    ]


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


def as_csv(jitter: Jitter) -> str:
    """One line per step."""
    return steps_table().csv(jitter.steps)
