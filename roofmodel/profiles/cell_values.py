"""Parse the cells of profiler tables: numbers, missing values, units, grid and block sizes, device names.

`1,234` is 1234 if the comma separates thousands and 1.234 if the comma is the decimal mark; `readings` returns both.
An ambiguous number is an error, never a guess:

* Nsight Compute formats numbers by the user's locale and does not record which locale. A file has one locale, and
  usually some cell in it is unambiguous, so `LocaleNumbers` decides per file.
* nvprof and `nsys stats` write a decimal point and no thousands separator, so `parse_number` needs only the cell.
"""

from __future__ import annotations

import re
from decimal import Decimal

from roofmodel.errors import ProfileError, shorten
from roofmodel.numbers.units import BINARY, DECIMAL
from roofmodel.profiles.kernel import Extent

_MISSING = frozenset({"", "-", "nan", "-nan", "inf", "-inf", "none", "null", "no data", "<no data>", "<overflow>"})
_NOT_AVAILABLE = re.compile(r"\bn/a\b")
_INSTANCES = re.compile(r"([^(]*\d)\s*\(.+\)\Z", re.DOTALL)  # `158 (0: 100; 1: 58)`: total, then instances
_SPACED = re.compile(r"(?<=\d)[\u00a0\u202f\u2009 '’](?=\d{3})")  # spaces as thousands separators

# P is the decimal mark, T the thousands separator. The first pattern matches every valid number, the second one only
# unambiguous numbers: `1T234` and `1P234` are the same text in two locales, so the second does not match them.
# Exponents have at most two digits, so every number is finite.
_GRAMMAR = r"[+-]?(?:\d{1,40}|\d{1,3}(?:T\d{3}){1,12})(?:P\d{0,40})?(?:[eE][+-]?\d{1,2})?"
_UNAMBIGUOUS_GRAMMAR = (
    r"[+-]?(?:\d+P(?:\d{1,2}|\d{4,})?|0+P\d+|\d{4,}P\d+|\d{1,3}(?:T\d{3})+P\d+"
    r"|\d{1,3}(?:T\d{3}){2,}|\d+P\d+[eE][+-]?\d+)"
)
_GROUPED_INTEGER_GRAMMAR = r"[+-]?[1-9]\d{0,2}T\d{3}"
_THOUSANDS_MARK = {".": ",", ",": "."}  # decimal mark -> thousands separator


def _patterns(template: str) -> dict[str, re.Pattern[str]]:
    return {
        decimal: re.compile(template.replace("P", re.escape(decimal)).replace("T", re.escape(thousands)), re.ASCII)
        for decimal, thousands in _THOUSANDS_MARK.items()
    }


_WELL_FORMED, _UNAMBIGUOUS, _GROUPED_INTEGER = (
    _patterns(_GRAMMAR),
    _patterns(_UNAMBIGUOUS_GRAMMAR),
    _patterns(_GROUPED_INTEGER_GRAMMAR),
)


def without_instances(text: str) -> str:
    """Remove surrounding blanks and the per-instance values that may follow a total."""
    text = text.strip()
    if text.endswith(")") and (match := _INSTANCES.match(text)):
        return match.group(1).strip()
    return text


def is_missing(text: str) -> bool:
    """Whether a cell has no value: `n/a`, `(!) n/a`, `(!) nan`, `no data`, `<OVERFLOW>` or empty."""
    lowered = text.strip().lower().removeprefix("(!) ")
    return lowered in _MISSING or _NOT_AVAILABLE.search(lowered) is not None


def readings(text: str) -> dict[str, Decimal]:
    """The possible values of a cell, by decimal mark (`.` or `,`); empty if the cell is not a number."""
    text = text.strip()
    return {
        decimal: Decimal(text.replace(thousands, "").replace(decimal, "."))
        for decimal, thousands in _THOUSANDS_MARK.items()
        if _WELL_FORMED[decimal].fullmatch(text)
    }


def parse_number(text: str) -> Decimal | None:
    """The number in a cell of a tool that writes decimal points; None if it is missing.

    Raises ValueError if the cell is not a number, or has a single comma before three digits, which is ambiguous.
    """
    if is_missing(text):
        return None
    numbers = readings(text)
    if "." in numbers and ("," not in text or "," not in numbers):
        return numbers["."]
    hint = "; export with LC_ALL=C to get 1234.5" if re.fullmatch(r"[\d.,]+", text) else ""
    raise ValueError(f"{shorten(text)} is not a number that can be read unambiguously{hint}")


def parse_count(text: str) -> int | None:
    """A non-negative integer in a cell of a tool that writes decimal points; None if it is missing.

    Raises ValueError for anything else.
    """
    value = parse_number(text)
    if value is None:
        return None
    if value != int(value) or value < 0:
        raise ValueError(f"{shorten(text)} is not a count")
    return int(value)


def parse_count_any_locale(text: str | None) -> int | None:
    """The integer in a cell of any locale (every mark separates thousands); None if the cell is not an integer."""
    digits = re.sub(r"(?<=\d)[.,](?=\d{3}\b)", "", _SPACED.sub("", text or ""))
    return int(digits) if re.fullmatch(r"[0-9]{1,19}", digits) else None


