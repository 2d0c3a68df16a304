"""Functions of measurements: profiles, comparisons, counts of torch modules, benchmarks and calibration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack

from roofmodel.devices.device import Device, Hardware
from roofmodel.options import arguments
from roofmodel.options.arguments import Model, PathLike, ProgressCallback, no_progress
from roofmodel.reports.measurements import (
    CalibrationReport,
    CollectionCommand,
    CompareReport,
    CountReport,
    MeasureReport,
    PlotReport,
    ProfileReport,
    ValidationReport,
)
from roofmodel.reports.runs import JitterReport, TraceReport

if TYPE_CHECKING:
    from roofmodel.options.values import (
        BenchmarkDevice,
        CeilingSource,
        ComputeFormat,
        FirstGap,
        KernelGrouping,
        L2State,
        Optimizer,
        Phase,
        RunGrouping,
    )
    from roofmodel.steps.options import WorkloadOptions


def read_profile(
    *paths: PathLike,
    hw: Hardware | None = None,
    times: PathLike | Iterable[PathLike] = (),
    progress: ProgressCallback = no_progress,
) -> ProfileReport:
    """Kernels from files of Nsight Compute, nvprof, Nsight Systems or PyTorch. Files of one device form one run.

    A path may name its device, as in `a.csv@v100`; `hw` names the device of the other files, where they do not state
    it. `times` are files whose times replace theirs. `progress` is called with a file's name, the bytes that were read,
    and its size. Raises RoofError for a file that is not a profile.

    Examples:
        >>> saxpy = next(k for k in read_profile("examples/ncu_by_hand.csv", hw="a100").kernels if "saxpy" in k.name)
        >>> f"{saxpy.flops.fp32:.0f} FLOP in {saxpy.seconds * 1e6:.0f} us"
        '33554432 FLOP in 120 us'
    """
    from roofmodel.profiles.reading import report_progress
    from roofmodel.study.profile.place import kernels

    files, timed = arguments.paths("paths", paths), arguments.paths("times", times)
    with report_progress(progress):
        return ProfileReport(kernels(files, arguments.given_hardware(hw), timed))


def plot(
    *paths: PathLike,
    hw: Hardware | None = None,
    by: KernelGrouping = "name",
    model: str | None = None,
    family: str | None = None,
    times: PathLike | Iterable[PathLike] = (),
    clock: str = "boost",
    ceilings: CeilingSource = "datasheet",
    flops: str | Iterable[str] = (),
    progress: ProgressCallback = no_progress,
    **workload: Unpack[WorkloadOptions],
) -> PlotReport:
    """Measured kernels on a device's roofline, grouped `by` name, base, nvtx, category or lecture.

    `paths`, `hw`, `times` and `progress` are as for `read_profile`. With `model`, its operators under `workload` are
    added at their bounds. `clock` is the clock of the ceilings: boost, measured, or one such as "1312MHz"; `ceilings`
    is datasheet or measured. `flops` states the FLOPs of each launch of the kernels that match a pattern, such as
    "gemm*=2*4096^3", or "gemm*=2*4096^3:tensor_fp16" with their pipe; they replace measured ones. Raises RoofError for
    a file that is not a profile, and if there is nothing to plot.

    Examples:
        >>> plot("examples/ncu_by_hand.csv", hw="a100")
        <PlotReport of ncu_by_hand.csv: 6 points>
    """
    from roofmodel.profiles.reading import report_progress
    from roofmodel.study.profile.place import place

    arguments.check_texts(model=model, family=family)
    arguments.check_required_texts(by=by, clock=clock, ceilings=ceilings)
    files, timed = arguments.paths("paths", paths), arguments.paths("times", times)
    given = arguments.given_hardware(hw)
    with report_progress(progress):
        placed = place(
            files, given, by=by, model=model, family=family, workload=workload, times=timed, clock=clock,
            ceilings=ceilings, flops=[flops] if isinstance(flops, str) else arguments.words("flops", flops),
        )  # fmt: skip
    return PlotReport(placed)


def compare(
    model: Model,
    *paths: PathLike,
    hw: Hardware | None = None,
    family: str | None = None,
    times: PathLike | Iterable[PathLike] = (),
    steps: int | None = None,
    device: str | None = None,
    progress: ProgressCallback = no_progress,
    **workload: Unpack[WorkloadOptions],
) -> CompareReport:
    """Predicted and measured figures of a model's operators, from profiler files of one run.

    `paths`, `hw`, `times` and `progress` are as for `read_profile`; `model`, `family` and `workload` as for `estimate`.
    `steps` is the number of passes in the files (found without it); `device` the ordinal of the GPU if the files hold
    several. Raises RoofError for an unknown model, a file that is not a profile, and a profile of another model.

    Examples:
        >>> compare("gpt2", "examples/gpt2_trace_by_hand.json.gz", phase="prefill", seq=512)
        <CompareReport of openai-community/gpt2 on NVIDIA A100 SXM4 80 GB: 1 prefill>
    """
    from roofmodel.profiles.reading import report_progress
    from roofmodel.study.compare.compare import compare as study

    arguments.check_texts(family=family, device=device)
    arguments.check_count(steps=steps)
    name, files, timed = (
        arguments.path("model", model),
        arguments.paths("paths", paths),
        arguments.paths("times", times),
    )
    given = arguments.given_hardware(hw)
    with report_progress(progress):
        found = study(name, files, given, family=family, times=timed, steps=steps, device=device, workload=workload)
    return CompareReport(found)


def trace(
    *paths: PathLike,
    before: PathLike | Iterable[PathLike] = (),
    one_run: bool = False,
    by: RunGrouping = "group",
    top: int = 10,
    steps: str | None = None,
    hw: Hardware | None = None,
    progress: ProgressCallback = no_progress,
) -> TraceReport:
    """Where the time of a run goes, from files of Nsight Systems, the PyTorch profiler or nvprof.

    Per rank (GPU of a process of a file): computation, exposed communication and copies, overlap, and idle time by
    cause; copies, collectives, steps, and GPU work `by` group (kind of work), lecture, name, nvtx, operator, device,
    stream or step. `top` is the number of kernels in the list of the longest; `steps` selects a range such as "5:8",
    without the last. A folder means all its files.

    Two runs of one program, before and after a change, are compared: `before` are the files of the first. Two paths
    that contain the same rank or GPU are two runs as well, unless `one_run`. Raises RoofError for a file that is not a
    run.

    Examples:
        >>> report = trace("examples/training_by_hand.json")
        >>> report.findings[0].partition(":")[0]
        'the input pipeline limits the run'
    """
    from roofmodel.profiles.reading import report_progress
    from roofmodel.study.trace.trace import trace as study

    arguments.check_texts(steps=steps)
    arguments.check_required_texts(by=by)
    arguments.check_count(top=top)
    files = arguments.paths("paths", paths)
    files_before = arguments.paths("before", arguments.as_sequence(before)) if before else []
    with report_progress(progress):
        found = study(
            files, before=files_before, one_run=one_run, by=by, top=top, steps_range=steps,
            hw=arguments.given_hardware(hw),
        )  # fmt: skip
        return TraceReport(found)


def jitter(
    *paths: PathLike,
    steps: str | None = None,
    threshold: str | float | None = None,
    first_gap: FirstGap = "same-step",
    what_if: bool = False,
    cache: PathLike | None = None,
    cluster: str | None = None,
    progress: ProgressCallback = no_progress,
) -> JitterReport:
    """Which of many ranks is late, from which kernel on, and why; from files of Nsight Systems, PyTorch and others.

    A rank is a GPU of a process of a file. `steps` selects a range such as "5:8", without the last; `threshold` is the
    deviation from the mean over ranks from which a rank is late, with a unit or in seconds; by default 100 µs, or 0.5 %
    of the step if that is longer. `first_gap` defines the gap
    before the first kernel of a step: "same-step" or "previous-step". `what_if` replays operation tables with ideal
    times. A folder means all its files. Damaged files and ranks that cannot be compared are left out with a warning.
    `cache` is a folder for Parquet files with the kernels of each file, for runs larger than memory; `cluster` the
    address of a Dask scheduler, or "local", for such files. Raises RoofError if fewer than two ranks are left.

    Examples:
        >>> report = jitter("examples/four_ranks_by_hand.csv")
        >>> report.to_dict()["causes"][0]["kind"]
        'cpu'
    """
    from roofmodel.profiles.reading import report_progress
    from roofmodel.study.jitter.jitter import jitter as study

    arguments.check_texts(steps=steps, cluster=cluster)
    arguments.check_required_texts(first_gap=first_gap)
    files = arguments.paths("paths", paths)
    folder = None if cache is None else arguments.path("cache", cache)
    with report_progress(progress):
        found = study(
            files, steps_range=steps, threshold=threshold, first_gap=first_gap, what_if=what_if, cache=folder,
            cluster=cluster,
        )  # fmt: skip
    return JitterReport(found)


def ncu_command(
    program: Iterable[str],
    hw: Hardware | None = None,
    *,
    nvtx: str | None = None,
    skip: int | None = None,
    count: int | None = None,
    nvprof: bool = False,
) -> CollectionCommand:
    """The ncu command line that collects the metrics of a roofline on a device (an A100 without `hw`).

    `nvtx` limits it to launches in one range; `skip` and `count` select launches. `nvprof` collects times only, on a
    V100. Raises RoofError for a device whose metrics are unknown.

    Examples:
        >>> ncu_command(["python", "train.py"], "a100", count=10).line.startswith("ncu --csv --page raw")
        True
    """
    from roofmodel.study.profile.ncu_command import collect

    arguments.check_texts(nvtx=nvtx)
    arguments.check_count(skip=skip, count=count)
    given = arguments.given_hardware(hw)
    return CollectionCommand(
        collect(arguments.words("program", program), given, nvtx=nvtx, skip=skip, count=count, nvprof=nvprof)
    )


def count(
    target: str,
    inputs: Iterable[str],
    *,
    dtype: ComputeFormat = "fp16",
    hw: Hardware | None = None,
    optimizer: Optimizer = "adam",
) -> CountReport:
    """FLOPs and bytes of the operators of any torch module; with `hw` the bound of each. Needs torch.

    `.to_dict()["memory"]` has the bytes of a training step with the optimizer: weights, gradients, optimizer state, and
    the activations that autograd keeps for the backward pass.

    `target` is `MODULE:FACTORY`, as in "torchvision.models:resnet50" or "./my.py:make"; `inputs` are shapes such as
    "1x3x224x224" or "int:1x1024"; `dtype` the format of all floating-point tensors. Raises RoofError.

    Examples:
        >>> count("torch.nn:Linear", ["8,784"])  # doctest: +SKIP
    """
    from roofmodel.study.count import count as study

    arguments.check_required_texts(target=target, dtype=dtype, optimizer=optimizer)
    device = arguments.optional_device(hw)
    return CountReport(study(target, arguments.words("inputs", inputs), dtype, device, optimizer))


def validate(table: PathLike, hw: Hardware) -> ValidationReport:
    """Errors of bound and expected time on a CSV table of measured operations. Raises RoofError.

    Examples:
        >>> validate("rows.csv", "a100")  # doctest: +SKIP
    """
    from roofmodel.study.benchmark.validate import validate as study

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
    from roofmodel.roofline.device import others
    from roofmodel.study.benchmark.calibrate import calibrate as study
    from roofmodel.study.benchmark.table import gpus, read

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
    from roofmodel.study.benchmark.measured_table import run

    architecture = None if model is None else arguments.architecture(model, None)
    arguments.check_texts(ops=ops, dtype=dtype, device=device)
    arguments.check_count(seed=seed)
    measurement = run(
        arguments.path("output", output), ops=ops, dtype=dtype, architecture=architecture,
        workload={"phase": phase, "batch": batch, "seq": seq, "context": context}, l2=l2, budget=budget, device=device,
        seed=seed, resume=resume, force=force, progress=progress,
    )  # fmt: skip
    return MeasureReport(measurement)
