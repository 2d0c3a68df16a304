"""`--fail-if EXPRESSION`: the rows of a result that satisfy comparisons, for a check in CI.

with checking(["tpot>20ms", "op.expected>1ms and op.group=mlp"]) as checks:
    check(report)  # in `present`, before anything is written
checks.failed  # the rows that satisfy an expression or cannot be judged, a line each
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from roofmodel.errors import Option, WorkloadError, choices, shorten
from roofmodel.numbers import units
from roofmodel.report.table import plain_column

FAILED = 3
"""The exit status if a row satisfies an expression, or cannot be judged."""
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "!=": operator.ne, "==": operator.eq, "<": operator.lt, ">": operator.gt,
    "=": operator.eq, "~": lambda value, part: part in str(value),
}  # fmt: skip
EQUALITIES = ("=", "==", "!=", "~")
SHORT_NAMES = {"achieved": "fraction", "time": "seconds", "latency": "expected_seconds", "memory": "memory_total"}
"""Names of columns besides their own; `_seconds` may be left out, `/s`, `/gpu` and `/user` stand for `_per_…`."""
_COMPARISON = re.compile(r"\s*([^<>=!~]+?)\s*(<=|>=|==|!=|<|>|=|~)\s*(.+?)\s*\Z", re.DOTALL)
_AND = re.compile(r"\s+and\s+(?=[^<>=!~\"']+[<>=!~])")  # before another comparison, not inside a name
_NUMBER = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([kMGTP%]?)\Z")

Row = Mapping[str, Any]
"""A row by column, in base units; None or NaN is unknown. A row has only the columns that apply to it: an expression on
others passes it over, but what it asks of a memory level by its name is then unknown."""


class _Comparison(NamedTuple):
    column: str
    sign: str
    value: Any
    name: str  # of the column, as the user wrote it
    is_percent: bool

    def holds(self, row: Row) -> bool | None:
        """Whether the row satisfies it; None where the row's value is unknown."""
        value = row.get(self.column)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        if isinstance(self.value, str):
            value = str(value).lower()
            if value.partition("(")[0].strip() == self.value:  # a kernel's name may leave out its arguments
                value = self.value
        return COMPARISONS[self.sign](value, self.value)

    @property
    def names_rows(self) -> bool:
        """Whether it selects rows by a text."""
        return self.sign in ("=", "==", "~") and isinstance(self.value, str)

    def shown(self, row: Row) -> str:
        """The row's value, in the unit of the comparison."""
        value = row.get(self.column)
        if self.is_percent and value is not None:
            return f"{self.name} {value:.1%}"
        return f"{self.name} {_written(self.column, value)}"


class Judgement(NamedTuple):
    """The rows that satisfy an expression or cannot be judged, a line each, and warnings."""

    failed: list[str]
    warnings: list[str]


def judge(
    rows: Sequence[Row],
    expressions: Iterable[str],
    short_names: Callable[[Sequence[str]], Sequence[str]] | None = None,
) -> Judgement:
    """Apply expressions to rows. Raises WorkloadError for an invalid one.

    With `short_names`, of the column `name`, the lines have these in place of a row's first texts.
    A text that no row has, such as the name of a kernel that did not run, is a warning.
    """
    judgement = Judgement([], [])
    columns = list(dict.fromkeys(column for row in rows for column in row))
    for text in expressions if rows else ():
        comparisons = [_comparison(part, text, rows, columns) for part in _AND.split(text.strip())]
        failed = [*_failed(rows, comparisons, text.strip())]
        names = [*dict.fromkeys(row["name"] for row in rows)] if failed and short_names else []
        short = dict(zip(names, short_names(names), strict=True)) if short_names else {}
        judgement.failed.extend(f"{_name(row, short)}: {why}" for row, why in failed)
        judgement.warnings.extend(
            f"warning: --fail-if: no row has {each.name}{each.sign}{each.value}"
            for each in comparisons
            if each.names_rows and not any(each.holds(row) for row in rows if each.column in row)
        )
    return judgement


def _failed(rows: Sequence[Row], comparisons: Sequence[_Comparison], text: str) -> Iterator[tuple[Row, str]]:
    """The rows that fail, and why."""
    numbers = [each for each in comparisons if not isinstance(each.value, str)]
    names_level = any(each.column == "level" for each in comparisons)
    for row in rows:
        if not (names_level and "level" in row) and any(each.column not in row for each in comparisons):
            continue
        held = [each.holds(row) for each in comparisons]
        if False not in held:
            shown = ", ".join(each.shown(row) for each in numbers or comparisons)
            yield row, f"{shown}: {'cannot be judged' if None in held else text}"


