"""The result of `explore`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import FileResult

if TYPE_CHECKING:
    from pathlib import Path


class ExplorePage(FileResult):
    """Result of `explore`: one HTML page with sliders and all data inside."""

    def __init__(self, html: str, names: Sequence[str]) -> None:
        self.html = html
        self.names = names

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return ("html",)

    def save(self, path: PathLike) -> Path:
        """Write the page (html)."""
        from roofmodel.files import output_files

        return output_files.write(values.path("path", path), None, {"html": lambda: self.html})

    def __rich__(self) -> Any:
        return repr(self)

    def __repr__(self) -> str:
        return f"<ExplorePage of {', '.join(self.names)}>"
