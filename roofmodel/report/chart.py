"""Roofline chart made of characters, for a terminal: logarithmic axes, one mark for each operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby
from typing import NamedTuple

from rich.text import Text

from roofmodel.numbers import units

HEIGHT = 12
MARGIN = 13  # columns left of the axis

ALPHABETS = {
    "capitals": "ABCDEFGHJKLMNPQRSTUVWXYZ",
    "small letters": "abcdefghijkmnpqrstuvwxyz",
    "Greek letters": "αβγδεζηθλμξπρστφχψω",
    "Greek capitals": "ΓΔΘΛΞΠΣΦΨΩ",
}
"""The letters of rows in pictures, an alphabet per phase or stage, without letters that look alike (I and l, O and o).
"""


class Mark(NamedTuple):
    """A point: one character, its style, and its position (FLOP/B, FLOP/s)."""

    sign: str
    style: str
    intensity: float
    flops_per_second: float


def roofline(marks: list[Mark], peak: float, bandwidth: float, width: int, lower: float | None = None) -> list[Text]:
    """The lines of the chart, `width` columns wide. Marks at one place are drawn as a dot followed by their signs.

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
    for y, x, run in _runs(sorted(drawn, key=lambda mark: mark.intensity), column, row):
        signs = [(mark.sign, mark.style) for mark in run]
        text = signs if len(run) == 1 else [("●", run[0].style), *signs]
        start = min(x, width - len(text))
        for i, cell in enumerate(text):
            cells[y, start + i] = cell

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


def _runs(
    marks: list[Mark], column: Callable[[float], int], row: Callable[[float], int]
) -> list[tuple[int, int, list[Mark]]]:
    """Groups of marks whose signs would overlap: row, column, marks."""
    runs: list[tuple[int, int, list[Mark]]] = []
    for mark in marks:
        x, y = column(math.log10(mark.intensity)), row(mark.flops_per_second)
        for top, start, run in runs:
            if top == y and x <= start + len(run) + 1:
                run.append(mark)
                break
        else:
            runs.append((y, x, [mark]))
    return runs


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
