"""What people decide with published serving benchmarks (`served_rows.py`), predicted and measured: the highest
throughput of a layout, the layout that has it, and the throughput at equal speed per user.

A front is one model, GPU, layout, engine and pair of lengths at several concurrencies. Throughput is output tokens per
second and GPU, by Little's law from the latency of a request, TTFT + (osl - 1) TPOT, measured and predicted alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import numpy as np

from benchmarks.errors import by_name
from benchmarks.served_rows import RowErrors, model_of
from roofmodel.models.architecture import has_experts

SMALLEST_FRONT = 3
"""Concurrencies of a front."""


class FrontPoint(NamedTuple):
    """Tokens per second, of a GPU and of a user, predicted and measured."""

    measured: float
    predicted: float
    measured_user: float
    predicted_user: float


def front_point(each: RowErrors) -> FrontPoint:
    """The rates of a row."""
    row = each.row
    ttft, tpot = row.ttft * (1 + each.ttft.expected), row.tpot * (1 + each.tpot.expected)
    in_flight = row.batch * row.layout.dp / row.layout.gpus

    def rate(ttft: float, tpot: float) -> float:
        return in_flight * row.osl / (ttft + (row.osl - 1) * tpot)

    return FrontPoint(rate(row.ttft, row.tpot), rate(ttft, tpot), 1 / row.tpot, 1 / tpot)


def fronts(every: Iterable[RowErrors], smallest: int) -> dict[tuple[object, ...], list[list[RowErrors]]]:
    """The fronts of at least so many rows, by the layouts of each choice: one model, GPU, formats, engine and pair of
    lengths."""
    choices: dict[tuple[object, ...], dict[object, list[RowErrors]]] = {}
    for each in every:
        row = each.row
        choice = (row.model, row.hw, row.formats, row.engine, row.version, row.isl, row.osl, row.drawn)
        choices.setdefault(choice, {}).setdefault(row.layout, []).append(each)
    found = {
        choice: [some for some in layouts.values() if len(some) >= smallest] for choice, layouts in choices.items()
    }
    return {choice: layouts for choice, layouts in found.items() if layouts}


def maximum_error(points: Sequence[FrontPoint]) -> float:
    """The relative error of the highest throughput of a front."""
    return max(point.predicted for point in points) / max(point.measured for point in points) - 1


def lost(layouts: Sequence[Sequence[FrontPoint]]) -> float:
    """The share of the measured highest throughput that the layout with the highest predicted one lacks."""
    measured = [max(point.measured for point in points) for points in layouts]
    chosen = max(range(len(layouts)), key=lambda place: max(point.predicted for point in layouts[place]))
    return 1 - measured[chosen] / max(measured)


def front_ratios(points: Sequence[FrontPoint]) -> list[float]:
    """Predicted / measured throughput at the measured speeds per user that are between two predicted ones; the
    predicted front is interpolated in logarithms."""
    ordered = sorted(points, key=lambda point: point.predicted_user)
    speeds, rates = (np.log([getattr(point, name) for point in ordered]) for name in ("predicted_user", "predicted"))
    inside = [point for point in points if speeds[0] <= np.log(point.measured_user) <= speeds[-1]]
    return [float(np.exp(np.interp(np.log(point.measured_user), speeds, rates))) / point.measured for point in inside]


def table_of_choices(table: Path, every: Sequence[RowErrors]) -> str:
    """Markdown: a line for dense models and one for mixtures of experts, by engine."""
    lines = [
        "| engine | models | fronts | highest throughput | bias | choices | best layout chosen | throughput lost "
        "| predicted / measured front |",
        "|---|---|" + "---:|" * 7,
    ]
    kinds = by_name(
        ((choice[3], has_experts(model_of(table, str(choice[0])))), [[*map(front_point, some)] for some in layouts])
        for choice, layouts in fronts(every, SMALLEST_FRONT).items()
    )
    for (engine, has_moe), some in sorted(kinds.items(), key=str):
        errors = [maximum_error(points) for layouts in some for points in layouts]
        losses = [lost(layouts) for layouts in some if len(layouts) > 1]
        ratios = [ratio for layouts in some for points in layouts for ratio in front_ratios(points)]
        choice = (
            [f"{sum(loss == 0 for loss in losses) / len(losses):.0%}", f"{mean(losses):.1%}"] if losses else ["", ""]
        )
        lines.append(
            f"| {engine} | {'MoE' if has_moe else 'dense'} | {len(errors)} | {mean(map(abs, errors)):.1%} | "
            f"{mean(errors):+.1%} | {len(losses)} | {' | '.join(choice)} | {median(ratios):.2f} |"
        )
    return "\n".join(lines)
