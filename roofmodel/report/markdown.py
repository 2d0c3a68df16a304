"""A document in GitHub-flavored Markdown, with formulas between dollar signs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from roofmodel.files.text_files import printable
from roofmodel.report.document import (
    Block,
    Code,
    Document,
    Equations,
    Facts,
    Figure,
    Form,
    Heading,
    Items,
    Paragraph,
    Rows,
    TextTable,
    one_line,
)
from roofmodel.report.latex import aligned


def markdown(document: Document) -> str:
    """The document; its notes are a list at the end. A figure is only in pages and in files of its own."""
    blocks = [Heading(document.title, 1), *document.printed()]
    texts = ("\n".join(_lines(block)) for block in blocks if not isinstance(block, Figure))
    return "\n\n".join(filter(None, texts))


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {escape_markdown(block.text)}"
    elif isinstance(block, Paragraph):
        text = escape_markdown(block.text)
        yield f"**{text}**" if block.bold else text
    elif isinstance(block, Items):
        signs = [f"{number}." if block.numbered else "-" for number in range(1, len(block.lines) + 1)]
        yield from (f"{sign} {escape_markdown(line)}" for sign, line in zip(signs, block.lines, strict=True))
    elif isinstance(block, Code):
        yield f"```\n{block.text}\n```"
    elif isinstance(block, Facts):
        yield from ("| | |", "|---|---|")
        yield from (f"| {_cell(label)} | {_cell(one_line(text))} |" for label, text in block.lines)
    elif isinstance(block, Equations):
        yield "$$\n\\begin{aligned}"
        yield " \\\\\n".join(aligned(equation) for equation in block.lines)
        yield "\\end{aligned}\n$$"
    elif isinstance(block, TextTable):
        yield from _table(block)
    elif isinstance(block, Rows):
        table, legends = block.as_text_table()
        yield from _table(table, block.bold())
        if legends:
            yield f"\n{escape_markdown('; '.join(legends))}"


def _table(table: TextTable, bold: Sequence[bool] | None = None) -> Iterator[str]:
    if not table.columns:  # a table without rows
        return
    yield f"| {' | '.join(_cell(title.strip('|')) for title in table.columns)} |"
    yield f"|{'|'.join('---:' if title.startswith('|') else '---' for title in table.columns)}|"
    for row, stands_out in zip(table.rows, bold or [False] * len(table.rows), strict=True):
        yield f"| {' | '.join(_cell(cell, stands_out) for cell in row)} |"


def _cell(cell: str | Form, bold: bool = False) -> str:
    """The text with its indent, which renderers would drop as spaces."""
    if isinstance(cell, Form):
        return f"${cell.latex}$"
    text = escape_markdown(cell.lstrip(" ")).replace("|", r"\|")
    return "&nbsp;" * (len(cell) - len(cell.lstrip(" "))) + (f"**{text}**" if bold and text else text)


_EMPHASIS = re.compile(r"(?<![^\W_])_|_(?![^\W_])")  # `_`, unless it is between letters or digits


def escape_markdown(text: str) -> str:
    """Text as one line in which Markdown reads no tag, entity, link or emphasis: escapes `&`, `<`, `[`, `*`, and `_` at
    the begin or end of a word, as in names of kernels.

    Entities and not backslashes: renderers of formulas take `\\[` for the begin of a formula.
    """
    text = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace("[", "&#91;").replace("*", "&#42;")
    return _EMPHASIS.sub("&#95;", text)
