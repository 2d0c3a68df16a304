"""What every roofline picture shares: the figure, the roofs, labels that do not run into one another."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel import units
from roofmodel.devices.device import Device, Pipe
from roofmodel.views.kit import labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers and in print
SKY, BLUE, ORANGE, GREEN, PURPLE, RED, YELLOW, GREY = (
    "#56B4E9", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#F0E442", "#999999",
)  # fmt: skip


@contextmanager
def picture(
    path: Path, form: str, heading: str, subtitle: str, foot: str, rise: float = 1
) -> Iterator[tuple[Figure, Axes]]:
    """A figure with a roofline's axes at the left and room for a legend at the right, saved at the end.

    `rise`: so many times its usual height, for a long legend; what stands at the top and at the foot stays as it is.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "roofmodel",  # the same input gives the same file
        "text.parse_math": False,  # names may hold dollar signs; they are no mathematics
    }
    with rc_context(style):
        figure = Figure(figsize=(11, 6.2 * rise), dpi=160)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.11, 0.11 / rise, 0.535, 1 - 0.26 / rise))
        yield figure, axes
        figure.text(0.02, 1 - 0.05 / rise, heading, fontsize=min(15, 1150 / len(heading)), weight="bold")
        figure.text(0.02, 1 - 0.095 / rise, subtitle, color="0.35", fontsize=min(10, 1330 / len(subtitle)))
        figure.text(0.02, 0.015 / rise, foot, color="0.35", fontsize=min(8, 1450 / len(foot)))
        metadata = {"Date": None} if form == "svg" else {"CreationDate": None} if form == "pdf" else {}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in letters that the font lacks
            figure.savefig(path, format=form, metadata=metadata)


class Look(NamedTuple):
    """How a device's roofs are drawn where there are several: colour and dashes of the lines, shape of its points."""

    colour: str
    dashes: Any  # matplotlib's line style
    marker: str


# dark, so that no roof looks like a category of points
LOOKS = (
    Look("0.15", "-", "o"),
    Look("#6A1B9A", "--", "D"),
    Look("#00594F", "-.", "s"),
    Look("#7B3F00", ":", "^"),
    Look("#1A237E", (0, (6, 1, 1, 1, 1, 1)), "v"),
)


def frame(axes: Axes, left: float, right: float, bottom: float, top: float) -> None:
    """Logarithmic axes over this part of the plane: FLOP/B across, FLOP/s up."""
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


class Slope(NamedTuple):
    """A level of memory as a roof, up to the pipe that it meets."""

    name: str
    bandwidth: float
    knee: float  # FLOP/B
    colour: str
    width: float = 1
    dashes: Any = "-"
    rank: int = 0  # of the devices that share the axes: -1 has the lowest slope


def roofs(axes: Axes, device: Device, top: Pipe, others: Iterable[Pipe], look: Look = LOOKS[0], rank: int = 0) -> Slope:
    """The highest pipe's roof joined to DRAM's as their minimum; lower pipes as thinner lines.

    `rank` tells apart devices that share the axes: it moves what is written at the ridge and along the slope, which
    -1, for the lowest slope, puts below it.
    """
    knee = top.peak / device.bandwidth
    right = axes.get_xlim()[1]
    slope = Slope("DRAM", device.bandwidth, knee, look.colour, 2, look.dashes, rank)
    _draw(axes, slope)
    axes.plot([knee, right], [top.peak] * 2, color=look.colour, lw=2, ls=look.dashes, zorder=2)
    thin = "--" if look is LOOKS[0] else look.dashes
    for pipe in others:
        start = pipe.peak / device.bandwidth
        axes.plot([start, right], [pipe.peak] * 2, color=look.colour, alpha=0.5, lw=1, ls=thin, zorder=1)
    axes.axvline(knee, 0, 1, color=look.colour, alpha=0.5, lw=0.8, ls=":", zorder=1)
    low = axes.get_ylim()[0]
    ridge = f"ridge {units.significant(knee)} FLOP/B"
    x, side = (knee / 1.06, "right") if knee > right / 8 else (knee * 1.06, "left")
    axes.text(x, low * 1.25 * 1.7 ** (rank % 4), ridge, ha=side, color=look.colour, alpha=0.7, fontsize=8.5)
    return slope


def cache_roof(axes: Axes, name: str, bandwidth: float, peak: float) -> Slope:
    """A cache level's slope, up to the highest pipe's roof, which goes on from there."""
    axes.plot([peak / bandwidth, axes.get_xlim()[1]], [peak] * 2, color="0.55", lw=1, zorder=1)
    slope = Slope(name, bandwidth, peak / bandwidth, "0.55")
    _draw(axes, slope)
    return slope


def _draw(axes: Axes, slope: Slope) -> None:
    ends = [axes.get_xlim()[0], slope.knee]
    heights = [x * slope.bandwidth for x in ends]
    axes.plot(ends, heights, color=slope.colour, lw=slope.width, ls=slope.dashes, zorder=2)


def names(axes: Axes, slopes: Iterable[Slope], pipes: Iterable[tuple[Pipe, Look]]) -> None:
    """What roofs are called, once the marks are drawn, of which names cover as few as they can: along the slopes, and
    above the pipes at the right edge; none runs into another."""
    dpi = axes.figure.dpi
    for slope in slopes:
        _along(axes, slope, dpi)
    point, right, free = dpi / 72, axes.get_xlim()[1], -math.inf
    for pipe, look in sorted(pipes, key=lambda item: item[0].peak):
        label = f"{pipe.name}  {units.si(pipe.peak, 'FLOP/s', 4)}"
        text = axes.text(right, pipe.peak, label, ha="right", va="bottom", color=look.colour, fontsize=8.5, zorder=4)
        lowest = max(axes.transData.transform((right, pipe.peak))[1] + point * 4, free)
        heights = axes.transData.inverted().transform([(0, lowest + point * up) for up in range(0, 18, 3)])[:, 1]
        labels.settle(axes, text, [(right, float(y)) for y in heights], dpi)
        free = axes.transData.transform(text.get_position())[1] + point * 10


def _along(axes: Axes, slope: Slope, dpi: float) -> None:
    """A slope's name, a third of the way up if it may, that of another device farther up."""
    left, above = axes.get_xlim()[0], slope.rank >= 0
    low, high = axes.transData.transform([(x, x * slope.bandwidth) for x in (left, slope.knee)])
    text = axes.text(
        left,
        left * slope.bandwidth,
        f"{slope.name}  {units.si(slope.bandwidth, 'B/s', 4)}",
        rotation=math.degrees(math.atan2(high[1] - low[1], high[0] - low[0])),
        rotation_mode="anchor",
        va="bottom" if above else "top",
        color=slope.colour,
        fontsize=10 if slope.width >= 2 else 8.5,
        clip_on=True,
        zorder=4,
    )
    first = 0.3 + 0.25 * (max(slope.rank, 0) % 3)  # where along the slope
    parts = sorted((0.05 * step for step in range(16)), key=lambda part: abs(part - first))
    starts = [left ** (1 - part) * slope.knee**part for part in parts]
    labels.settle(axes, text, [(x, x * slope.bandwidth * (1.2 if above else 1 / 1.2)) for x in starts], dpi)
