"""HTML pages as one file that loads nothing from the network: their common head and styles, and files of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template

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
