"""The Python function of `roof jitter`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofmodel.jitter.report import JitterReport
from roofmodel.options import arguments
from roofmodel.options.arguments import PathLike, ProgressCallback, no_progress

if TYPE_CHECKING:
    from roofmodel.options.values import (
        FirstGap,
    )


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
    from roofmodel.jitter.jitter import jitter as study
    from roofmodel.profiles.reading import report_progress

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
