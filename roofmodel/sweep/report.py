"""The result of `sweep`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from roofmodel.errors import Text
from roofmodel.options import values
from roofmodel.options.values import PathLike, check_one_of
from roofmodel.report.base import FileResult

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.options.values import SweepPicture
    from roofmodel.report.notebook import Picture
    from roofmodel.sweep.sweep import Sweep


class SweepReport(FileResult):
    """Result of `sweep`: a grid of points with the totals of each, evaluated when it is read.

    A grid may be larger than memory: `save` and `write` evaluate it block by block; `to_frame` and `to_dict` load all
    of it.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def _messages(self) -> Iterable[Text]:
        return self.sweep.notes

    def evaluated(self) -> SweepReport:
        """The same report with all rows in memory, to read them more than once; unchanged above a million points."""
        return SweepReport(self.sweep.in_memory())

    def to_frame(self) -> pandas.DataFrame:
        """One row per point in base units, with the columns of `roof sweep --format csv`."""
        from roofmodel.sweep.data import frame

        return frame(self.sweep)

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof sweep --format json` prints."""
        from roofmodel.sweep.data import document

        return document(self.sweep)

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.sweep.files import SUFFIXES

        return SUFFIXES

    @staticmethod
    def check_picture(kind: SweepPicture | None, priced: bool, scaled: bool = False) -> None:
        """Raises RoofError for an unknown kind of picture, `costs` without prices, `scaling` without scaling."""
        from roofmodel.sweep.picture import check

        check(kind, priced, scaled)

    def write(self, form: str, out: TextIO) -> None:
        """Write the rows to a stream as json or csv, block by block. Raises RoofError for another format."""
        from roofmodel.sweep.files import write_csv, write_json

        writers = {"json": write_json, "csv": write_csv}
        check_one_of("form", form, writers)
        writers[form](self.sweep, out)

    def save(self, path: PathLike, picture: SweepPicture | None = None) -> Path:
        """Write the rows (csv, json, parquet) or a picture (png, svg, pdf) of `rates`, `roofs`, `costs` or
        `scaling`.

        Returns the path. Raises RoofError for a path that cannot be written, and for an unknown kind of picture.
        """
        from roofmodel.sweep.files import save

        priced = any(case.price is not None for case in self.sweep.cases)
        self.check_picture(picture, priced, self.sweep.scaling is not None)
        return save(self.sweep, values.path("path", path), picture)

    def picture(self, kind: SweepPicture | None = None, dpi: int = 100) -> Picture:
        """A picture of `rates`, `roofs`, `costs` or `scaling`, for a notebook. Raises RoofError for an unknown kind."""
        from roofmodel.report.notebook import picture

        return picture(partial(self.save, picture=kind), values.resolution(dpi))

    def __rich__(self) -> Any:
        if self.sweep.scaling:
            from roofmodel.sweep.scaling_tables import ScalingView

            return ScalingView(self.sweep)
        from roofmodel.sweep.table import View

        return View(self.sweep)

    def __repr__(self) -> str:
        selected = f"{self.sweep.row_count} of " if self.sweep.where else ""
        return f"<SweepReport of {selected}{self.sweep.points} points>"
