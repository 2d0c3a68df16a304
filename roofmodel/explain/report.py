"""The result of `crossover`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import PictureResult
from roofmodel.report.derivation import Derivation

if TYPE_CHECKING:
    from pathlib import Path

    from roofmodel.explain.crossover import Crossover
    from roofmodel.report.document import Document


class CrossoverReport(Derivation, PictureResult):
    """Result of `crossover`: a text with formulas, and a picture of the times under the ceilings."""

    def __init__(self, document: Document, crossover: Crossover) -> None:
        super().__init__(document)
        self.crossover = crossover

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return (*super().suffixes(), "png", "svg")

    def save(self, path: PathLike) -> Path:
        """Write a picture (png, svg) or the text (md, tex, json, pdf), by the suffix."""
        from roofmodel.explain.crossover_picture import draw
        from roofmodel.files import output_files

        target = output_files.check(values.path("path", path), self.suffixes())
        form = output_files.form(target, ("png", "svg"))
        if form is None:
            return super().save(path)
        output_files.replace(target, lambda file: draw(self.crossover, file, form))
        return target
