"""The Python function of `roof trace`."""

from __future__ import annotations

from collections.abc import Iterable

from roofmodel.devices.device import Hardware
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import PathLike, ProgressCallback, RunGrouping, no_progress
from roofmodel.trace.report import TraceReport


@checked
def trace(
    *files: PathLike,
    by: RunGrouping = "group",
    top: int = 10,
    steps: str | None = None,
    before: PathLike | Iterable[PathLike] = (),
    one_run: bool = False,
    hw: Hardware | None = None,
    progress: ProgressCallback = no_progress,
) -> TraceReport:
    """Show where the time of a run goes: compute, communication, copies and idle time by cause, per rank and step.

    A rank is a GPU of a process of a file. A folder means all its files. Raises RoofError for a file that is not a run.

    Args:
        *files: Files of Nsight Systems, PyTorch, nvprof or rocprofv3, patterns or folders; - for stdin. Files that
            state different ranks are one run. Otherwise each argument is a run: two are before and after a change, more
            are shown side by side.
        by: Sum GPU work by group (such as GEMM), lecture (matrix-mul, memory_mgmt, custom_ops, other), name, nvtx,
            operator, device, stream or step.
        top: Number of the longest kernels and copies that are listed.
        steps: Analyze and draw only the steps A to B - 1. Default: all; the timeline in pictures has the two around
            the median.
        before: File, pattern or folder of the run before a change; `files` are the run after.
        one_run: All files are ranks of one run.
        hw: The device, if the files do not state it or state it wrongly.
        progress: As for `read_profile`.

    Examples:
        >>> report = trace("examples/training_by_hand.json")
        >>> report.findings[0].partition(":")[0]
        'the input pipeline limits the run'
    """
    from roofmodel.profiles.reading import report_progress
    from roofmodel.trace.trace import trace as study

    with report_progress(progress):
        analysis = study(
            values.paths("files", files), before=values.paths("before", before), one_run=one_run, by=by, top=top,
            steps_range=steps, hw=hw,
        )  # fmt: skip
        return TraceReport(analysis)
