"""A document as one HTML file that runs no script and loads nothing from the network; the frame of all pages."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

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
from roofmodel.report.table import Cell, Column, plain_text

SCRIPT_SOURCES = "script-src 'unsafe-inline'"
IMAGE_SOURCES = "img-src data: blob:"
"""Sources that the content security policy of a page may allow, besides its own style."""
MAX_ROWS = 1000  # of a table on a page
WRAPPED = 30  # characters; a column of longer texts wraps them
NAME_WIDTH = 90  # characters of a name, such as that of a kernel


def html(document: Document) -> str:
    """The page. Tables have at most `MAX_ROWS` rows; a picture is in SVG, with its text for those who do not see it."""
    content = [f"<h1>{escape(document.title)}</h1>", *map(_block, document.printed())]
    return render_page(
        "<main>\n$content\n</main>\n</html>",
        title=document.title,
        style=page_file("report", "document.css"),
        sources=[IMAGE_SOURCES],  # pictures in the SVG, such as heat maps
        content="\n".join(content),
    )


def page_file(package: str, name: str) -> str:
    """The text of a file next to the modules of a folder, such as `explore` or `report`."""
    return resources.files(f"roofmodel.{package}").joinpath(name).read_text(encoding="utf-8")


def render_page(body: str, *, title: str, style: str, sources: Sequence[str] = (), **fields: str) -> str:
    """A page of the template `body`, in which `fields` are inserted as they are.

    `style` follows the common styles of all pages; `sources` are SCRIPT_SOURCES and IMAGE_SOURCES if the page has some.
    """
    head = Template(page_file("report", "page_head.html")).substitute(
        title=escape(title),
        style=page_file("report", "page.css") + style,
        sources="".join(f"; {source}" for source in sources),
    )
    return head + Template(body).substitute(fields)


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{escape(block.text)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p{_classes(note=block.dim, bold=block.bold)}>{escape(block.text)}</p>"
    if isinstance(block, Items):
        tag = "ol" if block.numbered else "ul"
        return f"<{tag}>{''.join(f'<li>{escape(line)}</li>' for line in block.lines)}</{tag}>"
    if isinstance(block, Code):
        return f"<pre>{escape(block.text)}</pre>"
    if isinstance(block, Facts):
        lines = (
            f'<tr><th scope="row">{escape(label)}</th><td>{escape(one_line(text))}</td></tr>'
            for label, text in block.lines
        )
        return f'<table class="facts">{"".join(lines)}</table>'
    if isinstance(block, Equations):
        lines = (
            f'<tr><th scope="row">{escape(name)}</th><td>{" = ".join(escape(form.text) for form in forms)}</td></tr>'
            for name, forms in block.lines
        )
        return f'<table class="facts">{"".join(lines)}</table>'
    if isinstance(block, TextTable):
        return _text_table(block)
    if isinstance(block, Rows):
        return rows_html(block)
    if isinstance(block, Figure):
        return _figure(block)
    raise TypeError(block)


def _text_table(block: TextTable) -> str:
    left = [not title.startswith("|") for title in block.columns]
    head = "".join(
        f'<th scope="col"{_classes(word=word)}>{escape(title.strip("|"))}</th>'
        for title, word in zip(block.columns, left, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_classes(word=word)}>{escape(cell.text if isinstance(cell, Form) else cell)}</td>"
            for cell, word in zip(row, left, strict=True)
        )
        + "</tr>"
        for row in block.rows
    )
    return _framed(f"<tr>{head}</tr>", body)


def _classes(**given: bool) -> str:
    """The attribute `class` with the names that are true."""
    names = " ".join(name for name, holds in given.items() if holds)
    return f' class="{names}"' if names else ""


def _framed(head: str, body: str) -> str:
    return f'<div class="table"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def rows_html(block: Rows) -> str:
    """The rows; a column of texts has the class `word`, a row that stands out is bold."""
    shown = block._replace(rows=block.rows[:MAX_ROWS])
    cells_by_column = {
        column: column.unit.shorten([*map(plain_text, cells)], NAME_WIDTH) if column.unit.shorten else cells
        for column, cells in shown.cells().items()
    }

    wide = {c for c, cells in cells_by_column.items() if c.wrap and max(map(len, map(plain_text, cells))) > WRAPPED}

    def line(cells: Iterable[Cell | None], head: bool = False, bold: bool = False) -> str:
        texts = (cell_of(*each, head) for each in zip(cells_by_column, cells, strict=True))
        return f"<tr{_classes(bold=bold)}>{''.join(texts)}</tr>"

    def cell_of(column: Column, cell: Cell | None, head: bool) -> str:
        tag, scope = ("th", "col") if head else ("th", "row") if column.unit.shorten else ("td", "")
        attributes = f' scope="{scope}"' * bool(scope) + _classes(word=column.unit.left, wrap=column in wide)
        return f"<{tag}{attributes}>{escape(plain_text(cell or ''))}</{tag}>"

    if not cells_by_column:
        return ""
    head = line((column.title for column in cells_by_column), head=True)
    body = "".join(
        line(cells, bold=bold)
        for cells, bold in zip(zip(*cells_by_column.values(), strict=True), shown.bold(), strict=True)
    )
    notes = block.table.legends(cells_by_column)
    if len(block.rows) > MAX_ROWS:
        files, verb = " and ".join(f".{form}" for form in block.formats), "have" if len(block.formats) > 1 else "has"
        notes.append(f"the first {MAX_ROWS} of {len(block.rows)} rows; {files} {verb} all")
    return _framed(head, body) + (f'<p class="note">{escape("; ".join(notes))}</p>' if notes else "")


def _figure(figure: Figure) -> str:
    """The picture in SVG, which scales with the page."""
    picture = _svg(lambda path: figure.draw(path, "svg"))
    return f'<figure role="img" aria-label="{escape(figure.alt)}">{picture}</figure>'


def _svg(draw: Callable[[Path], None]) -> str:
    """The SVG element that `draw` writes to a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "picture.svg")
        draw(path)
        text = path.read_text(encoding="utf-8")
    return text[text.index("<svg") :]
