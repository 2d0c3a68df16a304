"""Functions of the library: one for each command of `roof`, with the same options and the same results.

Each function returns a report with `.to_dict()`, `.to_frame()`, `.notes`, `.save(path)` where they apply, and shows
its tables in a notebook. Errors are `RoofError` and its subclasses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Unpack

from roofmodel import arguments
from roofmodel.arguments import Hardware, Model, PathLike
from roofmodel.devices.device import Device
from roofmodel.errors import RoofError
from roofmodel.reports.measurements import (
    CalibrationReport,
    CollectionCommand,
    CompareReport,
    CountReport,
    HardwareCheck,
    Listing,
    MeasureReport,
    PlotReport,
    ProfileReport,
    ValidationReport,
)
from roofmodel.reports.predictions import Derivation, ExplorePage, HomeworkSheet, Report, SweepReport

if TYPE_CHECKING:
    from roofmodel.counting.workload import Optimizer, Phase, Recompute, Runtime
    from roofmodel.study.estimate.options import WorkloadOptions
    from roofmodel.study.sweep.grid import GridOptions

__all__ = [
    "CalibrationReport", "CollectionCommand", "CompareReport", "CountReport", "Derivation", "Device", "ExplorePage",
    "HardwareCheck", "HomeworkSheet", "Listing", "MeasureReport", "PlotReport", "ProfileReport", "Report",
    "SweepReport", "ValidationReport", "calibrate", "check_hardware", "check_homework", "compare", "conventions",
    "count", "crossover", "estimate", "explain", "explore", "homework", "list_families", "list_hardware", "list_models",
    "measure", "ncu_command", "plot", "read_profile", "reconcile", "show_hardware", "show_model", "sweep", "validate",
]  # fmt: skip


# --- Predictions ------------------------------------------------------------------------------------


def estimate(
    model: Model,
    hw: Hardware,
    *,
    family: str | None = None,
    phase: Phase | None = None,
    batch: int = 1,
    seq: int | None = None,
    context: int | None = None,
    dtype: str = "fp16",
    weights: str | None = None,
    kv: str | None = None,
    activations: str | None = None,
    attention: Literal["flash", "eager"] = "flash",
    logits: Literal["last", "all"] | None = None,
    new_tokens: int | None = None,
    image: int | None = None,
    mla: Literal["absorbed", "naive"] = "absorbed",
    optimizer: Optimizer | None = None,
    recompute: Recompute = "none",
    decoder_seq: int | None = None,
    runtime: Runtime = "eager",
    launch: float | str | None = None,
    tp: int = 1,
    dp: int = 1,
    pp: int = 1,
    ep: int = 1,
    vpp: int = 1,
    micro_batch: int | None = None,
    sequence_parallel: Literal["off", "on"] = "off",
) -> Report:
    """FLOPs, bytes, bound and expected time of a model on a device, by operator and by phase; memory.

    `model` is a packaged name, a path, or a Hub id; `hw` a device's name, alias or YAML file, or a Device. `family`
    reads a config of an unknown `model_type` as one of a known family. `launch` is seconds, or text such as "12us".
    The other options are those of `roof estimate`. None selects the default, which depends on the model, the phase or
    another option. Raises RoofError.

    Examples:
        >>> report = estimate("gpt2-xl", "a100", batch=8)
        >>> f"{report.totals['decode']['bound_seconds']:.2e} s"
        '2.78e-03 s'
        >>> report.to_frame().nlargest(1, "total_bound_seconds")["name"].item()
        'mlp.up'
    """
    from roofmodel.study.estimate.estimate import estimate as study

    options: WorkloadOptions = {
        "phase": phase, "batch": batch, "seq": seq, "context": context, "dtype": dtype, "weights": weights, "kv": kv,
        "activations": activations, "attention": attention, "logits": logits, "new_tokens": new_tokens, "image": image,
        "mla": mla, "optimizer": optimizer, "recompute": recompute, "decoder_seq": decoder_seq, "runtime": runtime,
        "launch": launch, "tp": tp, "dp": dp, "pp": pp, "ep": ep, "vpp": vpp, "micro_batch": micro_batch,
        "sequence_parallel": sequence_parallel,
    }  # fmt: skip
    return Report(study(arguments.architecture(model, family), arguments.device(hw), **options))


def sweep(
    models: Model | Sequence[Model],
    hw: Hardware | Sequence[Hardware],
    *,
    family: str | None = None,
    price: float | str | Mapping[str, float] | None = None,
    cluster: str | None = None,
    **options: Unpack[GridOptions],
) -> SweepReport:
    """Totals of all combinations of models, devices and values of each option.

    `options` are those of `estimate`; each takes one value or several: `batch=range(1, 65), seq="512:4096:*2",
    dtype=["fp16", "fp8"]`. `price` is dollars per hour, of all devices or by device name; `cluster` the address of a
    Dask scheduler, or `local`. Raises RoofError.

    Examples:
        >>> sweep("gpt2", ["a100", "h100"], phase="decode", batch=[1, 8, 64])
        <SweepReport of 6 points>
    """
    from roofmodel.study.sweep.sweep import sweep as study

    arguments.check_texts(family=family, cluster=cluster)
    architectures = [arguments.architecture(model, family) for model in arguments.several(models)]
    devices = [arguments.device(device) for device in arguments.several(hw)]
    return SweepReport(study(architectures, devices, price=price, cluster=cluster, **options))


def explain(
    model: Model,
    hw: Hardware | None = None,
    *,
    family: str | None = None,
    op: str | None = None,
    n: int | None = None,
    timing: bool = False,
    **workload: Unpack[WorkloadOptions],
) -> Derivation:
    """The derivation of every number of an estimate: formula, formula with numbers, value, and source of each size.

    `model` is as for `estimate`, or a kernel such as "matmul" of size `n`; `op` selects one operator or a group of
    them. Without `hw` it derives counts only; `timing` adds how each expected time is computed. Raises RoofError.

    Examples:
        >>> explain("matmul", n=4096, dtype="fp32")
        <Derivation: matmul>
    """
    from roofmodel.study.derive.explain import explain_named
    from roofmodel.views.derive.explain import document

    arguments.check_texts(family=family)
    operator, device = arguments.operator_name(op), arguments.optional_device(hw)
    found = explain_named(model, device, family=family, op=operator, n=n, **workload)
    return Derivation(document(found, timing=timing))


def crossover(
    model: Model,
    hw: Hardware,
    *,
    over: str | None = None,
    op: str | None = None,
    family: str | None = None,
    explain: bool = False,
    **workload: Unpack[WorkloadOptions],
) -> Derivation:
    """The size at which another ceiling limits an operator or a phase, over "batch", "seq", "context" or "gpus".

    `model` may be a kernel such as "matmul", whose size n varies. `explain` adds the derivation and the assumptions.
    `.to_dict()` has the first such size under `value`, or None. Raises RoofError.

    Examples:
        >>> crossover("matmul", "a100").to_dict()["value"]
        460
    """
    from roofmodel.study.derive.crossover import crossover as study
    from roofmodel.views.derive.crossover import document, explained

    arguments.check_texts(over=over, family=family)
    operator, device = arguments.operator_name(op), arguments.device(hw)
    found = study(model, device, over=over, op=operator, family=family, derive=explain, **workload)
    return Derivation(document(found, explained(found) if explain else ()))


def conventions() -> Derivation:
    """The counting conventions, point by point, with the option that changes each."""
    from roofmodel.views.derive.conventions import document

    return Derivation(document())


def reconcile(model: Model, tool: str, *, family: str | None = None, **workload: Unpack[WorkloadOptions]) -> Derivation:
    """The FLOPs that another tool reports, derived from ours: fvcore, calflops, llm-flops or deepspeed.

    Raises RoofError for a model whose architecture is not covered.
    """
    from roofmodel.study.derive.reconcile import reconcile as study
    from roofmodel.views.derive.reconcile import document

    arguments.check_texts(tool=tool)
    return Derivation(document(study(arguments.architecture(model, family), tool, **workload)))


def explore(
    models: Model | Sequence[Model],
    hw: Hardware | Sequence[Hardware] = ("a100", "h100", "v100", "rtx4090"),
    *,
    family: str | None = None,
) -> ExplorePage:
    """A page with sliders: operators move on the roofline, with their formulas and their current numbers.

    The page offers all models and devices. It takes some seconds per model. Raises RoofError.
    """
    from roofmodel.views.explore.page import html

    architectures = [arguments.architecture(model, family) for model in arguments.several(models)]
    page = html(architectures, [arguments.device(device) for device in arguments.several(hw)])
    return ExplorePage(page, [architecture.name for architecture in architectures])


# --- Profiles ---------------------------------------------------------------------------------------


def read_profile(*paths: PathLike, hw: str | None = None, times: PathLike | Sequence[PathLike] = ()) -> ProfileReport:
    """Kernels from files of Nsight Compute, nvprof, Nsight Systems or PyTorch. Files of one device form one run.

    A path may name its device, as in `a.csv@v100`; `hw` names the device of the other files, where they do not state
    it. `times` are files whose times replace theirs. Raises RoofError for a file that is not a profile.
    """
    from roofmodel.study.profile.place import kernels

    return ProfileReport(
        kernels(arguments.paths("paths", paths), arguments.text("hw", hw), arguments.paths("times", times))
    )


def plot(
    *paths: PathLike,
    hw: str | None = None,
    by: str = "name",
    model: str | None = None,
    family: str | None = None,
    times: PathLike | Sequence[PathLike] = (),
    clock: str = "boost",
    ceilings: str = "datasheet",
    **workload: Unpack[WorkloadOptions],
) -> PlotReport:
    """Measured kernels on a device's roofline, grouped `by` name, base, nvtx, category or lecture.

    `paths`, `hw` and `times` are as for `read_profile`. With `model`, its operators under `workload` are added at their
    bounds. `clock` is the clock of the ceilings: boost, measured, or one such as "1312MHz"; `ceilings` is datasheet or
    measured. Raises RoofError for a file that is not a profile, and if there is nothing to plot.
    """
    from roofmodel.study.profile.place import place

    arguments.check_texts(hw=hw, model=model, family=family)
    arguments.check_required_texts(by=by, clock=clock, ceilings=ceilings)
    placed = place(
        arguments.paths("paths", paths), hw, by=by, model=model, family=family, workload=workload,
        times=arguments.paths("times", times), clock=clock, ceilings=ceilings,
    )  # fmt: skip
    return PlotReport(placed)


def compare(
    model: Model,
    *paths: PathLike,
    hw: str | None = None,
    family: str | None = None,
    times: PathLike | Sequence[PathLike] = (),
    steps: int | None = None,
    device: str | None = None,
    **workload: Unpack[WorkloadOptions],
) -> CompareReport:
    """Predicted and measured figures of a model's operators, from profiler files of one run.

    `paths`, `hw` and `times` are as for `read_profile`; `model`, `family` and `workload` as for `estimate`. `steps` is
    the number of passes in the files (found without it); `device` the ordinal of the GPU if the files hold several.
    Raises RoofError for an unknown model, a file that is not a profile, and a profile of another model.
    """
    from roofmodel.study.compare.compare import compare as study

    arguments.check_texts(hw=hw, family=family, device=device)
    arguments.check_count(steps=steps)
    found = study(
        arguments.path("model", model), arguments.paths("paths", paths), hw, family=family,
        times=arguments.paths("times", times), steps=steps, device=device, workload=workload,
    )  # fmt: skip
    return CompareReport(found)


def ncu_command(
    program: Sequence[str],
    hw: str | None = None,
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

    return CollectionCommand(collect(program, hw, nvtx=nvtx, skip=skip, count=count, nvprof=nvprof))


# --- Torch modules and benchmarks -------------------------------------------------------------------


def count(target: str, inputs: Sequence[str], *, dtype: str = "fp16", hw: Hardware | None = None) -> CountReport:
    """FLOPs and bytes of the operators of any torch module; with `hw` the bound of each. Needs torch.

    `target` is `MODULE:FACTORY`, as in "torchvision.models:resnet50" or "./my.py:make"; `inputs` are shapes such as
    "1x3x224x224" or "int:1x1024"; `dtype` the format of all floating-point tensors. Raises RoofError.
    """
    from roofmodel.study.count import count as study

    arguments.check_required_texts(target=target, dtype=dtype)
    return CountReport(study(target, list(inputs), dtype, arguments.optional_device(hw)))


def validate(table: PathLike, hw: Hardware) -> ValidationReport:
    """Errors of bound and expected time on a CSV table of measured operations. Raises RoofError."""
    from roofmodel.study.benchmark.validate import validate as study

    return ValidationReport(study(arguments.path("table", table), arguments.device(hw)))


def calibrate(
    tables: PathLike | Sequence[PathLike],
    hw: PathLike,
    *,
    source: str = "own measurements",
    progress: Callable[[str], None] = lambda what: None,
) -> CalibrationReport:
    """The timing model's parameters, fitted to CSV tables of measured operations. Needs scipy.

    `hw` names the device of the tables, or its YAML file. `source` describes the tables in the file that `save`
    writes. `progress` is called with a description before each fit. Raises RoofError.
    """
    from roofmodel.devices import library
    from roofmodel.devices.calibration_writer import device_file
    from roofmodel.study.benchmark.calibrate import calibrate as study
    from roofmodel.study.benchmark.table import read
    from roofmodel.study.profile.device import others

    files = arguments.paths("tables", tables)
    path, device = library.find(hw), library.load(hw)
    found = study(files, device, source, begin=progress)
    yaml = device_file(path.read_text(encoding="utf-8"), found.calibration)
    warnings = [text for table in files for text in others(device, read(table).get("gpu", ()), table)]
    return CalibrationReport(device, found.calibration, yaml, found.remarks, warnings)


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
    l2: Literal["cold", "warm"] = "cold",
    budget: float = 120,
    device: Literal["cuda", "cpu"] | None = None,
    seed: int = 0,
    resume: bool = False,
    force: bool = False,
    remark: Callable[[str], None] = lambda text: None,
) -> MeasureReport:
    """Measure operations on this machine with torch and write them to a CSV table, for `validate` and `calibrate`.

    `ops` and `dtype` are names separated by commas (all without them). With `model`, its operators under `phase`,
    `batch`, `seq` and `context` are measured instead of a sweep of shapes drawn with `seed`. `l2` says whether caches
    are flushed before each launch; `budget` is seconds. `resume` continues an earlier table; `force` replaces it.
    `remark` is called with what is left out. An interrupt (Ctrl-C) ends the run; its rows are kept. Raises RoofError.
    """
    from roofmodel.views.benchmark.measure import run

    architecture = None if model is None else arguments.architecture(model, None)
    arguments.check_texts(ops=ops, dtype=dtype, device=device)
    measurement = run(
        arguments.path("output", output), ops=ops, dtype=dtype, architecture=architecture,
        workload={"phase": phase, "batch": batch, "seq": seq, "context": context}, l2=l2, budget=budget, device=device,
        seed=seed, resume=resume, force=force, remark=remark,
    )  # fmt: skip
    return MeasureReport(measurement)


def homework(student: str, sheet: str = "lectures", *, seed: str = "", key: bool = False) -> HomeworkSheet:
    """A student's sheet of problems with blanks; with `key` the answers and their derivations.

    `sheet` is lectures, rooflines, transformers, measuring or scaling. The numbers depend on `student` and on `seed`;
    without a secret `seed`, students can print the key. Raises WorkloadError.

    Examples:
        >>> homework("1001", "rooflines").to_dict()["sheet"]
        'rooflines'
    """
    from roofmodel.study.homework.homework import sheet as study
    from roofmodel.views.homework import document

    arguments.check_required_texts(student=student, sheet=sheet, seed=seed)
    return HomeworkSheet(document(study(student, sheet, seed), key))


def check_homework(answers: PathLike, student: str, sheet: str | None = None, *, seed: str = "") -> Derivation:
    """The right and wrong answers of a completed sheet, with the likely mistake in each wrong one.

    Raises AnswerError for a file without answers.
    """
    from roofmodel.study.homework.homework import check
    from roofmodel.views.homework import report

    arguments.check_texts(sheet=sheet)
    arguments.check_required_texts(student=student, seed=seed)
    return Derivation(report(check(arguments.path("answers", answers), student, sheet, seed)))


# --- Models and devices -----------------------------------------------------------------------------


def list_models() -> Listing:
    """The packaged models.

    Examples:
        >>> list_models().data[0].keys()
        dict_keys(['name', 'model_type', 'parameters'])
    """
    from roofmodel.models import hub
    from roofmodel.views import listing

    return Listing(listing.models(list(hub.catalogue())))


def list_families() -> Listing:
    """The model types that can be counted, with the source of each family's structure."""
    from roofmodel.models.families import CUSTOM_CODE, FAMILIES
    from roofmodel.views import listing

    return Listing(listing.families(FAMILIES, CUSTOM_CODE))


