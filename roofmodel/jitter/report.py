"""The result of `jitter`: which of many ranks is late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import RunReport

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    import pandas

    from roofmodel.jitter.jitter import Jitter


class JitterReport(RunReport):
    """Result of `jitter`: per step the earliest and the latest rank, from which kernel on, and the causes."""

    analyzed: Jitter
    identifying = ("step", "latest_rank")

    def __init__(self, analyzed: Jitter) -> None:
        self.analyzed = analyzed

    @property
    def findings(self) -> list[str]:
        """Which rank is late, and the evidence for each cause."""
        return list(self.analyzed.findings)

    @classmethod
    def _view(cls) -> ModuleType:
        from roofmodel.jitter import data

        return data

    def to_frame(self) -> pandas.DataFrame:
        """One row per step, with the columns of `roof jitter --format csv`."""
        from roofmodel.jitter.columns import steps_table

        return steps_table().frame(self.analyzed.steps)

    def deviations_frame(self) -> pandas.DataFrame:
        """One row per step and rank: deviation of the time to the end of the step from the mean, in seconds."""
        from roofmodel.jitter.columns import DEVIATIONS
        from roofmodel.jitter.data import deviation_rows

        return DEVIATIONS.frame(deviation_rows(self.analyzed))

    def kernels_frame(self) -> pandas.DataFrame:
        """One row per rank and kernel of the step with the largest deviation: deviations from the mean, in seconds."""
        from roofmodel.jitter.columns import KERNEL_DEVIATIONS
        from roofmodel.jitter.data import kernel_rows

        return KERNEL_DEVIATIONS.frame(kernel_rows(self.analyzed))

    def save(self, path: PathLike) -> Path:
        """Write a picture (png, svg, pdf), a page (html) or the data (json, csv), by the suffix."""
        from roofmodel.jitter.page import save

        return save(self.analyzed, values.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.jitter.tables import table

        return table(self.analyzed)

    def __repr__(self) -> str:
        analysis = self.analyzed
        names = ", ".join([*analysis.names.values()][:3])
        return f"<JitterReport of {names}: {len(analysis.ranks)} ranks, by {analysis.tool}>"
