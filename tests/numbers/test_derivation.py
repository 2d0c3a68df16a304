"""Numbers that record their derivation: the printed formulas evaluate to the printed values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.numbers.algebra import ceil_div, expm1, maximum, minimum, part
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
    small = part("small", minimum(a, b) - (a - b), "s")
    waves = part("waves", ceil_div(a * b, c) * -(2 - b) / (a / b))
    return (
        maximum(small + waves, 1) ** 0.5**2 / (c * (a // b + 1))
        - maximum(a * (b > c), c / (a * 2)) * (1 + maximum(a - c, 0) + maximum(0, b - a))
        + expm1(-a / (a + b))
        + ((a > b) + (2 - (b < c)))
    )


@given(NUMBERS, NUMBERS, NUMBERS)
def test_the_written_formula_evaluates_to_the_value(a: int, b: int, c: int) -> None:
    with DerivationTrace() as derivation:
        result = derivation.part(
            "result", formula(*(derivation.given(name, n) for name, n in zip("abc", (a, b, c), strict=True))), "s"
        )
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


def test_outside_a_derivation_parts_are_not_recorded() -> None:
    assert part("anything", 3, "s") == 3
    assert type(part("anything", 3, "s")) is int


def test_both_of_two_multiplied_conditions_are_stated() -> None:
    for value, limit, lines in (
        (4, 8, ["x > 1", "x ≤ limit"]),
        (1, 8, ["x ≤ 1"]),  # the first condition fails and decides
        (9, 8, ["x > limit"]),
    ):
        with DerivationTrace() as derivation:
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
    with DerivationTrace() as derivation:
        inputs = (derivation.given(name, number) for name, number in (("a", 7), ("b", 2), ("c", 3)))
        result = derivation.part("result", make(*inputs))
    assert derivation.steps(result)[-1].formula == formula
    assert result.value == value


def test_a_sum_whose_terms_all_cancel_is_0() -> None:
    with DerivationTrace() as derivation:
        a, b = derivation.given("a", 7), derivation.given("b", 2)
        assert (a - b) + (b - a) == 0
