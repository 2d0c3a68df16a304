"""The table of fitted parameter sets, with their errors on held-out rows."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.devices.calibration import Calibration
from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.report.columns import bare


def table(device: Device, fitted: Calibration, calibration: Calibration) -> RenderableType:
    """The fitted parameter sets by kind, kernel and formats, with their errors on held-out rows.

    `calibration` also has the sets that come from the device's file, because the tables have too few rows of them. They
    are counted only.
    """
    found = bare()
    for column in ("kind", "kernel", "formats"):
        found.add_column(column)
    for column in ("fitted", "held out", "mean error", "80 % interval"):
        found.add_column(column, justify="right")
    for kind, name, form, (_, fit) in fitted.sets():
        interval = f"{fit.low - 1:+.0%} {fit.high - 1:+.0%}"
        rows = (str(fit.rows), str(fit.held_out))
        found.add_row(kind, name.rpartition("/")[2], form, *rows, f"{fit.error:.1%}", interval)
    others = len([*calibration.sets()]) - len([*fitted.sets()])
    return Group(
        Text.assemble((device.name, "bold"), f" ({device.id})"),
        found,
        *([Text(f"from the device's file: {units.count(others, 'other set')} of these kinds")] if others else []),
        Text(
            "fitted, held out: numbers of rows. Errors and intervals are those of the held-out rows; the interval is "
            "measured / expected - 1.",
            style="dim",
        ),
    )
