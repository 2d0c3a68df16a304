"""The columns of a comparison's rows."""

from typing import Any

from roofmodel.compare.comparison import ComparisonRow, ModelComparison
from roofmodel.compare.diagnosis import reasons
from roofmodel.compare.text import duration, percent, row_label
from roofmodel.numbers import units
from roofmodel.report.table import BYTES, COUNT, FLOP, NAME, NUMBER, Cell, Column, Table, Unit, joined

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


def rows_table(comparison: ModelComparison) -> Table:
    """A row for each group of operators (ComparisonRow)."""
    return Table(
        "rows",
        (
            Column("group", value=lambda row: " + ".join(row.operators)),
            Column("label", "operator", NAME, lambda row: row_label(comparison, row)),
            Column("phase"),
            Column("stage", value=lambda row: row.stage or None),
            Column("occurrences"),
            Column(
                None, "×", COUNT, priority=5,
                text=lambda row: units.significant(row.occurrences) if row.occurrences != 1 else "",
            ),
            Column(None, "kernels", NUMBER, "kernels", priority=4),
            Column("predicted_flops", "FLOPs", FLOP, "cost.flops", priority=3),
            Column("measured_flops"),
            Column(
                None, "× FLOPs", COUNT, priority=8, legend="× FLOPs: measured / counted FLOPs",
                text=lambda row: _ratio(row.measured_flops, row.cost.flops),
            ),
            Column("predicted_bytes", "bytes", BYTES, "cost.bytes", priority=2),
            Column("measured_bytes"),
            Column(
                None, "× bytes", COUNT, priority=7, legend="× bytes: measured / counted DRAM bytes",
                text=lambda row: _ratio(row.measured_bytes, row.cost.bytes),
            ),
            Column("bound", "bound by", priority=1),
            Column("bound_seconds", "bound", DURATION),
            Column("expected_seconds", "expected", DURATION, priority=9),
            Column("measured_seconds", "achieved", COUNT, text=lambda row: duration(row.measured_seconds)),
            Column(
                None, "of bound", COUNT, legend="of bound: bound / achieved",
                text=lambda row: _share(row.bound_seconds, row),
            ),
            Column(
                None, "of exp.", COUNT, priority=6, legend="of exp.: expected / achieved",
                text=lambda row: _share(row.expected_seconds, row),
            ),
            Column(
                "lost_seconds", "excess", COUNT, "excess_seconds", text=_excess,
                legend="excess: achieved − expected (− bound if there is no expected time)",
            ),
            Column("bound_fraction", value=lambda row: _fraction(row.bound_seconds, row.measured_seconds)),
            Column("expected_fraction", value=lambda row: _fraction(row.expected_seconds, row.measured_seconds)),
            Column("kernels"),
            Column("kernel_names", value=lambda row: list(row.kernel_names), flat=joined("; ")),
            Column("why", value=lambda row: list(reasons(row, comparison)), flat=joined("; ")),
        ),
    )  # fmt: skip
