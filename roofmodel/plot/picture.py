"""Picture of a hierarchical roofline with measured and predicted points, drawn with matplotlib."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from roofmodel.errors import cut
from roofmodel.numbers import units
from roofmodel.plot.panels import letter_of, letters_of
from roofmodel.report import canvas, marks
from roofmodel.report.canvas import DEVICE_STYLES, DeviceStyle
from roofmodel.report.marks import SeriesStyle
from roofmodel.roofline.naming import names_of_points
from roofmodel.roofline.panel import MIN_SHARE, TAIL_NOTE, Panel, Window, category_color, category_style, view
from roofmodel.roofline.points import Point

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

LEVEL_SHAPES = {"l2": "|", "l1": "x"}
"""The marks of a point at its intensity of L2 and of L1 traffic, which are as high as its DRAM mark."""
LISTED = 12  # rows of the list next to the picture; their points have letters
LISTED_PREDICTED = 4  # of these rows, where there are predicted operators
LEGEND_WIDTH = 24  # characters of a line of the legend
NAME_LENGTH = 30  # characters of a name beside its mark


def draw(
    panels: Sequence[Panel], heading: str, subtitle: str, path: Path, form: str, *, regions: bool = False,
    answers: bool = True,
) -> None:  # fmt: skip
    """Draw points into a file; `form` is png, svg or pdf. Points without FLOPs are only in the list.

    For one device, all memory levels are drawn, and points have the color and shape of their category. For several
    devices, only DRAM points are drawn, with the color and shape of the device.

    `regions` shades the regions of the only device's roofline. Without `answers`, the labels of bounds and values are
    left out.
    """
    several = len(panels) > 1
    styles = [DEVICE_STYLES[i % len(DEVICE_STYLES)] for i in range(len(panels))]
    drawn = [[p for p in panel.drawn if p.level == "dram" or not several] for panel in panels]
    shown = view(panels)
    points = [p for panel_points in drawn for p in panel_points]
    foot = [*_undrawn(panels), *_foot(points, several, shown)]
    with canvas.picture(path, form, heading, subtitle, " ".join(foot)) as (figure, axes):
        canvas.frame(axes, *shown)
        listed = _listed(panels)
        places = _places(panels, letters_of(panels), listed, shown)
        letters = {name: letter for name, letter in letters_of(panels).items() if name in listed and letter in places}
        shown_names = names_of_points(points, NAME_LENGTH)
        slopes: list[canvas.BandwidthCeiling] = []
        entries: list[Artist] = [*_meanings(points, letters, several)]
        if regions and not several:
            names = canvas.draw_regions(axes, panels[0].device, panels[0].pipes[0])
            entries += names if answers else []
        lowest = min(panels, key=lambda panel: panel.device.bandwidth)
        for rank, (panel, device_style, panel_points) in enumerate(zip(panels, styles, drawn, strict=True)):
            top, *others = panel.pipes
            low = several and panel is lowest
            slopes.append(
                canvas.draw_ceilings(axes, panel.device, top, others[:3], device_style, -1 if low else rank, answers)
            )
            for level in panel.levels if not several else []:
                if level.bandwidth and level.name != "dram":
                    slopes.append(canvas.draw_cache_ceiling(axes, level.label, level.bandwidth, top.peak))
            for p in panel_points:
                style = SeriesStyle(device_style.color, device_style.shape) if several else category_style(p.category)
                _mark(axes, p, style, letter_of(p, letters))
            if not several:
                _connect_levels(axes, panel_points)
        pipes = [
            (pipe, device_style) for panel, device_style in zip(panels, styles, strict=True) for pipe in panel.pipes[:4]
        ]
        canvas.draw_ceiling_names(axes, slopes, pipes, answers)
        canvas.place_labels(
            axes,
            [(letter, at) for letter, positions in places.items() for at in positions],
            figure.dpi,
            {letter: shown_names[name] for name, letter in letters.items()} if not several else None,
        )
        canvas.key(axes, entries, fontsize=8.5 if len(entries) < 6 else 7.5)
        kinds = {p.category for panel_points in drawn for p in panel_points}
        kinds |= {p.category for panel in panels for p in panel.points if p.name in listed}
        titles = [panel.title for panel in panels]
        below = _keys(figure, titles, styles) if several else _category_keys(figure, kinds)
        _table(figure, panels, styles, listed, letters, below, answers)


def _places(
    panels: Sequence[Panel], letters: Mapping[str, str], listed: Sequence[str], shown: Window
) -> dict[str, list[marks.Place]]:
    """The first letters and their places on the rooflines, together at most MAX_LETTERS places."""
    places: dict[str, dict[int, marks.Place]] = {}
    for i, panel in enumerate(panels):
        for p in panel.points:
            if p.name in listed and shown.contains(p) and (letter := letter_of(p, letters)):
                places.setdefault(letter, {}).setdefault(i, (p.intensity or 0, p.flops_per_second or 0))
    counts = accumulate(len(places[letter]) for letter in sorted(places))
    return {
        letter: [*places[letter].values()]
        for letter, count in zip(sorted(places), counts, strict=True)
        if count <= marks.MAX_LETTERS
    }


def _meanings(points: Sequence[Point], letters: Mapping[str, str], several: bool) -> Iterator[Line2D]:
    """The meaning of filled, hollow and small marks and of memory levels, as far as they occur."""
    if not all(p.predicted for p in points):
        yield canvas.mark_key("measured" if several else "measured (DRAM traffic)")
    if any(p.predicted for p in points):
        yield canvas.mark_key("predicted bound", hollow=True)
    for level, shape in LEVEL_SHAPES.items():
        if not several and any(p.level == level for p in points):
            yield canvas.mark_key(f"{level.upper()} traffic", shape)
    if not all(letter_of(p, letters) for p in points if p.level == "dram"):
        yield canvas.mark_key("without a letter", small=True)


MAX_FINDING = 150  # characters of the explanation of points above their ceiling


def _undrawn(panels: Sequence[Panel]) -> Iterator[str]:
    """The share of the time without a mark, if it is large."""
    for panel in panels:
        if (share := panel.drawn_share) is not None:
            device = f" on {panel.device.id}" * (len(panels) > 1)
            yield f"Not drawn: {1 - share:.0%} of the time{device} (no counted FLOPs or bytes)."


def _foot(points: Sequence[Point], several: bool, shown: Window) -> Iterator[str]:
    """Explanations of the marks that occur."""
    if any(p.incomplete for p in points):
        yield "Arrow: lower bound, FLOPs of some pipes were not counted."
    if any(p.unpacked for p in points):
        yield TAIL_NOTE
    if findings := Counter(p.finding for p in points if p.finding):
        (finding, _), *others = findings.most_common()
        yield f"Black ring: above its ceiling ({'mostly: ' * bool(others)}{cut(finding, MAX_FINDING)})."
    if any(p.share is not None for p in points):
        yield "Size: share of the device's time." if several else "Size: share of the time."
    if outside := sum(not shown.contains(p) for p in points):
        yield f"Outside the axes: {outside} below {MIN_SHARE:.0%} of the time."


def _mark(axes: Axes, p: Point, style: SeriesStyle, letter: str) -> None:
    x, y, color = p.intensity or 0, p.flops_per_second or 0, style.color
    if p.level in LEVEL_SHAPES:
        axes.scatter(x, y, s=36, marker=LEVEL_SHAPES[p.level], color=color, lw=1.1, zorder=3)
    else:
        axes.scatter(
            x, y, s=marks.area(p.share or 0, letter), marker=style.shape, alpha=0.8,
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


def _connect_levels(axes: Axes, points: Sequence[Point]) -> None:
    """Draw a thin line through the marks of each kernel's memory levels."""
    kernels: dict[tuple[str, float], list[float]] = {}
    for p in points:
        kernels.setdefault((p.name, p.flops_per_second or 0), []).append(p.intensity or 0)
    for (_, height), across in kernels.items():
        if len(across) > 1:
            axes.plot([min(across), max(across)], [height, height], color="0.6", lw=0.5, zorder=1.5)


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


