"""Quantities with their formulas: in symbols, in numbers, as a value; the table of their symbols; and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from roofmodel import units
from roofmodel.algebra import Number, plain
from roofmodel.models.symbols import Source
from roofmodel.study.derive.explain import Explanation, Quantity
from roofmodel.views.kit import formula
from roofmodel.views.kit.document import Form, Table, said

MANY = 12  # terms from which a sum is not shown again with numbers


def symbols(explanation: Explanation, quantities: Iterable[Quantity]) -> Table:
    """The symbols that these quantities have: what each is, its value, and the key or option that it came from."""
    import sympy

    used = set().union(*(sympy.sympify(quantity.symbolic).free_symbols for quantity in quantities))
    return Table(
        ("symbol", "what it is", "|value", "from"),
        [
            (Form(formula.text(name), formula.latex(name)), source.meaning, units.grouped(source.value), origin(source))
            for name, source in explanation.sources.items()
            if name in used
        ],
    )


def origin(source: Source) -> str:
    """The key or option that a symbol came from, and whether it stood at its default."""
    return f"{source.origin} (default)" if source.assumed else source.origin


def forms(expression: Any, explanation: Explanation, value: Number, unit: str) -> list[Form]:
    """Symbols, numbers, value; what would be said twice is said once."""
    values = explanation.values
    found = [Form(formula.text(expression), formula.latex(expression))]
    if _terms(expression) <= MANY:
        found.append(Form(formula.text(expression, values), formula.latex(expression, values)))
    found.append(amount(value, unit))
    return [form for i, form in enumerate(found) if i == 0 or form.text != found[i - 1].text]


def _terms(expression: Any) -> int:
    import sympy

    return len(sympy.Add.make_args(sympy.expand(expression)))


def amount(value: Number, unit: str) -> Form:
    """A count in full, and to three digits where it is long."""
    value = plain(value)
    whole = units.grouped(round(value)) if value == int(value) or value >= 1e5 else units.significant(value, 6)
    short = f" ({units.si(value, unit)})" if value >= 1e5 else ""
    return said(f"{whole} {unit}".rstrip() + short)


def describe_quantity(quantity: Quantity) -> dict[str, Any]:
    """A quantity for JSON: as it is written, in LaTeX, and for sympy.sympify."""
    expression = formula.readable(quantity.symbolic)
    return {
        "name": quantity.name,
        "formula": formula.text(expression),
        "latex": formula.latex(expression),
        "sympy": str(expression),
        "value": plain(quantity.value),
        "unit": quantity.unit,
    }
