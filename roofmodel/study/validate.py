"""Measured operations against the model: how far bound and expectation are from what a GPU did.

Errors are relative to the measurement: (predicted - measured) / measured.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from roofmodel import units
from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device, Level
from roofmodel.errors import ProfileError, WorkloadError, choices, shorten
from roofmodel.prediction.roofline import Placement, place
from roofmodel.prediction.timing import formula, held
from roofmodel.study.identify import others
from roofmodel.study.operations import OPERATIONS, PRECISIONS, widths

Array = np.ndarray[Any, np.dtype[Any]]
Table = Mapping[str, Sequence[str]]  # column -> cells, as they stand in the file


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
    by_set: dict[
        str, Part
    ]  # by the set of parameters: its implementation, and `default` where a row names none of them
    warnings: tuple[str, ...]  # of what puts all of it in doubt

    @property
    def skipped(self) -> dict[str, int]:
        """Reason -> rows."""
        return {reason: len(lines) for reason, lines in self.skipped_lines.items()}

    @property
    def skipped_lines(self) -> dict[str, list[int]]:
        """Reason -> the lines of the file that it skips, the header being the first."""
        return _skipped(self.notes)


def _skipped(notes: Sequence[str]) -> dict[str, list[int]]:
    lines: dict[str, list[int]] = {}
    for line, reason in enumerate(notes, 2):
        if reason:
            lines.setdefault(reason, []).append(line)
    return lines


def listed(skipped: Mapping[str, list[int]], most: int = 10) -> Iterator[str]:
    """Which lines are skipped and why: the first reasons, and how many more there are."""
    for reason, lines in [*skipped.items()][:most]:
        yield f"{some(lines)}: {reason}"
    if rest := [*skipped.values()][most:]:
        yield f"{sum(map(len, rest))} more lines, for {len(rest)} more reasons"


def some(lines: Sequence[int], most: int = 3) -> str:
    """The first few lines, in words, and how many they are."""
    more = f" … ({len(lines)})" if len(lines) > most else ""
    return f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:most]))}{more}"


def validate(path: str, device: Device) -> Validation:
    """Bound and expectation of each row of a table of measurements.

    Raises ProfileError for what is no such table, and for one without a row that has a bound.
    """
    table = read(path)
    found, notes = groups(table)
    bound, expected, low, high = (np.full(len(table["op"]), np.nan) for _ in range(4))
    served = np.full(len(table["op"]), "", dtype=object)
    for group in found:
        try:
            placed = place(group.operator.cost, device, group.compute, group.operator.collective)
            bound[group.rows] = placed.bound_seconds
            if by := formula(group.operator, placed, device, group.compute, group.kernel):
                expectation = held(by.seconds, by.fit, placed.bound_seconds)
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
    measured, ops = seconds(table), np.array(table["op"])

    def part(rows: Array) -> Part:
        return _part(measured[rows], bound[rows], expected[rows], low[rows], high[rows])

    notes[np.isnan(bound) & (notes == "")] = "in a warm L2, whose bandwidth the device's file does not state"
    known = ~np.isnan(bound)
    if not known.any():
        why = "; ".join(listed(_skipped(notes.tolist())))
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
            yield f"line {row + 2}: {op} {table['dtype'][row]} ({shape}) took {ratio[row]:.0%} of its bound"


# --- A table's rows -----------------------------------------------------------------------------------


def read(path: str) -> Table:
    """The columns of a CSV with a header, gzip or not."""
    try:
        content = Path(path).read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        if not content.strip():
            raise ValueError("it is empty")
        header, *rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ProfileError(f"{path}: not a table of measurements that can be read ({reason})") from None
    lacking = [column for column in ("op", "dtype", "latency_us") if column not in header]
    if lacking:
        raise ProfileError(
            f"{path}: lacks the column {' and '.join(map(repr, lacking))}; a table of measurements has op, dtype, "
            "latency_us and the columns of each op's shape, as gemm has m, n, k"
        )
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ProfileError(f"{path}:{number}: a row of {len(row)} cells under a header of {len(header)}")
    return dict(zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True))


MOST = 10**12
"""The largest size that means something: elements that GPUs exchange are beyond any other."""

HOST_CLOCK = "by the host's clock"
"""Of operations whose table says that the host timed them, and no kernel: what fits them has the launch in it."""

_HOST = re.compile(r"\bhost\b")


class Group(NamedTuple):
    """Rows of one operation, type and kernel, as one operator whose sizes are columns."""

    op: str
    compute: str  # the type of the arithmetic
    kernel: str
    l2: str  # cold, warm, or empty where the table does not tell
    rows: Array  # which of the table's
    shape: Mapping[str, Array]
    operator: Operator


def groups(table: Table) -> tuple[list[Group], Array]:
    """The rows that mean something, and a note for each row: empty, or why it does not."""
    count = len(table["op"])
    notes, found = np.full(count, "", dtype=object), []
    rows_of: dict[tuple[str, ...], list[int]] = {}
    more = {name for operation in OPERATIONS.values() for name in (*operation.words, *operation.alike)}
    keys = tuple(dict.fromkeys(("op", "dtype", "kv_dtype", "kernel", "l2", "framework", *sorted(more))))
    # Of who measured, only whether by the host, so that its launch is in the time.
    cells = {**table, "framework": ["host"[: 4 * bool(_HOST.search(cell))] for cell in table.get("framework", ())]}
    for row, key in enumerate(zip(*(cells.get(name) or [""] * count for name in keys), strict=True)):
        rows_of.setdefault(key, []).append(row)
    for key, rows in rows_of.items():
        here, words = np.array(rows), dict(zip(keys, key, strict=True))
        op, dtype, kv, kernel, l2 = key[:5]
        if words["framework"]:
            kernel = kernel or f"{op}, {HOST_CLOCK}"
        try:
            shape, wrong = _shape(table, here, op, dtype, kv)
            notes[here], good = wrong, wrong == ""
            alike = {name: int(shape[name][0]) for name in OPERATIONS[op].alike if good.any()}
            operator = OPERATIONS[op].operator({**words, **shape, **alike}, widths(PRECISIONS[dtype], kv or None))
            found.append(Group(op, PRECISIONS[dtype].compute, kernel, l2, here[good], shape, operator))
        except WorkloadError as error:
            notes[here] = str(error)
    return found, notes


def seconds(table: Table) -> Array:
    """What was measured, in seconds."""
    return _numbers(table["latency_us"]) / 1e6


def _shape(table: Table, rows: Array, op: str, dtype: str, kv: str) -> tuple[dict[str, Array], Array]:
    """The columns of those of these rows that have a shape and a latency, and what is wrong with each row, or "".

    Raises WorkloadError where none can: an operation or a type that is not known, a column that is not there.
    """
    if op not in OPERATIONS:
        raise WorkloadError(f"unknown op {shorten(op)}{choices(op, OPERATIONS)}")
    for name in filter(None, (dtype, kv)):
        if name not in PRECISIONS:
            raise WorkloadError(f"unknown dtype {shorten(name)}{choices(name, PRECISIONS)}")
    wanted, optional = OPERATIONS[op].columns, OPERATIONS[op].optional
    if lacking := [column for column in wanted if column not in table]:
        raise WorkloadError(f"{op}: the table lacks its column {' and '.join(map(repr, lacking))}")
    names = [*wanted, *(column for column in optional if column in table)]
    columns = {name: _numbers([table[name][row] for row in rows]) for name in names}
    wrong = np.full(len(rows), "", dtype=object)

    def refuse(good: Array, name: str, why: str) -> None:
        for at in np.flatnonzero(~good & (wrong == "")):
            wrong[at] = f"{op}: {name} is {shorten(table[name][rows[at]])}; it must be {why}"

    for name, values in columns.items():
        least = 0 if name == "window" else 1
        whole = (values >= least) & (values <= MOST) & (values == np.floor(values))
        refuse(whole, name, f"a whole number from {least} to {MOST}")
    for less, more in (("topk", "experts"), ("kv_heads", "heads"), ("seq", "kv_len")):
        if less in columns and more in columns:
            refuse(columns[less] <= columns[more], less, f"at most {more}")
    latency = _numbers([table["latency_us"][row] for row in rows])
    refuse((latency > 0) & np.isfinite(latency), "latency_us", "a number above zero")
    return {name: values[wrong == ""] for name, values in columns.items()}, wrong


def _numbers(cells: Sequence[str]) -> Array:
    def number(cell: str) -> float:
        try:
            return float(cell)
        except ValueError:
            return np.nan

    return np.array([number(cell) for cell in cells], dtype=float)


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
