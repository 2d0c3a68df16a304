"""The Python functions of `roof kernels`, `roof plot` and `roof ncu-command`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack

from roofmodel.devices.device import Hardware
from roofmodel.options import arguments
from roofmodel.options.arguments import PathLike, ProgressCallback, no_progress
from roofmodel.options.workload import lists_options
from roofmodel.plot.report import CollectionCommand, PlotReport, ProfileReport

if TYPE_CHECKING:
    from roofmodel.options.keywords import WorkloadOptions
    from roofmodel.options.values import (
        CeilingSource,
        KernelGrouping,
    )


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
    from roofmodel.plot.place import kernels
    from roofmodel.profiles.reading import report_progress

    files, timed = arguments.paths("paths", paths), arguments.paths("times", times)
    with report_progress(progress):
        return ProfileReport(kernels(files, arguments.given_hardware(hw), timed))


@lists_options
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
    from roofmodel.plot.place import place
    from roofmodel.profiles.reading import report_progress

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
    from roofmodel.plot.ncu_command import collect

    arguments.check_texts(nvtx=nvtx)
    arguments.check_count(skip=skip, count=count)
    given = arguments.given_hardware(hw)
    return CollectionCommand(
        collect(arguments.words("program", program), given, nvtx=nvtx, skip=skip, count=count, nvprof=nvprof)
    )
