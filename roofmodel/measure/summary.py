"""The summary of a run of `roof measure`, and the text of its progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.measure.measure import Done
from roofmodel.measure.measured_table import Measurement
from roofmodel.numbers.units import seconds, si
from roofmodel.report.columns import bare


def summary(measurement: Measurement) -> RenderableType:
    """By operation, format and kernel: rows, shortest time, and highest achieved FLOP/s and bandwidth."""
    measured, name, l2 = measurement.done, str(measurement.plan.machine.evidence.name), measurement.plan.l2
    found = bare()
    for column in ("operation", "format", "kernel"):
        found.add_column(column)
    for column in ("rows", "shortest", "highest FLOP/s", "highest B/s"):
        found.add_column(column, justify="right")
    parts: dict[tuple[str, str, str], list[Done]] = {}
    for done in measured:
        parts.setdefault(done.case.kind, []).append(done)
    for kind, some in sorted(parts.items()):
        found.add_row(*kind, str(len(some)), *_best(some))
    return Group(
        Text.assemble((name, "bold"), f", L2 {l2}"),
        found,
        Text("FLOP/s and B/s: counted FLOPs and bytes (each tensor moves once) / measured time", style="dim"),
    )


def _best(measured: Sequence[Done]) -> tuple[str, str, str]:
    costs: list[tuple[Any, float]] = [(done.case.operator.cost, done.timing.seconds) for done in measured]
    flops, moved = max(cost.flops / taken for cost, taken in costs), max(cost.bytes / taken for cost, taken in costs)
    return seconds(min(taken for _, taken in costs)), si(flops, "FLOP/s") if flops else "", si(moved, "B/s")
