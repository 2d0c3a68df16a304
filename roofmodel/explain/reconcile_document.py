"""The document of a reconciliation with another FLOP counter."""

from __future__ import annotations

from typing import Any

from roofmodel.explain.explain import Explanation, Quantity
from roofmodel.explain.quantities import amount, describe_quantity, symbols
from roofmodel.explain.reconcile import TOOLS, Reconciliation
from roofmodel.numbers.algebra import plain
from roofmodel.report import formula
from roofmodel.report.document import Document, Form, Paragraph, TextTable


def document(reconciliation: Reconciliation) -> Document:
    """Our matmul FLOPs, the terms of the difference, and the tool's count."""
    tool, explanation = TOOLS[reconciliation.tool], reconciliation.explanation
    ours = reconciliation.ours._replace(name=f"ours: {reconciliation.ours.name}")
    theirs = reconciliation.theirs._replace(name=f"{reconciliation.tool}: {tool.figure}")
    quantities = (ours, *reconciliation.terms, theirs)
    return Document(
        f"{explanation.name}: the FLOP count of {reconciliation.tool}, derived from ours",
        [
            Paragraph(f"The rules of {reconciliation.tool} {tool.version} for one forward pass."),
            symbols(explanation, quantities),
            TextTable(("term", "formula", "|value"), [_row(quantity, explanation) for quantity in quantities]),
        ],
        lambda: {
            "schema": "roofmodel.reconcile/1",
            "name": explanation.name,
            "tool": reconciliation.tool,
            "version": tool.version,
            "ours": describe_quantity(ours),
            "terms": [describe_quantity(term) for term in reconciliation.terms],
            "theirs": describe_quantity(theirs),
        },
        notes=reconciliation.notes,
    )


def _row(quantity: Quantity, explanation: Explanation) -> list[Any]:
    expression = formula.readable(quantity.symbolic)
    form = Form(formula.text(expression), formula.latex(expression))
    value = plain(quantity.value)
    return [quantity.name, form, amount(value, "").text if value >= 0 else f"−{amount(-value, '').text}"]
