"""A text with formulas: the result of `explain`, `crossover`, `conventions`, `reconcile` and homework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from roofmodel.errors import Text
from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import FileResult, TextResult

if TYPE_CHECKING:
    from pathlib import Path

    from roofmodel.report.document import Document


class Derivation(TextResult, FileResult):
    """Result of `explain`, `crossover`, `conventions`, `reconcile` and homework: a text with formulas."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def _messages(self) -> Iterable[Text]:
        return self.document.notes

    def to_dict(self) -> dict[str, Any]:
        """The document that `--format json` prints."""
        return self.document.data  # type: ignore[no-any-return]

    def to_markdown(self) -> str:
        """Markdown, with formulas between dollar signs."""
        return self.document.render("markdown")

    def to_latex(self) -> str:
        """A complete LaTeX file that needs amsmath only."""
        return self.document.render("latex")

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.report.document import SUFFIXES

        return SUFFIXES

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {form: partial(self.document.render, form) for form in ("json", "markdown", "latex")}

    def save(self, path: PathLike) -> Path:
        """Write md, tex, json or pdf (with the user's pdflatex), by the suffix."""
        return self.document.save(values.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.report.document import rich

        return rich(self.document.blocks)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        remarks = "".join(f"\n\n{remark}" for remark in self.remarks())
        return {"text/markdown": self.to_markdown() + remarks, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"<Derivation: {self.document.title}>"
