"""Formulas in mathematical notation."""

from __future__ import annotations

import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.models.symbols import resolve_min_max, symbol
from roofmodel.report import formula

B, S, D, H, L, V, W, E, k = map(symbol, ("B", "S", "D", "H", "L", "V", "W", "E", "k"))
D_h, H_kv = symbol("D_h"), symbol("H_kv")


def test_the_common_factor_comes_first_and_then_the_highest_degree() -> None:
    assert formula.text(formula.readable(24 * B * S * D**2 * L + 4 * B * S**2 * D * L + 2 * B * S * D * V)) == (
        "2BSD(12DL + 2SL + V)"
    )


def test_names_of_several_letters_do_not_run_into_their_neighbors() -> None:
    assert formula.text(2 * B * H_kv * D_h * S) == "2BS·H_kv·D_h"
    assert formula.latex(2 * B * H_kv * D_h) == r"2B\,H_{\mathrm{kv}}\,D_{h}"


def test_a_number_of_batches_does_not_read_as_bytes() -> None:
    assert formula.text(36864 * B + 5 * S) == "36864·B + 5S"
    assert formula.text(2 * B * (S + 1)) == "2B(S + 1)"


def test_an_equation_has_numbers_in_place_of_symbols() -> None:
    assert formula.text(6 * B * S * D**2, {B: 1, S: 1024, D: 1600}) == "6 · 1 · 1024 · 1600²"
    assert formula.latex(6 * B * D**2, {B: 1, D: 1600}) == r"6 \cdot 1 \cdot 1600^{2}"


def test_fractions_powers_and_functions() -> None:
    assert formula.text(formula.readable(S * (S + 1) / 2)) == "S(S + 1)/2"
    assert formula.text(E * (1 - (1 - k / E) ** (B * S))) == "E(1 − (1 − k/E)^(BS))"
    assert formula.latex(D / H) == r"\frac{D}{H}"
    assert formula.latex(B * (S + 1 / H)) == r"B\bigl(S + \frac{1}{H}\bigr)"
    assert formula.text(B * H_kv * sympy.ceiling(S / W)) == "B·H_kv·⌈S/W⌉"
    assert formula.text(B * sympy.Max(1, S / W)) == "B·max(1, S/W)"
    assert formula.text(2 * B * S**2 * D) == "2BS²D"
    assert formula.latex(2 * D_h * H_kv) == r"2H_{\mathrm{kv}}\,D_{h}"
    assert formula.text(sympy.Min(S, W) + 1) == "min(S, W) + 1"
    assert formula.text(sympy.ceiling(S / W)) == "⌈S/W⌉"
    assert formula.text(-2 * S * D) == "−2SD"


def test_a_minimum_of_symbols_is_evaluated_for_numbers() -> None:
    found, chosen = resolve_min_max(D * sympy.Min(S, W), {S: 10, W: 4, D: 2})
    assert found == D * W
    assert chosen == {sympy.Min(S, W): W}


terms = st.lists(st.tuples(st.integers(-20, 20), *[st.integers(0, 2)] * 4), min_size=1, max_size=9)


@settings(deadline=None, max_examples=60)
@given(terms)
def test_the_collected_metrics_equal_the_recorded_ones(found: list[tuple[int, ...]]) -> None:
    expression = sum(c * B**b * S**s * D**d * L**e for c, b, s, d, e in found)
    again = formula.readable(sympy.sympify(expression))
    assert sympy.expand(again - expression) == 0
    # and what is written is that: numbers in the places of symbols, read by Python
    numbers = {B: 3, S: 5, D: 7, L: 11}
    text = formula.text(again, numbers).replace("·", "*").replace("−", "-")
    text = text.translate(str.maketrans({"²": "**2", "³": "**3", "⁴": "**4"}))
    assert eval(text) == sympy.sympify(expression).subs(numbers)
