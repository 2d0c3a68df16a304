"""Tables in a terminal: how they look, and which columns there is room for. On a narrow one the least important go, and
names and numbers are not cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table


def bare(**options: Any) -> Table:
    """A table without lines, with a dim header; `options` as rich has them."""
    return Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", **options)


def fitting(widths: Mapping[str, int], expendable: Iterable[str], room: int) -> list[str]:
    """The columns, by title, that stand side by side in so many letters once the expendable went, in their order."""
    kept = dict(widths)
    for title in expendable:
        if sum(width + 1 for width in kept.values()) <= room + 1:
            break
        kept.pop(title, None)
    return list(kept)
