"""Placement of labels next to marks in a picture, so that they cover no marks, lines or other labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

Box = tuple[float, float, float, float]  # left, bottom, right, top, in pixels
Place = tuple[float, float]  # from the left and from below


def place(axes: Axes, signs: Iterable[tuple[str, float, float]], dpi: float, between: str = " ") -> None:
    """Signs beside their marks (sign, across, up); those of marks that lie on one another stand together.

    Each takes the place around its mark, ever farther away, where it covers the least of marks, of other text and of
    what lies outside the axes. A line leads to a sign that stands apart.
    """
    point = dpi / 72  # in pixels
    clusters: list[tuple[Place, list[str]]] = []
    for sign, x, y in signs:
        here = _pixels(axes, x, y)
        near = next((c for c in clusters if math.dist(c[0], here) < 10 * point), None)
        if near is None:
            clusters.append((here, [sign]))
        elif sign not in near[1]:  # devices share the numbers
            near[1].append(sign)
    taken = [*_drawn(axes, point)]
    for here, together in clusters:
        text = axes.text(
            *_data(axes, here), between.join(together), ha="center", va="center", fontsize=9, weight="bold", zorder=5
        )
        extent = text.get_window_extent()
        size = extent.width, extent.height
        room = min(_rooms(here, size, point), key=lambda room: (round(_covered(room.box, taken, axes), 3), room.away))
        taken.append(room.box)
        middle = ((room.box[0] + room.box[2]) / 2, (room.box[1] + room.box[3]) / 2)
        text.set_position(_data(axes, middle))
        if room.away > 1:
            ends = (_data(axes, here), _data(axes, middle))
            axes.plot(*zip(*ends, strict=True), color="0.4", lw=0.6, zorder=4)
            text.set_bbox({"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 0.5})


def settle(axes: Axes, text: Text, places: Iterable[Place], dpi: float) -> None:
    """Move a text to the one of these places, in the axes' units, where it covers the least of marks and other text.

    Of equals it takes the first. What it covers nevertheless shows through.
    """
    point = dpi / 72
    taken = [*_marks(axes, point), *(box for other in axes.texts if other is not text for box in _of(other, point))]

    def covered(at: Place) -> float:
        text.set_position(at)
        return round(sum(_covered(box, taken, axes) for box in _of(text, point)), 2)

    text.set_position(min(places, key=covered))
    text.set_bbox({"facecolor": "white", "alpha": 0.6, "lw": 0, "pad": 0.5})


def _pixels(axes: Axes, x: float, y: float) -> Place:
    across, up = axes.transData.transform((x, y))
    return float(across), float(up)


def _data(axes: Axes, pixels: Place) -> Place:
    x, y = axes.transData.inverted().transform(pixels)
    return float(x), float(y)


class _Room(NamedTuple):
    box: Box
    away: int  # rings around the mark


def _drawn(axes: Axes, point: float) -> Iterator[Box]:
    """What a sign should not cover: marks, text, and lines as chains of small boxes."""
    yield from _marks(axes, point)
    for text in axes.texts:
        yield from _of(text, point)
    for line in axes.lines:
        if line.get_linestyle() != "None":  # clouds of dots, which signs may cover
            for ends in pairwise(line.get_transform().transform(line.get_xydata())):
                yield from _chain(*ends, point)


def _marks(axes: Axes, point: float) -> Iterator[Box]:
    from matplotlib.collections import PathCollection

    for marks in axes.collections:
        if isinstance(marks, PathCollection):
            centres = axes.transData.transform(marks.get_offsets())
            for centre, area in zip(centres, cycle(marks.get_sizes())):  # one size may stand for all
                yield _around(centre, math.sqrt(area) / 2 * point)


def _of(text: Text, point: float) -> Iterator[Box]:
    """What a text takes; if it is slanted, as a chain of small boxes."""
    left, low, right, high = text.get_window_extent().extents
    if text.get_rotation() % 180:
        yield from _chain((left, low), (right, high), 4 * point)
    else:
        yield left, low, right, high


def _chain(start: Place, end: Place, half: float) -> Iterator[Box]:
    steps = max(1, math.ceil(math.dist(start, end) / (2 * half)))
    for i in range(steps + 1):
        part = i / steps
        yield _around((start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1])), half)


def _around(centre: Place, half: float) -> Box:
    return centre[0] - half, centre[1] - half, centre[0] + half, centre[1] + half


def _rooms(here: Place, size: Place, point: float) -> Iterator[_Room]:
    """The places around a mark: rings of sixteen, the right below first."""
    for away, distance in enumerate((9, 14, 22, 32, 44, 58), 1):
        for turn in range(16):
            angle = 2 * math.pi * (turn - 2) / 16
            x = here[0] + math.cos(angle) * (distance * point + size[0] / 2)
            y = here[1] + math.sin(angle) * (distance * point + size[1] / 2)
            yield _Room((x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2), away)


def _covered(room: Box, taken: Iterable[Box], axes: Axes) -> float:
    """The part of a room that covers something, or lies outside the axes."""

    def common(a: Box, b: Box) -> float:
        return max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))

    area = common(room, room)
    inside = common(room, (axes.bbox.x0, axes.bbox.y0, axes.bbox.x1, axes.bbox.y1))
    return (area - inside + sum(common(room, box) for box in taken)) / area
