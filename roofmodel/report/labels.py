"""Placement of labels in a picture where they cover the fewest marks, lines and other labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

Box = tuple[float, float, float, float]  # left, bottom, right, top, in pixels
Place = tuple[float, float]  # x, y
TEXT_WEIGHT = 10  # of covered text, relative to covered marks and lines


def place(axes: Axes, labeled: Iterable[tuple[str, Place]], dpi: float) -> None:
    """Write labels next to their marks; a label and its mark's x, y each.

    Each label gets the place around its mark where it covers the smallest area of marks, lines, other text and the
    space outside the axes; of equal places the nearest. It avoids other text most of all. A line
    connects a distant label with its mark.
    """
    point = dpi / 72  # in pixels
    obstacles = np.array([*_drawn(axes, point)]).reshape(-1, 4)
    texts = np.array([box for text in axes.texts for box in _text_boxes(text, point)]).reshape(-1, 4)
    for label, (x, y) in labeled:
        here = _pixels(axes, x, y)
        text = axes.text(x, y, label, ha="center", va="center", fontsize=9, weight="bold", zorder=5)
        extent = text.get_window_extent()
        size = extent.width + 6 * point, extent.height  # 3 points between labels of one line
        candidate = min(
            _candidates(here, size, point),
            key=lambda candidate: (
                round(_covered(candidate.box, obstacles, axes) + TEXT_WEIGHT * _covered(candidate.box, texts, axes), 3),
                candidate.away,
            ),
        )
        obstacles, texts = np.vstack([obstacles, candidate.box]), np.vstack([texts, candidate.box])
        middle = ((candidate.box[0] + candidate.box[2]) / 2, (candidate.box[1] + candidate.box[3]) / 2)
        text.set_position(_data(axes, middle))
        if candidate.away > 1:
            ends = (_data(axes, here), _data(axes, middle))
            axes.plot(*zip(*ends, strict=True), color="0.4", lw=0.6, zorder=4)
            text.set_bbox({"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 0.5})


def place_text(axes: Axes, text: Text, places: Iterable[Place], dpi: float) -> None:
    """Move a text to the place, in the axes' units, where it covers the smallest area of marks and other text.

    Of equal places it takes the first. Its background is translucent, so that a covered mark stays visible.
    """
    point = dpi / 72
    others = (box for other in axes.texts if other is not text for box in _text_boxes(other, point))
    obstacles = np.array([*_marks(axes, point), *others]).reshape(-1, 4)

    def covered(at: Place) -> float:
        text.set_position(at)
        return round(sum(_covered(box, obstacles, axes) for box in _text_boxes(text, point)), 2)

    text.set_position(min(places, key=covered))
    text.set_bbox({"facecolor": "white", "alpha": 0.6, "lw": 0, "pad": 0.5})


def _pixels(axes: Axes, x: float, y: float) -> Place:
    across, up = axes.transData.transform((x, y))
    return float(across), float(up)


def _data(axes: Axes, pixels: Place) -> Place:
    x, y = axes.transData.inverted().transform(pixels)
    return float(x), float(y)


class _Candidate(NamedTuple):
    box: Box
    away: int  # rings around the mark


def _drawn(axes: Axes, point: float) -> Iterator[Box]:
    """Boxes that a label should not cover: marks, text, and lines as chains of small boxes."""
    yield from _marks(axes, point)
    for text in axes.texts:
        yield from _text_boxes(text, point)
    for line in axes.lines:
        if line.get_linestyle() != "None":  # points without a line; labels may cover them
            for ends in pairwise(line.get_transform().transform(line.get_xydata())):
                yield from _chain(*ends, point)


def _marks(axes: Axes, point: float) -> Iterator[Box]:
    from matplotlib.collections import PathCollection

    for marks in axes.collections:
        if isinstance(marks, PathCollection):
            centers = axes.transData.transform(marks.get_offsets())
            sizes = cycle(marks.get_sizes())  # one size for all marks where they are equal
            for center, area in zip(centers, sizes, strict=False):
                yield _square_box(center, math.sqrt(area) / 2 * point)


def _text_boxes(text: Text, point: float) -> Iterator[Box]:
    """The box of a text; for a slanted text a chain of small boxes."""
    left, low, right, high = text.get_window_extent().extents
    if text.get_rotation() % 180:
        yield from _chain((left, low), (right, high), 4 * point)
    else:
        yield left, low, right, high


def _chain(start: Place, end: Place, half: float) -> Iterator[Box]:
    steps = max(1, math.ceil(math.dist(start, end) / (2 * half)))
    for i in range(steps + 1):
        part = i / steps
        yield _square_box((start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1])), half)


def _square_box(center: Place, half: float) -> Box:
    return center[0] - half, center[1] - half, center[0] + half, center[1] + half


def _candidates(here: Place, size: Place, point: float) -> Iterator[_Candidate]:
    """Candidate places around a mark: sixteen on each ring, starting below on the right."""
    for away, distance in enumerate((9, 14, 22, 32, 44, 58), 1):
        for turn in range(16):
            angle = 2 * math.pi * (turn - 2) / 16
            x = here[0] + math.cos(angle) * (distance * point + size[0] / 2)
            y = here[1] + math.sin(angle) * (distance * point + size[1] / 2)
            yield _Candidate((x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2), away)


def _covered(box: Box, obstacles: Sequence[Box] | NDArray[np.float64], axes: Axes) -> float:
    """The fraction of a box that covers `obstacles` or lies outside the axes."""
    left, low, right, high = box
    area = (right - left) * (high - low)
    bounds = axes.bbox
    inside = max(0, min(right, bounds.x1) - max(left, bounds.x0)) * max(0, min(high, bounds.y1) - max(low, bounds.y0))
    boxes = np.asarray(obstacles, dtype=float).reshape(-1, 4)
    across = np.minimum(right, boxes[:, 2]) - np.maximum(left, boxes[:, 0])
    up = np.minimum(high, boxes[:, 3]) - np.maximum(low, boxes[:, 1])
    common = float((across.clip(0) * up.clip(0)).sum())
    return float(area - inside + common) / area
