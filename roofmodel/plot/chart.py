"""Roofline chart in the terminal: points are marked with the letters of their table rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from roofmodel.numbers import units
from roofmodel.report import chart, marks
from roofmodel.roofline.panel import MIN_SHARE, Panel, category_style
from roofmodel.roofline.points import Point

MAX_WIDTH = 96  # columns


def letters_of(panels: Sequence[Panel]) -> dict[str, str]:
    """Letters for the names of points, the same in tables, charts and pictures, and for all devices.

    A name can have a letter if one of its DRAM points has FLOPs and a relevant share of the time: measured ones first,
    then the longest. See `marks.letters`.
    """
    places: dict[tuple[bool, str], dict[int, marks.Place]] = {}
    share: dict[tuple[bool, str], float] = {}
    for i, panel in enumerate(panels):
        for p in panel.drawn:
            if p.level == "dram" and (p.share is None or p.share >= MIN_SHARE):
                key = p.predicted, p.name
                places.setdefault(key, {})[i] = p.intensity or 0, p.flops_per_second or 0
                share[key] = max(share.get(key, 0), p.share or 0)
    longest = sorted(share, key=lambda key: (key[0], -share[key]))
    letters = marks.letters([(places[key], share[key]) for key in longest])
    return {name: letter for (_, name), letter in zip(longest, letters, strict=True) if letter}


def letter_of(point: Point, letters: Mapping[str, str]) -> str:
    """The letter of a point; empty if it is not in a chart."""
    return letters.get(point.name, "") if point.level == "dram" and point.drawable else ""


class PointsChart:
    """Renders a panel's points with rich; at most MAX_WIDTH columns wide."""

    def __init__(self, panel: Panel, letters: Mapping[str, str]) -> None:
        self.panel, self.letters = panel, letters

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        panel = self.panel
        top = panel.pipes[0]
        drawn = [p for p in panel.drawn if p.level == "dram" and (p.share is None or p.share >= MIN_SHARE)]
        chart_marks = [
            chart.Mark(
                letter_of(p, self.letters),
                f"bold {category_style(p.category).color}",
                p.intensity or 0,
                p.flops_per_second or 0,
            )
            for p in drawn
        ]
        used = next((pipe for pipe in panel.pipes if any(p.pipe == pipe.name for p in drawn)), top)
        lower = f", {used.name} (╌) {units.si(used.peak, 'FLOP/s')}" if used != top else ""
        bandwidth = units.si(panel.device.bandwidth, "B/s", 4)
        rest = sum(p.level == "dram" for p in panel.points) - len(drawn)
        omitted = f"; not drawn: {rest} without FLOPs or under {MIN_SHARE:.0%} of the time" if rest else ""
        legend = f"{top.name}{lower}, DRAM {bandwidth}; {chart.LEGEND}{omitted}"
        yield Text.assemble(("roofline", "bold"), (f"  {legend}", "dim"))
        width = min(MAX_WIDTH, options.max_width - chart.MARGIN - 3)
        yield from chart.roofline(chart_marks, top.peak, panel.device.bandwidth, width, used.peak)
