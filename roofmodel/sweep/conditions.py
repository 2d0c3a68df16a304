"""Conditions on the columns of a sweep, such as `tpot<20ms`, and the column that its rows are sorted by."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from roofmodel.errors import Option, WorkloadError, shorten, suggest
from roofmodel.numbers import units
from roofmodel.report.table import FINE_PERCENT, PERCENT, plain_column
from roofmodel.sweep.arrays import TEXT_COLUMNS, full_column
from roofmodel.sweep.case import COLUMNS, SCALING_COLUMNS, Columns
from roofmodel.sweep.columns import BY_KEY, FLAG

SHORT_NAMES = {
    "hw": "hardware",
    "device": "hardware",
    "latency": "expected_seconds",
    "time": "expected_seconds",
    "memory": "memory_total",
    "cost": "dollars_per_million_tokens",
}
"""Names of columns besides their own; `_seconds` may be left out, `/s`, `/gpu` and `/user` stand for `_per_…`."""
FLAG_COLUMNS = {key for key, column in BY_KEY.items() if column.unit is FLAG}
FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
EQUALITIES = ("=", "==", "!=")
COMPARISONS = ("<", ">", "<=", ">=", *EQUALITIES)
SHARE_COLUMNS = {
    "memory_utilization", *(key for key, column in BY_KEY.items() if column.unit in (PERCENT, FINE_PERCENT)),
}  # fmt: skip
EXAMPLE_COLUMNS = ("expected", "bound", "ttft", "tpot", "tokens/s", "tokens/s/gpu", "mfu", "memory", "fits", "batch")

_CONDITION = re.compile(r"\s*([^<>=!]+?)\s*(<=|>=|==|!=|<|>|=)\s*([^<>=!]+?)\s*\Z")
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([kMGTP%]?)\s*\Z")


class RowCondition(NamedTuple):
    """A comparison of a column with a value in base units, as `tpot<20ms`."""

    column: str
    comparison: str  # one of COMPARISONS
    value: Any
    text: str  # as the user wrote it

    def holds(self, block: Columns) -> Any:
        """A bool for each point of a block: whether it satisfies the condition. False where the value is unknown."""
        import numpy

        column = full_column(block, self.column)
        if self.column in TEXT_COLUMNS:
            same = [_is_named(value, self.value) for value in column.tolist()]
            return numpy.array(same, dtype=bool) != (self.comparison == "!=")
        numbers = as_floats(column)
        compared = {
            "<": numpy.less, "<=": numpy.less_equal, ">": numpy.greater, ">=": numpy.greater_equal,
            "!=": numpy.not_equal,
        }.get(self.comparison, numpy.equal)  # fmt: skip
        return compared(numbers, float(self.value)) & ~numpy.isnan(numbers)


class Order(NamedTuple):
    """The column that the rows are sorted by; unknown values are last in either direction."""

    column: str
    descending: bool
    text: str


def conditions(texts: Iterable[str]) -> tuple[RowCondition, ...]:
    """The conditions in `tpot<20ms` and similar texts. Raises WorkloadError, which quotes the invalid part."""
    return tuple(_condition(text) for text in texts)


def _condition(text: str) -> RowCondition:
    match = _CONDITION.match(text)
    if match is None:
        raise WorkloadError(
            Option("where"), f": {shorten(text)} is not a comparison of a column with a value; try ",
            f"'tpot<20ms', with one of {' '.join(COMPARISONS)}",
        )  # fmt: skip
    name, comparison, value = match.groups()
    column = column_named("where", name, by_size=comparison not in EQUALITIES)
    if column in (*TEXT_COLUMNS, *FLAG_COLUMNS) and comparison not in EQUALITIES:
        raise WorkloadError(Option("where"), f": {shorten(text)} compares {column}, which has no order; use = or !=")
    try:
        return RowCondition(column, comparison, _value(column, value), text.strip())
    except ValueError as error:
        raise WorkloadError(Option("where"), f": {shorten(text)}: {error}") from None


def order(text: str | None) -> Order | None:
    """The order in `tpot`, or `-tokens_per_second` for the largest first. Raises WorkloadError for no column."""
    if text is None:
        return None
    name = text.strip()
    return Order(column_named("sort", name.removeprefix("-"), by_size=True), name.startswith("-"), name)


def column_named(option: str, name: str, *, by_size: bool = False) -> str:
    """The column with a name, a short name, or a name with `-` for `_`. Raises WorkloadError for an unknown one.

    `bound` is the ceiling, and the time of the bound if sizes are compared (`by_size`).
    """
    plain = plain_column(name)
    if by_size and plain == "bound":
        plain = "bound_seconds"
    for candidate in (plain, SHORT_NAMES.get(plain), f"{plain}_seconds", f"memory_{plain}"):
        if candidate in (*COLUMNS, *SCALING_COLUMNS):
            return candidate
    written = dict.fromkeys([*(each.removesuffix("_seconds") for each in COLUMNS), *COLUMNS, *SHORT_NAMES])
    raise WorkloadError(
        Option(option), f": unknown column {shorten(name)}{suggest(plain, written, 0.7) or ';'} columns are those of ",
        Option("format", "csv"), f", such as {', '.join(EXAMPLE_COLUMNS)}",
    )  # fmt: skip


def _value(column: str, text: str) -> Any:
    """A value of a column in base units. Raises ValueError, with a correct example, for text of another kind."""
    if column in TEXT_COLUMNS:
        return text.strip("\"'").lower()
    if column in FLAG_COLUMNS:
        if text.lower() not in FLAGS:
            raise ValueError(f"{text!r} is neither true nor false")
        return FLAGS[text.lower()]
    if column.endswith("_seconds"):
        return units.parse(text, "s")
    if (column.startswith("memory_") and column not in SHARE_COLUMNS) or column.endswith("bytes"):
        return units.parse(text, "B")
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number; write it as in '{column}<{_example(column)}'")
    number, prefix = match.groups()
    if (prefix == "%") and column not in SHARE_COLUMNS:
        raise ValueError(f"{column} is no share; write a number without %")
    value = float(number) * (0.01 if prefix == "%" else units.DECIMAL[prefix])
    if column in SHARE_COLUMNS and value > 1 and prefix != "%":
        suggestion = f"it as in '{column}<{_example(column)}'" if prefix else f"{number}%"
        raise ValueError(f"{column} is a share; write {suggestion}")
    return value


def _example(column: str) -> str:
    return "40%" if column in SHARE_COLUMNS else "1.5k" if "_per_" in column or column.endswith("flops") else "64"


def _is_named(value: str | None, name: str) -> bool:
    """Whether a text is `name`; a model's organization may be left out."""
    text = (value or "").lower()
    return name in (text, text.rpartition("/")[2])


def as_floats(column: Any) -> Any:
    """A column as floats, NaN for unknown."""
    import numpy

    if column.dtype != object:
        return column.astype(float)
    return numpy.array([float("nan") if value is None else float(value) for value in column.tolist()])
