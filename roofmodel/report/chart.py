"""Roofline chart made of characters, for a terminal: logarithmic axes, one mark for each operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

from rich.text import Text

from roofmodel.numbers import units

HEIGHT = 12
MARGIN = 13  # columns left of the axis

NO_LETTER = "· no letter"
SHARED_LETTERS = "one letter for marks that are close to each other"


class Mark(NamedTuple):
    """A point: its letter, its style, and its position (FLOP/B, FLOP/s). Several points may have one letter."""

    sign: str
    style: str
    intensity: float
    flops_per_second: float


def roofline(marks: list[Mark], peak: float, bandwidth: float, width: int, lower: float | None = None) -> list[Text]:
    """The lines of the chart, `width` columns wide.

    `peak` is in FLOP/s, `bandwidth` in B/s. `lower` is the peak of a second pipe, below `peak`, drawn as a dashed line.
    """
    width = max(width, 16)
    ridge = peak / bandwidth
    drawn = [mark for mark in marks if mark.intensity > 0]
    left = math.floor(math.log10(min([mark.intensity for mark in drawn] + [ridge / 100])))
    right = math.ceil(math.log10(max([mark.intensity for mark in drawn] + [ridge * 4])))
    top = math.log10(peak)
    bottom = math.log10(min([bandwidth * 10**left, *(mark.flops_per_second for mark in drawn)]))

    def column(decade: float) -> int:
        return round((decade - left) / (right - left) * (width - 1))

    def row(flops_per_second: float) -> int:
        y = round((top - math.log10(flops_per_second)) / (top - bottom) * (HEIGHT - 1))
        return max(0, min(HEIGHT - 1, y))

    cells: dict[tuple[int, int], tuple[str, str]] = {}
    for x in range(width):
        intensity = 10 ** (left + x / (width - 1) * (right - left))
        if lower is not None and bandwidth * intensity >= lower:
            cells[row(lower), x] = ("╌", "dim")
        cells[row(min(peak, bandwidth * intensity)), x] = ("─" if intensity >= ridge else "╱", "dim")
    for y, x, mark in _cells(drawn, width, column, row):
        cells[y, x] = (mark.sign or "·", mark.style)

    lines = []
    for y in range(HEIGHT):
        value = 10 ** (top - y / (HEIGHT - 1) * (top - bottom))
        label = units.si(value, "FLOP/s", 3 if y == 0 else 2) if y in (0, HEIGHT // 2, HEIGHT - 1) else ""
        line = Text(f"{label:>{MARGIN - 1}} {'┤' if label else '│'}", style="dim")
        # one piece for neighboring cells of one style: rich's run time grows with the number of pieces
        for style, piece in groupby((cells.get((y, x), (" ", "")) for x in range(width)), key=lambda cell: cell[1]):
            line.append("".join(sign for sign, _ in piece), style=style)
        lines.append(line)
    return [*lines, *_axis(left, right, column, width)]


def _cells(
    marks: list[Mark], width: int, column: Callable[[float], int], row: Callable[[float], int]
) -> Iterator[tuple[int, int, Mark]]:
    """Row and column of the marks: first those without a letter, then each letter once, next to an occupied cell."""
    occupied: set[tuple[int, int]] = set()
    letters = {mark.sign: mark for mark in reversed(marks)}  # the first mark of each letter
    for mark in [*(mark for mark in marks if not mark.sign), *(mark for sign, mark in letters.items() if sign)]:
        x, y = column(math.log10(mark.intensity)), row(mark.flops_per_second)
        if mark.sign:
            x = min((at for at in range(width) if (y, at) not in occupied), key=lambda at: abs(at - x))
            occupied.add((y, x))
        yield y, x, mark


def _axis(left: int, right: int, column: Callable[[float], int], width: int) -> list[Text]:
    ticks, labels = ["─"] * width, [" "] * (width + 4)
    for decade in range(left, right + 1):
        x = column(decade)
        ticks[x] = "┴"
        text = f"{10.0**decade:g}"
        start = max(0, x - len(text) // 2)
        labels[start : start + len(text)] = text
    return [
        Text(f"{'':>{MARGIN}}└{''.join(ticks)}", style="dim"),
        Text(f"{'FLOP/B':>{MARGIN - 1}}  {''.join(labels).rstrip()}", style="dim"),
    ]
