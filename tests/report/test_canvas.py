"""Axes that all pictures share."""

from __future__ import annotations

import math

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.report import canvas


@pytest.mark.parametrize(
    ("low", "high"), [(0.018, 0.0198), (0.018, 0.0181 * 2), (11.0, 400.0), (1.0, 1e5), (3.0, 80.0)]
)
def test_logarithmic_axes_have_several_ticks_whose_labels_are_their_values(low: float, high: float) -> None:
    axes = Figure().add_subplot()
    axes.plot([low, high], [low, high])
    canvas.log_axes(axes, "x", "y", units.significant, units.significant)
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert len(ticks) >= 3
    assert all(float(units.significant(tick)) == pytest.approx(tick, rel=1e-9) for tick in ticks)


def roofline(right: float) -> Axes:
    """Empty axes of a roofline up to this intensity, of the size of a picture's."""
    figure = Figure(figsize=(11, canvas.HEIGHT), dpi=160)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.11, 0.11, 0.535, 0.74))
    canvas.frame(axes, 0.1, right, 1e11, 2e15)
    return axes


@pytest.mark.parametrize("right", [500, 1000, 10_000, 1e6])
def test_the_names_of_both_bounds_stay_within_the_axes(right: float) -> None:
    """The ridge point of an H100 in bf16 is 295 FLOP/B: the words on its right need two lines at 1000, more at 500."""
    axes, device = roofline(right), Device.load("h100-sxm")
    canvas.draw_ceilings(axes, device, device.matmul_pipe("bf16"), [])
    assert any("bound →" in text.get_text() for text in axes.texts) == (right > 500)
    for text in filter(lambda text: text.get_text(), axes.texts):
        assert axes.bbox.x0 <= text.get_window_extent().x0 < text.get_window_extent().x1 <= axes.bbox.x1


@pytest.mark.parametrize("right", [500, 1000, 1e6])
def test_the_name_of_a_sustained_ceiling_is_below_its_line_and_covers_no_mark(right: float) -> None:
    def rate(intensity: float) -> float:
        return 5e14 * intensity / (intensity + 100)

    axes = roofline(right)
    axes.scatter([right / 2], [rate(right / 2) / 1.3], s=60)
    canvas.draw_sustained_ceiling(axes, "sustained at 700 W", rate)
    (text,) = axes.texts
    box, line = text.get_window_extent(), axes.transData.transform
    heights = [line((x, rate(x)))[1] for x in axes.transData.inverted().transform([(box.x0, 0), (box.x1, 0)])[:, 0]]
    assert box.y1 < min(heights)
    x, y = line((right / 2, rate(right / 2) / 1.3))
    assert box.y1 < y or x + math.sqrt(60) < box.x0
