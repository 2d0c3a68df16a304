"""Points on a roofline of characters, each with the letter that its line of the table begins with."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from roofmodel import units
from roofmodel.study.profile.points import Point
from roofmodel.views.estimate.rows import ALPHABETS
from roofmodel.views.kit import chart
from roofmodel.views.kit.panel import MATTERS, Panel, colour

WIDEST = 96  # columns


def signs(points: Sequence[Point]) -> dict[Point, str]:
    """Letters for points at DRAM that have FLOPs and a share of the time that matters: measured first, then longest."""
    places = [p for p in points if p.level == "dram" and p.intensity and p.flops_per_second]
    matter = [p for p in places if p.share is None or p.share >= MATTERS]
    longest = sorted(matter, key=lambda p: (p.predicted, -(p.share or 0)))
    return dict(zip(longest, "".join(ALPHABETS.values()), strict=False))


class PointsChart:
    """Renders a panel's points with rich, as wide as the terminal allows."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        panel, found = self.panel, signs(self.panel.points)
        top = panel.pipes[0]
        marks = [
            chart.Mark(sign, f"bold {colour([panel], 0, p.category)}", p.intensity or 0, p.flops_per_second or 0)
            for p, sign in found.items()
        ]
        used = next((pipe for pipe in panel.pipes if any(p.pipe == pipe.name for p in found)), top)
        lower = f", {used.name} (╌) {units.si(used.peak, 'FLOP/s')}" if used != top else ""
        about = (
            f"{top.name}{lower}, DRAM {units.si(panel.device.bandwidth, 'B/s', 4)}; ● stands for the letters after it"
        )
        rest = sum(p.level == "dram" for p in panel.points) - len(found)
        left_out = f"; {rest} without a letter have no FLOPs or under {MATTERS:.0%} of the time" if rest else ""
        yield Text.assemble(("roofline", "bold"), (f"  {about}{left_out}", "dim"))
        width = min(WIDEST, options.max_width - chart.MARGIN - 3)
        yield from chart.roofline(marks, top.peak, panel.device.bandwidth, width, used.peak)
