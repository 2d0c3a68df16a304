"""Base classes of results: rendering with rich, text in a format, files whose suffix selects the format, pictures."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from roofmodel.errors import AnswerNote, Command, Message, Option, OutputError, Text, WarningNote
from roofmodel.numbers.algebra import plain, whole
from roofmodel.options import values
from roofmodel.options.values import PathLike, check_one_of

if TYPE_CHECKING:
    import pandas
    from rich.console import RenderableType

    from roofmodel.options.values import TextFormat
    from roofmodel.report.document import Document, Rows


PICTURES = ("png", "svg", "pdf")
TEXT_FILES: Mapping[str, Literal["json", "csv", "markdown", "latex"]] = {
    "json": "json", "csv": "csv", "md": "markdown", "tex": "latex",
}  # fmt: skip
"""The format of a text by the suffix of its file."""
MOST_NOTES = 3
"""Notes that are shown, besides all warnings."""


class NoteChoice(NamedTuple):
    """Which notes are shown: all, or the most important ones; `is_given` tells whether the user stated an option."""

    every: bool = False
    is_given: Callable[[str], bool] = lambda option: False


_MOST_IMPORTANT = NoteChoice()
_choice: ContextVar[NoteChoice] = ContextVar("choice", default=_MOST_IMPORTANT)


@contextmanager
def note_choice(choice: NoteChoice) -> Iterator[None]:
    """Within this context, results show these notes."""
    token = _choice.set(choice)
    try:
        yield
    finally:
        _choice.reset(token)


def _unimportance(note: Text) -> int:
    """0 for a note on a given option; then notes on what would give other numbers, first those that name an option."""
    parts = note.parts if isinstance(note, Message) else (note,)
    options = [part.name for part in parts if isinstance(part, Option)]
    if any(map(_choice.get().is_given, options)):
        return 0
    if isinstance(note, AnswerNote):
        return 1 if options else 2
    return 3


def as_json(document: Any) -> str:
    """A document as JSON, numbers unrounded, a Fraction as an int or a float.

    Raises ValueError for NaN and infinity, which JSON cannot express.
    """
    return json.dumps(document, indent=1, allow_nan=False, default=_without_fraction)


def _without_fraction(value: Any) -> Any:
    if isinstance(value, Fraction):
        return plain(whole(value))
    raise TypeError(f"{value!r} is not a number, a text, a list or a record")


class RenderedResult(ABC):
    """A result that renders itself with rich, in a terminal and in a notebook."""

    naming: Sequence[str] = ()
    """The columns whose texts name a row in the messages of `--fail-if`; without any, its first two texts do."""
    identifying: Sequence[str] = ()
    """The columns that identify rows of the same name."""
    short_names: Callable[[Sequence[str]], Sequence[str]] | None = None
    """Short names for the texts of the column `name`."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions, ignored options, and limits of the result. A note may begin with `warning: `."""
        return tuple(map(str, self._messages()))

    def _messages(self) -> Iterable[Text]:
        """The notes, with their options and their severity as data."""
        return ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Contradictions and missing data in the input."""
        return ()

    @abstractmethod
    def __rich__(self) -> Any: ...

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from rich.console import Group
        from rich.text import Text as RichText

        return mimebundle(Group(self.__rich__(), *map(RichText, self.remarks())))

    def remarks(self, *more: Text) -> list[str]:
        """The lines that are shown below a result: `warning: …` for all warnings, `note: …` for the `MOST_NOTES` most
        important notes, and the number of other notes. `more` are notes on how it is shown."""
        messages = [*self._messages(), *more]
        lines = [str(note) for note in messages if isinstance(note, WarningNote)]
        lines += [f"warning: {warning}" for warning in self.warnings]
        notes = sorted((note for note in messages if not isinstance(note, WarningNote)), key=_unimportance)
        shown = len(notes) if _choice.get().every else MOST_NOTES
        lines += [f"note: {note}" for note in notes[:shown]]
        hidden = len(notes[shown:])
        return [*lines, f"{hidden} more: {Command('--notes', '.notes')}"] if hidden else lines


class Result(RenderedResult):
    """The result of a command: one document, which a terminal, a notebook, files and Python show.

    A subclass has `answer`, and names the files that it writes besides `FILES` in the same attribute.
    """

    FILES: ClassVar[Sequence[str]] = ("html", "json", "csv", "md")
    """The suffixes that `save` accepts, without the dot. Those of pictures need a Figure in the document."""
    FORMATS: ClassVar[Sequence[str]] = ("json", "csv", "markdown")
    """The formats of `text`."""

    @abstractmethod
    def answer(self) -> Document:
        """The document. Its options are options of the command: they select what a terminal shows."""

    def complete(self) -> Document:
        """The document of files and of `text`, with all rows."""
        return self._default_answer

    @cached_property
    def _default_answer(self) -> Document:
        """The document without options, computed once."""
        return self.answer()

    @cached_property
    def _complete_document(self) -> Document:
        """The document of all files and texts, computed once."""
        return self.complete()

    def to_dict(self) -> dict[str, Any]:
        """What `--format json` prints: base units, unrounded, None for unknown."""
        return dict(self._complete_document.data())

    def to_frame(self) -> pandas.DataFrame:
        """The main table in base units, with the columns of `--format csv`."""
        table, rows, *_ = self._main()
        return table.frame(rows)

    def rows_to_check(self) -> Sequence[Mapping[str, Any]]:
        """The rows of `--fail-if`: those of the main table."""
        table, rows, *_ = self._main()
        return table.flat(rows)

    def _main(self) -> Rows:
        table = self._complete_document.table
        assert table is not None, f"{type(self).__name__} has no main table"
        return table()

    def table(self, **shown: Any) -> Any:
        """The document for `rich.print`, with the options of `answer`."""
        from roofmodel.report.terminal import TerminalDocument

        return TerminalDocument(self.answer(**shown) if shown else self._default_answer)

    def __rich__(self) -> Any:
        return self.table()

    def text(self, form: TextFormat) -> str:
        """The text that `--format FORM` prints. Raises RoofError, which lists the formats, for an unknown one."""
        check_one_of("form", form, self.FORMATS)
        if form == "json":
            return as_json(self.to_dict())
        if form == "csv":
            table, rows, *_ = self._main()
            return table.csv(rows)
        if form == "markdown":
            from roofmodel.report.markdown import markdown

            return markdown(self._with_notes())
        from roofmodel.report.latex import latex

        return latex(self._with_notes())

    def _with_notes(self) -> Document:
        """The document with the notes and warnings of the result, which a command prints to stderr."""
        warnings = [f"warning: {warning}" for warning in self.warnings]
        return self._complete_document._replace(notes=[*self._messages(), *warnings])

    @classmethod
    def check_output(cls, path: PathLike) -> None:
        """Raises OutputError if `save` cannot write this path: an unknown suffix, a missing folder."""
        from roofmodel.files import output_files

        output_files.check(values.path("path", path), cls.FILES)

    def save(self, path: PathLike) -> Path:
        """Write a file in the format that its suffix selects, one of `FILES`; return its path.

        An existing file is replaced only when the new one is complete. Raises OutputError.
        """
        from roofmodel.files import output_files

        target = output_files.check(values.path("path", path), self.FILES)
        form = output_files.form(target, self.FILES) or ""
        output_files.replace(target, partial(self._write, form))
        return target

    def _write(self, form: str, file: Path) -> None:
        """Write a file of this suffix."""
        if form in TEXT_FILES:
            file.write_text(self.text(TEXT_FILES[form]) + "\n", encoding="utf-8")
        elif form == "html":
            from roofmodel.report.html import html

            file.write_text(html(self._with_notes()) + "\n", encoding="utf-8")
        else:
            figure = self._complete_document.figure
            if figure is None:
                others = [f".{suffix}" for suffix in self.FILES if suffix not in PICTURES]
                raise OutputError(f"these results have no picture, so no .{form}; write {' or '.join(others)}")
            figure.draw(file, form)

    def picture(self, dpi: int = 100) -> Picture:
        """The picture that `save` writes, for a notebook. Raises RoofError for an invalid resolution."""
        return png_picture(self.save, values.resolution(dpi))


class Derivation(Result):
    """Result of `explain`, `crossover`, `conventions`, `reconcile` and homework: a text with formulas."""

    FILES: ClassVar[Sequence[str]] = ("html", "json", "csv", "md", "tex", "pdf")
    FORMATS: ClassVar[Sequence[str]] = ("json", "csv", "markdown", "latex")

    def __init__(self, document: Document) -> None:
        self.document = document

    def answer(self) -> Document:
        """The text."""
        return self.document

    def _messages(self) -> Iterable[Text]:
        return self.document.notes

    def to_markdown(self) -> str:
        """Markdown, with formulas between dollar signs."""
        return self.text("markdown")

    def to_latex(self) -> str:
        """A complete LaTeX file that needs amsmath only."""
        return self.text("latex")

    def _write(self, form: str, file: Path) -> None:
        if form == "pdf" and self._complete_document.figure is None:
            from roofmodel.report.latex import write_pdf

            write_pdf(self.to_latex(), file)
        else:
            super()._write(form, file)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from roofmodel.report.markdown import markdown

        remarks = "".join(f"\n\n{remark}" for remark in self.remarks())
        return {"text/markdown": markdown(self.document._replace(notes=())) + remarks, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"<Derivation: {self.document.title}>"


# --- Notebooks --------------------------------------------------------------------------------------

_PAGE = "<pre style=\"font-family:Menlo,'DejaVu Sans Mono',Consolas,monospace;line-height:1.2\">{code}</pre>"


def mimebundle(renderable: RenderableType) -> dict[str, str]:
    """A rich renderable as `text/plain` and `text/html`; rich escapes the text."""
    from rich.console import Console

    console = Console(record=True, file=io.StringIO(), width=100, force_jupyter=False, color_system="truecolor")
    console.print(renderable)
    html = console.export_html(inline_styles=True, code_format=_PAGE, clear=False)
    return {"text/plain": console.export_text(), "text/html": html}


class Picture(NamedTuple):
    """A PNG, which a notebook displays."""

    png: bytes

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        return "<Picture>"  # no size, so that saved notebooks do not vary with fonts and versions


PALETTE = 256  # colors: a third of the bytes without a visible difference


def png_picture(save: Callable[[Path], object], dpi: int) -> Picture:
    """The picture that `save` draws into a file, at `dpi` dots per inch."""
    from tempfile import TemporaryDirectory

    from roofmodel.report.canvas import import_matplotlib

    import_matplotlib()
    from matplotlib import rc_context
    from PIL import Image

    with TemporaryDirectory() as folder:
        file, png = Path(folder, "drawn.png"), io.BytesIO()
        with rc_context({"savefig.dpi": dpi}):
            save(file)
        with Image.open(file) as drawn:
            reduced = drawn.convert("RGB").quantize(PALETTE, Image.Quantize.MAXCOVERAGE)
            reduced.save(png, "PNG", optimize=True)
    return Picture(png.getvalue())
