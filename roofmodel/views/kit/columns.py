"""Tables in a terminal: their look, their columns on a narrow terminal, bars, and tables that rich lays out quickly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

Cell = str | tuple[str, str]  # text, or text and its style
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bare(**options: Any) -> Table:
    """A table without lines, with a dim header; `options` are those of rich."""
    return Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", **options)


def fitting(widths: Mapping[str, int], expendable: Iterable[str], available: int) -> list[str]:
    """The titles of the columns that fit into `available` characters.

    `expendable` columns are left out in their order until the rest fits.
    """
    kept = dict(widths)
    for title in expendable:
        if sum(width + 1 for width in kept.values()) <= available + 1:
            break
        kept.pop(title, None)
    return list(kept)


def stacked(
    titles: Sequence[str],
    lines: Iterable[Sequence[Cell]],
    left: Collection[str],
    expendable: Iterable[str],
    available: int,
) -> tuple[Table, list[str]]:
    """A table whose columns are one cell each, which takes rich a tenth of the time of one cell per line.

    `left` are the titles of left-aligned columns. A column without any text is left out, and `expendable` columns where
    `available` characters do not suffice; no cell is ever cut. Also returns the titles of the latter.
    """
    columns = {}
    for title, cells in zip(titles, zip(*lines, strict=True), strict=True):
        text = Text(no_wrap=True)
        text.append(title, style="dim")
        for cell in cells:
            text.append("\n").append(*([cell] if isinstance(cell, str) else cell))
        if any(cell if isinstance(cell, str) else cell[0] for cell in cells):
            columns[title] = text
    widths = {title: max(map(cell_len, text.plain.split("\n"))) for title, text in columns.items()}
    kept = fitting(widths, expendable, available)
    table = Table.grid(padding=(0, 1, 0, 0))
    for title in kept:
        table.add_column(justify="left" if title in left else "right", no_wrap=True)
    table.add_row(*(columns[title] for title in kept))
    return table, [title for title in columns if title not in kept]


def bar(fraction: float, columns: int) -> str:
    """A bar of `fraction` of so many columns, drawn to an eighth of a column."""
    eighths = round(fraction * columns * 8)
    text = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return f"{text:<{columns}}"
