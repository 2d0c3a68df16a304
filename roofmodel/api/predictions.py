"""Functions of predictions: estimate, sweep, explain, crossover, conventions, reconcile, explore."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Unpack

from roofmodel.devices.device import Hardware
from roofmodel.options import arguments
from roofmodel.options.arguments import Model, PathLike, ProgressCallback, no_progress
from roofmodel.reports.predictions import Derivation, ExplorePage, Report, SweepReport

if TYPE_CHECKING:
    from roofmodel.options.values import (
        AttentionMode,
        ComputeFormat,
        CopyMode,
        CrossoverSize,
        DataParallel,
        Dtype,
        Engine,
        FlopCounter,
        LatentMode,
        Logits,
        Optimizer,
        Phase,
        Recompute,
        RoutingOption,
        Runtime,
        ScalingMode,
        SequenceParallel,
        Share,
        StorageFormat,
    )
    from roofmodel.steps.options import WorkloadOptions
    from roofmodel.study.sweep.grid import GridOptions, Numbers


def estimate(
    model: Model,
    hw: Hardware,
    *,
    family: str | None = None,
    phase: Phase | None = None,
    batch: int = 1,
    seq: int | None = None,
    context: int | None = None,
    dtype: Dtype = "fp16",
    weights: StorageFormat | None = None,
    kv: StorageFormat | None = None,
    activations: ComputeFormat | None = None,
    attention: AttentionMode = "flash",
    logits: Logits | None = None,
    new_tokens: int | None = None,
    image: int | None = None,
    mla: LatentMode = "absorbed",
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
    sequence_parallel: SequenceParallel = "off",
    zero: int = 0,
    memory_utilization: float = 0.9,
    loader: float | str | None = None,
    workers: int | None = None,
    copy: CopyMode | None = None,
    data_parallel: DataParallel | None = None,
    engine: Engine = "current",
    routing: RoutingOption = "uniform",
) -> Report:
    """FLOPs, bytes, bound and expected time of a model on a device, by operator and by phase; memory.

    `model` is a packaged name, a path, or a Hub id; `hw` a device's name, alias or YAML file, or a Device. `family`
    reads a config of an unknown `model_type` as one of a known family. `launch` is seconds, or text such as "12us".
    `loader` is the time of one of the data loader's `workers` (default: none) for a batch of one GPU, and `copy` how a
    batch is copied to the GPU (default: "pageable"); `.to_dict()["input_pipeline"]` has the result. `routing` is how
    the tokens of an MoE model choose experts: "uniform", "same" (all tokens use the same experts), or a file with a
    probability or count for each expert. The other options are those of `roof estimate`. None selects the default,
    which depends on the model, the phase or another option. Raises RoofError.

    Examples:
        >>> report = estimate("gpt2-xl", "a100", batch=8)
        >>> f"{report.totals['decode']['bound_seconds']:.2e} s"
        '2.78e-03 s'
        >>> report.to_frame().nlargest(1, "total_bound_seconds")["name"].item()
        'mlp.up'
    """
    from roofmodel.steps.estimate import estimate as study
    from roofmodel.steps.input_pipeline import loader_options

    options: WorkloadOptions = {
        "phase": phase, "batch": batch, "seq": seq, "context": context, "dtype": dtype, "weights": weights, "kv": kv,
        "activations": activations, "attention": attention, "logits": logits, "new_tokens": new_tokens, "image": image,
        "mla": mla, "optimizer": optimizer, "recompute": recompute, "decoder_seq": decoder_seq, "runtime": runtime,
        "launch": launch, "tp": tp, "dp": dp, "pp": pp, "ep": ep, "vpp": vpp, "micro_batch": micro_batch,
        "sequence_parallel": sequence_parallel, "zero": zero, "memory_utilization": memory_utilization,
        "data_parallel": data_parallel, "engine": engine, "routing": routing,
    }  # fmt: skip
    data_loader = loader_options(loader, workers, copy)
    return Report(study(arguments.architecture(model, family), arguments.device(hw), loader=data_loader, **options))


def sweep(
    models: Model | Iterable[Model],
    hw: Hardware | Iterable[Hardware],
    *,
    family: str | None = None,
    price: float | str | Mapping[str, float] | None = None,
    where: str | Iterable[str] = (),
    sort: str | None = None,
    scaling: ScalingMode | None = None,
    gpus: Numbers | None = None,
    share: Share | None = None,
    measured: PathLike | None = None,
    cluster: str | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[GridOptions],
) -> SweepReport:
    """Totals of all combinations of models, devices and values of each option.

    `options` are those of `estimate`; each takes one value or several: `batch=range(1, 65), seq="512:4096:*2",
    dtype=["fp16", "fp8"]`. `price` is dollars per hour, of all devices or by device name; `cluster` the address of a
    Dask scheduler, or `local`. `where` keeps the points that satisfy one or several conditions, and `sort` orders them
    by a column (`-` in front: largest first); units are required, as in "tpot<20ms" or "memory<70GiB". The points are
    evaluated when the report is read, or at once with `where` or `sort`; `progress` is then called with "points", the
    number of evaluated points, and the number of all points. Raises RoofError.

    With `scaling`, the sweep is over numbers of `gpus`, and its rows have the speed-up, the efficiency and the share of
    communication: "strong" keeps `batch`, "weak" multiplies it by the GPUs. `share` is the kind of parallelism: dp, tp,
    pp or ep (default: dp in training, else tp). `measured` is a CSV file with the columns gpus and seconds (or
    throughput); Amdahl's and Gustafson's laws are fitted to it.

    Examples:
        >>> sweep("gpt2", ["a100", "h100"], phase="decode", batch=[1, 8, 64])
        <SweepReport of 6 points>
        >>> sweep("gpt2", "a100", phase="decode", runtime="graph", batch="1:64:*8", where="tpot<1ms", sort="-tokens/s")
        <SweepReport of 2 of 3 points>
        >>> scaled = sweep("gpt2", "a100", phase="train", batch=8, scaling="weak", gpus=[1, 2, 4])
        >>> scaled.to_frame()["efficiency"].is_monotonic_decreasing
        True
    """
    from roofmodel.study.sweep.conditions import conditions, order
    from roofmodel.study.sweep.scaling import DEFAULT_GPUS, check_unscaled, check_without_cluster
    from roofmodel.study.sweep.selection import selected
    from roofmodel.study.sweep.sweep import sweep as study

    arguments.check_texts(family=family, cluster=cluster, sort=sort)
    selection = conditions(arguments.as_sequence(where)), order(sort)
    architectures = [arguments.architecture(model, family) for model in arguments.as_sequence(models)]
    devices = [arguments.device(device) for device in arguments.as_sequence(hw)]
    if scaling is not None:
        check_without_cluster(cluster)
        from roofmodel.study.sweep.scaling import scaling_sweep
        from roofmodel.study.sweep.scaling_table import read_runs

        runs = None if measured is None else partial(read_runs, arguments.path("measured", measured))
        counts = DEFAULT_GPUS if gpus is None else gpus
        found = scaling_sweep(
            architectures, devices, scaling, counts, share, runs, price=price, progress=progress, **options
        )
        return SweepReport(selected(found, *selection))
    columns = [each.column for each in (*selection[0], selection[1]) if each]
    check_unscaled(gpus=gpus, share=share, measured=measured, columns=columns)
    found = study(architectures, devices, price=price, cluster=cluster, progress=progress, **options)
    return SweepReport(selected(found, *selection))


def explain(
    model: Model | None = None,
    hw: Hardware | None = None,
    *,
    family: str | None = None,
    op: str | None = None,
    n: int | None = None,
    line: str | None = None,
    size: Mapping[str, int] | str | Iterable[str] | None = None,
    timing: bool = False,
    **workload: Unpack[WorkloadOptions],
) -> Derivation:
    """The derivation of every number of an estimate: formula, formula with numbers, value, and source of each size.

    `model` is as for `estimate`, or a kernel such as "matmul" of size `n`; `op` selects one operator or a group of
    them. Instead of a model, `line` states a kernel, such as "A[i k] B[k j] -> C[i j]", and `size` the size of each of
    its axes. Without `hw` it derives counts only; `timing` adds how each expected time is computed. Raises RoofError.

    Examples:
        >>> explain("matmul", n=4096, dtype="fp32")
        <Derivation: matmul>
        >>> found = explain(line="A[i k] B[k j] -> C[i j]", size={"i": 4096, "j": 4096, "k": 512}).to_dict()
        >>> found["phases"][0]["ops"][0]["counts"][0]["value"]  # 2 × 4096 × 4096 × 512 FLOPs
        17179869184
    """
    from roofmodel.study.derive.explain import explain_named
    from roofmodel.views.derive.explain import document

    arguments.check_texts(family=family, line=line)
    operator, device = arguments.operator_name(op), arguments.optional_device(hw)
    sizes = size if size is None or isinstance(size, Mapping) else [size] if isinstance(size, str) else list(size)
    found = explain_named(model, device, family=family, op=operator, n=n, line=line, size=sizes, **workload)
    return Derivation(document(found, timing=timing))


def crossover(
    model: Model,
    hw: Hardware,
    *,
    over: CrossoverSize | None = None,
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
    """The counting conventions, point by point, with the option that changes each.

    Examples:
        >>> print(conventions().text("markdown"))  # doctest: +SKIP
    """
    from roofmodel.views.derive.conventions import document

    return Derivation(document())


def reconcile(
    model: Model, tool: FlopCounter, *, family: str | None = None, **workload: Unpack[WorkloadOptions]
) -> Derivation:
    """The FLOPs that another tool reports, derived from ours: fvcore, calflops, llm-flops or deepspeed.

    Raises RoofError for a model whose architecture is not covered.

    Examples:
        >>> reconcile("gpt2", "fvcore", phase="forward", seq=128)
        <Derivation: openai-community/gpt2: the FLOP count of fvcore, derived from ours>
    """
    from roofmodel.study.derive.reconcile import reconcile as study
    from roofmodel.views.derive.reconcile import document

    arguments.check_texts(tool=tool)
    return Derivation(document(study(arguments.architecture(model, family), tool, **workload)))


def explore(
    models: Model | Iterable[Model],
    hw: Hardware | Iterable[Hardware] = ("a100", "h100", "v100", "rtx4090"),
    *,
    family: str | None = None,
    progress: ProgressCallback = no_progress,
) -> ExplorePage:
    """A page with sliders: operators move on the roofline, with their formulas and their current numbers.

    The page offers all models and devices. It takes some seconds per model. `progress` is called with a model's name,
    the number of its derived variants, and the number of all its variants. Raises RoofError.

    Examples:
        >>> explore("gpt2", "a100").save("gpt2.html")  # doctest: +SKIP
    """
    from roofmodel.views.explore.page import html

    architectures = [arguments.architecture(model, family) for model in arguments.as_sequence(models)]
    page = html(architectures, [arguments.device(device) for device in arguments.as_sequence(hw)], progress)
    return ExplorePage(page, [architecture.name for architecture in architectures])
