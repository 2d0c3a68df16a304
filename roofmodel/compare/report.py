"""The result of `compare`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import PictureResult, TextResult

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.compare.comparison import ModelComparison


class CompareReport(TextResult, PictureResult):
    """Result of `compare`: operators with the kernels that ran them, predicted and measured."""

    def __init__(self, comparison: ModelComparison) -> None:
        self.comparison = comparison

    @property
    def totals(self) -> dict[str, Any]:
        """Sums over one pass of each phase, as in the JSON."""
        totals: dict[str, Any] = self.to_dict()["totals"]
        return totals

    @property
    def findings(self) -> list[str]:
        """The three most important differences between prediction and measurement, in words."""
        from roofmodel.compare.text import finding_texts

        return list(map(str, finding_texts(self.comparison)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Data that the files lack, and kernels that were left out."""
        return tuple(map(str, self.comparison.notes))

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof compare --format json` prints."""
        from roofmodel.compare.data import document

        return document(self.comparison)

    def to_frame(self) -> pandas.DataFrame:
        """One row per group of operators in base units, with the columns of `roof compare --format csv`."""
        import pandas

        from roofmodel.compare.columns import ROWS, compared_rows

        return pandas.DataFrame(ROWS.records(compared_rows(self.comparison)), columns=ROWS.csv_keys)

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.compare.terminal import SUFFIXES

        return SUFFIXES

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.compare.data import as_csv, as_json

        return {"json": lambda: as_json(self.comparison), "csv": lambda: as_csv(self.comparison)}

    def save(self, path: PathLike) -> Path:
        """Write a picture (png, svg, pdf) or the data (json, csv), by the suffix."""
        from roofmodel.compare.terminal import save

        return save(self.comparison, values.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.compare.terminal import table

        return table(self.comparison)

    def __repr__(self) -> str:
        comparison = self.comparison
        passes = ", ".join(f"{each.used} {each.phase}" for each in comparison.passes)
        model, device = comparison.estimate.architecture.name, comparison.identified.device.name
        return f"<CompareReport of {model} on {device}: {passes}>"
