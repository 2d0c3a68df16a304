"""The result of `count`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.options import values
from roofmodel.options.values import OperatorValue, PathLike, check_one_of
from roofmodel.report.base import FileResult, TextResult

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.count.count import Count


class CountReport(TextResult, FileResult):
    """Result of `count`: the operators of a torch module."""

    def __init__(self, count: Count) -> None:
        self.count = count

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof count --format json` prints."""
        from roofmodel.count.table import document

        return document(self.count)

    def to_frame(self) -> pandas.DataFrame:
        """One row per operator in base units."""
        import pandas

        from roofmodel.count.table import OPERATORS

        return pandas.DataFrame(OPERATORS.records(self.count.operators), columns=OPERATORS.csv_keys)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.count.table import as_csv, as_json

        return {"json": lambda: as_json(self.count), "csv": lambda: as_csv(self.count)}

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return ("json", "csv")

    def save(self, path: PathLike) -> Path:
        """Write the operators (json, csv), by the suffix."""
        from roofmodel.files import output_files

        return output_files.write(values.path("path", path), None, self._texts())

    def summary(self) -> Any:
        """Layers, output shapes, parameters and sizes, as torchsummary prints them; renders with rich."""
        from roofmodel.count.table import summary

        return summary(self.count)

    def table(self, sort: OperatorValue | None = None) -> Any:
        """The operators in their order, or the largest `sort` first; renders with rich."""
        from roofmodel.count.table import SORTABLE, table

        if sort is not None:
            check_one_of("sort", sort, SORTABLE)
        return table(self.count, sort)

    def __rich__(self) -> Any:
        return self.table()

    def __repr__(self) -> str:
        return f"<CountReport of {self.count.name}: {len(self.count.operators)} operators>"
