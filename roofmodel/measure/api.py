"""The Python functions of `roof measure`, `roof validate` and `roof calibrate`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from roofmodel.devices.device import Device, Hardware
from roofmodel.measure.report import CalibrationReport, MeasureReport, ValidationReport
from roofmodel.options import arguments
from roofmodel.options.arguments import Model, PathLike, ProgressCallback, no_progress

if TYPE_CHECKING:
    from roofmodel.options.values import (
        BenchmarkDevice,
        L2State,
        Phase,
    )


def validate(table: PathLike, hw: Hardware) -> ValidationReport:
    """Errors of bound and expected time on a CSV table of measured operations. Raises RoofError.

    Examples:
        >>> validate("rows.csv", "a100")  # doctest: +SKIP
    """
    from roofmodel.measure.validate import validate as study

    return ValidationReport(study(arguments.path("table", table), arguments.device(hw)))


def calibrate(
    tables: PathLike | Iterable[PathLike],
    hw: PathLike,
    *,
    source: str = "own measurements",
    progress: ProgressCallback = no_progress,
) -> CalibrationReport:
    """The timing model's parameters, fitted to CSV tables of measured operations. Needs scipy.

    `hw` names the device of the tables, or its YAML file. `source` describes the tables in the file that `save` writes.
    `progress` is called before each fit with its description, the number of finished fits, and None. Raises RoofError.

    Examples:
        >>> calibrate("rows.csv", "my-gpu.yaml")  # doctest: +SKIP
    """
    from roofmodel.devices import library
    from roofmodel.devices.calibration import Calibration
    from roofmodel.devices.calibration_writer import device_file
    from roofmodel.measure.calibrate import calibrate as study
    from roofmodel.measure.table import gpus, read
    from roofmodel.roofline.device import others

    files = arguments.paths("tables", tables)
    path, device = library.find(hw), Device.load(hw)
    text = path.read_text(encoding="utf-8")
    device_file(text, Calibration(device.id))  # a layout that cannot be extended is an error before the fit
    found = study(files, device, source, progress=progress)
    yaml = device_file(text, found.calibration)
    warnings = [text for table in files for text in others(device, gpus(read(table)), table)]
    return CalibrationReport(device, found, yaml, warnings)


def measure(
    output: PathLike,
    *,
    ops: str | None = None,
    dtype: str | None = None,
    model: Model | None = None,
    phase: Phase | None = None,
    batch: int = 1,
    seq: int | None = None,
    context: int | None = None,
    l2: L2State = "cold",
    budget: float = 120,
    device: BenchmarkDevice | None = None,
    seed: int = 0,
    resume: bool = False,
    force: bool = False,
    progress: ProgressCallback = no_progress,
) -> MeasureReport:
    """Measure operations on this machine with torch and write them to a CSV table, for `validate` and `calibrate`.

    `ops` and `dtype` are names separated by commas (all without them). With `model`, its operators under `phase`,
    `batch`, `seq` and `context` are measured instead of a sweep of shapes drawn with `seed`. `l2` says whether caches
    are flushed before each launch; `budget` is seconds. `resume` continues an earlier table; `force` replaces it.
    `progress` is called after each case with its text, the number of finished cases and of all cases. An interrupt
    (Ctrl-C) ends the run; its rows are kept. Raises RoofError.

    Examples:
        >>> measure("rows.csv", ops="gemm", budget=60)  # doctest: +SKIP
    """
    from roofmodel.measure.measured_table import run

    architecture = None if model is None else arguments.architecture(model, None)
    arguments.check_texts(ops=ops, dtype=dtype, device=device)
    arguments.check_count(seed=seed)
    measurement = run(
        arguments.path("output", output), ops=ops, dtype=dtype, architecture=architecture,
        workload={"phase": phase, "batch": batch, "seq": seq, "context": context}, l2=l2, budget=budget, device=device,
        seed=seed, resume=resume, force=force, progress=progress,
    )  # fmt: skip
    return MeasureReport(measurement)