KEY_STYLE: dict[str, Any] = {"loc": "upper left", "frameon": False, "fontsize": 8, "borderpad": 0}


def _keys(figure: Figure, titles: Sequence[str], styles: Sequence[DeviceStyle]) -> float:
    """Draw the legend of devices. Returns the y of its lower end, as a fraction of the figure."""
    from matplotlib.lines import Line2D

    devices = [
        Line2D(
            [], [], color=style.color, ls=style.dashes, marker=style.shape,
            label=fill(name, 52),
        )
        for name, style in zip(titles, styles, strict=True)
    ]  # fmt: skip
    figure.legend(handles=devices, bbox_to_anchor=(0.668, 0.875), handlelength=3, **KEY_STYLE)
    return 0.835 - 0.028 * sum(1 + fill(name, 52).count("\n") for name in titles)


def _category_keys(figure: Figure, kinds: Iterable[str]) -> float:
    """Draw the legend of categories. Returns the y of its lower end, as a fraction of the figure."""
    by_color: dict[str, list[str]] = {}
    for kind in sorted(kinds):
        by_color.setdefault(category_color(kind), []).append(kind)
    colors = [
        canvas.mark_key(fill(", ".join(group), LEGEND_WIDTH), marks.SHAPES[color], color)
        for color, group in by_color.items()
    ]
    figure.legend(handles=colors, bbox_to_anchor=(0.668, 0.865), ncols=2, columnspacing=1, handletextpad=0, **KEY_STYLE)
    heights = [0.03 + 0.021 * str(handle.get_label()).count("\n") for handle in colors]
    half = math.ceil(len(heights) / 2)
    return 0.835 - max(sum(heights[:half]), sum(heights[half:]))


