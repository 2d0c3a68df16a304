"""`roof calibrate` and `roofmodel.calibrate`: timing parameters fitted to measured operations."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from roofmodel.compare.serving.calibration import calibrate_engine
from roofmodel.devices.device import Device
from roofmodel.errors import Option, Text, WorkloadError
from roofmodel.numbers import units
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import PathLike, ProgressCallback, no_progress
from roofmodel.report.base import Result
from roofmodel.report.command import CommandCall, CommandLine
from roofmodel.report.document import Block, Document, Paragraph, Rows
from roofmodel.report.printing import note, present
from roofmodel.report.table import COUNT, FINE_PERCENT, Column, Table

if TYPE_CHECKING:
    from pathlib import Path

    from roofmodel.measure.calibrate import Calibrated

SETS = Table(
    "sets",
    (
        Column(None, "kind", value=lambda row: row[0], wrap=True),
        Column(None, "kernel", value=lambda row: row[1].rpartition("/")[2], wrap=True),
        Column(None, "formats", value=lambda row: row[2], wrap=True),
        Column(None, "fitted", COUNT, lambda row: row[3][1].rows),
        Column(None, "held out", COUNT, lambda row: row[3][1].held_out),
        Column(None, "mean error", FINE_PERCENT, lambda row: row[3][1].error),
        Column(None, "80 % interval", COUNT, lambda row: f"{row[3][1].low - 1:+.0%} {row[3][1].high - 1:+.0%}"),
    ),
)
"""A row for each parameter set: kind, name, formats, and the set with its fit."""


class CalibrationReport(Result):
    """Result of `calibrate`: fitted timing parameters with their errors on held-out rows.

    `save` writes the device's file with these parameters.
    """

    FILES: ClassVar[Sequence[str]] = ("yaml",)
    FORMATS: ClassVar[Sequence[str]] = ()

    def __init__(self, device: Device, calibrated: Calibrated, yaml: str, warnings: Sequence[str]) -> None:
        self.device = device
        self.calibration = calibrated.calibration
        self.yaml = yaml
        self._fitted = calibrated.fitted
        self._remarks = calibrated.remarks
        self._warnings = tuple(warnings)

    def _messages(self) -> Iterable[Text]:
        """Rows that were not fitted, and parameters without data."""
        return self._remarks

    @property
    def warnings(self) -> tuple[str, ...]:
        """Tables that were measured on another device."""
        return self._warnings

    def answer(self) -> Document:
        """The fitted parameter sets with their errors on held-out rows, and the number of the sets of these kinds that
        come from the device's file, because the tables have too few rows of them."""
        kinds = {kind for kind, *_ in self._fitted.sets()}
        others = sum(kind in kinds for kind, *_ in self.calibration.sets()) - len([*self._fitted.sets()])
        blocks: list[Block] = [Rows(SETS, [*self._fitted.sets()])]
        if others:
            blocks.append(Paragraph(f"from the device's file: {units.count(others, 'other set')} of these kinds"))
        explanation = (
            "fitted, held out: numbers of rows. Errors and intervals are those of the held-out rows; the interval is "
            "measured / expected - 1."
        )
        blocks.append(Paragraph(explanation, dim=True))
        return Document(f"{self.device.name} ({self.device.id})", blocks, dict)

    def _write(self, form: str, file: Path) -> None:
        """Write the device's file with the fitted parameters."""
        file.write_text(self.yaml.rstrip() + "\n", encoding="utf-8")

    def __repr__(self) -> str:
        return f"<CalibrationReport of {self.device.name}>"


@checked
def calibrate(
    tables: PathLike | Iterable[PathLike],
    hw: PathLike,
    *,
    source: str = "own measurements",
    progress: ProgressCallback = no_progress,
) -> CalibrationReport:
    """Fit the timing model to measured operations (needs scipy, which the extra `calibrate` installs).

    Raises RoofError.

    Args:
        tables: CSV tables of measured operations, as for 'roof validate'.
        hw: The device on which the operations were measured.
        source: Source of the measurements, written into the file.
        progress: Called before each fit with its description, the number of finished fits, and None.

    Examples:
        >>> calibrate("rows.csv", "my-gpu.yaml")  # doctest: +SKIP
    """
    from roofmodel.devices import library
    from roofmodel.devices.calibration import Calibration
    from roofmodel.devices.calibration_writer import device_file
    from roofmodel.measure.calibrate import calibrate as study
    from roofmodel.measure.table import gpus, read
    from roofmodel.roofline.device import others

    files = values.paths("tables", tables)
    path, device = library.find(hw), Device.load(hw)
    text = path.read_text(encoding="utf-8")
    device_file(text, Calibration(device.id))  # a layout that cannot be extended is an error before the fit
    calibrated = study(files, device, source, progress=progress)
    yaml = device_file(text, calibrated.calibration)
    warnings = [text for table in files for text in others(device, gpus(read(table)), table)]
    return CalibrationReport(device, calibrated, yaml, warnings)


def _run(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    from roofmodel.benchmark_results.reading import are_results

    names = list(call.given["tables"])
    if "engine" in call.given and len(names) > 1:
        given = {name: value for name, value in call.given.items() if name not in ("tables", "source")}
        present(CommandCall(calibrate_engine, {"model": names[0], "files": names[1:], **given})(), form, output)
        return
    if len(names) > 1 and are_results(names[1:]):
        raise WorkloadError(
            f"{names[1]}: a result of a serving benchmark, which calibrates an engine; add ", Option("engine", "ENGINE")
        )
    foreign = [name for name in call.given if name not in inspect.signature(calibrate).parameters]
    if foreign:
        raise WorkloadError(
            Option(foreign[0]), " is for the host of an engine; give a model, results and the engine, as in: roof "
            "calibrate llama-3.1-70b c8.json c64.json --hw h100 --tp 8 --engine ENGINE -o my-engine.yaml",
        )  # fmt: skip
    report = call(progress=lambda subject, *_: note(f"fitting {subject}"))
    present(report, form, output, warn_first=True)


COMMAND = CommandLine(
    calibrate,
    (calibrate_engine,),
    about="Fit the timing model of a device to measured operations; or, with --engine, what the host of a serving "
    "engine takes to results of serving benchmarks.",
    settings={
        "tables": {
            "help": "CSV tables of measured operations, as for 'roof validate'; with --engine, a model, and results of "
            "serving benchmarks as for 'roof compare'."
        },
        "hw": {"help": "The device on which the operations or the service were measured."},
    },
    formats=(),
    files=".yaml: the file of the device with the fitted parameters, or of the engine with the fitted host.",
    run=_run,
    examples=(
        "roof calibrate measured.csv --hw a100 -o a100.yaml",
        "roof calibrate gemm.csv attention.csv --hw h100 -o h100.yaml",
        "roof calibrate measured.csv --hw own.yaml -o calibrated.yaml --source 'torch 2.9, driver 580'",
        "roof calibrate llama-3.1-70b c8.json c64.json --hw h100 --tp 8 --engine vllm -o my-engine.yaml",
    ),
)