class LocaleNumbers:
    """Parse the numbers of one file: `detect_locale` learns its decimal mark from cells, `value` then parses."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.decimal: str | None = None  # the decimal mark, once an unambiguous cell was found
        self.locale_cell = ("", 0)  # the text and line of that cell

    def detect_locale(self, text: str, line: int, integer: bool = False) -> None:
        """Learn the decimal mark from a cell. With `integer`, a mark before three digits separates thousands."""
        if self.decimal is not None or ("," not in text and "." not in text):
            return
        text = _SPACED.sub("", text)
        for mark in _THOUSANDS_MARK:
            if _UNAMBIGUOUS[mark].fullmatch(text) or (integer and _GROUPED_INTEGER[mark].fullmatch(text)):
                self.decimal, self.locale_cell = mark, (text, line)
                return

    def value(self, text: str, line: int, column_name: str) -> int | float:
        """The number in a cell, an int if it is written without decimals. Raises ProfileError with file and line."""
        if self.decimal is not None and _WELL_FORMED[self.decimal].fullmatch(text):
            plain = text.replace(_THOUSANDS_MARK[self.decimal], "").replace(",", ".")
            return int(plain) if plain.isdecimal() else float(plain)
        where = f"{self.file}:{line}: {column_name}"
        text = _SPACED.sub("", text)
        numbers = readings(text)
        if not numbers:
            raise ProfileError(f"{where}: {shorten(text)} is not a number")
        if "," not in text and "." not in text:
            value = numbers["."]
        elif self.decimal is None and len(numbers) == 2:
            raise ProfileError(
                f"{where}: {text!r} may be {re.sub(r'[.,]', '', text)} or {text.replace(',', '.')}: the file "
                "does not show its locale; export it again with LC_ALL=C, or with --print-units base"
            )
        elif self.decimal is None:
            (value,) = numbers.values()
        elif self.decimal in numbers:
            value = numbers[self.decimal]
        else:
            raise ProfileError(
                f"{where}: {text!r} is of another locale than {self.locale_cell[0]!r} in line {self.locale_cell[1]}; "
                "export the file again with LC_ALL=C"
            )
        return int(value) if value.as_tuple().exponent == 0 else float(value)


_SI = {**DECIMAL, "K": DECIMAL["k"]}
SECONDS = {
    name: Decimal(factor)
    for factor, names in {
        "1e-9": ("ns", "nsec", "nsecond"),
        "1e-6": ("us", "\u00b5s", "\u03bcs", "usec", "usecond"),  # micro sign and Greek letter mu
        "1e-3": ("ms", "msec", "msecond"),
        "1": ("s", "sec", "second"),
    }.items()
    for name in names
}
_COUNTED = frozenset(("1", "inst", "instruction", "cycle", "sector", "request", "wavefront", "event", "op", "flop"))
_COUNTED |= {"warp", "thread", "block", "register", "SM"}


def parse_seconds(text: str, unit: str) -> float | None:
    """A time in seconds, rounded once; None if it is missing. Raises ValueError if it is not a time."""
    value = parse_number(text)
    if value is None:
        return None
    if unit not in SECONDS or value < 0:
        raise ValueError(f"{shorten(text)} in unit {shorten(unit)} is not a time; use s, ms, us or ns")
    return float(value * SECONDS[unit])


def parse_unit(text: str) -> tuple[int | float, str] | None:
    """`Mbyte` -> (10^6, 'byte'), `cycle/nsecond` -> (10^9, '/s'), `inst/cycle` -> (1, ''), `%` -> (0.01, '%').

    Returns the factor to base units and the dimension: 'byte', 's', '/s', 'byte/s', '%' or '' (a count, or a count
    per cycle). None for an unknown unit. Byte prefixes are decimal, as in Nsight Compute.
    """
    text = text.strip()
    above, _, below = text.partition("/")
    top = _parse_single_unit(above)
    if top is None or not below:
        return top if "/" not in text else None
    bottom = _parse_single_unit(below)
    if bottom is None:
        return None
    if bottom[1] == "s":
        # 1/1e-9 is not exactly 10^9 in floating point
        return round(top[0] / bottom[0]) if top[0] / bottom[0] >= 1 else top[0] / bottom[0], f"{top[1]}/s"
    return (top[0] / bottom[0] if bottom[0] != 1 else top[0]), top[1]


def _parse_single_unit(name: str) -> tuple[int | float, str] | None:
    if name == "%":
        return 0.01, "%"
    if name == "" or name in _COUNTED or name.rstrip("s") in _COUNTED:
        return 1, ""
    if time := SECONDS.get(name) or SECONDS.get(name.removesuffix("s")):
        return 1 if time == 1 else float(time), "s"
    for word, dimension in (("bytes", "byte"), ("byte", "byte"), ("B", "byte"), ("hz", "/s"), ("Hz", "/s")):
        if name.endswith(word):
            prefix = name[: -len(word)]
            factor = _SI.get(prefix) or (BINARY.get(prefix) if dimension == "byte" else None)
            return (factor, dimension) if factor else None
    if name[0] in _SI and name[1:] in _COUNTED:
        return _SI[name[0]], ""
    return None


def parse_extent(text: str) -> Extent | None:
    """A grid or block size in one cell, `(64, 2, 1)`, `(32768 1 1)` or `148    1    1`, as (x, y, z)."""
    match = re.fullmatch(r"\(?\s*(\d{1,10})[,; ]+(\d{1,10})[,; ]+(\d{1,10})\s*\)?", text.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def split_device(text: str) -> tuple[str, str | None]:
    """Split `Tesla V100 (0)` into the device name and its ordinal (None if absent)."""
    match = re.search(r"\s*\((\d+)\)\s*$", text)
    return (text[: match.start()].strip(), match[1]) if match else (text.strip(), None)
