"""The result of `estimate`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from roofmodel.errors import Text
from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import PictureResult, TextResult

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.steps.estimate import Estimate


class Report(TextResult, PictureResult):
    """Result of `estimate`: operators with counts and times, totals, memory.

    A notebook shows the tables that `roof estimate` prints.
    """

    def __init__(self, estimate: Estimate) -> None:
        self.estimate = estimate

    @property
    def totals(self) -> dict[str, dict[str, Any]]:
        """Totals by phase, with the keys of the JSON: `report.totals["decode"]["bound_seconds"]`."""
        from roofmodel.steps.stages import phase_totals

        return {phase.step.phase: phase_totals(phase) for phase in self.estimate.phases}

    def _messages(self) -> Iterable[Text]:
        return self.estimate.notes

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof estimate --format json` prints, with notes in Python's spelling of options."""
        from roofmodel.estimate.data import to_dict

        return to_dict(self.estimate)

    def rows_to_check(self) -> list[dict[str, Any]]:
        """The rows of `--fail-if`: phases with their totals and the memory, and operators with `op.` before a column.

        `ttft` and `tpot` are the expected times of prefill and decode.
        """
        document, rows = self.to_dict(), list[dict[str, Any]]()
        memory = {f"memory_{key}": value for key, value in document["memory"].items() if not isinstance(value, list)}
        for phase in document["phases"]:
            name, totals = phase["phase"], phase["totals"]
            latency = {"prefill": "ttft_seconds", "decode": "tpot_seconds"}.get(name)
            rows.append(
                {"phase": name, **totals, **memory, **({latency: totals["expected_seconds"]} if latency else {})}
            )
            rows += ({"op.phase": name, **{f"op.{key}": value for key, value in op.items()}} for op in phase["ops"])
        return rows

    def to_frame(self) -> pandas.DataFrame:
        """One row per operator in base units, with the columns of `roof estimate --format csv`.

        `bound_seconds` and `expected_seconds` are those of one occurrence; `total_bound_seconds` and
        `total_expected_seconds` are multiplied by `count`.
        """
        import pandas

        from roofmodel.estimate.data import flat

        frame = pandas.DataFrame(flat(self.estimate))
        for name in ("bound_seconds", "expected_seconds"):
            frame[f"total_{name}"] = frame[name].astype(float) * frame["count"]
        return frame

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.estimate.files import SUFFIXES

        return SUFFIXES

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.estimate.files import FORMATS, as_text

        return {form: partial(as_text, self.estimate, form) for form in FORMATS}

    def save(self, path: PathLike) -> Path:
        """Write a picture (png, svg, pdf), a page (html) or the data (json, csv, md), by the suffix."""
        from roofmodel.estimate.files import save

        return save(self.estimate, values.path("path", path))

    def table(self, *, ops: bool = False, roofline: bool = False, hint: bool = False) -> Any:
        """The tables of `roof estimate`: one row per operator with `ops`, a chart with `roofline`.

        `hint` adds a line on these options.
        """
        from roofmodel.estimate.terminal import EstimateView

        return EstimateView(self.estimate, ops=ops, roofline=roofline, hint=hint)

    def __rich__(self) -> Any:
        return self.table()

    def __repr__(self) -> str:
        phases = ", ".join(f"{phase.step.phase} ≥ {phase.bound_seconds:.3g} s" for phase in self.estimate.phases)
        return f"<Report {self.estimate.architecture.name} on {self.estimate.device.name}: {phases}>"
