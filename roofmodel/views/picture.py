"""An Estimate as a roofline picture, by matplotlib: for the screen, the slide and the page."""

from __future__ import annotations

import math
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any

from roofmodel import units
from roofmodel.prediction.roofline import ridge
from roofmodel.study.estimate import Estimate
from roofmodel.views.rows import Row, describe_phase, describe_workload, full_label, rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers and in print
COLOURS = {
    "embedding": "#56B4E9",
    "attention": "#0072B2",
    "mlp": "#E69F00",
    "norm": "#009E73",
    "residual": "#009E73",
    "head": "#CC79A7",
}
MARKERS = ("o", "D")
SIGNS = (ascii_uppercase, ascii_lowercase)


def draw(estimate: Estimate, path: Path, form: str) -> None:
    """Draw the estimate into a file; `form` is png, svg or pdf."""
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
    }
    # Text from a config may hold dollar signs; it is no mathematics.
    with rc_context(style | {"text.parse_math": False}):
        figure = Figure(figsize=(11, 6.2), dpi=160)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.1, 0.11, 0.545, 0.74))
        points = [
            (sign, row, MARKERS[index])
            for index, phase in enumerate(estimate.phases)
            for sign, row in zip(SIGNS[index], rows(phase), strict=False)
        ]
        _roofs(axes, estimate, [row for _, row, _ in points])
        _points(axes, points, figure.dpi)
        _legend(figure, estimate)
        arch, device = estimate.architecture, estimate.device
        heading = f"{arch.name} on {device.name}"
        figure.text(0.02, 0.95, heading, fontsize=min(15, 1300 / len(heading)), weight="bold")
        figure.text(
            0.02,
            0.905,
            f"{units.grouped(estimate.parameters)} parameters, {describe_workload(estimate)}",
            color="0.35",
        )
        figure.text(
            0.02,
            0.015,
            "Bounds: the least time each roof allows; no expectation. Size of a mark: its share of the phase.",
            color="0.35",
            fontsize=8,
        )
        metadata = {"Date": None} if form == "svg" else {"CreationDate": None} if form == "pdf" else {}
        figure.savefig(path, format=form, metadata=metadata)


def _roofs(axes: Axes, estimate: Estimate, found: list[Row]) -> None:
    device, dtype = estimate.device, estimate.workload.dtype
    pipe, vector = device.matmul_pipe(dtype), device.vector_pipe(dtype)
    knee = ridge(device, dtype)
    intensities = [row.cost.intensity for row in found if row.cost.flops]
    left = 10 ** math.floor(math.log10(min([*intensities, knee / 100])))
    right = 10 ** math.ceil(math.log10(2.5 * max([*intensities, knee])))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(left * device.bandwidth / 1.5, pipe.peak * 2.5)
    axes.plot([left, knee, right], [left * device.bandwidth, pipe.peak, pipe.peak], color="0.15", lw=2, zorder=2)
    axes.text(right, pipe.peak * 1.2, f"{pipe.name}  {units.si(pipe.peak, 'FLOP/s', 4)}", ha="right", va="bottom")
    if vector and vector.peak < pipe.peak:
        start = vector.peak / device.bandwidth
        axes.plot([start, right], [vector.peak] * 2, color="0.55", lw=1, ls="--", zorder=1)
        axes.text(
            right,
            vector.peak * 1.1,
            f"{vector.name} vector work  {units.si(vector.peak, 'FLOP/s')}",
            ha="right",
            va="bottom",
            color="0.4",
            fontsize=8.5,
        )
    low, high = axes.transData.transform([(left, left * device.bandwidth), (knee, pipe.peak)])
    angle = math.degrees(math.atan2(high[1] - low[1], high[0] - low[0]))
    middle = left**0.7 * knee**0.3
    axes.text(
        middle,
        middle * device.bandwidth * 1.25,
        f"DRAM  {units.si(device.bandwidth, 'B/s', 4)}",
        rotation=angle,
        rotation_mode="anchor",
        va="bottom",
    )
    axes.plot([knee, knee], [axes.get_ylim()[0], pipe.peak], color="0.6", lw=0.8, ls=":", zorder=1)
    axes.text(
        knee * 1.06,
        axes.get_ylim()[0] * 1.25,
        f"ridge {units.significant(knee)} FLOP/B",
        color="0.4",
        fontsize=8.5,
    )
    axes.set_xlabel("arithmetic intensity (FLOP per byte of DRAM traffic)")
    axes.set_ylabel("performance (FLOP/s)")
    axes.yaxis.set_major_formatter(lambda value, _: units.si(value, "FLOP/s"))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(axis="y", labelsize=8.5)
    axes.grid(True, which="major", color="0.92", zorder=0)


def _points(axes: Axes, points: list[tuple[str, Row, str]], dpi: float) -> None:
    """The marks. Neighbours whose labels would run into one another share one, from left to right."""
    labels: list[tuple[float, float, list[str]]] = []  # pixels from the left, pixels from below, letters
    letter = dpi / 72 * 11  # a bold letter and a space, in pixels
    at_work = [point for point in points if point[1].cost.flops]
    for sign, row, marker in sorted(at_work, key=lambda point: point[1].cost.intensity):
        at = (row.cost.intensity, row.flops_per_second)
        size, colour = 30 + 500 * row.share, COLOURS[row.group]
        axes.scatter(*at, s=size, color=colour, marker=marker, alpha=0.8, edgecolor="white", linewidth=0.8, zorder=3)
        across, up = axes.transData.transform(at)
        if labels:
            left, low, signs = labels[-1]
            if across - left < letter * (len(signs) + 1) and abs(up - low) < 1.6 * letter:
                signs.append(sign)
                continue
        labels.append((across, up, [sign]))
    for across, up, signs in labels:
        x, y = axes.transData.inverted().transform((across, up))
        axes.annotate(
            " ".join(signs), (x, y), (7, -16), textcoords="offset points", fontsize=9, weight="bold", zorder=4
        )


def _legend(figure: Figure, estimate: Estimate) -> None:
    """The rows of each phase beside the picture: mark, letter, name, count, share; the phase's bound above."""
    left, right, y = 0.675, 0.985, 0.85
    tables = [rows(phase) for phase in estimate.phases]
    step = min(0.0265, 0.82 / sum(len(table) + 2.7 for table in tables))
    size = step / 0.0265 * 9
    for phase, table, signs, marker in zip(estimate.phases, tables, SIGNS, MARKERS, strict=False):
        figure.text(left, y, describe_phase(phase), weight="bold", fontsize=size * 1.1)
        y -= step
        bound = f"at least {units.seconds(phase.bound_seconds)}"
        figure.text(
            left, y, f"{bound}, at most {units.si(phase.bound_tokens_per_second)} tokens/s", color="0.3", fontsize=size
        )
        y -= step
        for sign, row in zip(signs, table, strict=False):
            count = f" × {row.times}" if row.times > 1 else ""
            mark = {"o": "●", "D": "◆"}[marker]
            figure.text(left, y, mark, color=COLOURS[row.group], fontsize=size)
            figure.text(left + 0.016, y, sign if row.cost.flops else "", weight="bold", fontsize=size)
            figure.text(left + 0.033, y, f"{full_label(row)}{count}", fontsize=size)
            figure.text(right, y, f"{row.share:.0%}", ha="right", fontsize=size)
            y -= step
        y -= step * 0.7
