"""`roof jitter` and `roofmodel.jitter`: which of many ranks is late, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import FirstGap, PathLike, ProgressCallback, no_progress
from roofmodel.report.base import PICTURES, Result
from roofmodel.report.command import CommandCall, CommandLine
from roofmodel.report.document import Document
from roofmodel.report.printing import present, print_line

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.jitter.jitter import Jitter


class JitterReport(Result):
    """Result of `jitter`: per step the earliest and the latest rank, from which kernel on, and the causes."""

    FILES: ClassVar[Sequence[str]] = (*PICTURES, *Result.FILES)
    identifying = ("step", "latest_rank")

    def __init__(self, analyzed: Jitter) -> None:
        self.analyzed = analyzed

    @property
    def findings(self) -> list[str]:
        """Which rank is late, and the evidence for each cause."""
        return list(self.analyzed.findings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Files and ranks that are left out, differences of the ranks, data that the files lack."""
        return tuple(map(str, self.analyzed.warnings))

    def answer(self) -> Document:
        """The findings, and the ranks and steps with the largest deviations."""
        from roofmodel.jitter.answer import document

        return document(self.analyzed)

    def complete(self) -> Document:
        """The document of files, with more ranks and steps."""
        from roofmodel.jitter.answer import MAX_PAGE_ROWS, document

        return document(self.analyzed, MAX_PAGE_ROWS)

    def deviations_frame(self) -> pandas.DataFrame:
        """One row per step and rank: deviation of the time to the end of the step from the mean, in seconds."""
        from roofmodel.jitter.tables import DEVIATIONS, deviation_rows

        return DEVIATIONS.frame(deviation_rows(self.analyzed))

    def kernels_frame(self) -> pandas.DataFrame:
        """One row per rank and kernel of the step with the largest deviation: deviations from the mean, in seconds."""
        from roofmodel.jitter.tables import KERNEL_DEVIATIONS, kernel_rows

        return KERNEL_DEVIATIONS.frame(kernel_rows(self.analyzed))

    def _write(self, form: str, file: Path) -> None:
        if form not in PICTURES:
            super()._write(form, file)
            return
        from roofmodel.jitter.picture import draw

        draw(self.analyzed, file, form)  # with the findings, which a page has as text

    def __repr__(self) -> str:
        analysis = self.analyzed
        names = ", ".join([*analysis.names.values()][:3])
        return f"<JitterReport of {names}: {len(analysis.ranks)} ranks, by {analysis.tool}>"


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


def _run(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    report = call()
    if "kernels" in call.given:
        print_line(f"wrote {call.given['kernels']}")
    present(report, form, output)


COMMAND = CommandLine(
    jitter,
    run=_run,
    settings={"steps": {"metavar": "A:B"}, "cache": {"metavar": "FOLDER"}, "kernels": {"metavar": "FILE.csv"}},
    checks=("steps", "deviation>1ms"),
    examples=(
        "roof jitter rank*.json.gz",
        "roof jitter report.sqlite --steps 5:8 --threshold 50us -o jitter.png",
        "roof jitter rank*.csv --cache kernels",
        "roof jitter rank*.json.gz --kernels kernels.csv",
    ),
)
