"""The counting conventions as a document."""

from __future__ import annotations

from typing import Any

from roofmodel.explain import conventions
from roofmodel.numbers import units
from roofmodel.report import formula
from roofmodel.report.document import Document, Form, Heading, Paragraph, TextTable


def document() -> Document:
    """The conventions, the constants of vector operations, and the number formats."""
    points, constants, formats = list(conventions.points()), list(conventions.constants()), conventions.formats()
    return Document(
        "How roofmodel counts",
        [
            Paragraph(
                "The formulas come from the counting code. B: sequences, S: tokens per sequence, T: new tokens, "
                "C: cached tokens, E: experts, k: active experts per token."
            ),
            TextTable(
                ("topic", "convention", "formula", "option"),
                [(p.point, p.convention, _form(p.formula), str(p.switch)) for p in points],
            ),
            Heading("Vector FLOPs per element"),
            TextTable(("operation", "|FLOPs", "source"), [(c.name, str(c.flops), c.why) for c in constants]),
            Heading("Number formats"),
            TextTable(
                ("format", "|bits", "|block", "|scale bits", "|bytes per element"),
                [
                    (f.name, str(f.bits), str(f.block or ""), str(f.scale_bits or ""), units.significant(size, 4))
                    for f, size in formats
                ],
            ),
        ],
        lambda: {
            "schema": "roofmodel.conventions/1",
            "points": [
                {
                    **p._asdict(),
                    "formula": None if p.formula is None else formula.text(formula.readable(p.formula)),
                    "switch": str(p.switch),
                }
                for p in points
            ],
            "vector_flops": [c._asdict() for c in constants],
            "formats": [{**f._asdict(), "bytes": size} for f, size in formats],
        },
    )


def _form(expression: Any) -> str | Form:
    if expression is None:
        return ""
    readable_expression = formula.readable(expression)
    return Form(formula.text(readable_expression), formula.latex(readable_expression))
