"""Conditions on the rows of a result: `--where` keeps the rows that satisfy them, `--fail-if` reports these rows.

    condition  = comparison { "and" comparison }
    comparison = column sign value                     tpot<20ms, fits=no, name~gemm
    sign       = < | <= | > | >= | = | == | != | ~ | !~
    value      = "text" | 'text' | the text up to the next "and column sign" or the end

The type of a column, text, bool or number, is that of its values; its unit follows from its name.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from roofmodel.errors import Option, Text, WorkloadError, shorten, suggest
from roofmodel.numbers import units

Row = Mapping[str, Any]
"""Values by column, in base units; None or NaN is unknown."""
Types = Mapping[str, type | None]
"""The type of a column's values; None if no row has one."""

ORDERED: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
EQUAL: Mapping[str, Callable[[Any, Any], Any]] = {"=": operator.eq, "==": operator.eq, "!=": operator.ne}
ALIASES = {
    "time": ("expected_seconds", "bound_seconds", "seconds", "after_seconds", "step_seconds"),
    "bound": ("bound_by",),
    "memory": ("memory_total",),
    "latency": ("expected_seconds",),
    "achieved": ("fraction",),
    "cost": ("dollars_per_million_tokens",),
    "hw": ("hardware",),
    "device": ("hardware",),
}
"""Names of columns besides their own; the value is that of the first of these columns that has one."""
TIMES_OF_BOUND = ("bound_seconds", "attainable_seconds")
SHARES = (
    "share", "fraction", "utilization", "efficiency", "occupancy", "mfu", "mfu_all_pairs", "hfu", "mbu",
    "relative_change", "mape", "ape", "bias", "inside_interval",
)  # fmt: skip
"""The ends of the names of columns that are shares of 1."""
UNITS = {
    "flops_per_second": "FLOP/s", "bytes_per_second": "B/s", "clock": "Hz", "seconds": "s", "bytes": "B", "memory": "B",
}  # fmt: skip
"""What the name of a column contains -> the unit of its values."""
UNIT_REQUIRED = ("s", "B")
MAX_LISTED = 12  # columns in the message of an unknown one
FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

_SIGN = r"<=|>=|==|!=|!~|<|>|=|~"
_NAME = r"[^<>=!~\"']+?"
_COMPARISON = re.compile(
    rf"""\s*(?P<name>{_NAME})\s*(?P<sign>{_SIGN})\s*(?P<value>"[^"]*"|'[^']*'|.+?)"""
    rf"\s*(?:\Z|\sand\s+(?={_NAME}(?:{_SIGN})))",
    re.DOTALL,
)
_NUMBER = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([kMGTP%]?)\Z")


class Comparison(NamedTuple):
    """A column compared with a value in base units."""

    name: str  # of the column, as the user wrote it
    sign: str
    value: Any
    columns: tuple[str, ...]  # the value of a row is that of the first that is known
    text: str  # as the user wrote it

    def __str__(self) -> str:
        return self.text

    @property
    def is_text(self) -> bool:
        return isinstance(self.value, str)

    @property
    def selects_text(self) -> bool:
        """Whether it holds for the rows that have a certain text."""
        return self.is_text and not self.sign.startswith("!")

    def applies_to(self, row: Row) -> bool:
        """Whether the row has the column."""
        return any(column in row for column in self.columns)

    def value_of(self, row: Row) -> Any:
        """The row's value; None if it is unknown."""
        return next((row[column] for column in self.columns if is_known(row.get(column))), None)

    def holds_for(self, value: Any) -> Any:
        """Whether a known value satisfies it; for an array of numbers, a bool for each."""
        if not self.is_text:
            return (ORDERED.get(self.sign) or EQUAL[self.sign])(value, self.value)
        text = str(value).lower()
        whole_names = (text, text.partition("(")[0].strip(), text.rpartition("/")[2])
        found = self.value in text if "~" in self.sign else self.value in whole_names
        return found != self.sign.startswith("!")

    def holds(self, row: Row) -> bool | None:
        """Whether the row satisfies it; None if the row's value is unknown."""
        value = self.value_of(row)
        return None if value is None else bool(self.holds_for(value))

    def shown(self, row: Row) -> str:
        """The row's value as text."""
        value = self.value_of(row)
        if value is None:
            return f"{self.name} unknown"
        if isinstance(value, bool | str):
            return f"{self.name} {str(value).lower()}"
        return f"{self.name} {_written(self.columns[0], float(value))}"


class Condition(NamedTuple):
    """Comparisons that all hold."""

    comparisons: tuple[Comparison, ...]
    text: str  # as the user wrote it

    def __str__(self) -> str:
        return self.text

    def holds(self, row: Row) -> bool | None:
        """Whether the row satisfies it; None if a value that would decide is unknown."""
        results = [comparison.holds(row) for comparison in self.comparisons]
        return False if False in results else None if None in results else True


def is_known(value: Any) -> bool:
    """Whether a value is neither None nor NaN."""
    return value is not None and value == value


def conditions(option: str, texts: Iterable[str], types: Types) -> tuple[Condition, ...]:
    """The conditions in texts such as `tpot<20ms`. Raises WorkloadError, which quotes the invalid part."""
    return tuple(Condition(tuple(_comparisons(option, text.strip(), types)), text.strip()) for text in texts)


def check_syntax(option: str, texts: Iterable[str]) -> None:
    """Raises WorkloadError for a text that is no condition. Without rows, columns and values cannot be checked."""
    for text in texts:
        for _ in _matches(option, text.strip()):
            pass


