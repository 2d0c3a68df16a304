"""Parts of tables in a terminal: a table without lines, and names of kernels that are shortened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from roofmodel.errors import Option, cut

_LEADING = re.compile(r"void |static |(?:\(anonymous namespace\)|<unnamed>|\w+)::")
_BASE = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|[^<(])*")


def bare(**options: Any) -> RichTable:
    """A table without lines, with a dim header; `options` are those of rich."""
    return RichTable(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", **options)


def omitted_rows(rest: int, *formats: str, which: str = "") -> Iterator[Text]:
    """The line below a table without its last `rest` rows: `and 5 more; --format json lists all`; none without rest.

    `which` describes the omitted rows: `and 5 more with smaller deviations`.
    """
    if rest > 0:
        yield Text(omitted(rest, *formats, which=which), style="dim")


def omitted(rest: int, *formats: str, which: str = "") -> str:
    """The line of `omitted_rows`, of one row or more."""
    options = " and ".join(str(Option("format", name)) for name in formats)
    more = f"{rest} more {which}".rstrip()
    return f"and {more}; {options} {'lists' if len(formats) == 1 else 'list'} all"


def shorten(name: str, width: int) -> str:
    """A kernel's name in at most `width` characters: without return type and namespaces if necessary, then cut."""
    while len(name) > width and (base := _BASE.match(name)) and base.end() >= width and (lead := _LEADING.match(name)):
        name = name[lead.end() :]
    return cut(name, width)
