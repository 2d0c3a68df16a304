"""The summary of a run of `roof measure`, and the text of its progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.measure.measure import Done
from roofmodel.measure.measured_table import Measurement
from roofmodel.numbers.units import si
from roofmodel.report.table import BYTES_PER_SECOND, COUNT, SECONDS, Column, Table, Unit


def summary(measurement: Measurement) -> RenderableType:
    """By operation, format and kernel: rows, shortest time, and highest achieved FLOP/s and bandwidth."""
    measured, name, l2 = measurement.done, str(measurement.plan.machine.evidence.name), measurement.plan.l2
    parts: dict[tuple[str, str, str], list[Done]] = {}
    for done in measured:
        parts.setdefault(done.case.kind, []).append(done)
    return Group(
        Text.assemble((name, "bold"), f", L2 {l2}"),
        KERNELS.terminal(sorted(parts.items())),
        Text("FLOP/s and B/s: counted FLOPs and bytes (each tensor moves once) / measured time", style="dim"),
    )


def _highest(quantity: str) -> Callable[[tuple[Any, Sequence[Done]]], float | None]:
    """The highest rate of FLOPs or bytes among the measurements of a kernel."""
    return lambda row: max(getattr(d.case.operator.cost, quantity) / d.timing.seconds for d in row[1]) or None


KERNELS = Table(
    "kernels",
    (
        *(
            Column(None, title, value=lambda row, place=place: row[0][place], wrap=True)  # type: ignore[misc]
            for place, title in enumerate(("operation", "format", "kernel"))
        ),
        Column(None, "rows", COUNT, lambda row: len(row[1])),
        Column(None, "shortest", SECONDS, lambda row: min(done.timing.seconds for done in row[1])),
        Column(None, "highest FLOP/s", Unit(lambda rate: si(rate, "FLOP/s")), _highest("flops")),
        Column(None, "highest B/s", BYTES_PER_SECOND, _highest("bytes")),
    ),
)
"""A row for each kind of case, with its measurements."""
