"""Results of `read_profile`, `plot`, `ncu_command` and `nsys_command`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from roofmodel.errors import OutputError, Text
from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import FileResult, PictureResult, TextResult

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.plot.comparison import KernelChange
    from roofmodel.plot.ncu_command import Collection
    from roofmodel.plot.place import MeasuredKernels, RooflinePlot
    from roofmodel.profiles.kernel import Kernel
    from roofmodel.report.table import Table


def _short_names(names: Sequence[str]) -> Sequence[str]:
    from roofmodel.roofline.judged_kernels import NAME_WIDTH
    from roofmodel.roofline.kernel_names import short_names

    return short_names(names, NAME_WIDTH)


class ProfileReport(TextResult, FileResult):
    """Result of `read_profile`: the measured kernels of profiler files."""

    naming = ("hardware", "name")
    short_names = staticmethod(_short_names)

    def __init__(self, measured: MeasuredKernels, before: MeasuredKernels | None = None) -> None:
        self.measured, self.before = measured, before

    @cached_property
    def changes(self) -> Sequence[KernelChange]:
        """The kernels compared with those of `before`, the largest change first; empty without it."""
        from roofmodel.plot.comparison import compare_kernels

        return compare_kernels(self.before, self.measured) if self.before else ()

    @property
    def kernels(self) -> Sequence[Kernel]:
        """The kernels: seconds, FLOPs by pipe, bytes by memory level; None for a metric that was not collected."""
        return self.measured.kernels

    @property
    def warnings(self) -> tuple[str, ...]:
        """Data that the files lack, the metrics to collect, and whether the device changed."""
        from roofmodel.plot.comparison import different_devices

        warnings = self.measured.warnings
        if self.before:
            warnings = (*different_devices(self.before, self.measured), *warnings, *self.before.warnings)
        return tuple(dict.fromkeys(map(str, warnings)))

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof kernels --format json` prints."""
        from roofmodel.plot.data import comparison_document, kernels_document

        document = kernels_document(self.measured) | {"warnings": list(self.warnings)}
        if self.before:
            document["comparison"] = comparison_document(self.before, self.measured, self.changes)
        return document

    def _rows(self) -> tuple[Table, Sequence[Any]]:
        """The kernels; with `before`, their changes."""
        from roofmodel.plot.columns import CHANGES, kernel_rows, kernel_table

        if self.before:
            return CHANGES, self.changes
        return kernel_table(len(self.measured.runs)), kernel_rows(self.measured)

    def to_frame(self) -> pandas.DataFrame:
        """One row per kernel, with the columns of `roof kernels --format csv`."""
        table, rows = self._rows()
        return table.frame(rows)

    def rows_to_check(self) -> Sequence[Mapping[str, Any]]:
        """The rows of `--fail-if`: the kernels; with `before`, their changes, and `all`."""
        from roofmodel.plot.comparison import rows_of_changes

        rows = super().rows_to_check()
        return rows_of_changes(rows, self.before, self.measured) if self.before else rows

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.report.encoding import as_json

        def csv() -> str:
            table, rows = self._rows()
            return table.csv(rows)

        return {"json": lambda: as_json(self.to_dict()), "csv": csv}

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return ("json", "csv", "parquet")

    def save(self, path: PathLike) -> Path:
        """Write the kernels (json, csv, parquet), by the suffix. Parquet has the columns of the CSV."""
        from roofmodel.files import output_files

        target = output_files.check(values.path("path", path), self.suffixes())
        if target.suffix.lower() != ".parquet":
            return output_files.write(str(target), None, self._texts())
        try:
            output_files.replace(target, lambda file: self.to_frame().to_parquet(file, engine="pyarrow", index=False))
        except ImportError:
            raise OutputError("Parquet needs pyarrow: pip install pyarrow, or use .csv") from None
        return target

    def __rich__(self) -> Any:
        from roofmodel.plot.tables import changes_table, kernels_table

        return changes_table(self.before, self.measured, self.changes) if self.before else kernels_table(self.measured)

    def __repr__(self) -> str:
        measured = self.measured
        return f"<ProfileReport of {', '.join(measured.files)}: {len(measured.kernels)} kernels, by {measured.tool}>"


class PlotReport(TextResult, PictureResult):
    """Result of `plot`: measured and predicted points on a device's roofline."""

    naming = ("hardware", "name")
    short_names = staticmethod(_short_names)
    identifying = ("level",)

    def __init__(self, placed: RooflinePlot) -> None:
        self.placed = placed

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(map(str, self.placed.warnings))

    def _messages(self) -> Iterable[Text]:
        """Options that do not apply."""
        return self.placed.notes

    @property
    def default_path(self) -> str:
        """The picture that `roof plot` writes without `-o`: FILE.roofline.png in the working folder."""
        return f"{self.placed.stem}.{'instructions' if self.placed.instructions else 'roofline'}.png"

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof plot --format json` prints."""
        from roofmodel.plot.data import points_document

        return points_document(self.placed)

    def to_frame(self) -> pandas.DataFrame:
        """One row per point in base units, with the columns of `roof plot --format csv`."""
        from roofmodel.plot.columns import point_file_table, point_rows
        from roofmodel.plot.data import refuse_instructions

        refuse_instructions(self.placed)
        return point_file_table(self.placed.rooflines).frame(point_rows(self.placed.rooflines))

    def rows_to_check(self) -> Sequence[Mapping[str, Any]]:
        """The rows of the data frame; those of a memory level without a ceiling lack what depends on it."""
        return [
            {
                column: value
                for column, value in row.items()
                if row["fraction"] is not None or column not in ("fraction", "attainable", "bound")
            }
            for row in super().rows_to_check()
        ]

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.plot.data import SUFFIXES

        return SUFFIXES

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.plot.data import points_csv
        from roofmodel.report.encoding import as_json

        return {"json": lambda: as_json(self.to_dict()), "csv": lambda: points_csv(self.placed)}

    def save(self, path: PathLike) -> Path:
        """Write a picture (png, svg, pdf), a page (html) or the data (json, csv), by the suffix."""
        from roofmodel.plot.data import save_points

        return save_points(self.placed, values.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.plot.instructions import instructions_table
        from roofmodel.plot.tables import points_table

        return instructions_table(self.placed) if self.placed.instructions else points_table(self.placed)

    def __repr__(self) -> str:
        points = sum(len(roofline.points) for roofline in self.placed.rooflines)
        return f"<PlotReport of {', '.join(self.placed.files) or self.placed.model}: {points} points>"


class CollectionCommand(TextResult):
    """Result of `ncu_command` and `nsys_command`: a command line of a profiler, with a reason for each part."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    @property
    def line(self) -> str:
        """The command for a shell, in one line."""
        from roofmodel.plot.ncu_command_text import line

        return line(self.collection)

    @property
    def reasons(self) -> str:
        """One line per part of the command; one line per group of metrics."""
        from roofmodel.plot.ncu_command_text import reasons

        return reasons(self.collection)

    def _messages(self) -> Iterable[Text]:
        return self.collection.notes

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof ncu-command --format json` or `roof nsys-command --format json` prints."""
        from roofmodel.plot.ncu_command_text import document

        return document(self.collection)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.report.encoding import as_json

        return {"line": lambda: self.line, "json": lambda: as_json(self.to_dict())}

    def __rich__(self) -> Any:
        return f"{self.line}\n{self.reasons}"

    def __repr__(self) -> str:
        return f"<CollectionCommand {self.line}>"