def _table(
    figure: Figure, panels: Sequence[Panel], styles: Sequence[DeviceStyle], listed: Sequence[str],
    letters: Mapping[str, str], top: float, answers: bool,
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
    if all(_is_textbook(p) for panel in panels for p in panel.points):
        title = "arithmetic intensity, bound by"
    figure.text(left, top, title if answers else "", color="0.3", fontsize=8)
    y = top - step
    if len(panels) > 1:
        for right, device_style in zip(rights, styles, strict=True):
            glyph = marks.GLYPHS[device_style.shape]
            figure.text(right - width / 3, y, glyph, color=device_style.color, ha="center", fontsize=9)
        y -= step
    shown = names_of_points((p for panel in panels for p in panel.points if p.name in listed), max_letters)
    for name in listed:
        row_points = [next((p for p in panel.points if p.name == name), None) for panel in panels]
        figure.text(left, y, letters.get(name, ""), weight="bold", fontsize=10)
        figure.text(left + 0.02, y, shown[name], fontsize=9)
        for right, point in zip(rights, row_points, strict=True):
            if point is not None and answers:
                share, fraction = _share_and_fraction(point)
                figure.text(right - 0.045 - 0.02 * _is_textbook(point), y, share * shares, ha="right", fontsize=9)
                figure.text(right, y, fraction, ha="right", fontsize=9)
        y -= step
    rest = len({p.name for panel in panels for p in panel.points}) - len(listed)
    if rest:
        figure.text(left + 0.02, y, f"and {units.grouped(rest)} more", fontsize=8, color="0.4")


def _is_textbook(point: Point) -> bool:
    """Whether it is a textbook kernel, which has no share of a time."""
    return point.predicted and point.share is None


def _share_and_fraction(point: Point) -> tuple[str, str]:
    """The share of the time and of the attainable performance; of a textbook kernel, the intensity and the bound."""
    if _is_textbook(point):
        return f"{units.significant(point.intensity or 0)} FLOP/B", point.bound or ""
    share = "–" if point.share is None else f"{point.share:.0%}"
    if point.predicted:
        return share, "bound"
    return share, "–" if point.fraction is None else f"{'≥' * point.incomplete}{point.fraction:.0%}"
