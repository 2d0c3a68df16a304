"""A text with formulas: the result of `explain`, `crossover`, `conventions`, `reconcile` and homework."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from roofmodel.errors import Text
from roofmodel.report.base import Result
from roofmodel.report.document import Document


class Derivation(Result):
    """Result of `explain`, `crossover`, `conventions`, `reconcile` and homework: a text with formulas."""

    FILES: ClassVar[Sequence[str]] = ("html", "json", "csv", "md", "tex", "pdf")
    FORMATS: ClassVar[Sequence[str]] = ("json", "csv", "markdown", "latex")

    def __init__(self, document: Document) -> None:
        self.document = document

    def answer(self) -> Document:
        """The text."""
        return self.document

    def _messages(self) -> Iterable[Text]:
        return self.document.notes

    def to_markdown(self) -> str:
        """Markdown, with formulas between dollar signs."""
        return self.text("markdown")

    def to_latex(self) -> str:
        """A complete LaTeX file that needs amsmath only."""
        return self.text("latex")

    def _write(self, form: str, file: Path) -> None:
        if form == "pdf":
            from roofmodel.report.latex import write_pdf

            write_pdf(self.to_latex(), file)
        else:
            super()._write(form, file)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from roofmodel.report.markdown import markdown

        remarks = "".join(f"\n\n{remark}" for remark in self.remarks())
        return {"text/markdown": markdown(self.document._replace(notes=())) + remarks, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"<Derivation: {self.document.title}>"
