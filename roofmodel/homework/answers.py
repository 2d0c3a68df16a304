"""Reading of answers as people write them: `138.9 µs`, `2120 us` for ms, `782 TFLOPS`, `2,449`, `compute-bound`.

An answer without a unit is in the unit of its question; one with another unit of the same kind is converted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from roofmodel.homework.problem import BASES, CEILINGS, SMALL_PREFIXES, AnswerUnit, unit_of

MAX_LENGTH = 100
MAX_POWER = 30

_SPACE = "[ \u00a0\u2009\u202f]"
_DIGITS = rf"[0-9](?:[0-9.,'’_]|{_SPACE}(?=[0-9]{{3}}(?![0-9])))*|[.,][0-9]+"
_ANSWER = re.compile(
    rf"""
    (?: about | approx\.? | ca\.? )? [\s≈~=]*
    (?P<sign> [-+−]? )
    (?P<digits> {_DIGITS} )
    (?: [eE] (?P<e> [-+−]?[0-9]+ ) | \s* [×x*·] \s* 10 \s* (?: \^ | \*\* ) \s* \{{? (?P<power> [-+−]?[0-9]+ ) \}}? )?
    (?: \s* / \s* (?P<divisor> {_DIGITS} ) )?
    \s* (?P<unit> .*? ) \s*
    """,
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"bandwidth": "memory", "memory bandwidth": "memory", "dram": "memory", "dram bandwidth": "memory"}
_SHORT = {"tok": "token", "img": "image", "seq": "sequence"}


def ceiling(text: str) -> str | None:
    """`compute` or `memory` from words such as `Compute-bound` and `memory bandwidth`; None for other texts."""
    word = " ".join(text.lower().replace("-", " ").split())
    word = word.removeprefix("the ").removesuffix(" bound").removesuffix(" limited").removesuffix(" ceiling")
    word = _WORDS.get(word, word)
    return word if word in CEILINGS else None


def readings(text: str, unit: str) -> list[Fraction]:
    """What a text may mean in base units, the likely meaning first; empty if it is no number in a unit of this kind.

    `2,449` has two meanings: a comma separates thousands in English, decimals in most of Europe.
    """
    match = _ANSWER.fullmatch(text.strip()) if len(text) <= MAX_LENGTH else None
    if match is None:
        return []
    scale = _scale(match["unit"], unit_of(unit))
    power = int((match["e"] or match["power"] or "0").replace("−", "-"))
    divisors = [*_numbers(match["divisor"])] if match["divisor"] else [Fraction(1)]
    if scale is None or abs(power) > MAX_POWER or not all(divisors):
        return []
    sign = -1 if match["sign"] in ("-", "−") and match["sign"] else 1
    return [sign * n * Fraction(10) ** power / d * scale for n in _numbers(match["digits"]) for d in divisors]


def _numbers(digits: str) -> Iterator[Fraction]:
    """The values of digits with separators, the likely one first."""
    digits = re.sub(rf"(?<=[0-9])(?:{_SPACE}|['’_])(?=[0-9])", "", digits)
    dots, commas = digits.count("."), digits.count(",")
    if dots and commas:  # the last one is the decimal separator
        decimal = "." if digits.rindex(".") > digits.rindex(",") else ","
        other = "," if decimal == "." else "."
        integer_part, _, rest = digits.partition(decimal)
        if digits.count(decimal) == 1 and _is_grouped(integer_part, other):
            yield Fraction(f"{integer_part.replace(other, '')}.{rest or 0}")
        return
    for separator, count in ((",", commas), (".", dots)):
        if count and (separator == "," or count > 1) and _is_grouped(digits, separator):
            yield Fraction(digits.replace(separator, ""))
    if dots + commas <= 1 and re.fullmatch(r"[0-9]+[.,]?[0-9]*|[.,][0-9]+", digits):
        integer_part, _, rest = digits.replace(",", ".").partition(".")
        yield Fraction(f"{integer_part or 0}.{rest or 0}")


def _is_grouped(digits: str, separator: str) -> bool:
    """Whether the separator stands before groups of three digits, as in `1,234,567`."""
    return re.fullmatch(rf"[1-9][0-9]{{0,2}}(?:{re.escape(separator)}[0-9]{{3}})+", digits) is not None


def _scale(written: str, unit: AnswerUnit) -> int | Fraction | None:
    """The size of a written unit in the base unit of the question; None for a unit of another kind."""
    text = re.sub(r"\s*(?:/|\bper\b)\s*", "/", written.strip().rstrip("."))
    text = re.sub(r"/(?:s|sec|second)s?\Z", "/s", text, flags=re.IGNORECASE)
    if not text:
        return unit.factor
    if unit.base == "%":
        return Fraction(1, 100) if text.lower() in ("%", "percent", "per cent", "pct") else None
    if unit.base == "s":
        match = re.fullmatch(r"([mμµunp]?)(?:s|secs?|seconds?)", text)
        long = re.fullmatch(r"(milli|micro|nano)(?:s|secs?|seconds?)", text, re.IGNORECASE)
        prefix = match[1] if match else long[1][0].lower() if long else None
        if long and long[1].lower() == "micro":
            prefix = "u"
        return None if prefix is None else SMALL_PREFIXES.get(prefix, 1)
    if unit.base not in BASES:
        return unit.factor if _count_word(text) == _count_word(unit.base) else None
    name = _BASE_NAMES[unit.base].fullmatch(text)
    if name is None:
        return None
    prefixes = BASES[unit.base]
    prefix = next(filter(None, name.groups()), "")
    prefix = prefix[:1].upper() + prefix[1:]
    return prefixes.get("k" if prefix == "K" else prefix)


_BYTES = r"(?:B|[Bb]ytes?)"
_FLOPS = r"(?:FLOP|flop|Flop|OP|op|Op)"
_BASE_NAMES = {
    "FLOP": re.compile(rf"([kKMGTPmgtp]?) ?{_FLOPS}[sS]?"),
    "FLOP/s": re.compile(rf"([kKMGTPmgtp]?) ?{_FLOPS}(?:[sS]|[sS]?/s|ps|PS)"),
    "FLOP/B": re.compile(rf"() ?{_FLOPS}[sS]?/{_BYTES}"),
    "B": re.compile(rf"((?:[kKMGTP]i?)?) ?{_BYTES}|([kmgtp])b"),
    "B/s": re.compile(rf"((?:[kKMGTP]i?)?) ?{_BYTES}/s"),
}
"""The spellings of units, with their prefixes."""


def _count_word(text: str) -> str:
    """`Images / s` and `img/s` as `image/s`: a word of a counted thing in the singular."""
    word, slash, rest = text.lower().partition("/")
    word = word.strip().removesuffix("s")
    return _SHORT.get(word, word) + slash + rest.strip()
