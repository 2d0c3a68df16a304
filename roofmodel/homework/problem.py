"""Homework problems: the given facts, the questions with their answers and formulas, and common mistakes.

All numbers are in base units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from roofmodel.homework.formulas import Value
from roofmodel.numbers.units import BINARY, DECIMAL, DIVISORS

Draw = Callable[[str, Sequence[Any]], Any]
"""`draw(name, options)`: one of the options, chosen by the name of the drawn quantity."""

CEILINGS = ("compute", "memory")
CEILING = "compute or memory"
"""The unit of a question whose answer is one of CEILINGS."""

SMALL_PREFIXES = {prefix: Fraction(1, divisor) for prefix, divisor in DIVISORS.items()}
BASES: Mapping[str, Mapping[str, int | Fraction]] = {
    "FLOP/s": DECIMAL, "FLOP/B": {"": 1}, "FLOP": DECIMAL, "B/s": {**DECIMAL, **BINARY}, "B": {**DECIMAL, **BINARY},
    "s": {"": 1, **SMALL_PREFIXES}, "%": {"": Fraction(1, 100)},
}  # fmt: skip
"""The units of answers and their prefixes. Any other word, such as `tokens/s`, is a unit without prefixes."""


class AnswerUnit(NamedTuple):
    """A unit of answers: its base unit and its size."""

    base: str
    factor: int | Fraction


def unit_of(text: str) -> AnswerUnit:
    """`GFLOP/s` is 10^9 `FLOP/s`; `tokens/s` is itself."""
    for base, prefixes in BASES.items():
        prefix = text.removesuffix(base)
        if text.endswith(base) and prefix in prefixes:
            return AnswerUnit(base, prefixes[prefix])
    return AnswerUnit(text, 1)


class Mistake(NamedTuple):
    """A common mistake: its result, and the hint for it."""

    result: float
    hint: str


class Question(NamedTuple):
    """A question of a sheet; its answer is a number in base units, or one of the CEILINGS."""

    id: str
    text: str
    unit: str
    value: float | str
    formula: str  # in the names of `values`; for a ceiling: the intensity minus the ridge point
    values: Mapping[str, Value]
    symbols: Mapping[str, str]  # the meanings of the names
    mistakes: tuple[Mistake, ...] = ()
    tolerance: float = 0.02  # relative
    points: float = 1
    synonyms: Mapping[str, tuple[str, ...]] = {}  # further names of the ceilings

    @property
    def expression(self) -> Any:
        """The formula as a SymPy expression, in which common factors cancel."""
        import sympy

        names = {name: sympy.Symbol(name, positive=True) for name in self.values}
        return sympy.sympify(self.formula, locals=names)

    @property
    def used(self) -> dict[str, str]:
        """The names of the quantities in the expression with their meanings, in the order of `values`."""
        used = {symbol.name for symbol in self.expression.free_symbols}
        return {name: self.symbols[name] for name in self.values if name in used}

    def in_unit(self, value: float) -> float:
        """A number of base units in the unit of the question."""
        return float(value / unit_of(self.unit).factor)


class Problem(NamedTuple):
    """The given facts, and the questions about them."""

    id: str
    title: str
    given: str
    questions: tuple[Question, ...]
    tool: str = ""  # what shows the right numbers, for the key
