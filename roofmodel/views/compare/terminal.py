"""A comparison as a person reads it in a terminal: operators beside the kernels that they are; and as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel import units
from roofmodel.algebra import plain
from roofmodel.study.compare.comparison import Comparison, Passes, Row
from roofmodel.study.compare.diagnosis import why
from roofmodel.study.profile.points import total
from roofmodel.views.compare import data
from roofmodel.views.compare.text import called, closing, percent, took
from roofmodel.views.kit import files
from roofmodel.views.kit.workload_text import describe_phase, describe_workload
from roofmodel.views.profile.tables import Narrowing

SUFFIXES = (*files.PICTURES, "json", "csv")
SHOWN = 8  # kernels and operators that are left, and reasons
TITLES = (
    "operator", "×", "kernels", "FLOPs", "× FLOPs", "bytes", "× bytes", "roof", "bound", "expected", "achieved",
    "of bound", "of exp.", "lost",
)  # fmt: skip
EXPENDABLE = ("roof", "bytes", "FLOPs", "kernels", "×", "of exp.", "× bytes", "× FLOPs", "expected")
MEANING = {
    "× FLOPs": "× FLOPs, × bytes: measured by counted",
    "of bound": "of bound: the bound by what was achieved",
    "of exp.": "of exp.: the expectation likewise",
    "lost": "lost: beyond the expectation, or, where there is none, beyond the bound",
}


def table(found: Comparison) -> RenderableType:
    """Rows phase by phase, where most time is lost first; what is left; the findings."""
    return Group(*_blocks(found))


def _blocks(found: Comparison) -> Iterator[RenderableType]:
    estimate, device = found.estimate, found.identified.device
    assumed = {"given": "", "attributes": ", by the file's attributes", "assumed": ", ASSUMED"}[found.identified.how]
    how = f"matched by {', '.join(found.matched_by)}"
    yield Text(f"{estimate.architecture.name} on {device.name} ({device.id}{assumed})", style="bold")
    yield Text(f"{describe_workload(estimate)} · {found.profile.tool}, {how}", style="dim")
    for passes in found.passes:
        rows = [row for row in found.rows if row.phase == passes.phase]
        yield Text()
        yield Text(_heading(found, passes, rows), style="bold")
        yield _rows(found, rows)
        yield from _reasons(found, rows)
        yield from _left(found, passes.phase)
    yield Text()
    for number, words in enumerate(closing(found), 1):
        yield Text(f"{number}. {words}")


def _heading(found: Comparison, passes: Passes, rows: Sequence[Row]) -> str:
    phase = next(describe_phase(phase) for phase in found.estimate.phases if phase.step.phase == passes.phase)
    of = f" of {passes.found}" if passes.found != passes.used else ""
    one = "part of a pass" if passes.partial else "1 pass" if passes.used == 1 else f"mean of {passes.used} passes"
    span = f" in {took(passes.span_seconds)}" if passes.span_seconds else ""
    expected, measured = total(row.expected_seconds for row in rows), total(row.measured_seconds for row in rows)
    parts = [
        f"bound {took(sum(row.bound_seconds for row in rows))}",
        *([] if expected is None else [f"expected {took(expected)}"]),
        *([] if measured is None else [f"achieved {took(measured)}"]),
    ]
    kernels = f"{units.significant(passes.kernels)} kernels, {took(passes.seconds)}{span}"
    return f"{phase}: {one}{of}, {kernels}; what matched: {', '.join(parts)}"


def _rows(found: Comparison, rows: Sequence[Row]) -> RenderableType:
    shown = Narrowing(TITLES, "operator", EXPENDABLE, MEANING)
    for row in rows:
        lost = row.lost_seconds
        shown.add(
            called(found, row),
            units.significant(row.occurrences) if row.occurrences != 1 else "",
            units.significant(row.kernels),
            units.si(plain(row.cost.flops)),
            _ratio(row.measured_flops, float(row.cost.flops)),
            units.si(plain(row.cost.bytes), "B"),
            _ratio(row.measured_bytes, float(row.cost.bytes)),
            row.bound,
            took(row.bound_seconds),
            "" if row.expected_seconds is None else took(row.expected_seconds),
            took(row.measured_seconds),
            _part(row.bound_seconds, row.measured_seconds),
            "" if row.expected_seconds is None else _part(row.expected_seconds, row.measured_seconds),
            f"−{took(-lost)}" if lost is not None and lost < 0 else took(lost),
        )
    return shown


def _ratio(measured: float | None, counted: float) -> str:
    return "" if measured is None or not counted else units.significant(measured / counted)


def _part(predicted: float, measured: float | None) -> str:
    return percent(predicted / measured) if measured else "–"


def _reasons(found: Comparison, rows: Sequence[Row]) -> Iterator[RenderableType]:
    said = [(called(found, row), why(row, found)) for row in rows]
    known = [f"{name}: {'; '.join(reasons)}" for name, reasons in said if reasons]
    for text in known[:SHOWN]:
        yield Text(text, style="dim")
    if len(known) > SHOWN:
        yield Text(f"and reasons of {len(known) - SHOWN} more rows; all in --format json", style="dim")


def _left(found: Comparison, phase: str) -> Iterator[RenderableType]:
    kernels = [left for left in found.left_kernels if left.phase == phase]
    if kernels:
        names = [f"{left.name} × {units.significant(left.kernels)} {took(left.seconds)}" for left in kernels]
        together = took(total(left.seconds for left in kernels))
        yield Text(f"kernels that no operator claims, {together}: {_first(names, SHOWN)}", style="dim")
    operators = [left for left in found.left_operators if left.phase == phase]
    if operators:
        names = [f"{left.operator} × {units.significant(left.occurrences)}" for left in operators]
        yield Text(f"operators without a kernel, fused or not in the file: {_first(names, 2 * SHOWN)}", style="dim")


def _first(names: Sequence[str], most: int) -> str:
    more = f"; and {len(names) - most} more, in --format json" if len(names) > most else ""
    return "; ".join(names[:most]) + more


def save(found: Comparison, path: str) -> Path:
    """Write a picture (png, svg, pdf) or the data (json, csv), by the suffix."""
    from roofmodel.views.compare import picture

    return files.write(
        path,
        draw=lambda file, form: picture.draw(found, file, form),
        texts={"json": lambda: data.as_json(found), "csv": lambda: data.as_csv(found)},
    )
