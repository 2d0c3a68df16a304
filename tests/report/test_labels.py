"""Placement of labels: they avoid marks and other labels, and stay within the axes."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from roofmodel.report import canvas


@pytest.fixture
def axes() -> Axes:
    figure = Figure(figsize=(4, 4), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.2, 0.2, 0.6, 0.6))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    return axes


def overlap(a: canvas.Box, b: canvas.Box) -> float:
    return max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))


@pytest.mark.parametrize(("x", "y"), [(1, 0), (0, 0), (0, 1), (1, 1), (1, 0.5), (0.5, 0)])
def test_the_label_of_a_mark_at_the_edge_stays_within_the_axes(axes: Axes, x: float, y: float) -> None:
    """The first position, below right, is outside the axes for a mark at the right edge or at the bottom."""
    axes.scatter([x], [y], s=30)
    canvas.place_labels(axes, [("label", (x, y))], 100)
    (text,) = axes.texts
    left, low, right, high = text.get_window_extent().extents
    assert axes.bbox.x0 <= left < right <= axes.bbox.x1
    assert axes.bbox.y0 <= low < high <= axes.bbox.y1


def test_a_label_outside_the_axes_is_penalized_by_its_outside_part(axes: Axes) -> None:
    right, low = axes.bbox.x1, axes.bbox.y0 + 50
    assert canvas._covered((right - 20, low, right, low + 10), [], axes) == 0
    assert canvas._covered((right - 10, low, right + 10, low + 10), [], axes) == pytest.approx(0.5)
    assert canvas._covered((right + 1, low, right + 21, low + 10), [], axes) == pytest.approx(1)


def test_labels_of_neighboring_marks_do_not_overlap(axes: Axes) -> None:
    marks = [("first", 0.5, 0.5), ("second", 0.58, 0.5), ("third", 0.5, 0.58)]
    axes.scatter([x for _, x, _ in marks], [y for _, _, y in marks], s=30)
    canvas.place_labels(axes, [(label, (x, y)) for label, x, y in marks], 100)
    boxes = [tuple(map(float, text.get_window_extent().extents)) for text in axes.texts]
    assert len(boxes) == 3
    assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_the_name_of_a_letter_is_written_only_where_it_covers_nothing(axes: Axes) -> None:
    axes.scatter([0.3, 0.9], [0.5, 0.5], s=30)
    axes.plot([0.8, 0.8, 0.99, 0.99], [0, 0.95, 0.95, 0], lw=1)  # a frame around the second mark
    names = {"A": "norms", "B": "attention core"}
    canvas.place_labels(axes, [("A", (0.3, 0.5)), ("B", (0.9, 0.5))], 100, names)
    texts = {text.get_text(): tuple(map(float, text.get_window_extent().extents)) for text in axes.texts}
    assert set(texts) == {"A", "B", "norms"}
    assert overlap(texts["A"], texts["norms"]) == 0
    assert min(abs(texts["A"][0] - texts["norms"][2]), abs(texts["norms"][0] - texts["A"][2])) < 10  # pixels
