"""The answer of `roof validate`: the errors as a document, all rows as CSV, and a picture."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, starmap
from pathlib import Path
from typing import Any

import numpy as np

from roofmodel.errors import Message, Option
from roofmodel.measure.table import reason_lines
from roofmodel.measure.validate import (
    Errors,
    ErrorSummary,
    UseInFit,
    Validation,
    faster_experts,
    faster_than_bound,
)
from roofmodel.numbers import units
from roofmodel.report import canvas, marks
from roofmodel.report.document import Document, Figure, Paragraph, Rows
from roofmodel.report.table import COUNT, PERCENT, Cell, Column, Table, Unit

PREDICTION_COLUMNS = ("bound_us", "expected_us", "expected_low_us", "expected_high_us", "note")
MAX_NAME = 24  # characters of a line of a name in the table, so that the table fits into 80 columns


def to_dict(validation: Validation) -> dict[str, Any]:
    """The document `roofmodel.validate/1`. Errors are fractions of the measured time."""
    all_rows = validation.all_rows
    return {
        "schema": "roofmodel.validate/1",
        "file": validation.file,
        "hardware": validation.device.id,
        "n": all_rows.n,
        "skipped": validation.skipped,
        "skipped_lines": validation.skipped_lines,
        **_part(all_rows),
        **{
            name: {label: {"n": part.n, **_part(part)} for label, part in getattr(validation, name).items()}
            for name in ("by_op", "by_size", "by_set", "by_kernel_and_format", "by_fit")
        },
        "fit_sources": list(validation.fit_sources),
        "warnings": list(validation.warnings),
    }


def _part(part: ErrorSummary) -> dict[str, Any]:
    expected = part.expected._asdict() if part.expected else dict.fromkeys(Errors._fields)
    return {
        "bound": part.bound._asdict(),
        "expected": {**expected, "inside_interval": part.inside_interval},
        "above_the_roof": part.above_the_roof,
    }


def document(validation: Validation) -> Document:
    """Errors of bound and expected time by operation, size, kernel with formats, and use in the fit of the parameters;
    skipped rows; rows faster than bound."""
    parts = dict(validation.by_op)
    if len(parts) > 1:
        parts["all"] = validation.all_rows
    lines: list[tuple[str, ErrorSummary | None]] = [*parts.items()]
    for title, parts in (
        ("by bound", validation.by_size),
        ("by kernel and format", validation.by_kernel_and_format),
        ("by use in the fit", validation.by_fit),
    ):
        if len(validation.by_op) == 1:
            parts = {name.removeprefix(f"{next(iter(validation.by_op))}: "): part for name, part in parts.items()}
        if parts:
            lines += [(title, None), *chain.from_iterable(starmap(_lines, parts.items()))]
    remarks = [
        "bound, expected: mean error relative to the measured time. median, 90 % (percentile), bias: of the expected "
        "time. inside: share of rows within its 80 % interval.",
        *_fit_lines(validation),
        *(f"skipped {text}" for text in reason_lines(validation.skipped_lines)),
    ]
    if faster := [f"faster than bound: {text}" for text in faster_than_bound(validation)]:
        remarks += [
            *faster,
            "The bound moves all bytes from and to DRAM. A benchmark that repeats an operation may keep operands in L2 "
            "and be faster.",
        ]
    if faster_experts(validation):
        hint = Message(
            "moe rows are faster than the bound: if the benchmark repeats one token, add the column distribution with "
            "the value same (in estimates: ", Option("routing", "same"), ")",
        )  # fmt: skip
        remarks.append(str(hint))
    return Document(
        f"{validation.file} on {validation.device.name} ({validation.device.id})",
        [
            Rows(ERRORS, lines),
            *(Paragraph(remark, dim=True) for remark in remarks),
            Figure(partial(draw, validation), "Measured times over predicted times, by operation"),
        ],
        partial(to_dict, validation),
    )


def _fit_lines(validation: Validation) -> list[str]:
    """The tables to which the parameters were fitted, and what is known of these rows."""
    if not validation.fit_sources:
        return []
    text = f"The parameters were fitted to {', '.join(validation.fit_sources)}."
    if {UseInFit.FITTED, UseInFit.HELD_OUT} & validation.by_fit.keys():
        text += (
            " Of the rows from this source, a fit holds out a third of the shapes: their error is that on unseen rows."
        )
    return [text]


def _lines(name: str, part: ErrorSummary) -> list[tuple[str, ErrorSummary | None]]:
    """A line for the part, and lines without figures for the rest of a name of more than MAX_NAME characters."""
    lines = [""]
    for word in re.split(r"(?<=[_. ])|(?<=[a-z0-9])(?=[A-Z])", name):
        if lines[-1] and len(lines[-1] + word.rstrip()) > MAX_NAME:
            lines.append(" ")
        lines[-1] += word
    return [(lines[0], part), *((line, None) for line in lines[1:])]


def _percent(part: float, sign: str = "", digits: int = 1) -> str:
    """`12.3%`, or `>9999%` for an error that has too many digits for its column."""
    return f"{part:{sign}.{digits}%}" if part < 100 else ">9999%"


def _label(line: tuple[str, ErrorSummary | None]) -> Cell:
    name, part = line
    return (name, "dim") if part is None else name


def _of_part(value: Callable[[ErrorSummary], Any]) -> Callable[[tuple[str, ErrorSummary | None]], Any]:
    return lambda line: None if line[1] is None else value(line[1])


def _of_expected(field: str) -> Callable[[tuple[str, ErrorSummary | None]], float | None]:
    return _of_part(lambda part: part.expected and getattr(part.expected, field))


def _inside(part: ErrorSummary) -> float | None:
    return None if part.expected is None else part.inside_interval


ERROR = Unit(_percent)
ERRORS = Table(
    "errors",
    (
        Column(None, "operation", text=_label),
        Column(None, "rows", COUNT, _of_part(lambda part: part.n)),
        Column(None, "bound", ERROR, _of_part(lambda part: part.bound.mape)),
        Column(None, "expected", ERROR, _of_expected("mape")),
        Column(None, "median", ERROR, _of_expected("median_ape")),
        Column(None, "90 %", ERROR, _of_expected("p90_ape")),
        Column(None, "bias", Unit(lambda bias: _percent(bias, "+")), _of_expected("bias")),
        Column(None, "inside", PERCENT, _of_part(_inside)),
        Column(None, "faster than bound", COUNT, _of_part(lambda part: part.above_the_roof), wrap=True),
    ),
)
"""A line for each part of the rows; a line with None is a title of parts or the rest of a long name."""


def rows_csv(validation: Validation) -> str:
    """All rows of the table in order, with their predictions and notes.

    Predictions that an earlier validation wrote (the table's last columns) are replaced. Any other column of the table
    is kept: if it has the name of a prediction, the prediction's name gets the prefix `roof_`.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    own = list(validation.table)
    if tuple(own[-len(PREDICTION_COLUMNS) :]) == PREDICTION_COLUMNS:
        own = own[: -len(PREDICTION_COLUMNS)]
    writer.writerow((*own, *(_unused_name(name, own) for name in PREDICTION_COLUMNS)))
    columns = (validation.table[name] for name in own)
    seconds = (validation.bound, validation.expected, *validation.interval)
    predicted = zip(*(values.tolist() for values in seconds), strict=True)
    for *cells, times, note in zip(*columns, predicted, validation.notes, strict=True):
        microseconds = (repr(time * 1e6) if time == time else "" for time in times)  # NaN becomes an empty cell
        writer.writerow((*cells, *microseconds, note))
    return out.getvalue().rstrip("\n")


def _unused_name(name: str, used_names: Sequence[str]) -> str:
    return name if name not in used_names else _unused_name(f"roof_{name}", used_names)


MAX_LARGE_DOTS = 1000  # rows up to which dots are large


def draw(validation: Validation, path: Path, form: str) -> None:
    """Draw measured times over expected times, or over bounds if nothing is calibrated, on log axes."""
    calibrated = not np.isnan(validation.expected).all()
    predicted, name = (validation.expected, "expected") if calibrated else (validation.bound, "bound")
    has_prediction = ~np.isnan(predicted)
    ops = np.array(validation.table["op"])
    size, alpha = (7, 0.6) if has_prediction.sum() <= MAX_LARGE_DOTS else (3, 0.35)
    subtitle = (
        f"{has_prediction.sum()} rows of {validation.file}; points above the line took longer than {_REFERENCES[name]}"
    )
    with canvas.picture(path, form, f"{validation.device.name}: measured against {name}", subtitle, _FOOT[name]) as (
        figure,
        axes,
    ):
        for i, (op, part) in enumerate(validation.by_op.items()):
            here = has_prediction & (ops == op)
            part_errors = part.expected if calibrated else part.bound
            if part_errors is None:
                continue
            style = marks.series_style(i)
            axes.plot(
                predicted[here], validation.measured[here], ls="", marker=style.shape, ms=size, alpha=alpha, mew=0,
                zorder=3, color=style.color, rasterized=True,
                label=f"{op}: {here.sum()} rows, error {_percent(part_errors.mape, digits=0)}",
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        ends = np.array(axes.get_ylim())
        axes.plot(ends, ends, color="0.15", lw=1.5, zorder=2)
        if calibrated:
            low, high = (float(np.nanmedian(end / predicted)) for end in validation.interval)
            axes.fill_between(ends, ends * low, ends * high, color="0.85", zorder=1, label="80 % interval")
        axes.set_xlim(max(axes.get_xlim()[0], ends[0] / 1e4), ends[1])
        axes.set_ylim(*ends)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: units.seconds(value))
        axes.set_xlabel(name)
        axes.set_ylabel("measured")
        axes.grid(True, which="major", color="0.92", zorder=0)
        if validation.by_op:
            figure.legend(
                loc="upper left", bbox_to_anchor=(0.66, 0.86), frameon=False, markerscale=12 / size, fontsize=9
            )


_REFERENCES = {"expected": "expected", "bound": "their bound"}
_FOOT = {
    "expected": "Expected times use the parameters in the device's file; the band is the interval of the median row.",
    "bound": "Bound: max(FLOPs / peak, bytes / DRAM bandwidth), without launch time. "
    "Points below the line are possible only with data in a cache.",
}
