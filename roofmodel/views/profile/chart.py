"""Roofline chart in the terminal: points are marked with the letters of their table rows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from roofmodel import units
from roofmodel.study.profile.points import Point
from roofmodel.views.estimate.rows import ALPHABETS
from roofmodel.views.kit import chart
from roofmodel.views.kit.panel import MIN_SHARE, Panel, point_color

MAX_WIDTH = 96  # columns


def letters_of(points: Sequence[Point]) -> dict[Point, str]:
    """Letters for DRAM points with FLOPs and a relevant share of the time: measured first, then longest first."""
    candidates = [p for p in points if p.level == "dram" and p.intensity and p.flops_per_second]
    relevant = [p for p in candidates if p.share is None or p.share >= MIN_SHARE]
    longest = sorted(relevant, key=lambda p: (p.predicted, -(p.share or 0)))
    return dict(zip(longest, "".join(ALPHABETS.values()), strict=False))


class PointsChart:
    """Renders a panel's points with rich; at most MAX_WIDTH columns wide."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        panel, letters = self.panel, letters_of(self.panel.points)
        top = panel.pipes[0]
        marks = [
            chart.Mark(letter, f"bold {point_color([panel], 0, p.category)}", p.intensity or 0, p.flops_per_second or 0)
            for p, letter in letters.items()
        ]
        used = next((pipe for pipe in panel.pipes if any(p.pipe == pipe.name for p in letters)), top)
        lower = f", {used.name} (╌) {units.si(used.peak, 'FLOP/s')}" if used != top else ""
        bandwidth = units.si(panel.device.bandwidth, "B/s", 4)
        legend = f"{top.name}{lower}, DRAM {bandwidth}; ● several points, their letters follow"
        rest = sum(p.level == "dram" for p in panel.points) - len(letters)
        omitted = f"; not drawn: {rest} without FLOPs or under {MIN_SHARE:.0%} of the time" if rest else ""
        yield Text.assemble(("roofline", "bold"), (f"  {legend}{omitted}", "dim"))
        width = min(MAX_WIDTH, options.max_width - chart.MARGIN - 3)
        yield from chart.roofline(marks, top.peak, panel.device.bandwidth, width, used.peak)
