"""The table of fitted parameter sets, with their errors on held-out rows."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.devices.calibration import Calibration
from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.report.table import COUNT, FINE_PERCENT, Column, Table

SETS = Table(
    "sets",
    (
        Column(None, "kind", value=lambda row: row[0], wrap=True),
        Column(None, "kernel", value=lambda row: row[1].rpartition("/")[2], wrap=True),
        Column(None, "formats", value=lambda row: row[2], wrap=True),
        Column(None, "fitted", COUNT, lambda row: row[3][1].rows),
        Column(None, "held out", COUNT, lambda row: row[3][1].held_out),
        Column(None, "mean error", FINE_PERCENT, lambda row: row[3][1].error),
        Column(None, "80 % interval", COUNT, lambda row: f"{row[3][1].low - 1:+.0%} {row[3][1].high - 1:+.0%}"),
    ),
)
"""A row for each parameter set: kind, name, formats, and the set with its fit."""


def table(device: Device, fitted: Calibration, calibration: Calibration) -> RenderableType:
    """The fitted parameter sets by kind, kernel and formats, with their errors on held-out rows.

    `calibration` also has the sets that come from the device's file, because the tables have too few rows of them. They
    are counted only.
    """
    kinds = {kind for kind, *_ in fitted.sets()}
    others = sum(kind in kinds for kind, *_ in calibration.sets()) - len([*fitted.sets()])
    return Group(
        Text.assemble((device.name, "bold"), f" ({device.id})"),
        SETS.terminal(fitted.sets()),
        *([Text(f"from the device's file: {units.count(others, 'other set')} of these kinds")] if others else []),
        Text(
            "fitted, held out: numbers of rows. Errors and intervals are those of the held-out rows; the interval is "
            "measured / expected - 1.",
            style="dim",
        ),
    )
