"""Figure, axes and ceilings of roofline pictures; labels where they cover the fewest marks, lines and other labels."""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from html import escape
from itertools import cycle, pairwise
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Pipe
from roofmodel.errors import OutputError
from roofmodel.numbers import units
from roofmodel.report import marks

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Text


HEIGHT = 6.2  # inches of a figure whose `height_factor` is 1
LONG_LINE = 150  # characters of a subtitle; a longer one has two lines
NO_TIME = 1e-12  # seconds: a tick that rounding moved away from zero
NARROW = 0.3  # axes up to this part of the figure's width have fewer ticks across
MAX_COUNT_TICKS = 10  # of an axis of counts
CLOSE = 1.2  # ratio of two counts below which their ticks would overlap on a logarithmic axis


@contextmanager
def picture(
    path: Path, form: str, heading: str, subtitle: str, foot: str, height_factor: float = 1
) -> Iterator[tuple[Figure, Axes]]:
    """A figure with axes at the left and space for a legend at the right; it is saved when the context ends.

    `height_factor` scales the figure's height for a long legend; title and foot keep their size.
    """
    import_matplotlib()
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.fonttype": "none",  # text stays text
        "hatch.linewidth": 0.7,
        "svg.hashsalt": "roofmodel",  # the same input gives the same file
        "text.parse_math": False,  # a name with dollar signs is no formula
    }
    with rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name with characters that the font lacks
        figure = Figure(figsize=(11, HEIGHT * height_factor), dpi=160)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.11, 0.11 / height_factor, 0.535, 1 - 0.26 / height_factor))
        yield figure, axes
        figure.text(0.02, 1 - 0.05 / height_factor, heading, fontsize=min(15, 1150 / len(heading)), weight="bold")
        lines = wrap(subtitle, len(subtitle) // 2 + 10) if len(subtitle) > LONG_LINE else [subtitle]
        size = min(10 if len(lines) == 1 else 8.5, 1330 / max(map(len, lines)))
        for place, line in enumerate(lines):
            y = 0.095 if len(lines) == 1 else 0.082 + 0.025 * place
            figure.text(0.02, 1 - y / height_factor, line, color="0.35", fontsize=size)
        figure.text(0.02, 0.015 / height_factor, foot, color="0.35", fontsize=min(8, 1450 / max(len(foot), 1)))
        date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
        drawn = io.BytesIO()  # writing to a full disk, matplotlib hides the system's error behind one of its own
        figure.savefig(drawn, format=form, metadata={"Title": heading, **date})
        path.write_bytes(drawn.getvalue())
    if form == "svg":
        _describe_svg(path, f"{heading}: {subtitle}")


def _describe_svg(path: Path, text: str) -> None:
    """State the root element's role and text for screen readers; its title is in the metadata."""
    image = path.read_text(encoding="utf-8")
    path.write_text(image.replace("<svg ", f'<svg role="img" aria-label="{escape(text)}" ', 1), encoding="utf-8")


def import_matplotlib() -> None:
    """Import matplotlib. Raises OutputError if MPLBACKEND is not one of its backends, which it checks when imported."""
    try:
        import matplotlib  # noqa: F401
    except ValueError:
        if not (backend := os.environ.get("MPLBACKEND")):
            raise
        raise OutputError(f"MPLBACKEND={backend} is not a backend of matplotlib; unset it, or set agg") from None


class DeviceStyle(NamedTuple):
    """The style of one of several devices: color of its ceilings and points, dashes of ceilings, shape of points."""

    color: str
    dashes: Any  # matplotlib's line style
    shape: str


# dark, so that no ceiling has the color of a category of points
DEVICE_STYLES = (
    DeviceStyle("0.15", "-", "o"),
    DeviceStyle("#6A1B9A", "--", "D"),
    DeviceStyle("#00594F", "-.", "s"),
    DeviceStyle("#7B3F00", ":", "^"),
    DeviceStyle("#1A237E", (0, (6, 1, 1, 1, 1, 1)), "v"),
)


def key(axes: Axes, entries: Iterable[Artist], fontsize: float = 8.5, columns: int = 6) -> None:
    """The meaning of the marks, in a line above the axes, where it covers no data."""
    axes.legend(
        handles=[*entries], loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False, fontsize=fontsize,
        borderaxespad=0.1, borderpad=0.2, handletextpad=0.3, columnspacing=1.4, handlelength=1.2,
    )  # fmt: skip


def mark_key(label: str, shape: str = "o", color: str = "0.35", *, hollow: bool = False, small: bool = False) -> Line2D:
    """The entry of a mark in a key."""
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], ls="", marker=shape, color=color, mfc="none" if hollow else color, mew=1.1, ms=3.5 if small else 7,
        label=label,
    )  # fmt: skip


