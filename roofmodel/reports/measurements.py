"""Results from measurements and files: profiles, comparisons, benchmarks, module counts, listings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.errors import OutputError, Text
from roofmodel.options import arguments
from roofmodel.options.arguments import PathLike
from roofmodel.report.base import FileResult, PictureResult, RenderedResult, TextResult

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.devices.device import Device
    from roofmodel.profiles.kernel import Kernel
    from roofmodel.study.benchmark.calibrate import Calibrated
    from roofmodel.study.benchmark.measured_table import Measurement
    from roofmodel.study.benchmark.validate import Validation
    from roofmodel.study.compare.comparison import Comparison
    from roofmodel.study.count import Count
    from roofmodel.study.profile.ncu_command import Collection
    from roofmodel.study.profile.place import MeasuredKernels, RooflinePlot
    from roofmodel.views import listing


class ProfileReport(TextResult, FileResult):
    """Result of `read_profile`: the measured kernels of profiler files."""

    def __init__(self, measured: MeasuredKernels) -> None:
        self.measured = measured

    @property
    def kernels(self) -> Sequence[Kernel]:
        """The kernels: seconds, FLOPs by pipe, bytes by memory level; None for a metric that was not collected."""
        return self.measured.kernels

    @property
    def warnings(self) -> tuple[str, ...]:
        """Data that the files lack, and the metrics to collect."""
        return tuple(map(str, self.measured.warnings))

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof kernels --format json` prints."""
        from roofmodel.views.profile.data import kernels_document

        return kernels_document(self.measured)

    def to_frame(self) -> pandas.DataFrame:
        """One row per kernel, with the columns of `roof kernels --format csv`."""
        import pandas

        from roofmodel.views.profile.data import flat

        return pandas.DataFrame(flat(self.to_dict()))

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.report.encoding import as_json
        from roofmodel.views.profile.data import kernels_csv

        return {"json": lambda: as_json(self.to_dict()), "csv": lambda: kernels_csv(self.to_dict())}

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return ("json", "csv", "parquet")

    def save(self, path: PathLike) -> Path:
        """Write the kernels (json, csv, parquet), by the suffix. Parquet has the columns of the CSV."""
        from roofmodel.files import output_files

        target = output_files.check(arguments.path("path", path), self.suffixes())
        if target.suffix.lower() != ".parquet":
            return output_files.write(str(target), None, self._texts())
        try:
            output_files.replace(target, lambda file: self.to_frame().to_parquet(file, engine="pyarrow", index=False))
        except ImportError:
            raise OutputError("Parquet needs pyarrow: pip install pyarrow, or use .csv") from None
        return target

    def __rich__(self) -> Any:
        from roofmodel.views.profile.tables import kernels_table

        return kernels_table(self.measured)

    def __repr__(self) -> str:
        found = self.measured
        return f"<ProfileReport of {', '.join(found.files)}: {len(found.kernels)} kernels, by {found.tool}>"


