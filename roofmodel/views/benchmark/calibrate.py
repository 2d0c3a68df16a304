"""The table of fitted parameter sets, with their errors on held-out rows."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.devices.calibration import Calibration
from roofmodel.devices.calibration_reader import TIMINGS
from roofmodel.devices.device import Device
from roofmodel.views.kit.columns import bare


def table(device: Device, calibration: Calibration) -> RenderableType:
    """The fitted parameter sets by kind, kernel and formats, with their errors on held-out rows."""
    found = bare()
    for column in ("kind", "kernel", "formats"):
        found.add_column(column)
    for column in ("fitted", "held out", "mean error", "80 % interval"):
        found.add_column(column, justify="right")
    for kind in TIMINGS:
        for name, forms in getattr(calibration, kind).items():
            for form, (_, fit) in forms.items():
                interval = f"{fit.low - 1:+.0%} {fit.high - 1:+.0%}"
                rows = (str(fit.rows), str(fit.held_out))
                found.add_row(kind, name.rpartition("/")[2], form, *rows, f"{fit.error:.1%}", interval)
    return Group(
        Text.assemble((device.name, "bold"), f" ({device.id})"),
        found,
        Text(
            "fitted, held out: numbers of rows. Errors and intervals are those of the held-out rows; the interval is "
            "measured / expected - 1.",
            style="dim",
        ),
    )
