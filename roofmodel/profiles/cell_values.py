"""What stands in a cell of a profiler's table: exact numbers, ways to say "nothing", units, sizes, devices.

A number such as `1,234` is 1234 where the comma groups thousands and 1.234 where it is the decimal mark:
`readings` gives both. Which one holds depends on the tool, and what nothing decides is refused, never guessed:

* Nsight Compute writes numbers as its user's locale does and does not say which that is. One file has one locale,
  so the file as a whole decides (`Numbers`): some cell in it usually reads one way only.
* nvprof and `nsys stats` write points and group nothing, and the comma parts their cells; `number` needs no more
  than the cell.
"""

from __future__ import annotations

import re
from decimal import Decimal

from roofmodel.errors import ProfileError, shorten
from roofmodel.profiles.kernel import Extent
from roofmodel.units import BINARY, DECIMAL

_MISSING = frozenset({"", "-", "nan", "-nan", "inf", "-inf", "none", "null", "no data", "<no data>", "<overflow>"})
_NOT_AVAILABLE = re.compile(r"\bn/a\b")
_INSTANCES = re.compile(r"([^(]*\d)\s*\(.+\)\Z", re.DOTALL)  # `158 (0: 100; 1: 58)`: the total, then its parts
_SPACED = re.compile(r"(?<=\d)[\u00a0\u202f\u2009 '’](?=\d{3})")  # thousands that some locales set apart by a space

# With P the decimal mark and T the thousands mark: what may be written, and what reads one way only. `1T234`
# and `1P234` are the same text in two locales, and are in the first pattern but not in the second.
# Exponents of two digits leave every number finite.
_GRAMMAR = r"[+-]?(?:\d{1,40}|\d{1,3}(?:T\d{3}){1,12})(?:P\d{0,40})?(?:[eE][+-]?\d{1,2})?"
_CERTAIN = (
    r"[+-]?(?:\d+P(?:\d{1,2}|\d{4,})?|0+P\d+|\d{4,}P\d+|\d{1,3}(?:T\d{3})+P\d+"
    r"|\d{1,3}(?:T\d{3}){2,}|\d+P\d+[eE][+-]?\d+)"
)
_GROUPED = r"[+-]?[1-9]\d{0,2}T\d{3}"
_OTHER = {".": ",", ",": "."}  # the decimal mark and the thousands mark that goes with it


def _patterns(template: str) -> dict[str, re.Pattern[str]]:
    return {
        decimal: re.compile(template.replace("P", re.escape(decimal)).replace("T", re.escape(thousands)), re.ASCII)
        for decimal, thousands in _OTHER.items()
    }


_VALID, _SURE, _WHOLE = _patterns(_GRAMMAR), _patterns(_CERTAIN), _patterns(_GROUPED)


def bare(text: str) -> str:
    """A cell without blanks around it and without the instances that may follow its total."""
    text = text.strip()
    if text.endswith(")") and (match := _INSTANCES.match(text)):
        return match.group(1).strip()
    return text


def missing(text: str) -> bool:
    """Whether a cell says that there is no value: `n/a`, `(!) n/a`, `no data`, `<OVERFLOW>`, nothing at all."""
    lowered = text.strip().lower()
    return lowered in _MISSING or _NOT_AVAILABLE.search(lowered) is not None


def readings(text: str) -> dict[str, Decimal]:
    """What a cell is as a number, by the decimal mark that it is read with; nothing for what is no number."""
    text = text.strip()
    return {
        decimal: Decimal(text.replace(thousands, "").replace(decimal, "."))
        for decimal, thousands in _OTHER.items()
        if _VALID[decimal].fullmatch(text)
    }


def number(text: str) -> Decimal | None:
    """The number in a cell of a tool that writes points; None for a missing one.

    Raises ValueError for what is no number, and for a single comma before three digits, which no such tool wrote.
    """
    if missing(text):
        return None
    found = readings(text)
    if "." in found and ("," not in text or "," not in found):
        return found["."]
    hint = "; export with LC_ALL=C, which writes 1234.5" if re.fullmatch(r"[\d.,]+", text) else ""
    raise ValueError(f"{shorten(text)} is not a number that can be read in one way only{hint}")


def whole(text: str) -> int | None:
    """`number` of a cell that counts things; ValueError for a fraction or a negative too."""
    value = number(text)
    if value is None:
        return None
    if value != int(value) or value < 0:
        raise ValueError(f"{shorten(text)} is not a count")
    return int(value)


def count(text: str | None) -> int | None:
    """The whole number in a cell of any locale, since every mark in it groups thousands; None for anything else."""
    digits = re.sub(r"(?<=\d)[.,](?=\d{3}\b)", "", _SPACED.sub("", text or ""))
    return int(digits) if re.fullmatch(r"[0-9]{1,19}", digits) else None


