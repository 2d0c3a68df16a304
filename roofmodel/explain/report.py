"""The result of `crossover`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from roofmodel.report.derivation import Derivation

if TYPE_CHECKING:
    from roofmodel.explain.crossover import Crossover
    from roofmodel.report.document import Document


class CrossoverReport(Derivation):
    """Result of `crossover`: a text with formulas, and a picture of the times under the ceilings."""

    FILES: ClassVar[Sequence[str]] = (*Derivation.FILES, "png", "svg")

    def __init__(self, document: Document, crossover: Crossover) -> None:
        super().__init__(document)
        self.crossover = crossover
