"""Results of predictions: estimates, sweeps, derivations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from roofmodel.errors import Text
from roofmodel.options import arguments
from roofmodel.options.arguments import PathLike
from roofmodel.report.base import FileResult, PictureResult, TextResult

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.options.values import SweepPicture
    from roofmodel.report.document import Document
    from roofmodel.report.notebook import Picture
    from roofmodel.steps.estimate import Estimate
    from roofmodel.study.sweep.sweep import Sweep


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
        from roofmodel.views.estimate.data import to_dict

        return to_dict(self.estimate)

    def to_frame(self) -> pandas.DataFrame:
        """One row per operator in base units, with the columns of `roof estimate --format csv`.

        `bound_seconds` and `expected_seconds` are those of one occurrence; `total_bound_seconds` and
        `total_expected_seconds` are multiplied by `count`.
        """
        import pandas

        from roofmodel.views.estimate.data import flat

        frame = pandas.DataFrame(flat(self.estimate))
        for name in ("bound_seconds", "expected_seconds"):
            frame[f"total_{name}"] = frame[name].astype(float) * frame["count"]
        return frame

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.views.estimate.files import SUFFIXES

        return SUFFIXES

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.views.estimate.files import FORMATS, as_text

        return {form: partial(as_text, self.estimate, form) for form in FORMATS}

    def save(self, path: PathLike) -> Path:
        """Write a picture (png, svg, pdf), a page (html) or the data (json, csv, md), by the suffix."""
        from roofmodel.views.estimate.files import save

        return save(self.estimate, arguments.path("path", path))

    def table(self, *, ops: bool = False, roofline: bool = False, hint: bool = False) -> Any:
        """The tables of `roof estimate`: one row per operator with `ops`, a chart with `roofline`.

        `hint` adds a line on these options.
        """
        from roofmodel.views.estimate.terminal import EstimateView

        return EstimateView(self.estimate, ops=ops, roofline=roofline, hint=hint)

    def __rich__(self) -> Any:
        return self.table()

    def __repr__(self) -> str:
        phases = ", ".join(f"{phase.step.phase} ≥ {phase.bound_seconds:.3g} s" for phase in self.estimate.phases)
        return f"<Report {self.estimate.architecture.name} on {self.estimate.device.name}: {phases}>"


class SweepReport(FileResult):
    """Result of `sweep`: a grid of points with the totals of each, evaluated when it is read.

    A grid may be larger than memory: `save` and `write` evaluate it block by block; `to_frame` and `to_dict` load all
    of it.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def _messages(self) -> Iterable[Text]:
        return self.sweep.notes

    def evaluated(self) -> SweepReport:
        """The same report with all rows in memory, to read them more than once; unchanged above a million points."""
        return SweepReport(self.sweep.in_memory())

    def to_frame(self) -> pandas.DataFrame:
        """One row per point in base units, with the columns of `roof sweep --format csv`."""
        from roofmodel.views.sweep.data import frame

        return frame(self.sweep)

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof sweep --format json` prints."""
        from roofmodel.views.sweep.data import document

        return document(self.sweep)

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.views.sweep.files import SUFFIXES

        return SUFFIXES

    @staticmethod
    def check_picture(kind: SweepPicture | None, priced: bool, scaled: bool = False) -> None:
        """Raises RoofError for an unknown kind of picture, `costs` without prices, `scaling` without scaling."""
        from roofmodel.views.sweep.picture import check

        arguments.check_texts(picture=kind)
        check(kind, priced, scaled)

    def write(self, form: str, out: TextIO) -> None:
        """Write the rows to a stream as json or csv, block by block. Raises RoofError for another format."""
        from roofmodel.views.sweep.files import write_csv, write_json

        writers = {"json": write_json, "csv": write_csv}
        writers[arguments.one_of("form", form, writers)](self.sweep, out)

    def save(self, path: PathLike, picture: SweepPicture | None = None) -> Path:
        """Write the rows (csv, json, parquet) or a picture (png, svg, pdf) of `rates`, `roofs`, `costs` or
        `scaling`.

        Returns the path. Raises RoofError for a path that cannot be written, and for an unknown kind of picture.
        """
        from roofmodel.views.sweep.files import save

        priced = any(case.price is not None for case in self.sweep.cases)
        self.check_picture(picture, priced, self.sweep.scaling is not None)
        return save(self.sweep, arguments.path("path", path), picture)

    def picture(self, kind: SweepPicture | None = None, dpi: int = 100) -> Picture:
        """A picture of `rates`, `roofs`, `costs` or `scaling`, for a notebook. Raises RoofError for an unknown kind."""
        from roofmodel.report.notebook import picture

        return picture(partial(self.save, picture=kind), arguments.resolution(dpi))

    def __rich__(self) -> Any:
        if self.sweep.scaling:
            from roofmodel.views.sweep.scaling import ScalingView

            return ScalingView(self.sweep)
        from roofmodel.views.sweep.table import View

        return View(self.sweep)

    def __repr__(self) -> str:
        selected = f"{self.sweep.row_count} of " if self.sweep.where else ""
        return f"<SweepReport of {selected}{self.sweep.points} points>"


class Derivation(TextResult, FileResult):
    """Result of `explain`, `crossover`, `conventions`, `reconcile` and homework: a text with formulas."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def _messages(self) -> Iterable[Text]:
        return self.document.notes

    def to_dict(self) -> dict[str, Any]:
        """The document that `--format json` prints."""
        return self.document.data  # type: ignore[no-any-return]

    def to_markdown(self) -> str:
        """Markdown, with formulas between dollar signs."""
        return self.document.render("markdown")

    def to_latex(self) -> str:
        """A complete LaTeX file that needs amsmath only."""
        return self.document.render("latex")

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return ("md", "tex", "json")

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        return {form: partial(self.document.render, form) for form in ("json", "markdown", "latex")}

    def save(self, path: PathLike) -> Path:
        """Write md, tex or json, by the suffix."""
        return self.document.save(arguments.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.report.document import rich

        return rich(self.document.blocks)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        remarks = "".join(f"\n\n{remark}" for remark in self.remarks())
        return {"text/markdown": self.to_markdown() + remarks, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"<Derivation: {self.document.title}>"


class HomeworkSheet(Derivation):
    """Result of `homework`: a sheet of problems, or its key."""

    @classmethod
    def check_output(cls, path: PathLike, force: bool = False) -> None:
        """Raises OutputError, too, if the file is a sheet with answers and `force` is not set."""
        from roofmodel.errors import Option, OutputError
        from roofmodel.study.homework.homework import has_answers

        super().check_output(path)
        file = arguments.path("path", path)
        if not force and has_answers(file):
            raise OutputError(
                f"{file}: is a sheet with answers; give another name, or ", Option("force"),
                " to replace it",
            )  # fmt: skip


class ExplorePage(FileResult):
    """Result of `explore`: one HTML page with sliders and all data inside."""

    def __init__(self, html: str, names: Sequence[str]) -> None:
        self.html = html
        self.names = names

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return ("html",)

    def save(self, path: PathLike) -> Path:
        """Write the page (html)."""
        from roofmodel.files import output_files

        return output_files.write(arguments.path("path", path), None, {"html": lambda: self.html})

    def __rich__(self) -> Any:
        return repr(self)

    def __repr__(self) -> str:
        return f"<ExplorePage of {', '.join(self.names)}>"
