"""The columns of a comparison's rows, and their labels."""

from typing import Any, NamedTuple

from roofmodel.compare.comparison import ComparisonRow, ModelComparison
from roofmodel.compare.diagnosis import reasons
from roofmodel.numbers import units
from roofmodel.report.operator_names import label, merged_label, title
from roofmodel.report.table import BYTES, COUNT, FLOP, NAME, NUMBER, Cell, Column, Table, Unit, joined


def row_label(comparison: ModelComparison, row: ComparisonRow) -> str:
    """The label of a row: `attention: Q, K, V projection`, `residual adds + norms`."""
    operators = {
        placed.operator.name: placed.operator for phase in comparison.estimate.phases for placed in phase.placed
    }
    parts = [merged_label(name) or (label(operators[name]) if name in operators else name) for name in row.operators]
    words = [part.rpartition(" ") for part in parts]
    if len(parts) > 1 and len({last for _, _, last in words}) == 1 and all(first for first, _, _ in words):
        parts = [f"{', '.join(first for first, _, _ in words)} {words[0][2]}"]
    merged = any("." not in name for name in row.operators)
    text = (" + " if merged else ", ").join(parts)
    place = "" if merged or text.startswith(row.group) else f"{title(row.group)}: "
    return place + text + (" (backward)" if row.stage == "backward" and ": d" not in text else "")


def duration(seconds: float | None) -> str:
    """A time with its unit, or a dash if it is unknown."""
    return "–" if seconds is None else units.seconds(seconds)


def percent(share: float) -> str:
    """A share as a percentage; `<1%` for one that would round to 0%."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


DURATION = Unit(duration)


def _ratio(measured: float | None, counted: Any) -> str | None:
    return None if measured is None or not counted else units.significant(measured / float(counted))


def _fraction(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured if measured and predicted is not None else None


def _share(predicted: float | None, row: ComparisonRow) -> str:
    if predicted is None:
        return ""
    return percent(predicted / row.measured_seconds) if row.measured_seconds else "–"


def _excess(row: ComparisonRow) -> Cell:
    excess = row.excess_seconds
    return f"−{duration(-excess)}" if excess is not None and excess < 0 else duration(excess)


class ComparedRow(NamedTuple):
    """A row with its comparison, whose other rows its label and its reasons depend on."""

    row: ComparisonRow
    comparison: ModelComparison


def compared_rows(comparison: ModelComparison, phase: str | None = None) -> list[ComparedRow]:
    """The rows of a phase; of all phases by default."""
    return [ComparedRow(row, comparison) for row in comparison.rows if phase in (None, row.phase)]


ROWS = Table(
    "rows",
    (
        Column(
            "group", value=lambda each: " + ".join(each.row.operators),
            meaning="a group of operators, joined by ` + `",
        ),
        Column(
            "label", "operator", NAME, lambda each: row_label(each.comparison, each.row),
            meaning="its name in the terminal",
        ),
        Column("phase", value="row.phase", meaning="`prefill`, `decode`, `forward` or `train`"),
        Column(
            "stage", value=lambda each: each.row.stage or None,
            meaning="the part of a training step; null for a pass in one part",
        ),
        Column(
            "occurrences", "×", COUNT, "row.occurrences", priority=5, meaning="occurrences of the operators in a pass",
            text=lambda each: units.significant(each.row.occurrences) if each.row.occurrences != 1 else "",
        ),
        Column(None, "kernels", NUMBER, "row.kernels", priority=3),
        Column("predicted_flops", "FLOPs", FLOP, "row.cost.flops", priority=2, meaning="counted FLOPs of a pass"),
        Column("measured_flops", value="row.measured_flops", meaning="FLOPs by the counters; null without counters"),
        Column(
            None, "× FLOPs", COUNT, priority=8, legend="× FLOPs: measured / counted FLOPs",
            text=lambda each: _ratio(each.row.measured_flops, each.row.cost.flops),
        ),
        Column(
            "predicted_bytes", "bytes", BYTES, "row.cost.bytes", priority=1,
            meaning="counted bytes of a pass: compulsory DRAM traffic",
        ),
        Column(
            "measured_bytes", value="row.measured_bytes", meaning="DRAM bytes by the counters; null without counters"
        ),
        Column(
            None, "× bytes", COUNT, priority=7, legend="× bytes: measured / counted DRAM bytes",
            text=lambda each: _ratio(each.row.measured_bytes, each.row.cost.bytes),
        ),
        Column("bound", "bound by", value="row.bound", priority=4, meaning="the limiting ceiling"),
        Column("bound_seconds", "bound", DURATION, "row.bound_seconds", meaning="the least time of a pass"),
        Column(
            "expected_seconds", "expected", DURATION, "row.expected_seconds", priority=9,
            meaning="the expected time of a pass; null on a device without a timing model",
        ),
        Column(
            "measured_seconds", "achieved", COUNT, "row.measured_seconds",
            text=lambda each: duration(each.row.measured_seconds), meaning="summed durations of the kernels in a pass",
        ),
        Column(
            None, "of bound", COUNT, legend="of bound: bound / achieved",
            text=lambda each: _share(each.row.bound_seconds, each.row),
        ),
        Column(
            None, "of exp.", COUNT, priority=6,
            legend="of exp.: expected / achieved, above 100% if faster than expected",
            text=lambda each: _share(each.row.expected_seconds, each.row),
        ),
        Column(
            "lost_seconds", "excess", COUNT, "row.excess_seconds", text=lambda each: _excess(each.row),
            legend="excess: achieved − expected (− bound if there is no expected time)",
            meaning="achieved time minus expected time, or minus the bound if there is no expected time",
        ),
        Column(
            "bound_fraction", value=lambda each: _fraction(each.row.bound_seconds, each.row.measured_seconds),
            meaning="bound / measured time",
        ),
        Column(
            "expected_fraction", value=lambda each: _fraction(each.row.expected_seconds, each.row.measured_seconds),
            meaning="expected time / measured time",
        ),
        Column("kernels", value="row.kernels", meaning="launches in a pass"),
        Column(
            "kernel_names", value=lambda each: list(each.row.kernel_names), flat=joined("; "),
            meaning="the names of these kernels",
        ),
        Column(
            "why", value=lambda each: list(reasons(each.row, each.comparison)), flat=joined("; "),
            meaning="the reasons for a difference between counted and measured values",
        ),
    ),
)  # fmt: skip
"""A row for each group of operators (ComparedRow)."""
