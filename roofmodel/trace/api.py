"""The Python function of `roof trace`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from roofmodel.devices.device import Hardware
from roofmodel.options import arguments
from roofmodel.options.arguments import PathLike, ProgressCallback, no_progress
from roofmodel.trace.report import TraceReport

if TYPE_CHECKING:
    from roofmodel.options.values import (
        RunGrouping,
    )


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
    from roofmodel.trace.trace import trace as study

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
