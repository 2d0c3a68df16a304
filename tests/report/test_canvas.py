"""Axes that all pictures share."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

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