def _comparison(part: str, text: str, rows: Sequence[Row], columns: Sequence[str]) -> _Comparison:
    match = _COMPARISON.match(part)
    if match is None:
        raise WorkloadError(
            Option("fail_if"), f": {shorten(text)} is not a comparison of a column with a value, such as "
            "'seconds>2ms'; 'and' joins several",
        )  # fmt: skip
    name, sign, value = match.groups()
    column = _column(name, columns, is_ordered=sign not in EQUALITIES)
    sample = next((row[column] for row in rows if row.get(column) is not None), None)
    try:
        limit = _value(column, value, sample)
    except ValueError as error:
        raise WorkloadError(Option("fail_if"), f": {shorten(text)}: {error}") from None
    if isinstance(limit, str) and sign not in EQUALITIES:
        raise WorkloadError(Option("fail_if"), f": {shorten(text)} compares {column}, which has no order; use = or !=")
    return _Comparison(column, sign, limit, name.strip(), value.endswith("%"))


def _column(name: str, columns: Sequence[str], is_ordered: bool) -> str:
    """The column with a name; `bound` is the ceiling, and the time of the bound where sizes are compared."""
    plain = plain_column(name)
    prefix, _, last = plain.rpartition(".")
    short = SHORT_NAMES.get(last, last)
    own = (f"{plain}_seconds", plain) if is_ordered else (plain, f"{plain}_seconds")
    for candidate in (*own, f"{prefix}.{short}" if prefix else short):
        if candidate in columns:
            return candidate
    known_columns = dict.fromkeys(column.removesuffix("_seconds") for column in columns)
    raise WorkloadError(Option("fail_if"), f": unknown column {shorten(name)}{choices(plain, known_columns)}")


def _value(column: str, text: str, sample: Any) -> Any:
    """The value in base units. Raises ValueError, with an example, for text of another kind than the column's."""
    bare = text.strip("\"'")
    if isinstance(sample, str):
        return bare.lower()
    try:
        return _number(column, bare, sample)
    except ValueError:
        if sample is None:  # no row has a value: none can be judged
            return bare.lower()
        raise


def _number(column: str, bare: str, sample: Any) -> Any:
    if isinstance(sample, bool):
        if bare.lower() not in ("true", "false"):
            raise ValueError(f"{bare!r} is neither true nor false")
        return bare.lower() == "true"
    if column.endswith("seconds"):
        return units.parse(bare, "s")
    for unit, name in (("FLOP/s", "flops_per_second"), ("B/s", "bytes_per_second")):
        if column.endswith(name) and not _NUMBER.match(bare):
            return units.parse(bare, unit)
    if _is_bytes(column):
        return units.parse(bare, "B")
    match = _NUMBER.match(bare)
    if match is None:
        raise ValueError(f"{bare!r} is not a number, such as 0.5, 50% or 2k")
    number, prefix = match.groups()
    return float(number) * (0.01 if prefix == "%" else units.DECIMAL[prefix])


IDENTIFYING = ("step", "latest_rank", "rank", "level", "tp", "pp", "dp", "ep", "batch")
"""Columns that tell rows with the same first texts apart."""


def _name(row: Row, short_names: Mapping[str, str]) -> str:
    """The first texts of a row, or its device and short name, and the numbers that identify it."""
    texts = {column: str(value) for column, value in row.items() if isinstance(value, str)}
    first = dict([*texts.items()][:2])
    if short_names:
        first = {column: text for column, text in texts.items() if column == "hardware"}
        first["name"] = short_names[row["name"]]
    more = {column: row[column] for column in IDENTIFYING if row.get(column) is not None and column not in first}
    numbers = (
        f"{column.replace('_', ' ')} {value:g}" if isinstance(value, float) else f"{column.replace('_', ' ')} {value}"
        for column, value in more.items()
    )
    return ", ".join((" ".join(first.values()) or "row", *numbers))


def _written(column: str, value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "unknown"
    if isinstance(value, bool | str):
        return str(value).lower()
    if column.endswith("seconds"):
        return units.seconds(float(value))
    return units.si(float(value), "B") if _is_bytes(column) else units.significant(float(value))


def _is_bytes(column: str) -> bool:
    return column.endswith("bytes") or column.rpartition(".")[2].startswith(("memory_", "bytes_read", "bytes_written"))


_checks: ContextVar[tuple[Sequence[str], Judgement] | None] = ContextVar("checks", default=None)


@contextmanager
def checking(expressions: Sequence[str]) -> Iterator[Judgement]:
    """Within this context, `check` applies these expressions, and adds to the judgement."""
    judgement = Judgement([], [])
    token = _checks.set((expressions, judgement))
    try:
        yield judgement
    finally:
        _checks.reset(token)


def check(report: Any) -> None:
    """Apply the expressions of this context to a result. Raises WorkloadError for an invalid one."""
    expressions, judgement = _checks.get() or ((), Judgement([], []))
    if expressions:
        judged = judge(report.rows_to_check(), expressions, report.short_names)
        judgement.failed.extend(judged.failed)
        judgement.warnings.extend(judged.warnings)