class Numbers:
    """The numbers of one file: `note` gathers what tells its locale, `value` reads once all of it was seen."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.decimal: str | None = None  # the decimal mark, once a cell has shown it
        self.shown = ("", 0)  # that cell and its line

    def note(self, text: str, line: int, whole: bool = False) -> None:
        """Learn from a cell; `whole`: it counts things, so that a mark before three digits groups thousands."""
        if self.decimal is not None or ("," not in text and "." not in text):
            return
        text = _SPACED.sub("", text)
        for mark in _OTHER:
            if _SURE[mark].fullmatch(text) or (whole and _WHOLE[mark].fullmatch(text)):
                self.decimal, self.shown = mark, (text, line)
                return

    def value(self, text: str, line: int, what: str) -> int | float:
        """The number in a cell; an int where it is written as one. Raises ProfileError with file and line."""
        if self.decimal is not None and _VALID[self.decimal].fullmatch(text):
            plain = text.replace(_OTHER[self.decimal], "").replace(",", ".")
            return int(plain) if plain.isdecimal() else float(plain)
        where = f"{self.file}:{line}: {what}"
        text = _SPACED.sub("", text)
        found = readings(text)
        if not found:
            raise ProfileError(f"{where}: {shorten(text)} is not a number")
        if "," not in text and "." not in text:
            value = found["."]
        elif self.decimal is None and len(found) == 2:
            raise ProfileError(
                f"{where}: {text!r} is {re.sub(r'[.,]', '', text)} or {text.replace(',', '.')}, and nothing in the "
                "file tells which; export it again with LC_ALL=C, or with --print-units base"
            )
        elif self.decimal is None:
            (value,) = found.values()
        elif self.decimal in found:
            value = found[self.decimal]
        else:
            raise ProfileError(
                f"{where}: {text!r} and {self.shown[0]!r} (line {self.shown[1]}) are of different locales; "
                "export the file again with LC_ALL=C"
            )
        return int(value) if value.as_tuple().exponent == 0 else float(value)


_SI = {**DECIMAL, "K": DECIMAL["k"]}
SECONDS = {
    name: Decimal(factor)
    for factor, names in {
        "1e-9": ("ns", "nsec", "nsecond"),
        "1e-6": ("us", "µs", "μs", "usec", "usecond"),
        "1e-3": ("ms", "msec", "msecond"),
        "1": ("s", "sec", "second"),
    }.items()
    for name in names
}
_COUNTED = frozenset(("1", "inst", "instruction", "cycle", "sector", "request", "wavefront", "event", "op", "flop"))
_COUNTED |= {"warp", "thread", "block", "register"}


def seconds(text: str, unit: str) -> float | None:
    """A time, exact until the last rounding; None for a missing one, ValueError for what is no time."""
    value = number(text)
    if value is None:
        return None
    if unit not in SECONDS or value < 0:
        raise ValueError(f"{shorten(text)} in unit {shorten(unit)} is not a time; s, ms, us and ns are known")
    return float(value * SECONDS[unit])


def unit(text: str) -> tuple[int | float, str] | None:
    """`Mbyte` -> (10^6, 'byte'), `cycle/nsecond` -> (10^9, '/s'), `inst/cycle` -> (1, ''), `%` -> (0.01, '%').

    The factor to base units and the dimension: 'byte', 's', '/s', 'byte/s', '%' or '' (a count, or a count per
    cycle). None for what is no unit known here. Byte prefixes are decimal, as Nsight Compute's are.
    """
    text = text.strip()
    above, _, below = text.partition("/")
    top = _single(above)
    if top is None or not below:
        return top if "/" not in text else None
    bottom = _single(below)
    if bottom is None:
        return None
    if bottom[1] == "s":
        # 1/1e-9 is not exactly 10^9 in floating point
        return round(top[0] / bottom[0]) if top[0] / bottom[0] >= 1 else top[0] / bottom[0], f"{top[1]}/s"
    return (top[0] / bottom[0] if bottom[0] != 1 else top[0]), top[1]


def _single(name: str) -> tuple[int | float, str] | None:
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


def triple(text: str) -> Extent | None:
    """Three sizes in one cell, `(64, 2, 1)`, `(32768 1 1)` or `148    1    1`, as (x, y, z)."""
    found = re.fullmatch(r"\(?\s*(\d{1,10})[,; ]+(\d{1,10})[,; ]+(\d{1,10})\s*\)?", text.strip())
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def device(text: str) -> tuple[str, str | None]:
    """A device's name and the ordinal that ends it, None where there is none: `Tesla V100 (0)` -> Tesla V100 and 0."""
    match = re.search(r"\s*\((\d+)\)\s*$", text)
    return (text[: match.start()].strip(), match[1]) if match else (text.strip(), None)
