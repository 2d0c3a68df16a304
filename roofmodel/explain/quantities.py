"""Quantities as formulas in symbols and in numbers, their table of symbols, and their JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from roofmodel.explain.explain import Explanation, Quantity
from roofmodel.models.symbols import SymbolSource
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number, plain
from roofmodel.report import formula
from roofmodel.report.document import Form, TextTable
from roofmodel.report.latex import text_form

MAX_TERMS = 12  # longer sums are not repeated with numbers


def symbols(explanation: Explanation, quantities: Iterable[Quantity]) -> TextTable:
    """A table of the symbols in these quantities: meaning, value, and config key or option."""
    import sympy

    used = set().union(*(sympy.sympify(quantity.symbolic).free_symbols for quantity in quantities))
    return TextTable(
        ("symbol", "meaning", "|value", "source"),
        [
            (Form(formula.text(name), formula.latex(name)), source.meaning, units.grouped(source.value), origin(source))
            for name, source in explanation.sources.items()
            if name in used
        ],
    )


def origin(source: SymbolSource) -> str:
    """The config key or option of a symbol, marked if it has its default."""
    return f"{source.origin} (default)" if source.assumed else str(source.origin)


def forms(expression: Any, explanation: Explanation, value: Number, unit: str) -> list[Form]:
    """The formula in symbols, in numbers, and its value, without repetitions."""
    values = explanation.values
    all_forms = [Form(formula.text(expression), formula.latex(expression))]
    if _terms(expression) <= MAX_TERMS:
        all_forms.append(Form(formula.text(expression, values), formula.latex(expression, values)))
    all_forms.append(amount(value, unit))
    return [form for i, form in enumerate(all_forms) if i == 0 or form.text != all_forms[i - 1].text]


def _terms(expression: Any) -> int:
    import sympy

    return len(sympy.Add.make_args(sympy.expand(expression)))


def amount(value: Number, unit: str) -> Form:
    """A count in full; long counts also with three digits and a prefix."""
    value = plain(value)
    digits = units.grouped(round(value)) if value == int(value) or value >= 1e5 else units.significant(value, 6)
    short = f" ({units.si(value, unit)})" if value >= 1e5 else ""
    return text_form(f"{digits} {unit}".rstrip() + short)


def describe_quantity(quantity: Quantity) -> dict[str, Any]:
    """A quantity for JSON: its formula as text, in LaTeX and for sympy.sympify, and its value."""
    expression = formula.readable(quantity.symbolic)
    return {
        "name": quantity.name,
        "formula": formula.text(expression),
        "latex": formula.latex(expression),
        "sympy": str(expression),
        "value": plain(quantity.value),
        "unit": quantity.unit,
    }


def describe_layers(layers: Sequence[int]) -> str:
    """`layer 3`, `layers 1 to 4`, `layers 0, 2, … 40`: they distinguish operators of the same name."""
    first, last = layers[0], layers[-1]
    if first == last:
        return f"layer {first}"
    if len(layers) == last - first + 1:
        return f"layers {first} to {last}"
    if len(layers) <= 3:
        return f"layers {', '.join(map(str, layers))}"
    return f"layers {first}, {layers[1]}, … {last}"
