"""The answer of a command as a document: a title, facts, declared tables with their rows, a figure, equations, notes.

A command builds one `Document`. A module for each format writes it: `terminal`, `markdown`, `html`, `latex`; JSON is
`Document.data`, and CSV and the data frame are `Document.table`. No command formats its own output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from roofmodel.errors import Text
from roofmodel.report.table import Cell, Column, Table, plain_text

SEPARATOR = " · "
"""Between the parts of a line."""


class Heading(NamedTuple):
    """The title of a section (level 2) or of a part of it (level 3).

    A terminal shows an empty line in place of a title that is `only_page`, because its table needs none there.
    """

    text: str
    level: int = 2
    only_page: bool = False


class Paragraph(NamedTuple):
    """One or more sentences; `dim` for a remark on the block before it, `bold` for an answer.

    A paragraph on `columns` of the table before it is left out where the table shows none of these titles.
    """

    text: str
    dim: bool = False
    bold: bool = False
    columns: Sequence[str] = ()


class Items(NamedTuple):
    """A list of sentences."""

    lines: Sequence[str]
    numbered: bool = False


class Code(NamedTuple):
    """Text in a monospaced font, such as the line of an operator."""

    text: str


class Facts(NamedTuple):
    """A label and a text per line. A terminal that is wide enough writes ` · ` for a line break of the text."""

    lines: Sequence[tuple[str, str]]


def one_line(text: str) -> str:
    """The text of a fact in one line; a comma in place of the spaces that align it with the line above."""
    return SEPARATOR.join(re.sub(r"  +", ", ", line.strip()) for line in text.splitlines())


class Form(NamedTuple):
    """A formula or value, in Unicode and in LaTeX."""

    text: str
    latex: str


class Equation(NamedTuple):
    """A name and the forms that it equals: formula, numbers, value. Without a name the form is an equation."""

    name: str
    forms: Sequence[Form]


class Equations(NamedTuple):
    """A list of equations, one per line."""

    lines: Sequence[Equation]


class TextTable(NamedTuple):
    """Column titles and rows; a title that starts with `|` right-aligns its column, and a Form is a formula."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Form]]


class Rows(NamedTuple):
    """Rows of a declared table.

    A terminal shows the first `most` of them, and how many more there are; `which` describes those:
    `and 5 more with smaller deviations`, and `formats` are those that have all rows.
    """

    table: Table
    rows: Sequence[Any]
    most: int | None = None
    which: str = ""
    formats: Sequence[str] = ("csv", "json")

    def cells(self) -> dict[Column, list[Cell]]:
        """The texts of the columns of a page or of Markdown, without columns in which nothing is known."""
        return self.table.cells(self.rows, "page")

    def bold(self) -> list[bool]:
        """Which rows stand out, such as totals."""
        style = self.table.style
        return [style is not None and bool(style(row)) for row in self.rows]

    def as_text_table(self) -> tuple[TextTable, list[str]]:
        """The rows as texts, and the lines below them: the legends of columns and signs."""
        cells = self.cells()
        titles = [f"{'' if column.unit.left else '|'}{column.title}" for column in cells]
        rows = [[plain_text(cell) for cell in row] for row in zip(*cells.values(), strict=True)]
        return TextTable(titles, rows), self.table.legends(cells)


class Figure(NamedTuple):
    """A picture: `draw(file, form)` draws it as png, svg or pdf; `alt` says in words what it shows."""

    draw: Callable[[Path, str], None]
    alt: str


class OnlyTerminal(NamedTuple):
    """What only a terminal and a notebook show, such as a chart of characters; `render(width)` gives it for rich."""

    render: Callable[[int], Any]


Block = Heading | Paragraph | Items | Code | Facts | Equations | TextTable | Rows | Figure | OnlyTerminal


class LazyBlocks:
    """Blocks that are computed when they are shown, because JSON and CSV do not need them."""

    def __init__(self, compute: Callable[[], Iterable[Block]]) -> None:
        self._compute = compute

    @cached_property
    def _blocks(self) -> Sequence[Block]:
        return tuple(self._compute())

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)


def explained(blocks: Iterable[Block], titles: Callable[[Rows], Sequence[str]]) -> Iterator[Block]:
    """The blocks without the paragraphs on columns that are not shown; `titles` gives those of a table."""
    rows: Rows | None = None
    shown: set[str] | None = None  # the titles of `rows`, once they are needed
    for block in blocks:
        if isinstance(block, Rows):
            rows, shown = block, None
        if isinstance(block, Paragraph) and block.columns:
            if shown is None:
                shown = {*titles(rows)} if rows else set()
            if not shown & {*block.columns}:
                continue
        yield block


class Document(NamedTuple):
    """The answer of a command.

    `data` gives what `--format json` prints, and `table` the main table, which CSV files and data frames have; both are
    in base units, unrounded, and computed when they are needed. `notes` are the lines below the answer, `more` what the
    command line says of options that show more.
    """

    title: str
    blocks: Iterable[Block]
    data: Callable[[], Any]
    table: Callable[[], Rows] | None = None
    notes: Sequence[Text] = ()
    more: Sequence[str] = ()

    @property
    def figure(self) -> Figure | None:
        """The picture of the answer; None without one."""
        return next((block for block in self.blocks if isinstance(block, Figure)), None)

    def printed(self) -> Iterator[Block]:
        """The blocks of Markdown, pages and LaTeX; the notes are a list at the end."""
        blocks = (block for block in self.blocks if not isinstance(block, OnlyTerminal))
        yield from explained(blocks, lambda rows: [column.title or "" for column in rows.cells()])
        if self.notes:
            yield Heading("Notes")
            yield Items([str(note) for note in self.notes])
