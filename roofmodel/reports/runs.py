"""Results of `trace` and `jitter`: where the time of a run goes, and which of its ranks is late."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.errors import Text
from roofmodel.options import arguments
from roofmodel.options.arguments import PathLike
from roofmodel.report.base import PictureResult, TextResult

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    import pandas

    from roofmodel.study.jitter.jitter import Jitter
    from roofmodel.study.trace.trace import Trace


class _RunReport(TextResult, PictureResult):
    """A result whose data `views/<command>/data.py` writes."""

    analyzed: Trace | Jitter

    @classmethod
    @abstractmethod
    def _view(cls) -> ModuleType:
        """The module with `document`, `as_csv` and `SUFFIXES`."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Files and ranks that are left out, differences of the ranks, data that the files lack."""
        return tuple(map(str, self.analyzed.warnings))

    def to_dict(self) -> dict[str, Any]:
        """The document that the command prints with `--format json`."""
        return dict(self._view().document(self.analyzed))

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return tuple(cls._view().SUFFIXES)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.report.encoding import as_json

        return {"json": lambda: as_json(self.to_dict()), "csv": lambda: self._view().as_csv(self.analyzed)}


class TraceReport(_RunReport):
    """Result of `trace`: per rank the parts of the wall time, idle time by cause, copies, communication, steps."""

    analyzed: Trace

    def __init__(self, analyzed: Trace) -> None:
        self.analyzed = analyzed
        self._left_out: dict[str, None] = {}  # by the files that were written

    def _messages(self) -> Iterable[Text]:
        """What the files that `save` wrote leave out."""
        return self._left_out

    @property
    def findings(self) -> list[str]:
        """What limits the run, the largest part of the wall time first; before it, whether two runs differ in work."""
        return [finding.text for finding in self.analyzed.findings]

    @classmethod
    def _view(cls) -> ModuleType:
        from roofmodel.views.trace import data

        return data

    def to_frame(self) -> pandas.DataFrame:
        """One row per rank and group, or per group of two runs, with the columns of `roof trace --format csv`."""
        import pandas

        from roofmodel.views.trace.data import table_rows

        return pandas.DataFrame(table_rows(self.analyzed))

    def steps_frame(self) -> pandas.DataFrame:
        """One row per rank and step: wall time and its parts in seconds."""
        import pandas

        from roofmodel.views.trace.data import step_rows

        return pandas.DataFrame(step_rows(self.analyzed))

    def save(self, path: PathLike) -> Path:
        """Write a picture (png, svg, pdf), the timeline (html, perfetto.json[.gz]) or the data (json, csv)."""
        from roofmodel.views.trace.data import save

        return save(self.analyzed, arguments.path("path", path), self._left_out.setdefault)

    def __rich__(self) -> Any:
        from roofmodel.views.trace.tables import table

        return table(self.analyzed)

    def __repr__(self) -> str:
        found = self.analyzed
        return f"<TraceReport of {', '.join(found.names.values())}: {len(found.ranks)} ranks, by {found.tool}>"


class JitterReport(_RunReport):
    """Result of `jitter`: per step the earliest and the latest rank, from which kernel on, and the causes."""

    analyzed: Jitter

    def __init__(self, analyzed: Jitter) -> None:
        self.analyzed = analyzed

    @property
    def findings(self) -> list[str]:
        """Which rank is late, and the evidence for each cause."""
        return list(self.analyzed.findings)

    @classmethod
    def _view(cls) -> ModuleType:
        from roofmodel.views.jitter import data

        return data

    def to_frame(self) -> pandas.DataFrame:
        """One row per step, with the columns of `roof jitter --format csv`."""
        import pandas

        from roofmodel.views.jitter.data import step_rows

        return pandas.DataFrame(step_rows(self.analyzed))

    def deviations_frame(self) -> pandas.DataFrame:
        """One row per step and rank: deviation of the time to the end of the step from the mean, in seconds."""
        import pandas

        from roofmodel.views.jitter.data import deviation_rows

        return pandas.DataFrame(deviation_rows(self.analyzed))

    def kernels_frame(self) -> pandas.DataFrame:
        """One row per rank and kernel of the step with the largest deviation: deviations from the mean, in seconds."""
        import pandas

        from roofmodel.views.jitter.data import kernel_rows

        return pandas.DataFrame(kernel_rows(self.analyzed))

    def save(self, path: PathLike) -> Path:
        """Write a picture (png, svg, pdf), a page (html) or the data (json, csv), by the suffix."""
        from roofmodel.views.jitter.page import save

        return save(self.analyzed, arguments.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.views.jitter.tables import table

        return table(self.analyzed)

    def __repr__(self) -> str:
        found = self.analyzed
        return f"<JitterReport of {', '.join([*found.names.values()][:3])}: {len(found.ranks)} ranks, by {found.tool}>"
