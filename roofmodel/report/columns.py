"""Tables in a terminal: the columns that fit, the names that are shortened, the legends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from roofmodel.errors import cut
from roofmodel.report.table import NAME, Cell, Column, Table

MIN_NAME_WIDTH = 18  # characters of a name; narrower terminals leave out other columns
_LEADING = re.compile(r"void |static |(?:\(anonymous namespace\)|<unnamed>|\w+)::")
_BASE = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|[^<(])*")


def bare(**options: Any) -> RichTable:
    """A table without lines, with a dim header; `options` are those of rich."""
    return RichTable(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", **options)


def shorten(name: str, width: int) -> str:
    """A kernel's name in at most `width` characters: without return type and namespaces if necessary, then cut."""
    while len(name) > width and (base := _BASE.match(name)) and base.end() >= width and (lead := _LEADING.match(name)):
        name = name[lead.end() :]
    return cut(name, width)


class TerminalTable:
    """The rows of a table in a terminal of any width; no number is ever cut.

    A column without a known value is left out. On a narrow terminal, columns are left out by their priority, and names
    are shortened. Legends of the columns and marks that are there follow.
    """

    def __init__(self, table: Table, rows: Sequence[Any]) -> None:
        self.table = table
        self.styles = [(table.style and table.style(row)) or "" for row in rows]
        self.cells: dict[Column, list[Cell]] = {}
        for column in table.columns:
            cells = [column.cell(row) for row in rows] if column.shown("terminal") else []
            if any(_plain(cell) not in ("", column.unknown) for cell in cells):
                self.cells[column] = cells

    def fitting(self, width: int) -> list[Column]:
        """The columns that fit into so many characters."""
        widths = {
            column: MIN_NAME_WIDTH if column.unit is NAME else _width(column, cells)
            for column, cells in self.cells.items()
        }
        expendable = [column for column in widths if column.priority is not None]
        for column in sorted(expendable, key=lambda column: column.priority or 0):
            if sum(widths.values()) + len(widths) - 1 <= width:
                break
            del widths[column]
        return list(widths)

    def titles(self, width: int) -> list[str]:
        """The titles of the columns that fit."""
        return [column.title or "" for column in self.fitting(width)]

    def left_out(self, width: int) -> list[str]:
        """The titles of the columns that do not fit."""
        kept = self.fitting(width)
        return [column.title for column in self.cells if column not in kept and column.title]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = self.fitting(options.max_width)
        table = bare()
        columns = [self.cells[column] for column in kept]
        for place, column in enumerate(kept):
            justify: Literal["left", "right"] = "left" if column.unit.left else "right"
            overflow: Literal["fold", "ellipsis"] = "fold" if column.wrap else "ellipsis"
            table.add_column(column.title or "", justify=justify, no_wrap=not column.wrap, overflow=overflow)
            if column.unit is NAME:
                others = sum(_width(other, self.cells[other]) + 1 for other in kept if other is not column)
                columns[place] = [_fill(cell, options.max_width - others) for cell in columns[place]]
        lines = [*zip(self.styles, *columns, strict=True)]
        # rich lays out one row of long cells in a tenth of the time of a row for each line
        for part in [[line] for line in lines] if any(column.wrap for column in kept) else [lines]:
            styles, *parts = zip(*part, strict=True)
            table.add_row(*(_stacked(cells, styles) for cells in parts))
        yield table
        figures = (cells for column, cells in zip(kept, columns, strict=True) if column.unit is not NAME)
        text = "".join(_plain(cell) for cells in figures for cell in cells)
        legends = [line for mark, line in self.table.marks.items() if mark in text] + [column.legend for column in kept]
        if found := [*dict.fromkeys(filter(None, legends))]:
            yield Text("; ".join(found), style="dim")


def _width(column: Column, cells: Sequence[Cell]) -> int:
    return max(map(cell_len, (column.title or "", *map(_plain, cells))))


def _plain(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[0]


def _fill(cell: Cell, width: int) -> Cell:
    """A name, shortened or padded to this width."""
    text = shorten(_plain(cell), width)
    text += " " * (width - cell_len(text))
    return text if isinstance(cell, str) else (text, cell[1])


def _stacked(cells: Iterable[Cell], styles: Iterable[str]) -> Text:
    """Cells of one column, a line each."""
    text = Text()
    for number, (cell, style) in enumerate(zip(cells, styles, strict=True)):
        text.append("\n" * bool(number))
        text.append(*((cell, style) if isinstance(cell, str) else cell))
    return text
