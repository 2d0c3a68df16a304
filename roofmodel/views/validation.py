"""What validation found: table, JSON, every row written back with its bound, measured against bound as a picture."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roofmodel import units
from roofmodel.study.validate import Errors, Part, Validation, beaten
from roofmodel.views import canvas, files

PREDICTED = ("bound_us", "expected_us", "expected_low_us", "expected_high_us", "note")


def document(validation: Validation) -> dict[str, Any]:
    """The document `roofmodel.validate/1`. Errors are fractions of the measurement."""
    whole = validation.whole
    return {
        "schema": "roofmodel.validate/1",
        "file": validation.file,
        "hardware": validation.device.id,
        "n": whole.n if whole else 0,
        "skipped": validation.skipped,
        **_part(whole),
        "by_op": {op: {"n": part.n, **_part(part)} for op, part in validation.by_op.items()},
    }


def _part(part: Part | None) -> dict[str, Any]:
    unknown: dict[str, None] = dict.fromkeys((*Errors._fields, "inside_interval"))
    bound = part.bound._asdict() if part else dict.fromkeys(Errors._fields)
    return {"bound": bound, "expected": unknown, "above_the_roof": part.above_the_roof if part else 0}


def as_json(validation: Validation) -> str:
    """The document as text."""
    return json.dumps(document(validation), indent=1)


def table(validation: Validation) -> RenderableType:
    """Errors of the bound by operation, what was skipped, the rows that beat their bound."""
    found = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    found.add_column("operation")
    for column in ("rows", "mean", "median", "90 %", "bias", "above the roof"):
        found.add_column(column, justify="right")
    parts = dict(validation.by_op)
    if validation.whole and len(parts) > 1:
        parts["all"] = validation.whole
    for op, part in parts.items():
        e = part.bound
        figures = (f"{e.mape:.1%}", f"{e.median_ape:.1%}", f"{e.p90_ape:.1%}", f"{e.bias:+.1%}")
        found.add_row(op, str(part.n), *figures, str(part.above_the_roof))
    skipped = [Text(f"skipped {count}: {reason}", style="dim") for reason, count in validation.skipped.items()]
    faster = [Text(f"above the roof: {words}", style="dim") for words in beaten(validation)]
    return Group(
        Text.assemble((f"{validation.file} on {validation.device.name}", "bold"), f" ({validation.device.id})"),
        found,
        Text("how far the bound is from the measured time, of which it is a part; expected times are not known yet"),
        *skipped,
        *faster,
    )


def rows_csv(validation: Validation) -> str:
    """Every row of the table, in order, with what was predicted for it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    carried = [name for name in validation.table if name not in PREDICTED]
    writer.writerow((*carried, *PREDICTED))
    columns = (validation.table[name] for name in carried)
    for *cells, bound, note in zip(*columns, validation.bound.tolist(), validation.notes, strict=True):
        known = bound == bound  # not NaN
        writer.writerow((*cells, repr(bound * 1e6) if known else "", "", "", "", note))
    return out.getvalue().rstrip("\n")


SUFFIXES = (*files.PICTURES, "csv", "json")


def save(validation: Validation, path: str) -> Path:
    """The rows as .csv, the errors as .json, or measured against bound as a picture."""
    texts = {"csv": lambda: rows_csv(validation), "json": lambda: as_json(validation)}
    return files.write(path, lambda file, form: draw(validation, file, form), texts)


COLOURS = (canvas.BLUE, canvas.ORANGE, canvas.GREEN, canvas.PURPLE, canvas.RED, canvas.SKY, canvas.GREY)


def draw(validation: Validation, path: Path, form: str) -> None:
    """Measured time over bound, on log axes: no point may lie below the line where both are equal."""
    known = ~np.isnan(validation.bound)
    ops = np.array(validation.table["op"])
    subtitle = f"{known.sum()} rows of {validation.file}; a point above the line took longer than its bound"
    foot = (
        "Bound: max(FLOPs / peak, bytes / DRAM bandwidth); no launch, no ramp. Below the line: against physics, or L2."
    )
    heading = f"{validation.device.name}: measured against bound"
    with canvas.picture(path, form, heading, subtitle, foot) as (figure, axes):
        for i, (op, part) in enumerate(validation.by_op.items()):
            here = known & (ops == op)
            label = f"{op}: {part.n} rows, {part.bound.mape:.0%} off"
            axes.plot(
                validation.bound[here], validation.measured[here], ls="", marker=".", ms=3, alpha=0.35, zorder=3,
                color=COLOURS[i % len(COLOURS)], label=label, rasterized=True,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.plot([low, high], [low, high], color="0.15", lw=1.5, zorder=2)
        axes.set_xlim(max(axes.get_xlim()[0], low / 1e4), high)
        axes.set_ylim(low, high)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: units.seconds(value))
        axes.set_xlabel("bound")
        axes.set_ylabel("measured")
        axes.grid(True, which="major", color="0.92", zorder=0)
        if validation.by_op:
            figure.legend(loc="upper left", bbox_to_anchor=(0.66, 0.86), frameon=False, markerscale=4, fontsize=9)
