"""The result of `trace`: where the time of a run goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import RunReport

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    import pandas

    from roofmodel.trace.trace import RunAnalysis


class TraceReport(RunReport):
    """Result of `trace`: per rank the parts of the wall time, idle time by cause, copies, communication, steps."""

    analyzed: RunAnalysis
    naming, identifying = ("group",), ("rank",)

    def __init__(self, analyzed: RunAnalysis) -> None:
        self.analyzed = analyzed

    @property
    def findings(self) -> list[str]:
        """What limits the run, the largest part of the wall time first; before it, whether two runs differ in work."""
        return [finding.text for finding in self.analyzed.findings]

    @classmethod
    def _view(cls) -> ModuleType:
        from roofmodel.trace import data

        return data

    def to_frame(self) -> pandas.DataFrame:
        """One row per rank and group, or per group of two runs, with the columns of `roof trace --format csv`."""
        from roofmodel.trace.data import table_and_rows

        table, rows = table_and_rows(self.analyzed)
        return table.frame(rows)

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
        from roofmodel.trace.columns import STEPS, step_rows

        return STEPS.frame(step_rows(self.analyzed))

    def save(self, path: PathLike) -> Path:
        """Write a picture (png, svg, pdf), a page (html), the timeline (perfetto.json[.gz]) or the data (json, csv)."""
        from roofmodel.trace.data import save

        return save(self.analyzed, values.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.trace.tables import table

        return table(self.analyzed)

    def __repr__(self) -> str:
        analysis = self.analyzed
        return f"<TraceReport of {', '.join(analysis.names.values())}: {len(analysis.ranks)} ranks, by {analysis.tool}>"
