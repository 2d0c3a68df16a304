"""Results of `measure`, `validate` and `calibrate`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.errors import Text
from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import FileResult, PictureResult, RenderedResult, TextResult

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.devices.device import Device
    from roofmodel.measure.calibrate import Calibrated
    from roofmodel.measure.measured_table import Measurement
    from roofmodel.measure.validate import Validation


class ValidationReport(TextResult, PictureResult):
    """Result of `validate`: errors of bound and expected time on measured operations."""

    def __init__(self, validation: Validation) -> None:
        self.validation = validation

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(map(str, self.validation.warnings))

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof validate --format json` prints."""
        from roofmodel.measure.validation_tables import document

        return document(self.validation)

    def rows_to_check(self) -> list[dict[str, Any]]:
        """The rows of `--fail-if`: operations, with the errors as `bound_mape`, `expected_mape` and others."""
        rows = []
        for op, errors in {"all": self.to_dict(), **self.to_dict()["by_op"]}.items():
            parts = {kind: errors[kind] or {} for kind in ("bound", "expected")}
            rows.append(
                {
                    "op": op,
                    "n": errors["n"],
                    **{f"{kind}_{k}": v for kind, each in parts.items() for k, v in each.items()},
                }
            )
        return rows

    def to_frame(self) -> pandas.DataFrame:
        """All rows of the table with the columns that `roof validate -o rows.csv` adds."""
        import io

        import pandas

        from roofmodel.measure.validation_tables import rows_csv

        return pandas.read_csv(io.StringIO(rows_csv(self.validation)))

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.measure.validation_tables import SUFFIXES

        return SUFFIXES

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.measure.validation_tables import as_json, rows_csv

        return {"json": lambda: as_json(self.validation), "csv": lambda: rows_csv(self.validation)}

    def save(self, path: PathLike) -> Path:
        """Write all rows with their predictions (csv), the errors (json) or a picture (png, svg, pdf)."""
        from roofmodel.measure.validation_tables import save

        return save(self.validation, values.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.measure.validation_tables import table

        return table(self.validation)

    def __repr__(self) -> str:
        return f"<ValidationReport of {self.validation.file} on {self.validation.device.name}>"


class CalibrationReport(FileResult):
    """Result of `calibrate`: fitted timing parameters with their errors on held-out rows."""

    def __init__(self, device: Device, calibrated: Calibrated, yaml: str, warnings: Sequence[str]) -> None:
        self.device = device
        self.calibration = calibrated.calibration
        self.yaml = yaml
        self._calibrated = calibrated
        self._warnings = tuple(warnings)

    def _messages(self) -> Iterable[Text]:
        """Rows that were not fitted, and parameters without data."""
        return self._calibrated.remarks

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

        return output_files.write(values.path("path", path), None, {"yaml": self.yaml.rstrip})

    def __rich__(self) -> Any:
        from roofmodel.measure.fitted_table import table

        return table(self.device, self._calibrated.fitted, self.calibration)

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
        from roofmodel.measure.summary import summary

        return summary(self.measurement)

    def __repr__(self) -> str:
        return f"<MeasureReport {self.path}: {self.measurement.rows} rows>"
