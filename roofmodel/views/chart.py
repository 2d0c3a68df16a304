"""A roofline drawn with characters: both axes logarithmic, marks where the operators sit."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby
from typing import NamedTuple

from rich.text import Text

from roofmodel import units

WIDTH, HEIGHT = 64, 12
MARGIN = 13  # columns left of the axis


class Mark(NamedTuple):
    """A point: one character, its style, and where it sits (FLOP per byte, FLOP/s)."""

    sign: str
    style: str
    intensity: float
    flops_per_second: float


def roofline(marks: list[Mark], peak: float, bandwidth: float) -> list[Text]:
    """The lines of the picture. Marks that share a cell hang below one another."""
    ridge = peak / bandwidth
    drawn = [mark for mark in marks if mark.intensity > 0]
    left = math.floor(math.log10(min([mark.intensity for mark in drawn] + [ridge / 100])))
    right = math.ceil(math.log10(max([mark.intensity for mark in drawn] + [ridge * 4])))
    top, bottom = math.log10(peak), math.log10(bandwidth) + left

    def column(decade: float) -> int:
        return round((decade - left) / (right - left) * (WIDTH - 1))

    def row(flops_per_second: float) -> int:
        y = round((top - math.log10(flops_per_second)) / (top - bottom) * (HEIGHT - 1))
        return max(0, min(HEIGHT - 1, y))

    cells: dict[tuple[int, int], tuple[str, str]] = {}
    for x in range(WIDTH):
        intensity = 10 ** (left + x / (WIDTH - 1) * (right - left))
        cells[row(min(peak, bandwidth * intensity)), x] = ("─" if intensity >= ridge else "╱", "dim")
    taken: set[tuple[int, int]] = set()
    for mark in drawn:
        x, y = column(math.log10(mark.intensity)), row(mark.flops_per_second)
        while (y, x) in taken and y < HEIGHT - 1:
            y += 1
        taken.add((y, x))
        cells[y, x] = (mark.sign, mark.style)

    lines = []
    for y in range(HEIGHT):
        value = 10 ** (top - y / (HEIGHT - 1) * (top - bottom))
        label = units.si(value, "FLOP/s", 3 if y == 0 else 2) if y in (0, HEIGHT // 2, HEIGHT - 1) else ""
        line = Text(f"{label:>{MARGIN - 1}} {'┤' if label else '│'}", style="dim")
        # neighbours of one style in one piece: rich's work is by the piece
        for style, run in groupby((cells.get((y, x), (" ", "")) for x in range(WIDTH)), key=lambda cell: cell[1]):
            line.append("".join(sign for sign, _ in run), style=style)
        lines.append(line)
    return [*lines, *_axis(left, right, column)]


def _axis(left: int, right: int, column: Callable[[float], int]) -> list[Text]:
    ticks, labels = ["─"] * WIDTH, [" "] * (WIDTH + 4)
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
