"""Measured operations against the model: how far bound and expectation are from what a GPU did.

Errors are relative to the measurement: (predicted - measured) / measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roofmodel import units
from roofmodel.devices.device import Device, Level
from roofmodel.errors import ProfileError, WorkloadError
from roofmodel.prediction.roofline import Placement, place
from roofmodel.prediction.timing import clamp_to_bound, formula
from roofmodel.study.benchmark.operations import OPERATIONS
from roofmodel.study.benchmark.table import Array, Group, Table, groups, listed, read, seconds, skipped
from roofmodel.study.profile.device import others


class Errors(NamedTuple):
    """Absolute percentage errors as fractions: mean, median, 90th percentile; `bias` is the mean with its sign."""

    mape: float
    median_ape: float
    p90_ape: float
    bias: float


class Part(NamedTuple):
    """The rows of one operation: how many, the errors of the bound and how many measurements beat it; of those that
    have an expectation (`expected` None: none) its errors, and the share of them inside its interval."""

    n: int
    bound: Errors
    above_the_roof: int
    expected: Errors | None = None
    inside_interval: float | None = None


class Validation(NamedTuple):
    """A table against a device: each row's time, bound and expectation, or the reason for none, and the errors."""

    file: str
    device: Device
    table: Table
    measured: Array  # seconds
    bound: Array  # seconds, NaN where there is none
    expected: Array  # seconds, NaN where there is none
    interval: tuple[Array, Array]  # seconds: where 80 % of measurements should be
    notes: Sequence[str]  # a reason a row; empty where there is a bound
    whole: Part
    by_op: dict[str, Part]
    by_size: dict[str, Part]  # by the time that the bound allows: `under 1 µs` …
    by_set: dict[str, Part]  # by the implementation whose parameters apply; `default` where a row names none of them
    warnings: tuple[str, ...]  # of what puts all of it in doubt

    @property
    def skipped(self) -> dict[str, int]:
        """Reason -> rows."""
        return {reason: len(lines) for reason, lines in self.skipped_lines.items()}

    @property
    def skipped_lines(self) -> dict[str, list[int]]:
        """Reason -> the lines of the file that it skips, the header being the first."""
        return skipped(self.notes)


def validate(path: str, device: Device) -> Validation:
    """Bound and expectation of each row of a table of measurements.

    Raises ProfileError for what is no such table, and for one without a row that has a bound.
    """
    table = read(path)
    found, notes = groups(table)
    bound, expected, low, high, served = _predicted(found, notes, device)
    measured, ops = seconds(table), np.array(table["op"])

    def part(rows: Array) -> Part:
        return _part(measured[rows], bound[rows], expected[rows], low[rows], high[rows])

    notes[np.isnan(bound) & (notes == "")] = "in a warm L2, whose bandwidth the device's file does not state"
    known = ~np.isnan(bound)
    if not known.any():
        why = "; ".join(listed(skipped(notes.tolist())))
        raise ProfileError(f"{path}: no row can be bounded on {device.id}: {why or 'it has none below its header'}")
    return Validation(
        file=Path(path).name,
        device=device,
        table=table,
        measured=measured,
        bound=bound,
        expected=expected,
        interval=(low, high),
        notes=notes.tolist(),
        whole=part(known),
        by_op={op: part(rows) for op in dict.fromkeys(table["op"]) if (rows := known & (ops == op)).any()},
        by_size={size: part(rows) for size, rows in _sizes(bound).items() if rows.any()},
        by_set={name: part(rows) for name in sorted(set(served) - {""}) if (rows := known & (served == name)).any()},
        warnings=others(device, table.get("gpu", ()), Path(path).name),
    )


def _predicted(found: Sequence[Group], notes: Array, device: Device) -> tuple[Array, Array, Array, Array, Array]:
    """Row by row the bound, the expectation and both ends of its interval, in seconds or NaN, and by which set it is.

    Why a group has no bound goes to the notes of its rows.
    """
    bound, expected, low, high = (np.full(len(notes), np.nan) for _ in range(4))
    served = np.full(len(notes), "", dtype=object)
    for group in found:
        try:
            placed = place(group.operator.cost, device, group.compute, group.operator.collective)
            bound[group.rows] = placed.bound_seconds
            if by := formula(group.operator, placed, device, group.compute, group.kernel):
                expectation = clamp_to_bound(by.seconds, by.fit, placed.bound_seconds)
                expected[group.rows], low[group.rows], high[group.rows] = expectation
                name = by.implementation
                served[group.rows] = f"{group.op}: {name}{'' if name in (group.kernel, 'any') else ' (default)'}"
            if group.l2 == "warm":
                inside, resident = _in_l2(placed, device)
                rows = group.rows[inside]
                bound[rows] = resident[inside]
                for times in (expected, low, high):  # the timing model's data come from DRAM
                    times[rows] = np.nan
        except WorkloadError as error:
            notes[group.rows] = str(error)
    return bound, expected, low, high, served


SIZES = (1e-6, 1e-5, 1e-4, 1e-3)  # seconds, that part the sizes of operations


def _sizes(bound: Array) -> dict[str, Array]:
    """Which rows are of which size, by the time that their bound allows; NaN is of none."""
    ends = [units.seconds(end) for end in SIZES]
    names = [f"under {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f"{ends[-1]} and more"]
    size = np.where(np.isnan(bound), -1, np.searchsorted(SIZES, bound, side="right"))
    return {name: size == i for i, name in enumerate(names)}


def _in_l2(placed: Placement, device: Device) -> tuple[Array, Array]:
    """Which rows' data fit the L2, and the bound of data that are there: NaN where L2's bandwidth is not known."""
    l2 = device.levels.get("l2") or Level("l2")
    data = np.asarray(placed.cost.bytes, dtype=float)
    return data <= (l2.capacity or 0), np.maximum(placed.compute_seconds, data / (l2.bandwidth or np.nan))


def errors(predicted: Array, measured: Array) -> Errors:
    """The errors of predictions, relative to the measurements."""
    relative = predicted / measured - 1
    ape = np.abs(relative)
    return Errors(float(ape.mean()), float(np.median(ape)), float(np.quantile(ape, 0.9)), float(relative.mean()))


def beaten(validation: Validation, most: int = 3) -> Iterator[str]:
    """The rows that beat their bound by most, in words: against physics, unless a cache held the data."""
    table = validation.table
    ratio = np.nan_to_num(validation.measured / validation.bound, nan=1)
    for row in np.argsort(ratio)[:most]:
        if ratio[row] < 1:
            op = table["op"][row]
            shape = ", ".join(f"{column} {table[column][row]}" for column in OPERATIONS[op].columns)
            part = f"{ratio[row]:.0%}" if ratio[row] >= 0.01 else "under 1%"
            yield f"line {row + 2}: {op} {table['dtype'][row]} ({shape}) took {part} of its bound"


def _part(measured: Array, bound: Array, expected: Array, low: Array, high: Array) -> Part:
    known = ~np.isnan(expected)
    some = bool(known.any())
    return Part(
        len(measured),
        errors(bound, measured),
        int((bound > measured).sum()),
        errors(expected[known], measured[known]) if some else None,
        float(((low <= measured) & (measured <= high))[known].mean()) if some else None,
    )