def bar_key(label: str, color: str) -> Patch:
    """The entry of a bar in a key, with its hatch."""
    from matplotlib.patches import Patch

    return Patch(facecolor=color, hatch=marks.HATCHES.get(color, ""), edgecolor="white", lw=0, label=label)


def count_axis(axis: Axis, counts: Iterable[float]) -> None:
    """Ticks at whole numbers only, on an axis of counts such as batches or GPUs; `counts` are those of the data.

    All of them have a tick if they are few and not close to each other, else 1, 2, 5, 10, … on a logarithmic axis.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

    ticks = sorted({int(count) for count in counts})
    if axis.get_scale() == "log":
        if len(ticks) > MAX_COUNT_TICKS or any(b < CLOSE * a for a, b in pairwise(ticks)):
            rounds = [digit * 10**power for power in range(13) for digit in (1, 2, 5)]
            inside = [n for n in rounds if ticks[0] <= n <= ticks[-1]]
            ticks = inside if len(inside) > 1 else [ticks[0], ticks[-1]]
            ticks = ticks[:: -(-len(ticks) // MAX_COUNT_TICKS)]
        axis.set_major_locator(FixedLocator(ticks))
    else:
        axis.set_major_locator(MaxNLocator(MAX_COUNT_TICKS, integer=True, min_n_ticks=1))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_whole_number))
    axis.set_minor_formatter(NullFormatter())


def seconds_axis(axis: Axis) -> None:
    """Ticks with their units, such as `2 ms`; zero has none."""
    axis.set_major_formatter(lambda value, _: units.seconds(value) if abs(value) >= NO_TIME else "0")


def _whole_number(value: float, place: object) -> str:
    return units.grouped(round(value))


def frame(axes: Axes, left: float, right: float, bottom: float, top: float) -> None:
    """Set logarithmic axes and their limits: x in FLOP/B, y in FLOP/s."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_xlabel("arithmetic intensity (FLOP per byte)")
    axes.set_ylabel("performance (FLOP/s)")
    axes.yaxis.set_major_formatter(lambda value, _: units.si(value, "FLOP/s"))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(axis="y", labelsize=10)
    axes.grid(True, which="major", color="0.92", zorder=0)


