"""The Python functions of `roof kernels`, `roof plot` and `roof ncu-command`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from roofmodel.devices.device import Hardware
from roofmodel.errors import Option, WorkloadError
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import (
    CeilingSource,
    KernelGrouping,
    Model,
    Numbers,
    PathLike,
    ProgressCallback,
    no_progress,
)
from roofmodel.options.workload import lists_options
from roofmodel.plot.report import CollectionCommand, PlotReport, ProfileReport

if TYPE_CHECKING:
    from roofmodel.options.keywords import WorkloadOptions


@checked
def read_profile(
    *files: PathLike,
    hw: Hardware | None = None,
    times: PathLike | Iterable[PathLike] = (),
    before: PathLike | Iterable[PathLike] = (),
    progress: ProgressCallback = no_progress,
) -> ProfileReport:
    """Read profiler files (ncu, nvprof, nsys, rocprof, PyTorch): the kernels, and why each is slow.

    Files of one device form one run. Raises RoofError for a file that is not a profile.

    Args:
        *files: Profiler files or patterns; - for stdin; FILE@HW sets the device of a file.
        hw: The device, if the files do not state it or state it wrongly.
        times: Take the times from this nsys, nvprof or PyTorch file, not from `files`.
        before: Files or patterns of the same program before a change; compare the kernels with theirs.
        progress: Called with a file's name, the bytes that were read, and its size.

    Examples:
        >>> saxpy = next(k for k in read_profile("examples/ncu_by_hand.csv", hw="a100").kernels if "saxpy" in k.name)
        >>> f"{saxpy.flops.fp32:.0f} FLOP in {saxpy.seconds * 1e6:.0f} us"
        '33554432 FLOP in 120 us'
    """
    from roofmodel.plot.place import kernels
    from roofmodel.profiles.reading import report_progress

    timed, old = values.paths("times", times), values.paths("before", before)
    if timed and old:
        raise WorkloadError(
            Option("times"), " replaces the times of one side only, so ", Option("before"), " cannot compare them; "
            "leave out one of the two",
        )  # fmt: skip
    with report_progress(progress):
        return ProfileReport(kernels(values.paths("files", files), hw, timed), kernels(old, hw) if old else None)


@checked
@lists_options
def plot(
    *files: PathLike,
    hw: Hardware | None = None,
    clock: str = "boost",
    ceilings: CeilingSource = "datasheet",
    model: Model | None = None,
    flops: str | Iterable[str] = (),
    times: PathLike | Iterable[PathLike] = (),
    by: KernelGrouping = "name",
    n: Numbers | None = None,
    line: str | None = None,
    size: Mapping[str, int | str] | str | Iterable[str] = (),
    regions: bool = False,
    hide_answers: bool = False,
    instructions: bool = False,
    family: str | None = None,
    progress: ProgressCallback = no_progress,
    **workload: Unpack[WorkloadOptions],
) -> PlotReport:
    """Show measured kernels and a model's operators on the roofline.

    Stated `flops`, also with a pipe as in "gemm*=2*4096^3:tensor_fp16", replace measured ones. Raises RoofError for a
    file that is not a profile, and if there is nothing to plot.

    Args:
        *files: Profiler files or patterns; - for stdin; FILE@HW sets the device of a file.
        hw: The device, if the files do not state it or state it wrongly.
        clock: Clock of the ceilings: boost (datasheet), measured, or a frequency such as 1312MHz.
        ceilings: Source of the ceilings; measured: reached in benchmarks.
        model: Also show the operators of this model at their bounds, or textbook kernels, such as matmul,triad,spmv.
        flops: FLOPs per launch of the kernels that match a pattern: 'gemm*=2*4096^3[:PIPE]'; repeat.
        times: Take the times from this nsys, nvprof or PyTorch file, not from `files`.
        by: Group kernels by name, base (without template arguments), nvtx, category, or lecture (matrix-mul,
            memory_mgmt, custom_ops, other).
        n: Sizes of textbook kernels: 512,1024,4096 (default: 1024).
        line: Show your own kernel, such as 'A[i k] B[k j] -> C[i j]', with `size`.
        size: Size of an axis of `line`: i=4096, or i=n,j=n,k=128 for each size in `n`.
        regions: Shade, for one device, what is impossible, memory-bound, compute-bound, and below 50 % of the ceiling.
        hide_answers: Leave the labels of bounds and values out of the picture, for an exam.
        instructions: Show warp instructions per memory transaction instead of FLOPs per byte (ncu --set full).
        family: Read an unknown model_type as this family, such as llama.
        progress: As for `read_profile`.
        **workload: The options of `estimate`, for `model`.

    Examples:
        >>> plot("examples/ncu_by_hand.csv", hw="a100")
        <PlotReport of ncu_by_hand.csv: 6 points>
        >>> plot(model="matmul", hw="a100", n="512,1024,4096")
        <PlotReport of matmul: 3 points>
    """
    from roofmodel.plot.place import place
    from roofmodel.profiles.reading import report_progress

    if instructions and (regions or hide_answers):
        other = Option("regions" if regions else "hide_answers")
        raise WorkloadError(
            Option("instructions"), ": this picture is the same with ", other, "; leave out one of them"
        )
    paths, timed = values.paths("files", files), values.paths("times", times)
    name = None if model is None else values.path("model", model)
    with report_progress(progress):
        sizes = size if isinstance(size, Mapping) else values.as_sequence(size or ())
        placed = place(
            paths, hw, by=by, model=name, family=family, workload=workload, times=timed, clock=clock,
            ceilings=ceilings, instructions=instructions, n=n, line=line, size=sizes,
            flops=[flops] if isinstance(flops, str) else values.words("flops", flops),
        )  # fmt: skip
    return PlotReport(placed._replace(regions=regions, hide_answers=hide_answers))


@checked
def ncu_command(
    program: Iterable[str] = (),
    hw: Hardware | None = None,
    *,
    nvtx: str | None = None,
    skip: int | None = None,
    count: int | None = None,
    nvprof: bool = False,
) -> CollectionCommand:
    """Write the ncu command that collects the metrics for a roofline.

    Raises RoofError for a device whose metrics are unknown.

    Args:
        program: The program to profile.
        hw: The device on which the program runs (default: a100).
        nvtx: Profile only launches in this NVTX range.
        skip: Number of launches to skip at the start.
        count: Largest number of launches to profile.
        nvprof: Print an nvprof command instead, for times on a V100.

    Examples:
        >>> ncu_command(["python", "train.py"], "a100", count=10).line.startswith("ncu --csv --page raw")
        True
    """
    from roofmodel.plot.ncu_command import collect

    words = values.words("program", program)
    return CollectionCommand(collect(words, hw, nvtx=nvtx, skip=skip, count=count, nvprof=nvprof))


@checked
def nsys_command(
    program: Iterable[str] = (), *, nvtx: str | None = None, profiler_api: bool = False, gpu_metrics: bool = False
) -> CollectionCommand:
    """Write the Nsight Systems command that records a run for `trace` and `jitter`, and exports it to SQLite.

    Args:
        program: The program to profile.
        nvtx: Record only this NVTX range.
        profiler_api: Record only between cudaProfilerStart and cudaProfilerStop (torch.cuda.profiler.start and stop).
        gpu_metrics: Sample clocks and power of all GPUs, too.

    Examples:
        >>> nsys_command(["python", "train.py"], nvtx="step 10").line.startswith("nsys profile --trace cuda,nvtx")
        True
    """
    from roofmodel.plot.nsys_command import collect

    words = values.words("program", program)
    return CollectionCommand(collect(words, nvtx=nvtx, profiler_api=profiler_api, gpu_metrics=gpu_metrics))
