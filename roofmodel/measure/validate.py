"""Validation: the errors of bound and expected time on a table of measured operations.

Errors are relative to the measured time: (predicted - measured) / measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Level
from roofmodel.engines.engine import Engine
from roofmodel.errors import ProfileError, WorkloadError
from roofmodel.measure.operations import OPERATIONS
from roofmodel.measure.table import (
    Array,
    RowGroup,
    Table,
    copies,
    dtypes,
    gpus,
    groups,
    held_out,
    least_seconds,
    read,
    reason_lines,
    repeated,
    row_lines,
    seconds,
    skipped,
)
from roofmodel.numbers import units
from roofmodel.roofline.device import others
from roofmodel.timing.engine import Timing
from roofmodel.timing.parameter_sets import operator_format_key
from roofmodel.timing.roofline import Placement, place
from roofmodel.timing.timing import Formula, clamp_to_bound, formula

MANY_FASTER, LEAST_ROWS = 0.9, 10  # the share and number of rows from which on the unit of the times is doubtful


class Errors(NamedTuple):
    """Absolute relative errors: mean, median and 90th percentile; `bias` is the mean of the signed errors."""

    mape: float
    median_ape: float
    p90_ape: float
    bias: float


class ErrorSummary(NamedTuple):
    """Errors on some rows: `n` rows with a bound, of which `above_the_roof` were faster than it.

    `expected` has the errors of the rows with an expected time (None without any), `inside_interval` the share of them
    within their interval.
    """

    n: int
    bound: Errors
    above_the_roof: int
    expected: Errors | None = None
    inside_interval: float | None = None


class UseInFit:
    """What the fit of a row's parameters knew of the row, by the table's column `source`."""

    FITTED = "available to the fit"
    HELD_OUT = "held out from the fit"
    OTHER = "from another source"


class Validation(NamedTuple):
    """A table of measurements and its predictions for a device, row by row, with the errors by several groupings."""

    file: str
    device: Device
    table: Table
    measured: Array  # seconds
    bound: Array  # seconds, NaN where there is none
    expected: Array  # seconds, NaN where there is none
    interval: tuple[Array, Array]  # seconds: both ends of the 80 % interval
    notes: Sequence[str]  # by row: why it has no bound; empty if it has one
    all_rows: ErrorSummary
    by_op: dict[str, ErrorSummary]
    by_size: dict[str, ErrorSummary]  # by the bound: `under 1 µs`, …
    by_set: dict[str, ErrorSummary]  # by kernel; `(default)` if the row's kernel has no parameters of its own
    by_kernel_and_format: dict[str, ErrorSummary]  # the same with formats: `torch_flow fp8/fp8`
    by_fit: dict[str, ErrorSummary]  # by UseInFit, if the table has a column `source`
    fit_sources: tuple[str, ...]  # the tables to which the parameters of the rows were fitted
    warnings: tuple[str, ...]  # about the whole table, such as rows of another GPU

    @property
    def skipped(self) -> dict[str, int]:
        """The number of skipped rows by reason."""
        return {reason: len(lines) for reason, lines in self.skipped_lines.items()}

    @property
    def skipped_lines(self) -> dict[str, list[int]]:
        """The skipped lines of the file by reason; the header is line 1."""
        return skipped(self.notes, row_lines(self.table))


def validate(path: str, device: Device, engine: Engine | None = None) -> Validation:
    """Bound and expected time of each row of a table of measurements, and their errors.

    The expected time is that of the row's `kernel`; without one, that of the engine's kernel, or of the device's
    default.

    Raises ProfileError if the file is not such a table, or if no row has a bound.
    """
    table = read(path)
    row_groups, notes = groups(table)
    predicted = _predicted(row_groups, notes, device, table.get("source"), engine)
    bound, expected, low, high = predicted[:4]
    measured, ops = seconds(table), np.array(table["op"])

    def part(rows: Array) -> ErrorSummary:
        return _part(measured[rows], bound[rows], expected[rows], low[rows], high[rows])

    def by(names: Array, order: Sequence[str]) -> dict[str, ErrorSummary]:
        return {name: part(rows) for name in order if name and (rows := has_bound & (names == name)).any()}

    notes[np.isnan(bound) & (notes == "")] = (
        "the data are in the L2 cache, but the device's file states no L2 bandwidth"
    )
    has_bound = ~np.isnan(bound)
    if not has_bound.any():
        why = "; ".join(reason_lines(skipped(notes.tolist(), row_lines(table))))
        raise ProfileError(f"{path}: no row has a bound on {device.id}: {why or 'there are no rows below the header'}")
    all_rows = part(has_bound)
    return Validation(
        file=Path(path).name,
        device=device,
        table=table,
        measured=measured,
        bound=bound,
        expected=expected,
        interval=(low, high),
        notes=notes.tolist(),
        all_rows=all_rows,
        by_op=by(ops, list(dict.fromkeys(table["op"]))),
        by_size={size: part(rows) for size, rows in _sizes(bound).items() if rows.any()},
        by_set=by(predicted.sets, sorted(set(predicted.sets))),
        by_kernel_and_format=by(predicted.formats, sorted(set(predicted.formats))),
        by_fit=by(predicted.uses, (UseInFit.FITTED, UseInFit.HELD_OUT, UseInFit.OTHER)),
        fit_sources=predicted.fit_sources,
        warnings=(*others(device, gpus(table), Path(path).name), *_unit_warning(all_rows)),
    )


def _unit_warning(all_rows: ErrorSummary) -> tuple[str, ...]:
    """A question about the unit of the times, if nearly all rows are faster than the bound."""
    if all_rows.n < LEAST_ROWS or all_rows.above_the_roof < MANY_FASTER * all_rows.n:
        return ()
    return (
        f"{all_rows.above_the_roof} of {all_rows.n} rows are faster than the bound: is latency_us in microseconds?",
    )


def _formats(group: RowGroup, fitted: str) -> str:
    """The formats of the rows, and those of their parameters where these are others: `fp32/fp32, fit of fp16/fp16`."""
    own = operator_format_key(group.operator, group.compute)
    return own if own == fitted or group.op != "gemm" else f"{own}, fit of {fitted}"


class _Predicted(NamedTuple):
    """Predictions by row, in seconds or NaN, with the parameters that the expected times use, or empty names."""

    bound: Array
    expected: Array
    low: Array
    high: Array
    sets: Array
    formats: Array
    uses: Array
    fit_sources: tuple[str, ...]


def _predicted(
    row_groups: Sequence[RowGroup], notes: Array, device: Device, source: Sequence[str] | None, engine: Engine | None
) -> _Predicted:
    """The predictions of all rows. Writes the reason to `notes` where a group has no bound.

    `source` is the table's column of this name, if it has one.
    """
    bound, expected, low, high = (np.full(len(notes), np.nan) for _ in range(4))
    sets, formats, uses = (np.full(len(notes), "", dtype=object) for _ in range(3))
    fit_sources = set()
    for group in row_groups:
        try:
            placed = place(group.operator.cost, device, group.compute, group.operator.collective)
            bound[group.rows] = placed.bound_seconds
            if by := formula(
                group.operator,
                placed,
                device,
                group.compute,
                Timing(device, engine, group.kernel) if engine else group.kernel,
                repeated=repeated(group),
                copies=copies(group, device),
            ):
                expectation = clamp_to_bound(by.seconds, by.fit, least_seconds(group, placed, device))
                expected[group.rows], low[group.rows], high[group.rows] = expectation
                name = by.implementation
                default = "" if name in (group.kernel, "any") else " (default)"
                sets[group.rows] = f"{group.op}: {name}{default}"
                formats[group.rows] = f"{group.op}: {name} {_formats(group, by.format_key)}{default}"
                fit_sources.add(by.fit.source)
                if source is not None:
                    uses[group.rows] = _use_in_fit(group, by, device, np.array(source, dtype=object)[group.rows])
            if group.l2 == "warm":
                inside, resident = _l2_bounds(placed, device)
                rows = group.rows[inside]
                bound[rows] = resident[inside]
                for times in (expected, low, high):  # the timing model assumes data in DRAM
                    times[rows] = np.nan
        except WorkloadError as error:
            notes[group.rows] = str(error)
    return _Predicted(bound, expected, low, high, sets, formats, uses, tuple(sorted(fit_sources)))


def _use_in_fit(group: RowGroup, by: Formula, device: Device, source: Array) -> Array:
    """UseInFit of each row: `roof calibrate` holds out the same models in each table."""
    use = np.where(held_out(group.op, group.shape), UseInFit.HELD_OUT, UseInFit.FITTED)
    return np.where((source == by.fit.source) & (by.fitted_on == device.id), use, UseInFit.OTHER)


SIZES = (1e-6, 1e-5, 1e-4, 1e-3)  # limits between the groups of `by_size`, in seconds


def _sizes(bound: Array) -> dict[str, Array]:
    """Masks of rows by the size of their bound; rows without a bound are in none."""
    ends = [units.seconds(end) for end in SIZES]
    names = [f"under {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f"{ends[-1]} and more"]
    size = np.where(np.isnan(bound), -1, np.searchsorted(SIZES, bound, side="right"))
    return {name: size == i for i, name in enumerate(names)}


def _l2_bounds(placed: Placement, device: Device) -> tuple[Array, Array]:
    """Mask of rows whose data fit in the L2, and their bound with data there: NaN if the L2 bandwidth is unknown."""
    l2 = device.levels.get("l2") or Level("l2")
    data = np.asarray(placed.cost.bytes, dtype=float)
    return data <= (l2.capacity or 0), np.maximum(placed.compute_seconds, data / (l2.bandwidth or np.nan))


def errors(predicted: Array, measured: Array) -> Errors:
    """The errors of predictions, relative to the measured times."""
    relative = predicted / measured - 1
    ape = np.abs(relative)
    return Errors(float(ape.mean()), float(np.median(ape)), float(np.quantile(ape, 0.9)), float(relative.mean()))


def faster_than_bound(validation: Validation, limit: int = 3) -> Iterator[str]:
    """The rows that are fastest relative to their bound: impossible unless a cache had the data."""
    table = validation.table
    names, lines = dtypes(table), row_lines(table)
    ratio = np.nan_to_num(validation.measured / validation.bound, nan=1)
    for row in np.argsort(ratio)[:limit]:
        if ratio[row] < 1:
            op = table["op"][row]
            shape = ", ".join(f"{column} {table[column][row]}" for column in OPERATIONS[op].columns)
            part = f"{ratio[row]:.0%}" if ratio[row] >= 0.01 else "under 1%"
            yield f"line {lines[row]}: {op} {names[row]} ({shape}) took {part} of its bound"


def faster_experts(validation: Validation) -> bool:
    """Whether rows of MoE layers under uniform routing are faster than their bound: tokens may share experts."""
    ops, faster = validation.table["op"], validation.measured < validation.bound
    distribution = validation.table.get("distribution") or [""] * len(ops)
    return any(faster[row] and op == "moe" and distribution[row] in ("", "uniform") for row, op in enumerate(ops))


def _part(measured: Array, bound: Array, expected: Array, low: Array, high: Array) -> ErrorSummary:
    has_expected = ~np.isnan(expected)
    some = bool(has_expected.any())
    return ErrorSummary(
        len(measured),
        errors(bound, measured),
        int((bound > measured).sum()),
        errors(expected[has_expected], measured[has_expected]) if some else None,
        float(((low <= measured) & (measured <= high))[has_expected].mean()) if some else None,
    )
