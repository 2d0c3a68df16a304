"""HTML pages as one file that loads nothing from the network: their common head and styles, and files of a folder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

SCRIPT_SOURCES = "script-src 'unsafe-inline'"
IMAGE_SOURCES = "img-src data: blob:"
"""Sources that the content security policy of a page may allow, besides its own style."""


def page_file(package: str, name: str) -> str:
    """The text of a file next to the modules of a folder, such as `trace` or `report`."""
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


def svg(draw: Callable[[Path], None]) -> str:
    """The SVG element that `draw` writes to a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "picture.svg")
        draw(path)
        text = path.read_text(encoding="utf-8")
    return text[text.index("<svg") :]


def html_blocks(blocks: Sequence[RenderableType]) -> Iterator[str]:
    """Lines and tables of the terminal as HTML, without empty lines: a bold line above a table is a heading."""
    from rich.text import Text

    from roofmodel.report.table import TerminalTable

    for block, below in zip(blocks, [*blocks[1:], None], strict=True):
        if isinstance(block, TerminalTable):
            yield block.table.html(block.rows)
        elif isinstance(block, Text) and block.plain:
            text, style = escape(block.plain), block.style
            if style == "bold" and isinstance(below, TerminalTable):
                yield f"<h2>{text}</h2>"
            else:
                kind = ' class="note"' * (style == "dim")
                yield f"<p{kind}>{f'<b>{text}</b>' if style == 'bold' else text}</p>"
