"""Picture of a hierarchical roofline with measured and predicted points, drawn with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from roofmodel.numbers import units
from roofmodel.plot.chart import letter_of, letters_of
from roofmodel.report import canvas, labels
from roofmodel.report.canvas import DEVICE_STYLES, DeviceStyle
from roofmodel.roofline.kernel_names import names_of_points
from roofmodel.roofline.panel import MIN_SHARE, TAIL_NOTE, Panel, Window, category_color, view
from roofmodel.roofline.points import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = {"dram": "o", "l2": "s", "l1": "^"}
GLYPHS = {"o": "●", "D": "◆", "s": "■", "^": "▲", "v": "▼"}
LISTED = 12  # rows of the list next to the picture; their points have letters
LISTED_PREDICTED = 4  # of these rows, where there are predicted operators
LEGEND_WIDTH = 24  # characters of a line of the legend
LARGE = 0.05  # minimum share of the time for a percentage next to a point


def draw(panels: Sequence[Panel], heading: str, subtitle: str, path: Path, form: str) -> None:
    """Draw points into a file; `form` is png, svg or pdf. Points without FLOPs are only in the list.

    For one device, all memory levels are drawn, with a marker shape each. For several devices, only DRAM points are
    drawn, with a marker shape per device.
    """
    several = len(panels) > 1
    styles = [DEVICE_STYLES[i % len(DEVICE_STYLES)] for i in range(len(panels))]
    drawn = [[p for p in panel.drawn if p.level == "dram" or not several] for panel in panels]
    shown = view(panels)
    foot = _foot([p for found in drawn for p in found], several, shown)
    with canvas.picture(path, form, heading, subtitle, " ".join(foot)) as (figure, axes):
        canvas.frame(axes, *shown)
        listed = _listed(panels)
        letters = {name: letter for name, letter in letters_of(panels).items() if name in listed}
        signs, slopes = [], []
        lowest = min(panels, key=lambda panel: panel.device.bandwidth)
        for rank, (panel, device_style, found) in enumerate(zip(panels, styles, drawn, strict=True)):
            top, *others = panel.pipes
            low = several and panel is lowest
            slopes.append(canvas.draw_ceilings(axes, panel.device, top, others[:3], device_style, -1 if low else rank))
            for level in panel.levels if not several else []:
                if level.bandwidth and level.name != "dram":
                    slopes.append(canvas.draw_cache_ceiling(axes, level.name.upper(), level.bandwidth, top.peak))
            for p in found:
                _mark(axes, p, device_style.marker if several else MARKERS[p.level])
                if (letter := letter_of(p, letters)) and shown.contains(p):
                    signs.append((letter + _percentage(p), p.intensity or 0, p.flops_per_second or 0))
        pipes = [
            (pipe, device_style) for panel, device_style in zip(panels, styles, strict=True) for pipe in panel.pipes[:4]
        ]
        canvas.draw_ceiling_names(axes, slopes, pipes)
        labels.place(axes, signs, figure.dpi)
        kinds = {p.category for found in drawn for p in found}
        kinds |= {p.category for panel in panels for p in panel.points if p.name in listed}
        predicted = any(p.predicted for panel in panels for p in panel.points)
        below = _keys(figure, [panel.title for panel in panels] if several else [], styles, kinds, predicted)
        _table(figure, panels, styles, listed, letters, below)


def _foot(points: Sequence[Point], several: bool, shown: Window) -> Iterator[str]:
    """Explanations of the marks that occur."""
    yield f"Filled: measured{' (DRAM)' if several else ' (circle DRAM, square L2, triangle L1)'}."
    if any(p.predicted for p in points):
        yield "Hollow: predicted (bound)."
    if any(p.incomplete for p in points):
        yield "Arrow: lower bound, FLOPs of some pipes were not counted."
    if any(p.unpacked for p in points):
        yield TAIL_NOTE
    if any(p.finding for p in points):
        yield "Black ring: above its ceiling."
    yield "Size: share of the device's time." if several else "Size: share of the time."
    if outside := sum(not shown.contains(p) for p in points):
        yield f"Outside the axes: {outside} below {MIN_SHARE:.0%} of the time."


def _mark(axes: Axes, p: Point, marker: str) -> None:
    x, y, color = p.intensity or 0, p.flops_per_second or 0, category_color(p.category)
    axes.scatter(
        x, y, s=25 + 400 * (p.share or 0), marker=marker, alpha=0.8 if p.level == "dram" else 0.45,
        facecolor="none" if p.predicted else color,
        edgecolor="black" if p.finding else color if p.predicted else "white",
        lw=1.4 if p.predicted or p.finding else 0.7, zorder=3,
    )  # fmt: skip
    if p.unpacked:
        ends = zip((x, y), p.unpacked, strict=True)
        axes.plot(*ends, color=color, lw=1.6, marker="_", ms=7, markevery=[1], zorder=2.5)
    if p.incomplete and p.level == "dram":
        axes.annotate(
            "", (x, y * 1.6), (x, y), annotation_clip=True,
            arrowprops={"arrowstyle": "->", "color": color, "lw": 1},
        )  # fmt: skip


def _percentage(p: Point) -> str:
    """The share of the attainable performance, as text next to points with a large share of the time."""
    large = not p.predicted and p.fraction is not None and (p.share or 0) >= LARGE
    return f" ({'≥' * p.incomplete}{p.fraction:.0%})" if large else ""


def _listed(panels: Sequence[Panel]) -> list[str]:
    """The names of the longest groups of all devices, for the list next to the picture."""
    share: dict[str, float] = {}
    for p in (p for panel in panels for p in panel.points):
        share[p.name] = max(share.get(p.name, 0), p.share or 0)
    predicted = {
        p.name for panel in panels for p in panel.points if p.predicted
    }  # their shares have another total, so they come last
    longest = sorted(share, key=lambda name: (name in predicted, -share[name]))
    measured, of_model = ([name for name in longest if (name in predicted) is which] for which in (False, True))
    rows = max(LISTED - len(of_model), LISTED - LISTED_PREDICTED)
    return [*measured[:rows], *of_model[: LISTED - min(len(measured), rows)]]


def _keys(
    figure: Figure, titles: Sequence[str], styles: Sequence[DeviceStyle], kinds: Iterable[str], predicted: bool
) -> float:
    """Draw the legends of devices and categories, and of filled and hollow marks if there are predicted operators.

    Returns the y of their lower end, as a fraction of the figure.
    """
    from matplotlib.lines import Line2D

    devices = [
        Line2D(
            [], [], color=device_style.color, ls=device_style.dashes, marker=device_style.marker, label=fill(name, 52)
        )
        for name, device_style in zip(titles, styles, strict=False)
    ]
    by_color: dict[str, list[str]] = {}
    for kind in sorted(kinds):
        by_color.setdefault(category_color(kind), []).append(kind)
    colors = [
        Line2D([], [], color=c, ls="", marker="o", label=fill(", ".join(group), LEGEND_WIDTH))
        for c, group in by_color.items()
    ]
    if predicted:
        colors += [Line2D([], [], color="0.3", ls="", marker="o", label="measured")]
        colors += [Line2D([], [], color="0.3", ls="", marker="o", mfc="none", label="predicted (bound)")]
    style: dict[str, Any] = {"loc": "upper left", "frameon": False, "fontsize": 8, "borderpad": 0}
    figure.legend(handles=devices, bbox_to_anchor=(0.668, 0.875), handlelength=3, **style)
    top = 0.865 - 0.028 * sum(1 + fill(name, 52).count("\n") for name in titles)
    figure.legend(handles=colors, bbox_to_anchor=(0.668, top), ncols=2, columnspacing=1, handletextpad=0, **style)
    heights = [0.03 + 0.021 * str(handle.get_label()).count("\n") for handle in colors]
    half = math.ceil(len(heights) / 2)
    return top - max(sum(heights[:half]), sum(heights[half:])) - 0.03


def _table(
    figure: Figure, panels: Sequence[Panel], styles: Sequence[DeviceStyle], listed: Sequence[str],
    letters: Mapping[str, str], top: float,
) -> None:  # fmt: skip
    """Draw the list of the longest groups, with each device's share of the time and share of attainable performance.

    Groups without FLOPs have no letter. With more than two devices there is no space for the share of the time.
    """
    shares = len(panels) <= 2
    left, step, width = 0.675, min(0.05, (top - 0.06) / (len(listed) + 2)), 0.085 if shares else 0.045
    rights = [0.99 - width * (len(panels) - 1 - i) for i in range(len(panels))]
    max_letters = int((rights[0] - width - left - 0.02) / 0.0068)  # letters
    time = "time or phase" if any(p.predicted for panel in panels for p in panel.points) else "time"
    title = f"longest first: {f'share of {time}, ' * shares}achieved / attainable"
    figure.text(left, top, title, color="0.3", fontsize=8)
    y = top - step
    if len(panels) > 1:
        for right, device_style in zip(rights, styles, strict=True):
            figure.text(
                right - width / 3, y, GLYPHS[device_style.marker], color=device_style.color, ha="center", fontsize=9
            )
        y -= step
    shown = names_of_points((p for panel in panels for p in panel.points if p.name in listed), max_letters)
    for name in listed:
        found = [next((p for p in panel.points if p.name == name), None) for panel in panels]
        p = next(p for p in found if p is not None)
        figure.text(left, y, letters.get(name, ""), weight="bold", fontsize=10, color=category_color(p.category))
        figure.text(left + 0.02, y, shown[name], fontsize=9)
        for right, point in zip(rights, found, strict=True):
            if point is not None:
                share = "–" if point.share is None else f"{point.share:.0%}"
                part = (
                    "bound"
                    if point.predicted
                    else "–"
                    if point.fraction is None
                    else f"{'≥' * point.incomplete}{point.fraction:.0%}"
                )
                figure.text(right - 0.045, y, share * shares, ha="right", fontsize=9)
                figure.text(right, y, part, ha="right", fontsize=9)
        y -= step
    rest = len({p.name for panel in panels for p in panel.points}) - len(listed)
    if rest:
        figure.text(left + 0.02, y, f"and {units.grouped(rest)} more", fontsize=8, color="0.4")
