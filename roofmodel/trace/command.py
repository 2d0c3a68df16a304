"""`roof trace` and `roofmodel.trace`: where the time of a run goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from roofmodel.devices.device import Hardware
from roofmodel.errors import ProfileError
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import PathLike, ProgressCallback, RunGrouping, no_progress
from roofmodel.report.base import PICTURES, Result
from roofmodel.report.command import CommandLine
from roofmodel.report.document import Document

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.trace.trace import RunAnalysis


class TraceReport(Result):
    """Result of `trace`: per rank the parts of the wall time, idle time by cause, copies, communication, steps."""

    FILES: ClassVar[Sequence[str]] = (*PICTURES, *Result.FILES, "perfetto.json", "perfetto.json.gz")
    naming, identifying = ("group",), ("rank",)

    def __init__(self, analyzed: RunAnalysis) -> None:
        self.analyzed = analyzed

    @property
    def findings(self) -> list[str]:
        """What limits the run, the largest part of the wall time first; before it, whether two runs differ in work."""
        return [finding.text for finding in self.analyzed.findings]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Files that are left out, differences of the ranks, data that the files lack."""
        return tuple(map(str, self.analyzed.warnings))

    def answer(self) -> Document:
        """The findings, the parts of the wall time, and the longest groups, kernels and copies."""
        from roofmodel.trace.answer import document

        return document(self.analyzed)

    def rows_to_check(self) -> Sequence[Mapping[str, Any]]:
        """The rows of `--fail-if`: the groups; of two runs also the relative change of the mean step or wall time.

        It is unknown if they do not do the same work."""
        compared, rows = self.analyzed.comparison, super().rows_to_check()
        if compared is None:
            return rows
        quantity, before, after = compared.duration
        is_comparable = before and compared.different_work is None
        return [*rows, {"group": quantity, "relative_change": after / before - 1 if is_comparable else None}]

    def steps_frame(self) -> pandas.DataFrame:
        """One row per rank and step: wall time and its parts in seconds."""
        from roofmodel.trace.tables import STEPS, step_rows

        return STEPS.frame(step_rows(self.analyzed))

    def _write(self, form: str, file: Path) -> None:
        """Write a file. Raises ProfileError for a picture of a trace without GPU work."""
        trace = self.analyzed
        if form in PICTURES:
            from roofmodel.trace import picture

            if not trace.ranks:
                names = ", ".join([*trace.names.values()][:3])
                raise ProfileError(f"{names}: no GPU work: a picture would be empty")
            picture.draw(trace, file, form)  # with the findings, which a page has as text
        elif form.startswith("perfetto"):
            from roofmodel.trace import perfetto

            perfetto.write(trace, file, compressed=form.endswith("gz"))
        else:
            super()._write(form, file)

    def __repr__(self) -> str:
        analysis = self.analyzed
        return f"<TraceReport of {', '.join(analysis.names.values())}: {len(analysis.ranks)} ranks, by {analysis.tool}>"


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
        steps: Analyze and draw only the steps A to B - 1. Default: all; the timeline in pictures has
            the median step and the next one.
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


COMMAND = CommandLine(
    trace,
    settings={"steps": {"metavar": "A:B"}},
    checks=("groups", "seconds>5ms"),
    examples=(
        "roof trace trace.json.gz",
        "roof trace report.sqlite --by nvtx --top 20",
        "roof trace trace.json --steps 5:8 -o steps.png",
        "roof trace trace.json -o trace.html -o timeline.perfetto.json",
        "roof trace old.json.gz new.json.gz",
        "roof trace 'new/*.json' --before 'old/*.json'",
    ),
)
