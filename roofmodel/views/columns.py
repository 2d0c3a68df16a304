"""Which columns a terminal has room for: on a narrow one the least important go, and names and numbers are not cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def fitting(widths: Mapping[str, int], expendable: Iterable[str], room: int) -> list[str]:
    """The columns, by title, that stand side by side in so many letters once the expendable went, in their order."""
    kept = dict(widths)
    for title in expendable:
        if sum(width + 1 for width in kept.values()) <= room + 1:
            break
        kept.pop(title, None)
    return list(kept)
