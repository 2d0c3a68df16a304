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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers and in print
SKY, BLUE, ORANGE, GREEN, PURPLE, RED, YELLOW, GREY = (
    "#56B4E9", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#F0E442", "#999999",
)  # fmt: skip


@contextmanager
def picture(path: Path, form: str, heading: str, subtitle: str, foot: str) -> Iterator[tuple[Figure, Axes]]:
    """A figure with a roofline's axes at the left and room for a legend at the right, saved at the end."""
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
        figure = Figure(figsize=(11, 6.2), dpi=160)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.11, 0.11, 0.535, 0.74))
        yield figure, axes
        figure.text(0.02, 0.95, heading, fontsize=min(15, 1150 / len(heading)), weight="bold")
        figure.text(0.02, 0.905, subtitle, color="0.35", fontsize=min(10, 1330 / len(subtitle)))
        figure.text(0.02, 0.015, foot, color="0.35", fontsize=min(8, 1450 / len(foot)))
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


def roofs(axes: Axes, device: Device, top: Pipe, others: Iterable[Pipe], look: Look = LOOKS[0], rank: int = 0) -> None:
    """The highest pipe's roof joined to DRAM's as their minimum; lower pipes as thinner lines.

    `rank` tells apart devices that share the axes: it moves what is written at the ridge and along the slope, which
    -1, for the lowest slope, puts below it.
    """
    knee = top.peak / device.bandwidth
    left, right = axes.get_xlim()
    _slope(axes, "DRAM", device.bandwidth, left, knee, look.colour, 2, look.dashes, rank)
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


def peaks(axes: Axes, named: Iterable[tuple[Pipe, Look]]) -> None:
    """The names of pipes above their roofs, at the right edge; none runs into another."""
    right, free = axes.get_xlim()[1], -math.inf
    point = axes.figure.dpi / 72  # in pixels
    for pipe, look in sorted(named, key=lambda item: item[0].peak):
        line = axes.transData.transform((right, pipe.peak))[1] + point * 4
        y = max(line, free)
        free = y + point * 10
        label = f"{pipe.name}  {units.si(pipe.peak, 'FLOP/s', 4)}"
        at = axes.transData.inverted().transform((0, y))[1]
        axes.text(right, at, label, ha="right", va="bottom", color=look.colour, fontsize=8.5)


def cache_roof(axes: Axes, name: str, bandwidth: float, peak: float) -> None:
    """A cache level's slope, up to the highest pipe's roof, which goes on from there."""
    axes.plot([peak / bandwidth, axes.get_xlim()[1]], [peak] * 2, color="0.55", lw=1, zorder=1)
    _slope(axes, name, bandwidth, axes.get_xlim()[0], peak / bandwidth, "0.55", 1)


def _slope(
    axes: Axes, name: str, bandwidth: float, left: float, knee: float, colour: str, width: float,
    dashes: Any = "-", rank: int = 0,
) -> None:  # fmt: skip
    axes.plot([left, knee], [left * bandwidth, knee * bandwidth], color=colour, lw=width, ls=dashes, zorder=2)
    low, high = axes.transData.transform([(left, left * bandwidth), (knee, knee * bandwidth)])
    share = 0.7 - 0.25 * (max(rank, 0) % 3)  # where along the slope its name stands
    middle = left**share * knee ** (1 - share)
    axes.text(
        middle,
        middle * bandwidth * (1.2 if rank >= 0 else 1 / 1.2),
        f"{name}  {units.si(bandwidth, 'B/s', 4)}",
        rotation=math.degrees(math.atan2(high[1] - low[1], high[0] - low[0])),
        rotation_mode="anchor",
        va="bottom" if rank >= 0 else "top",
        color=colour,
        fontsize=10 if width >= 2 else 8.5,
        clip_on=True,
    )