def show_model(model: Model, *, family: str | None = None) -> Listing:
    """A model's architecture, and the config key of each field. Raises ModelError."""
    from roofmodel.models import hub
    from roofmodel.views import listing

    architecture = arguments.architecture(model, family)
    entry = hub.packaged(model) if isinstance(model, str) else None
    return Listing(listing.model(architecture, entry), notes=tuple(map(str, architecture.notes)))


def list_hardware() -> Listing:
    """The devices known by name, with their ceilings; a file that cannot be read becomes a warning.

    Examples:
        >>> "a100-sxm-80gb" in [device["name"] for device in list_hardware().data]
        True
    """
    from roofmodel.devices import library
    from roofmodel.views import listing

    found, warnings = [], []
    for name in library.names():
        try:
            found.append(library.load(name))
        except RoofError as error:  # one invalid file of the user must not hide the others
            warnings.append(str(error))
    return Listing(listing.devices(found, library.ALIASES), warnings=warnings)


def show_hardware(hw: Hardware) -> Listing:
    """A device's ceilings with their sources. Raises DeviceError."""
    from roofmodel.views import listing

    return Listing(listing.device(arguments.device(hw)))


def check_hardware(file: PathLike) -> HardwareCheck:
    """Validate a device's YAML file: units, names, sources, and whether its numbers agree. Raises DeviceError."""
    from roofmodel.devices.schema import doubtful_entries

    device = Device.load(file)
    return HardwareCheck(os.fspath(file), device, doubtful_entries(device))
