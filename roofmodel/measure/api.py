"""The Python functions of `roof measure`, `roof validate` and `roof calibrate`."""

from __future__ import annotations

from collections.abc import Iterable

from roofmodel.devices.device import Device, Hardware
from roofmodel.errors import Option, WorkloadError
from roofmodel.measure.report import CalibrationReport, MeasureReport, ValidationReport
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import (
    BenchmarkDevice,
    EngineName,
    EngineOption,
    L2State,
    Model,
    PathLike,
    Phase,
    ProgressCallback,
    no_progress,
)

BUDGET: float = 120  # seconds


@checked
def validate(
    table: PathLike, hw: Hardware, *, engine: EngineName | None = None, engine_option: EngineOption | None = None
) -> ValidationReport:
    """Compute the errors of bound and expected time for measured operations.

    Expected times are those of the kernels in the table's column `kernel`. Raises RoofError.

    Args:
        table: CSV table of measured operations: op, dtype, latency_us and the shape columns.
        hw: The device on which the operations were measured.
        engine: Engine whose kernels run rows without a kernel, such as vllm (default: the device's own).
        engine_option: KEY=VALUE, such as attention=triton, as for estimate.

    Examples:
        >>> validate("rows.csv", "a100")  # doctest: +SKIP
    """
    from roofmodel.engines.engine import Engine
    from roofmodel.measure.validate import validate as study
    from roofmodel.options.workload import valid
    from roofmodel.steps.options import check_kernels

    if engine_option and engine is None:
        raise WorkloadError(Option("engine_option"), " needs ", Option("engine"))
    loaded_engine = None if engine is None else Engine.load(engine, valid("engine_option", engine_option or ()))
    device = Device.load(hw)
    if loaded_engine is not None:
        check_kernels(loaded_engine, [device])
    return ValidationReport(study(values.path("table", table), device, loaded_engine))


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


@checked
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
    budget: float = BUDGET,
    device: BenchmarkDevice | None = None,
    seed: int = 0,
    resume: bool = False,
    force: bool = False,
    progress: ProgressCallback = no_progress,
) -> MeasureReport:
    """Measure operations on this machine with torch, for `validate` and `calibrate`.

    An interrupt (Ctrl-C) ends the run; its rows are kept. Raises RoofError.

    Args:
        output: FILE .csv: one row per measured operation.
        ops: Operations to measure, such as gemm,attn_context (default: all).
        dtype: Formats, such as fp16,bf16 (default: all that the device supports).
        model: Measure the operators of this model instead of random shapes.
        phase: With `model`: as for estimate.
        batch: With `model`: as for estimate.
        seq: With `model`: as for estimate.
        context: With `model`: as for estimate.
        l2: State of the L2 cache at a launch; cold: flushed.
        budget: Seconds after which the run stops and keeps its rows.
        device: Where the operations run (default: cuda if a GPU is found).
        seed: Seed of the random shapes.
        resume: Continue an interrupted run that wrote to FILE.
        force: Replace an existing FILE.
        progress: Called after each case with its text, the number of finished cases and of all cases.

    Examples:
        >>> measure("rows.csv", ops="gemm", budget=60)  # doctest: +SKIP
    """
    from roofmodel.measure.measured_table import run
    from roofmodel.models import hub

    architecture = None if model is None else hub.load(model, None)
    measurement = run(
        values.path("output", output), ops=ops, dtype=dtype, architecture=architecture,
        workload={"phase": phase, "batch": batch, "seq": seq, "context": context}, l2=l2, budget=budget, device=device,
        seed=seed, resume=resume, force=force, progress=progress,
    )  # fmt: skip
    return MeasureReport(measurement)