def _matches(option: str, text: str) -> Iterator[re.Match[str]]:
    """The comparisons of a text, as the grammar splits them."""
    end = 0
    while end < len(text) or not end:
        match = _COMPARISON.match(text, end)
        if match is None:
            raise WorkloadError(
                Option(option), f": {shorten(text[end:])} is not a comparison of a column with a value, such as "
                f"'tpot<20ms' or 'fits=no', with one of {' '.join((*ORDERED, *EQUAL))} ~ !~; 'and' joins several",
            )  # fmt: skip
        end = match.end()
        yield match


def _comparisons(option: str, text: str, types: Types) -> Iterator[Comparison]:
    for match in _matches(option, text):
        name, sign, literal = match.group("name", "sign", "value")
        columns = columns_named(option, name, types, is_size=re.match(r"[+-]?\.?[0-9]", literal) is not None)
        part = text[match.start("name") : match.end("value")]
        kind = next((types[each] for each in columns if types[each] is not None), None)
        try:
            if "~" in sign and kind not in (str, None):
                raise ValueError(f"{columns[0]} is no text; use = or !=")
            value = _value(columns[0], literal, kind, ordered=sign in ORDERED)
            if isinstance(value, str | bool) and sign in ORDERED:
                raise ValueError(f"{columns[0]} has no order; use = or !=")
        except ValueError as error:
            raise WorkloadError(Option(option), f": {shorten(part)}: {error}") from None
        yield Comparison(name, sign, value, columns, part)


def columns_named(option: str, name: str, types: Types, *, is_size: bool) -> tuple[str, ...]:
    """The columns with a name, of which the first that is known counts. Raises WorkloadError for an unknown name.

    `bound` is the time of the bound if it is compared with a size (`is_size`), else what limits.
    """
    plain = _key(name)
    if found := _columns_named(plain, types, is_size):
        return found
    general = [each for each in ("time", "op.time", "bound", "fits") if _columns_named(each, types, is_size)]
    known = [*dict.fromkeys([*general, *(column.removesuffix("_seconds") for column in types)])]
    listed, rest = ", ".join(known[:MAX_LISTED]), len(known[MAX_LISTED:])
    more: tuple[Text, ...] = (f" and {rest} more, the keys of ", Option("format", "json")) if rest else ()
    similar = suggest(plain, known) or ";"
    raise WorkloadError(Option(option), f": unknown column {shorten(name)}{similar} known: {listed}", *more)


def _columns_named(plain: str, types: Types, is_size: bool) -> tuple[str, ...]:
    prefix, dot, last = plain.rpartition(".")
    own = (last, f"{last}_seconds", f"memory_{last}", last.removeprefix("memory_"))
    times = TIMES_OF_BOUND if last == "bound" and is_size else ()
    for names in (*((each,) for each in times), *((each,) for each in own), ALIASES.get(last, ())):
        if found := tuple(name for name in (f"{prefix}{dot}{each}" for each in names) if name in types):
            return found
    return ()


def _key(name: str) -> str:
    """The key of a column from the name that a user writes: `tokens/s/gpu` is tokens_per_second_per_gpu."""
    plain = re.sub(r"[-\s]+", "_", name.strip().lower())
    for unit, words in (("/gpu", "_per_gpu"), ("/user", "_per_user"), ("/s", "_per_second")):
        plain = plain.replace(unit, words)
    return plain


def _value(column: str, literal: str, kind: type | None, ordered: bool) -> Any:
    """A value in base units; `ordered` if it is compared by size.

    Raises ValueError, with an example, for text of another kind than the column's.
    """
    is_quoted = len(literal) > 1 and literal[0] == literal[-1] and literal[0] in "\"'"
    text = literal[1:-1] if is_quoted else literal
    if kind is str:
        return text.lower()
    if kind is bool:
        if text.lower() not in FLAGS:
            raise ValueError(f"{text!r} is neither true nor false")
        return FLAGS[text.lower()]
    try:
        return _number(column, text)
    except ValueError:
        if kind is None and not ordered:  # no row has a value: none can be judged
            return text.lower()
        raise


def _number(column: str, text: str) -> float:
    unit, match = _unit(column), _NUMBER.match(text)
    if match and not match[2] and float(match[1]) == 0:  # in every unit
        return 0.0
    if unit in UNIT_REQUIRED or (unit and not match):
        magnitude = units.parse(text.lstrip("+-") if text[:1] in "+-" else text, unit)
        return -magnitude if text.startswith("-") else magnitude
    is_share = column.endswith(SHARES)
    if match is None:
        raise ValueError(f"{text!r} is not a number, such as {'40%' if is_share else '64 or 1.5k'}")
    number, prefix = float(match[1]), match[2]
    if prefix == "%" and not is_share:
        raise ValueError(f"{column} is no share; write a number without %")
    if is_share and prefix != "%" and (prefix or abs(number) > 1):
        percent = "such as 40%" if prefix else f"{match[1]}%, or {100 * number:g}% for {match[1]} times"
        raise ValueError(f"{column} is a share; write a percentage: {percent}")
    return number / 100 if prefix == "%" else number * units.DECIMAL[prefix]


def _unit(column: str) -> str | None:
    last = column.rpartition(".")[2]
    if last.endswith(SHARES):
        return None
    return next((unit for part, unit in UNITS.items() if part in last), None)


def _written(column: str, value: float) -> str:
    if column.endswith(SHARES):
        return f"{value:.1%}"
    unit = _unit(column)
    if unit == "s":
        return f"-{units.seconds(-value)}" if value < 0 else units.seconds(value)
    return units.si(value, unit) if unit else units.significant(value)
