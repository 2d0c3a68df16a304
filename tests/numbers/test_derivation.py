"""Numbers that record their derivation: the printed formulas evaluate to the printed values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.numbers.algebra import Number, Seconds, ceil_div, expm1, maximum, minimum
from roofmodel.numbers.derivation import DerivationTrace

NUMBERS = st.integers(1, 10**6)


def evaluated(text: str, **names: Any) -> Any:
    """The value of a printed formula."""
    for sign, meaning in {
        "×": "*",
        "^": "**",
        "≤": "<=",
        "≥": ">=",
        "⌈": "ceil(",
        "⌊": "floor(",
        "⌉": ")",
        "⌋": ")",
    }.items():
        text = text.replace(sign, meaning)
    known = {"ceil": math.ceil, "floor": math.floor, "max": max, "expm1": math.expm1, **names}
    return eval(re.sub(r"(?<=[a-z])\.", "__", text), {}, known)


def formula(a: Any, b: Any, c: Any) -> Any:
    """Brackets in all positions where they matter."""
    small: Seconds = minimum(a, b) - (a - b)
    waves: Number = ceil_div(a * b, c) * -(2 - b) / (a / b)
    return (
        maximum(small + waves, 1) ** 0.5**2 / (c * (a // b + 1))
        - maximum(a * (b > c), c / (a * 2)) * (1 + maximum(a - c, 0) + maximum(0, b - a))
        + expm1(-a / (a + b))
        + ((a > b) + (2 - (b < c)))
    )


@given(NUMBERS, NUMBERS, NUMBERS)
def test_the_written_formula_evaluates_to_the_value(a: int, b: int, c: int) -> None:
    derivation = DerivationTrace()
    inputs = (derivation.given(name, n) for name, n in zip("abc", (a, b, c), strict=True))
    result = derivation.part("result", derivation.with_lines(formula)(*inputs), "s")
    plain = formula(a, b, c)
    names: dict[str, Any] = {}
    for step in derivation.steps(result):
        if step.value is True:
            assert evaluated(step.name, **names) is evaluated(step.numbers) is True
        elif step.formula:
            for text in (step.formula, step.numbers):
                found, scale = evaluated(text, **names), abs(step.value) + a + b + c
                assert abs(found - step.value) < 1e-6 * scale, step
        names[step.name] = step.value
    assert result.value == plain or math.isclose(result.value, plain, rel_tol=1e-12)


def scaled_square(count: Any) -> Any:
    """A loop and a helper with lines; `unused` has no unit."""
    total = 0
    for index in (2,):
        scaled: Seconds = index * helper(count)
        unused: int = index
        total = total + scaled + 0 * unused
    return total


def helper(count: Any) -> Any:
    squared: Number = count * count
    return squared


def test_assignments_with_a_unit_are_lines_also_in_loops_and_helpers() -> None:
    derivation = DerivationTrace()
    result = derivation.with_lines(scaled_square)(derivation.given("count", 3))
    lines = [(step.name, step.formula, step.unit) for step in derivation.steps(derivation.part("all", result, "s"))]
    assert ("squared", "count × count", "") in lines
    assert ("scaled", "2 × squared", "s") in lines
    assert {name for name, _, _ in lines} == {"count", "squared", "scaled", "all"}
    assert scaled_square(3) == 18  # the function itself is unchanged


def test_both_of_two_multiplied_conditions_are_stated() -> None:
    for value, limit, lines in (
        (4, 8, ["x > 1", "x ≤ limit"]),
        (1, 8, ["x ≤ 1"]),  # the first condition fails and decides
        (9, 8, ["x > limit"]),
    ):
        derivation = DerivationTrace()
        x, most, a, b = (derivation.given(n, v) for n, v in (("x", value), ("limit", limit), ("a", 2), ("b", 3)))
        both = (x > 1) * (x <= most)
        result = derivation.part("result", both * a + (1 - both) * b)
        assert result.value == (2 if len(lines) == 2 else 3)
        assert [step.name for step in derivation.steps(result) if step.value is True] == lines


@pytest.mark.parametrize(
    ("make", "formula", "value"),
    [
        (lambda a, b, c: (a - b - c) + b + c, "a", 7),
        (lambda a, b, c: (a - b * c) + b * c * c + b * c, "a + b × c × c", 25),
        (lambda a, b, c: b + (a - b) + (c - a), "c", 3),
        (lambda a, b, c: (a + b) - (a - c), "b + c", 5),
        (lambda a, b, c: (c - a) + (a - b) - c, "-b", -2),
        (lambda a, b, c: (a - b) + b * 2, "a - b + b × 2", 9),  # only equal terms
        (lambda a, b, c: (a - 1) + (b + 1), "a + b", 9),
    ],
)
def test_terms_that_cancel_are_left_out(make: Callable[..., Any], formula: str, value: int) -> None:
    derivation = DerivationTrace()
    inputs = (derivation.given(name, number) for name, number in (("a", 7), ("b", 2), ("c", 3)))
    result = derivation.part("result", make(*inputs))
    assert derivation.steps(result)[-1].formula == formula
    assert result.value == value


def test_a_sum_whose_terms_all_cancel_is_0() -> None:
    derivation = DerivationTrace()
    a, b = derivation.given("a", 7), derivation.given("b", 2)
    assert (a - b) + (b - a) == 0
