"""A document in a terminal and, as the same text, in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from roofmodel.report.document import (
    SEPARATOR,
    Block,
    Code,
    Document,
    Equation,
    Equations,
    Facts,
    Figure,
    Form,
    Heading,
    Items,
    OnlyTerminal,
    Paragraph,
    Rows,
    TextTable,
    explained,
)
from roofmodel.report.table import TerminalTable, bare, omitted_rows

MIN_LABEL = 11  # columns of the labels of facts
MIN_TEXT = 40  # columns of the longest texts of a table
_HIGHLIGHTS = {
    r"[\d.]+ \S+(?= expected)|(launch|host)-bound": "bold",
    r"\bfits\b": "bold green",
    r"\bdoes not fit\b": "bold red",
}
"""Styles of words in facts: the expected time, and the verdict on memory."""


class TerminalDocument:
    """A document for `console.print`, as wide as the console; with `more` also its line on further options."""

    def __init__(self, document: Document, more: bool = False) -> None:
        self.document = document
        self.more = document.more if more else ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        previous: Block = Heading(self.document.title, 1)
        yield Text(self.document.title, style="bold")
        blocks = (block for block in self.document.blocks if not isinstance(block, Figure))
        for block in explained(blocks, lambda rows: _table(rows).titles(options.max_width)):
            if isinstance(block, Heading) or (isinstance(block, Facts) and isinstance(previous, Facts)):
                yield Text()
            yield from rendered(block, options.max_width)
            previous = block
        if self.more:
            yield Text()
            yield Text(f"more: {' · '.join(self.more)}", style="dim")


def rendered(block: Block, width: int) -> Iterator[RenderableType]:
    """A block for rich."""
    if isinstance(block, Heading):
        if not block.only_page:
            yield Text(block.text, style="bold" if block.level < 3 else "bold cyan")
    elif isinstance(block, Paragraph):
        yield Text(block.text, style="dim" if block.dim else "bold" if block.bold else "")
    elif isinstance(block, Items):
        yield from (Text(f"{number}. {line}" if block.numbered else line) for number, line in enumerate(block.lines, 1))
    elif isinstance(block, Code):
        yield Text(block.text, style="green")
    elif isinstance(block, Facts):
        yield _facts(block, width)
    elif isinstance(block, Equations):
        yield _equations(block.lines, width)
    elif isinstance(block, TextTable):
        yield from _text_table(block, width)
    elif isinstance(block, Rows):
        yield _table(block)
        yield from omitted_rows(len(block.rows) - (block.most or len(block.rows)), *block.formats, which=block.which)
    elif isinstance(block, OnlyTerminal):
        yield block.render(width)


def _table(block: Rows) -> TerminalTable:
    return block.table.terminal(block.rows[: block.most])


def _facts(facts: Facts, width: int) -> RichTable:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="dim", min_width=MIN_LABEL)
    grid.add_column(overflow="fold")
    left = max(MIN_LABEL, *(cell_len(label) for label, _ in facts.lines)) + 2
    for label, line in facts.lines:
        joined = line.replace("\n", SEPARATOR)
        text = Text(joined if cell_len(joined) <= width - left else line)
        for pattern, style in _HIGHLIGHTS.items():
            text.highlight_regex(pattern, style)
        grid.add_row(label, text)
    return grid


def _equations(lines: Sequence[Equation], width: int) -> RichTable:
    """Equations after their names; an equation that is too long for one line has one line per form."""
    grid = RichTable.grid(padding=(0, 1))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    available = width - 2 - max(cell_len(line.name) for line in lines)
    for name, forms in lines:
        long = sum(cell_len(form.text) + 3 for form in forms) - 3 > available
        body = Text("\n= " if long else " = ").join(Text(form.text) for form in forms[:-1])
        body.append(("\n= " if long else " = ") if len(forms) > 1 else "").append(forms[-1].text, style="bold")
        grid.add_row(name, body)
    return grid


def _text_table(block: TextTable, width: int) -> Iterator[RenderableType]:
    """A table; where its column of long texts would be too narrow, each row as a title and its other cells below."""
    texts = [[cell.text if isinstance(cell, Form) else cell for cell in row] for row in block.rows]
    widths = [max(map(cell_len, column)) for column in zip(block.columns, *texts, strict=True)]
    available = width - (sum(widths) + len(widths) - max(widths))
    if available < min(max(widths), MIN_TEXT):
        yield from _stacked(block, texts)
        return
    table = bare()
    for title in block.columns:
        table.add_column(title.strip("|"), justify="right" if title.startswith("|") else "left", overflow="fold")
    for row in texts:
        table.add_row(*map(Text, row))
    yield table


def _stacked(block: TextTable, texts: Sequence[Sequence[str]]) -> Iterator[RenderableType]:
    titles = [title.strip("|") for title in block.columns[1:]]
    for first, *others in texts:
        yield Text(first, style="bold")
        grid = RichTable.grid(padding=(0, 2))
        grid.add_column(style="dim", min_width=max(map(cell_len, titles)) + 2)
        grid.add_column(overflow="fold")
        for title, text in zip(titles, others, strict=True):
            if text:
                grid.add_row(f"  {title}", Text(text))
        yield grid
