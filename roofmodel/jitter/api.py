"""The Python function of `roof jitter`."""

from __future__ import annotations

from roofmodel.jitter.report import JitterReport
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import FirstGap, PathLike, ProgressCallback, no_progress


@checked
def jitter(
    *files: PathLike,
    steps: str | None = None,
    threshold: str | float | None = None,
    first_gap: FirstGap = "same-step",
    cache: PathLike | None = None,
    cluster: str | None = None,
    kernels: PathLike | None = None,
    progress: ProgressCallback = no_progress,
) -> JitterReport:
    """Find which of many ranks is late, from which kernel on, and why: GPU, CPU launches, input or network.

    A rank is a GPU of a process of a file. A folder means all its files. Damaged files and ranks that cannot be
    compared are left out with a warning. Runs larger than memory need `cache`; `cluster` reads its Parquet files.
    Raises RoofError if fewer than two ranks are left.

    Args:
        *files: Files of all ranks: Nsight Systems, PyTorch or step tables, or patterns; - for stdin.
        steps: Only steps A to B - 1.
        threshold: Time by which a rank must exceed the mean over ranks to be late (default: 100us, or 0.5% of the step
            if that is longer).
        first_gap: How late the first kernel of a step is: relative to the last collective of the same step or of the
            previous step.
        cache: Write the kernels to Parquet files in FOLDER, and read them there the next time.
        cluster: Compute with Dask: the address of a scheduler, or local for processes on this machine.
        kernels: Write all compared kernels of all ranks and steps to this CSV file, raw and as deviations.
        progress: As for `read_profile`.

    Examples:
        >>> report = jitter("examples/four_ranks_by_hand.csv")
        >>> report.to_dict()["causes"][0]["kind"]
        'cpu'
    """
    from roofmodel.jitter.jitter import jitter as study
    from roofmodel.profiles.reading import report_progress

    paths = values.paths("files", files)
    folder = None if cache is None else values.path("cache", cache)
    with report_progress(progress):
        analysis = study(
            paths, steps_range=steps, threshold=threshold, first_gap=first_gap, cache=folder, cluster=cluster,
            kernels=None if kernels is None else values.path("kernels", kernels),
        )  # fmt: skip
    return JitterReport(analysis)