class PlotReport(TextResult, PictureResult):
    """Result of `plot`: measured and predicted points on a device's roofline."""

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
        return f"{self.placed.stem}.roofline.png"

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof plot --format json` prints."""
        from roofmodel.views.profile.data import points_document

        return points_document(self.placed)

    def to_frame(self) -> pandas.DataFrame:
        """One row per point in base units, with the columns of `roof plot --format csv`."""
        import pandas

        from roofmodel.views.profile.data import point_rows

        return pandas.DataFrame(point_rows(self.placed.rooflines))

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.views.profile.data import SUFFIXES

        return SUFFIXES

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.report.encoding import as_json
        from roofmodel.views.profile.data import points_csv

        return {"json": lambda: as_json(self.to_dict()), "csv": lambda: points_csv(self.placed.rooflines)}

    def save(self, path: PathLike) -> Path:
        """Write a picture (png, svg, pdf), a page (html) or the data (json, csv), by the suffix."""
        from roofmodel.views.profile.data import save_points

        return save_points(self.placed, arguments.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.views.profile.tables import points_table

        return points_table(self.placed)

    def __repr__(self) -> str:
        points = sum(len(roofline.points) for roofline in self.placed.rooflines)
        return f"<PlotReport of {', '.join(self.placed.files) or self.placed.model}: {points} points>"


class CompareReport(TextResult, PictureResult):
    """Result of `compare`: operators with the kernels that ran them, predicted and measured."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    @property
    def totals(self) -> dict[str, Any]:
        """Sums over one pass of each phase, as in the JSON."""
        totals: dict[str, Any] = self.to_dict()["totals"]
        return totals

    @property
    def findings(self) -> list[str]:
        """The three most important differences between prediction and measurement, in words."""
        from roofmodel.views.compare.text import finding_texts

        return list(map(str, finding_texts(self.comparison)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Data that the files lack, and kernels that were left out."""
        return tuple(map(str, self.comparison.notes))

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof compare --format json` prints."""
        from roofmodel.views.compare.data import document

        return document(self.comparison)

    def to_frame(self) -> pandas.DataFrame:
        """One row per group of operators in base units, with the columns of `roof compare --format csv`."""
        import pandas

        from roofmodel.views.compare.data import rows

        return pandas.DataFrame(rows(self.comparison))

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.views.compare.terminal import SUFFIXES

        return SUFFIXES

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.views.compare.data import as_csv, as_json

        return {"json": lambda: as_json(self.comparison), "csv": lambda: as_csv(self.comparison)}

    def save(self, path: PathLike) -> Path:
        """Write a picture (png, svg, pdf) or the data (json, csv), by the suffix."""
        from roofmodel.views.compare.terminal import save

        return save(self.comparison, arguments.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.views.compare.terminal import table

        return table(self.comparison)

    def __repr__(self) -> str:
        found = self.comparison
        passes = ", ".join(f"{each.used} {each.phase}" for each in found.passes)
        return f"<CompareReport of {found.estimate.architecture.name} on {found.identified.device.name}: {passes}>"


class CollectionCommand(TextResult):
    """Result of `ncu_command`: a command line that collects metrics, with a reason for each part."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    @property
    def line(self) -> str:
        """The command for a shell, in one line."""
        from roofmodel.views.profile.ncu_command import line

        return line(self.collection)

    @property
    def reasons(self) -> str:
        """One line per part of the command; one line per group of metrics."""
        from roofmodel.views.profile.ncu_command import reasons

        return reasons(self.collection)

    def _messages(self) -> Iterable[Text]:
        return self.collection.notes

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof ncu-command --format json` prints."""
        from roofmodel.views.profile.ncu_command import document

        return document(self.collection)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.report.encoding import as_json

        return {"line": lambda: self.line, "json": lambda: as_json(self.to_dict())}

    def __rich__(self) -> Any:
        return f"{self.line}\n{self.reasons}"

    def __repr__(self) -> str:
        return f"<CollectionCommand {self.line}>"


class CountReport(TextResult, FileResult):
    """Result of `count`: the operators of a torch module."""

    def __init__(self, count: Count) -> None:
        self.count = count

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof count --format json` prints."""
        from roofmodel.views.count import document

        return document(self.count)

    def to_frame(self) -> pandas.DataFrame:
        """One row per operator in base units."""
        import pandas

        return pandas.DataFrame(self.to_dict()["ops"])

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.views.count import as_csv, as_json

        return {"json": lambda: as_json(self.count), "csv": lambda: as_csv(self.count)}

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return ("json", "csv")

    def save(self, path: PathLike) -> Path:
        """Write the operators (json, csv), by the suffix."""
        from roofmodel.files import output_files

        return output_files.write(arguments.path("path", path), None, self._texts())

    def __rich__(self) -> Any:
        from roofmodel.views.count import table

        return table(self.count)

    def __repr__(self) -> str:
        return f"<CountReport of {self.count.name}: {len(self.count.operators)} operators>"


class ValidationReport(TextResult, PictureResult):
    """Result of `validate`: errors of bound and expected time on measured operations."""

    def __init__(self, validation: Validation) -> None:
        self.validation = validation

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(map(str, self.validation.warnings))

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof validate --format json` prints."""
        from roofmodel.views.benchmark.validate import document

        return document(self.validation)

    def to_frame(self) -> pandas.DataFrame:
        """All rows of the table with the columns that `roof validate -o rows.csv` adds."""
        import io

        import pandas

        from roofmodel.views.benchmark.validate import rows_csv

        return pandas.read_csv(io.StringIO(rows_csv(self.validation)))

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.views.benchmark.validate import SUFFIXES

        return SUFFIXES

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.views.benchmark.validate import as_json, rows_csv

        return {"json": lambda: as_json(self.validation), "csv": lambda: rows_csv(self.validation)}

    def save(self, path: PathLike) -> Path:
        """Write all rows with their predictions (csv), the errors (json) or a picture (png, svg, pdf)."""
        from roofmodel.views.benchmark.validate import save

        return save(self.validation, arguments.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.views.benchmark.validate import table

        return table(self.validation)

    def __repr__(self) -> str:
        return f"<ValidationReport of {self.validation.file} on {self.validation.device.name}>"


class CalibrationReport(FileResult):
    """Result of `calibrate`: fitted timing parameters with their errors on held-out rows."""

    def __init__(self, device: Device, found: Calibrated, yaml: str, warnings: Sequence[str]) -> None:
        self.device = device
        self.calibration = found.calibration
        self.yaml = yaml
        self._found = found
        self._warnings = tuple(warnings)

    def _messages(self) -> Iterable[Text]:
        """Rows that were not fitted, and parameters without data."""
        return self._found.remarks

    @property
    def warnings(self) -> tuple[str, ...]:
        """Tables that were measured on another device."""
        return self._warnings

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return ("yaml",)

    def save(self, path: PathLike) -> Path:
        """Write the device's file with the fitted parameters (yaml)."""
        from roofmodel.files import output_files

        return output_files.write(arguments.path("path", path), None, {"yaml": self.yaml.rstrip})

    def __rich__(self) -> Any:
        from roofmodel.views.benchmark.calibrate import table

        return table(self.device, self._found.fitted, self.calibration)

    def __repr__(self) -> str:
        return f"<CalibrationReport of {self.device.name}>"


class MeasureReport(RenderedResult):
    """Result of `measure`: the rows that were measured and written."""

    def __init__(self, measurement: Measurement) -> None:
        self.measurement = measurement

    @property
    def path(self) -> Path:
        """The CSV table that was written."""
        return self.measurement.path

    @property
    def interrupted(self) -> bool:
        """Whether the run was interrupted (Ctrl-C, SIGTERM) before its plan or budget ended."""
        return self.measurement.interrupted

    def _messages(self) -> Iterable[Text]:
        """Cases that failed, and the command that continues."""
        return self.measurement.notes

    def __rich__(self) -> Any:
        from roofmodel.views.benchmark.measure import summary

        return summary(self.measurement)

    def __repr__(self) -> str:
        return f"<MeasureReport {self.path}: {self.measurement.rows} rows>"


class Listing(TextResult):
    """Result of `list_models`, `show_model`, `list_hardware` …: a table, and its content as `data`."""

    def __init__(
        self, listing: listing.ListingContent, notes: Sequence[Text] = (), warnings: Sequence[str] = ()
    ) -> None:
        self.listing = listing
        self._notes = tuple(notes)
        self._warnings = tuple(warnings)

    @property
    def data(self) -> Any:
        """What `--format json` prints: lists and dictionaries."""
        return self.listing.data

    def _messages(self) -> Iterable[Text]:
        return self._notes

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._warnings

    def to_frame(self) -> pandas.DataFrame:
        """One row per model, family or device; of a single one, one row per field."""
        import pandas

        return pandas.DataFrame(self.data) if isinstance(self.data, list) else pandas.json_normalize(self.data).T

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.report.encoding import as_json

        return {"json": lambda: as_json(self.data)}

    def __rich__(self) -> Any:
        return self.listing.table

    def __repr__(self) -> str:
        content = f"{len(self.data)} entries" if isinstance(self.data, list) else self.data["name"]
        return f"<Listing of {content}>"


class HardwareCheck(RenderedResult):
    """Result of `check_hardware`: a valid device file, with warnings for doubtful entries."""

    def __init__(self, file: str, device: Device, doubts: Sequence[str]) -> None:
        self.file = file
        self.device = device
        self.doubts = tuple(doubts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Entries that do not agree with others of the file."""
        return tuple(f"{self.file}: {doubt}" for doubt in self.doubts)

    def __str__(self) -> str:
        doubts = len(self.doubts)
        count = f", {doubts} warning{'s' if doubts > 1 else ''}" if doubts else ""
        return f"{self.file}: {self.device.name}: valid{count}"

    def __rich__(self) -> Any:
        return str(self)
