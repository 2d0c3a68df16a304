"""The rules by which all pictures draw marks: colors with their shapes and hatches, and the letters of a roofline.

A color always comes with its shape (of points) or hatch (of bars), so that groups are distinct in gray print as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from math import log
from typing import NamedTuple

# the palette of Okabe and Ito: distinct for color-blind readers and in print
SKY, BLUE, ORANGE, GREEN, PURPLE, RED, YELLOW, GRAY = (
    "#56B4E9", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#F0E442", "#999999",
)  # fmt: skip
SHAPES = {
    BLUE: "o", ORANGE: "s", GREEN: "^", PURPLE: "D", RED: "v", SKY: "P", GRAY: "X", YELLOW: "*",
}  # fmt: skip
"""The shape of each color's points, as matplotlib names it."""
GLYPHS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "*": "★"}
HATCHES = {
    SKY: "", BLUE: "///", ORANGE: "...", GREEN: "xxx", PURPLE: "---", RED: "+++", GRAY: "|||", YELLOW: "ooo",
}  # fmt: skip
"""The hatch of each color's bars, as matplotlib names it."""
SERIES = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY, GRAY)
"""The colors of the curves and groups of a picture, in order."""
CEILING_COLORS = {
    "compute": ORANGE,
    "memory": BLUE,
    "communication": GREEN,
    "overhead": GRAY,
}
"""The color of each bound."""

MAX_LETTERS = 8
"""Lettered places of a roofline. Marks without a letter are smaller."""
LETTERS = "ABCDEFGH"
ONE_PLACE = 1.3
"""Two marks are at one place, and share a letter, if neither coordinate differs by more than this factor."""
SMALL = 14
"""The area of a mark without a letter, in points²."""

Place = tuple[float, float]  # FLOP/B, FLOP/s


class SeriesStyle(NamedTuple):
    """How the points of one of several series are drawn."""

    color: str
    shape: str

    @property
    def glyph(self) -> str:
        """The shape as a character."""
        return GLYPHS[self.shape]


def series_style(number: int) -> SeriesStyle:
    """The color and shape of a series. No two of the first 56 series have both in common."""
    again, place = divmod(number, len(SERIES))
    color = SERIES[place]
    shapes = islice(cycle(GLYPHS), [*GLYPHS].index(SHAPES[color]) + again, None)
    return SeriesStyle(color, next(shapes))


def area(share: float, letter: str) -> float:
    """The area of a mark in points²: by its share of the time; SMALL without a letter."""
    return 30 + 500 * share if letter else SMALL


def letters(marks: Sequence[tuple[Mapping[int, Place], float]]) -> list[str]:
    """The letter of each mark, empty for most. A mark is its place in each roofline that has it, and its weight.

    Marks at one place share a letter. The MAX_LETTERS places of the largest weight get one, in the order of the marks.
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(marks)), key=lambda i: -marks[i][1]):
        group = next((group for group in groups if _at_one_place(marks[group[0]][0], marks[i][0])), None)
        if group is None:
            groups.append([i])
        else:
            group.append(i)
    largest = sorted(groups, key=lambda group: -sum(marks[i][1] for i in group))[:MAX_LETTERS]
    mark_letters = [""] * len(marks)
    for letter, group in zip(LETTERS, sorted(largest, key=min), strict=False):
        for i in group:
            mark_letters[i] = letter
    return mark_letters


def _at_one_place(first: Mapping[int, Place], second: Mapping[int, Place]) -> bool:
    shared = first.keys() & second.keys()
    return bool(shared) and all(
        abs(log(a / b)) <= log(ONE_PLACE) for i in shared for a, b in zip(first[i], second[i], strict=True)
    )