def log_axes(
    axes: Axes, across: str, up: str, of_across: Callable[[float], str], of_up: Callable[[float], str]
) -> None:  # fmt: skip
    """Logarithmic axes with titles and formatted tick numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    narrow = axes.get_position().width <= NARROW
    axes.loglog()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    for axis, words, (low, high) in (
        (axes.xaxis, of_across, axes.get_xlim()), (axes.yaxis, of_up, axes.get_ylim()),
    ):  # fmt: skip
        if high < 4 * low:  # steps such as 0.5, not 0.25, so that labels of three digits are exact
            axis.set_major_locator(MaxNLocator(3 if axis is axes.xaxis and narrow else 6, steps=(1, 2, 5, 10)))
        elif high < 100 * low:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(partial(_tick, words)))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(True, which="major", color="0.92", zorder=0)


def _tick(words: Callable[[float], str], value: float, place: object) -> str:
    return words(value)


class BandwidthCeiling(NamedTuple):
    """The bandwidth ceiling of a memory level, drawn up to its ridge point."""

    name: str
    bandwidth: float
    ridge: float  # FLOP/B
    color: str
    width: float = 1
    dashes: Any = "-"
    rank: int = 0  # of the device among those on the same axes; -1 for the lowest bandwidth


def draw_ceilings(
    axes: Axes, device: Device, top: Pipe, others: Iterable[Pipe], style: DeviceStyle = DEVICE_STYLES[0], rank: int = 0,
    answers: bool = True,
) -> BandwidthCeiling:  # fmt: skip
    """Draw the ceilings of DRAM and of the highest pipe up to and from their ridge point; lower pipes as thinner lines.

    For several devices on the same axes, `rank` moves the labels apart: that of the ridge point and that of the
    bandwidth, which is below its line for rank -1, the lowest bandwidth. Without `answers`, the ridge point has no
    label.
    """
    ridge = top.peak / device.bandwidth
    right = axes.get_xlim()[1]
    slope = BandwidthCeiling("DRAM", device.bandwidth, ridge, style.color, 2, style.dashes, rank)
    _draw(axes, slope)
    axes.plot([ridge, right], [top.peak] * 2, color=style.color, lw=2, ls=style.dashes, zorder=2)
    thin = "--" if style is DEVICE_STYLES[0] else style.dashes
    for pipe in others:
        start = pipe.peak / device.bandwidth
        axes.plot([start, right], [pipe.peak] * 2, color=style.color, alpha=0.5, lw=1, ls=thin, zorder=1)
    axes.axvline(ridge, 0, 1, color=style.color, alpha=0.5, lw=0.8, ls=":", zorder=1)
    if not answers:
        return slope
    label = f"ridge point {units.significant(ridge)} FLOP/B"
    x, side = (ridge / 1.06, "right") if ridge > right / 8 else (ridge * 1.06, "left")
    places: dict[str, Any] = {
        "transform": axes.get_xaxis_transform(),
        "color": style.color,
        "alpha": 0.7,
        "fontsize": 8.5,
    }
    axes.text(x, 0.06 + 0.035 * (rank % 4), label, ha=side, **places)
    if not rank:
        axes.text(ridge / 1.06, 0.02, "← memory-bound", ha="right", **places)
        compute = axes.text(ridge * 1.06, 0.02, "", ha="left", **places)
        for words in ("compute-bound →", "compute-\nbound →", ""):
            compute.set_text(words)
            if compute.get_window_extent().x1 <= axes.bbox.x1:
                break
    return slope


def draw_sustained_ceiling(axes: Axes, label: str, rate: Callable[[float], float]) -> None:
    """Draw FLOP/s under long load by intensity as a dashed line with its name below it, at the right edge.

    The rate rises with the intensity, so its lowest point above the name is that of the name's left end. Call this
    after drawing the marks: the name is further below where it would cover one.
    """
    left, right = axes.get_xlim()
    intensities = [left * (right / left) ** (step / 200) for step in range(201)]
    rates = [rate(each) for each in intensities]
    axes.plot(intensities, rates, color=marks.RED, lw=1.2, ls=(0, (4, 3)), zorder=1.5)
    text = axes.text(right, rates[-1], label, ha="right", va="top", color=marks.RED, fontsize=8.5, zorder=4)
    start = _data(axes, text.get_window_extent().p0)[0]
    place_text(axes, text, [(right, rate(start) / 1.1 / 1.2**step) for step in range(8)], axes.figure.dpi)


def draw_cache_ceiling(axes: Axes, name: str, bandwidth: float, peak: float) -> BandwidthCeiling:
    """Draw the bandwidth ceiling of a cache level, and the highest pipe's ceiling from their ridge point on."""
    axes.plot([peak / bandwidth, axes.get_xlim()[1]], [peak] * 2, color="0.55", lw=1, zorder=1)
    slope = BandwidthCeiling(name, bandwidth, peak / bandwidth, "0.55")
    _draw(axes, slope)
    return slope


def _draw(axes: Axes, slope: BandwidthCeiling) -> None:
    ends = [axes.get_xlim()[0], slope.ridge]
    heights = [x * slope.bandwidth for x in ends]
    axes.plot(ends, heights, color=slope.color, lw=slope.width, ls=slope.dashes, zorder=2)


REGIONS = {
    "impossible": "#F3D9D9",
    "memory-bound": "#DCEBF7",
    "compute-bound": "#E1F2DE",
    "below 50 %": "#F4F0DC",
}
"""The regions of a roofline (Williams et al. 2009) with their colors. Two are impossible: by bandwidth and by peak."""


def draw_regions(axes: Axes, device: Device, top: Pipe) -> list[Artist]:
    """Shade the regions above and below the ceilings of DRAM and of the highest pipe. Returns the entries of a key."""
    (left, right), (bottom, above) = axes.get_xlim(), axes.get_ylim()
    ridge = top.peak / device.bandwidth
    impossible, memory, compute, low = REGIONS.values()
    for ends, color in (((left, ridge), memory), ((ridge, right), compute)):
        ceiling = [min(top.peak, x * device.bandwidth) for x in ends]
        half = [height / 2 for height in ceiling]
        for shade, lower, upper in ((impossible, ceiling, above), (color, half, ceiling), (low, bottom, half)):
            axes.fill_between(ends, lower, upper, color=shade, lw=0, zorder=0)
    return [bar_key(name, color) for name, color in REGIONS.items()]


