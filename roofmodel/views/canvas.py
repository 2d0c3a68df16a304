"""What every roofline picture shares: the figure, the roofs, labels that do not run into one another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        axes = figure.add_axes((0.1, 0.11, 0.545, 0.74))
        yield figure, axes
        figure.text(0.02, 0.95, heading, fontsize=min(15, 1300 / len(heading)), weight="bold")
        figure.text(0.02, 0.905, subtitle, color="0.35")
        figure.text(0.02, 0.015, foot, color="0.35", fontsize=8)
        metadata = {"Date": None} if form == "svg" else {"CreationDate": None} if form == "pdf" else {}
        figure.savefig(path, format=form, metadata=metadata)


def roofs(axes: Axes, device: Device, top: Pipe, others: Iterable[Pipe], at: Iterable[tuple[float, float]]) -> None:
    """The highest pipe's roof joined to DRAM's as their minimum; lower pipes and caches as thinner lines.

    `at` are the points to come, (FLOP/B, FLOP/s), which the axes must hold.
    """
    knee = top.peak / device.bandwidth
    across, up = zip(*at, strict=True) if (at := list(at)) else ((), ())
    left = 10 ** math.floor(math.log10(min([*across, knee / 100])))
    right = 10 ** math.ceil(math.log10(2.5 * max([*across, knee])))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(min([left * device.bandwidth, *up]) / 1.5, 2.5 * max([top.peak, *up]))
    _slope(axes, "DRAM", device.bandwidth, left, knee, "0.15", 2)
    axes.plot([knee, right], [top.peak] * 2, color="0.15", lw=2, zorder=2)
    axes.text(right, top.peak * 1.2, f"{top.name}  {units.si(top.peak, 'FLOP/s', 4)}", ha="right", va="bottom")
    for pipe in others:
        start = pipe.peak / device.bandwidth
        axes.plot([start, right], [pipe.peak] * 2, color="0.55", lw=1, ls="--", zorder=1)
        label = f"{pipe.name}  {units.si(pipe.peak, 'FLOP/s', 4)}"
        axes.text(right, pipe.peak * 1.1, label, ha="right", va="bottom", color="0.4", fontsize=8.5)
    axes.axvline(knee, 0, 1, color="0.6", lw=0.8, ls=":", zorder=1)
    low = axes.get_ylim()[0]
    axes.text(knee * 1.06, low * 1.25, f"ridge {units.significant(knee)} FLOP/B", color="0.4", fontsize=8.5)
    axes.set_xlabel("arithmetic intensity (FLOP per byte)")
    axes.set_ylabel("performance (FLOP/s)")
    axes.yaxis.set_major_formatter(lambda value, _: units.si(value, "FLOP/s"))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(axis="y", labelsize=8.5)
    axes.grid(True, which="major", color="0.92", zorder=0)


def cache_roof(axes: Axes, name: str, bandwidth: float, peak: float) -> None:
    """A cache level's slope, up to the highest pipe's roof."""
    _slope(axes, name, bandwidth, axes.get_xlim()[0], peak / bandwidth, "0.55", 1)


def _slope(axes: Axes, name: str, bandwidth: float, left: float, knee: float, colour: str, width: float) -> None:
    axes.plot([left, knee], [left * bandwidth, knee * bandwidth], color=colour, lw=width, zorder=2)
    low, high = axes.transData.transform([(left, left * bandwidth), (knee, knee * bandwidth)])
    middle = left**0.7 * knee**0.3
    axes.text(
        middle,
        middle * bandwidth * 1.2,
        f"{name}  {units.si(bandwidth, 'B/s', 4)}",
        rotation=math.degrees(math.atan2(high[1] - low[1], high[0] - low[0])),
        rotation_mode="anchor",
        va="bottom",
        color=colour if width < 2 else "0",
        fontsize=10 if width >= 2 else 8.5,
        clip_on=True,
    )


def labels(axes: Axes, signs: Iterable[tuple[str, float, float]], dpi: float) -> None:
    """Signs beside their points (sign, FLOP/B, FLOP/s); neighbours share one label, from left to right."""
    placed: list[tuple[float, float, list[str]]] = []  # pixels from the left, pixels from below, signs
    letter = dpi / 72 * 11  # a bold letter and a space, in pixels
    for sign, x, y in sorted(signs, key=lambda item: item[1]):
        across, up = axes.transData.transform((x, y))
        for left, low, together in reversed(placed):
            if across - left < letter * (len(" ".join(together)) / 2 + 1) and abs(up - low) < 1.6 * letter:
                together.append(sign)
                break
        else:
            placed.append((across, up, [sign]))
    for across, up, together in placed:
        x, y = axes.transData.inverted().transform((across, up))
        axes.annotate(
            " ".join(together), (x, y), (7, -16), textcoords="offset points", fontsize=9, weight="bold", zorder=4
        )
