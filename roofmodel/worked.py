"""Numbers that show how they came about: a formula that is run on them is its own derivation, line by line.

    with shown():
        time = function(leaf("bytes", 12), leaf("bandwidth", 3))

This is the fifth reading of a formula (algebra.py): what a person can follow with a calculator. What is chosen leaves
its trace alone: of a minimum the smaller one, of `x * condition` the condition that holds. Formulas name their parts by
`algebra.part`; each is a line of `steps`, in the order in which they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

SUM, PRODUCT, POWER, ATOM = range(4)  # how tightly a text holds together
DIGITS = 9  # of numbers that are put into a formula

active = False


@contextmanager
def shown() -> Iterator[None]:
    """While it lasts, parts of formulas are named, constants and all."""
    global active
    before, active = active, True
    try:
        yield
    finally:
        active = before


class Step(NamedTuple):
    """A line: a name, what it is, the same with numbers, its value. A condition's is True; a leaf has no formula."""

    name: str
    formula: str
    numbers: str
    value: Any
    unit: str = ""


class Worked:
    """A number, in names and in numbers, and the lines that it rests on."""

    __slots__ = ("level", "numbers", "steps", "text", "value")

    def __init__(self, value: Any, text: str, numbers: str, level: int, steps: Mapping[str, Step]) -> None:
        self.value, self.text, self.numbers, self.level, self.steps = value, text, numbers, level, steps

    def __add__(self, other: Any) -> Any:
        return self if _is(other, 0) else _joined(self, "+", other, SUM, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Any:
        return self if _is(other, 0) else _joined(other, "+", self, SUM, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self if _is(other, 0) else _joined(self, "-", other, SUM, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return _joined(other, "-", self, SUM, lambda a, b: a - b)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Condition):
            return other * self
        if _is(other, 0) or _is(other, 1):
            return self if _is(other, 1) else 0
        return _joined(self, "×", other, PRODUCT, lambda a, b: a * b)

    def __rmul__(self, other: Any) -> Any:
        if _is(other, 0) or _is(other, 1):
            return self if _is(other, 1) else 0
        return _joined(other, "×", self, PRODUCT, lambda a, b: a * b)

    def __truediv__(self, other: Any) -> Any:
        return self if _is(other, 1) else _joined(self, "/", other, PRODUCT, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> Any:
        return 0 if _is(other, 0) else _joined(other, "/", self, PRODUCT, lambda a, b: a / b)

    def __floordiv__(self, other: Any) -> Any:
        return _rounded("⌊⌋", self, other, self.value // _value(other))

    def __rfloordiv__(self, other: Any) -> Any:
        return _rounded("⌊⌋", other, self, _value(other) // self.value)

    def __pow__(self, other: Any) -> Any:
        return _joined(self, "^", other, POWER, lambda a, b: a**b)

    def __neg__(self) -> Any:
        return Worked(-self.value, f"-{_held(self, ATOM)[0]}", f"-{_held(self, ATOM)[1]}", PRODUCT, self.steps)

    def __lt__(self, other: Any) -> Any:
        return _compared(self, "<", "≥", other, self.value < _value(other))

    def __le__(self, other: Any) -> Any:
        return _compared(self, "≤", ">", other, self.value <= _value(other))

    def __gt__(self, other: Any) -> Any:
        return _compared(self, ">", "≤", other, self.value > _value(other))

    def __ge__(self, other: Any) -> Any:
        return _compared(self, "≥", "<", other, self.value >= _value(other))

    def __eq__(self, other: object) -> bool:
        return bool(self.value == _value(other))

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self.value)


class Condition:
    """Whether something holds, how to say so or that it does not, and the lines that it rests on."""

    __slots__ = ("holds", "line", "steps")

    def __init__(self, holds: bool, line: Step, steps: Mapping[str, Step]) -> None:
        self.holds, self.line, self.steps = holds, line, steps

    def __bool__(self) -> bool:
        return self.holds

    def __mul__(self, other: Any) -> Any:
        if not self.holds:
            return 0
        if not isinstance(other, Worked):
            return other
        steps = {**self.steps, self.line.name: self.line, **other.steps}
        return Worked(other.value, other.text, other.numbers, other.level, steps)

    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Any:
        """`1 - condition`: whether it does not hold, which is said the same way."""
        return Condition(not self.holds, self.line, self.steps)


def _is(value: Any, number: int) -> bool:
    return not isinstance(value, Worked | Condition) and value == number


def _value(number: Any) -> Any:
    return number.value if isinstance(number, Worked) else number


def _steps(*numbers: Any) -> dict[str, Step]:
    found: dict[str, Step] = {}
    for number in numbers:
        if isinstance(number, Worked):
            found |= {name: step for name, step in number.steps.items() if name not in found}
    return found


def written(number: Any) -> str:
    """A number as it is put into a formula: 1024, 0.342, 1.19e-05, 3.12e+14."""
    return str(number) if isinstance(number, int) and abs(number) < 10**DIGITS else f"{float(number):.{DIGITS}g}"


def _held(number: Any, level: int) -> tuple[str, str]:
    """Its two texts, in brackets where they hold together less tightly than they must."""
    if not isinstance(number, Worked):
        return written(number), written(number)
    return (number.text, number.numbers) if number.level >= level else (f"({number.text})", f"({number.numbers})")


def _joined(a: Any, sign: str, b: Any, level: int, function: Callable[[Any, Any], Any]) -> Worked:
    left = _held(a, ATOM if sign == "^" else level)
    right = _held(b, level if sign in "+×" else level + 1)
    text, numbers = (f"{one} {sign} {other}" for one, other in zip(left, right, strict=True))
    return Worked(function(_value(a), _value(b)), text, numbers, level, _steps(a, b))


def _rounded(brackets: str, a: Any, b: Any, value: Any) -> Worked:
    left, right = _held(a, PRODUCT), _held(b, POWER)
    text, numbers = (f"{brackets[0]}{one} / {other}{brackets[1]}" for one, other in zip(left, right, strict=True))
    return Worked(value, text, numbers, ATOM, _steps(a, b))


def _compared(a: Worked, sign: str, otherwise: str, b: Any, holds: bool) -> Condition:
    left, right, sign = _held(a, SUM), _held(b, SUM), sign if holds else otherwise
    text, numbers = (f"{one} {sign} {other}" for one, other in zip(left, right, strict=True))
    return Condition(bool(holds), Step(text, "", numbers, True), _steps(a, b))


# --- What is given, and what is named ---------------------------------------------------------------


def leaf(name: str, value: Any) -> Any:
    """A number that is given, by its name; 0 is left out of formulas."""
    step = Step(name, "", written(value), value)
    return Worked(value, name, written(value), ATOM, {name: step}) if value else value


def part(name: str, value: Any, unit: str) -> Any:
    """A number that stands by its name in what follows."""
    if not isinstance(value, Worked):
        return leaf(name, value) if isinstance(value, int | float) else value
    step = Step(name, value.text, value.numbers, value.value, unit)
    return Worked(value.value, name, written(value.value), ATOM, {**value.steps, name: step})


# --- What algebra.py asks of a library --------------------------------------------------------------


def minimum(a: Any, b: Any) -> Any:
    """The smaller one: how the other would have come about is nobody's concern."""
    return a if _value(a) <= _value(b) else b


def maximum(a: Any, b: Any) -> Any:
    """The larger one, beside the other."""
    if _is(a, 0) or _is(b, 0):  # times and sizes are never negative
        return b if _is(a, 0) else a
    left, right = _held(a, SUM), _held(b, SUM)
    text, numbers = (f"max({one}, {other})" for one, other in zip(left, right, strict=True))
    return Worked(max(_value(a), _value(b)), text, numbers, ATOM, _steps(a, b))


def ceiling(a: Any, b: Any) -> Worked:
    """The quotient, rounded up."""
    return _rounded("⌈⌉", a, b, -(-_value(a) // _value(b)))


def expm1(a: Worked) -> Worked:
    """e to the power of a number, less 1."""
    import math

    return Worked(math.expm1(a.value), f"expm1({a.text})", f"expm1({a.numbers})", ATOM, a.steps)