def draw_ceiling_names(
    axes: Axes, slopes: Iterable[BandwidthCeiling], pipes: Iterable[tuple[Pipe, DeviceStyle]], answers: bool = True
) -> None:
    """Write the ceilings' names where they cover the fewest marks, so call this after drawing the marks.

    Bandwidth names follow their lines; pipe names are above their lines at the right edge. No two names overlap.
    Without `answers`, the names have no values.
    """
    dpi = axes.figure.dpi
    for slope in slopes:
        _draw_name_along_line(axes, slope, dpi, answers)
    point, right, free = dpi / 72, axes.get_xlim()[1], -math.inf
    for pipe, style in sorted(pipes, key=lambda item: item[0].peak):
        label = f"{pipe.name}  {units.si(pipe.peak, 'FLOP/s', 4)}" if answers else pipe.name
        text = axes.text(right, pipe.peak, label, ha="right", va="bottom", color=style.color, fontsize=8.5, zorder=4)
        lowest = max(axes.transData.transform((right, pipe.peak))[1] + point * 4, free)
        heights = axes.transData.inverted().transform([(0, lowest + point * up) for up in range(0, 18, 3)])[:, 1]
        place_text(axes, text, [(right, float(y)) for y in heights], dpi)
        free = axes.transData.transform(text.get_position())[1] + point * 10


def _draw_name_along_line(axes: Axes, slope: BandwidthCeiling, dpi: float, answers: bool) -> None:
    """Write the name of a bandwidth ceiling along its line, near the lower third, for further devices higher up."""
    left, above = axes.get_xlim()[0], slope.rank >= 0
    low, high = axes.transData.transform([(x, x * slope.bandwidth) for x in (left, slope.ridge)])
    text = axes.text(
        left,
        left * slope.bandwidth,
        f"{slope.name}  {units.si(slope.bandwidth, 'B/s', 4)}" if answers else slope.name,
        rotation=math.degrees(math.atan2(high[1] - low[1], high[0] - low[0])),
        rotation_mode="anchor",
        va="bottom" if above else "top",
        color=slope.color,
        fontsize=10 if slope.width >= 2 else 8.5,
        clip_on=True,
        zorder=4,
    )
    first = 0.3 + 0.25 * (max(slope.rank, 0) % 3)  # part of the line
    parts = sorted((0.05 * step for step in range(16)), key=lambda part: abs(part - first))
    starts = [left ** (1 - part) * slope.ridge**part for part in parts]
    place_text(axes, text, [(x, x * slope.bandwidth * (1.2 if above else 1 / 1.2)) for x in starts], dpi)


Box = tuple[float, float, float, float]  # left, bottom, right, top, in pixels
Place = tuple[float, float]  # x, y
TEXT_WEIGHT = 10  # of covered text, relative to covered marks and lines


def place_labels(
    axes: Axes, labeled: Iterable[tuple[str, Place]], dpi: float, names: Mapping[str, str] | None = None
) -> None:
    """Write labels next to their marks; a label and its mark's x, y each.

    Each label gets the place around its mark where it covers the smallest area of marks, lines, other text and the
    space outside the axes; of equal places the nearest. It avoids other text most of all. A line
    connects a distant label with its mark. `names` says what labels stand for: a name is written beside its label where
    it covers nothing.
    """
    point = dpi / 72  # in pixels
    obstacles = np.array([*_drawn(axes, point)]).reshape(-1, 4)
    texts = np.array([box for text in axes.texts for box in _text_boxes(text, point)]).reshape(-1, 4)
    boxes: dict[str, Box] = {}
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
        boxes[label] = candidate.box
        middle = ((candidate.box[0] + candidate.box[2]) / 2, (candidate.box[1] + candidate.box[3]) / 2)
        text.set_position(_data(axes, middle))
        if candidate.away > 1:
            ends = (_data(axes, here), _data(axes, middle))
            axes.plot(*zip(*ends, strict=True), color="0.4", lw=0.6, zorder=4)
            text.set_bbox({"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 0.5})
    if names:
        _name_labels(axes, {label: (box, names[label]) for label, box in boxes.items() if label in names}, point)


def _name_labels(axes: Axes, named: Mapping[str, tuple[Box, str]], point: float) -> None:
    """Write the name of each label, whose box is given in pixels, at its right or left where it covers nothing."""
    covered = np.array([*_drawn(axes, point)]).reshape(-1, 4)
    for (left, bottom, right, top), name in named.values():
        text = axes.text(0, 0, name, va="center", fontsize=7, color="0.3", zorder=5)
        width, height = text.get_window_extent().width, text.get_window_extent().height
        low, high = (bottom + top - height) / 2, (bottom + top + height) / 2
        places = ((right, low, right + width, high), (left - width, low, left, high))
        free = next((box for box in places if _covered(box, covered, axes) < 1e-3), None)
        if free is None:
            text.remove()
            continue
        text.set_position(_data(axes, (free[0], (low + high) / 2)))
        covered = np.vstack([covered, free])


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

    for drawn in axes.collections:
        if isinstance(drawn, PathCollection):
            centers = axes.transData.transform(drawn.get_offsets())
            sizes = cycle(drawn.get_sizes())  # one size for all drawn where they are equal
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
