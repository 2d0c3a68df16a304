"""The instruction roofline of a plot: its columns, its JSON, and its picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roofmodel.numbers import units
from roofmodel.plot.place import Roofline, RooflinePlot
from roofmodel.report import canvas, marks
from roofmodel.report.table import NUMBER, PERCENT, RATE, SECONDS, Column, Table
from roofmodel.roofline.launches import WALLS, InstructionPoint, issue_peak, transactions_per_second
from roofmodel.roofline.naming import KERNEL_NAME, short_names
from roofmodel.roofline.panel import MIN_SHARE

Window = tuple[float, float, float, float]  # left, right, bottom and top of the axes
LISTED = 12  # kernels with a letter
FARTHEST, LOWEST = 1e4, 1e6  # limits of the axes: warp instructions per transaction, and part of the peak
SHAPES = {"dram": "o", "l2": "s", "l1": "^", "global": "D"}
COLORS = {"dram": marks.BLUE, "l2": marks.ORANGE, "l1": marks.GREEN, "global": marks.PURPLE}


class InstructionRow(NamedTuple):
    """A point of the instruction roofline with its device."""

    point: InstructionPoint
    hardware: str


INSTRUCTIONS = Table(
    "points",
    (
        Column("hardware", meaning="the device, if there are several"),
        Column("name", "kernel", KERNEL_NAME, "point.name", meaning="a group of kernels"),
        Column(
            "level", "level", value="point.level",
            legend="global: only the instructions that access global memory, at L1",
            meaning="`dram`, `l2`, `l1`, or `global`: only the instructions that access global memory, at L1",
        ),
        Column("transactions", value="point.transactions", meaning="transactions of 32 bytes at this level"),
        Column(
            "intensity", "inst/txn", NUMBER, "point.intensity",
            legend="inst/txn: warp instructions per transaction of 32 bytes",
            meaning="warp instructions / transactions",
        ),
        Column(
            "instructions_per_second", "inst/s", RATE, "point.instructions_per_second",
            meaning="warp instructions / time",
        ),
        Column("attainable", value="point.attainable", meaning="what the ceilings allow at this intensity"),
        Column("fraction", "achieved", PERCENT, "point.fraction", unknown="–", meaning="achieved / attainable"),
        Column(
            "bound", "bound by", value="point.bound",
            meaning="`issue` or `memory`; null without the bandwidth of the level",
        ),
        Column(
            "limiting", value="point.limiting",
            meaning="whether this memory level is busy the longest of DRAM, L2 and L1",
        ),
        Column(
            None, "busiest", text=lambda row: "yes" * row.point.limiting,
            legend="busiest: the level of DRAM, L2 and L1 that is busy the longest",
        ),
        Column("seconds", "time", SECONDS, "point.seconds", meaning="the time of the group"),
    ),
)  # fmt: skip


def instruction_table(rooflines: Sequence[Roofline]) -> Table:
    """The columns of the points of so many devices; that of the device only if there are several."""
    return INSTRUCTIONS if len(rooflines) > 1 else INSTRUCTIONS.without("hardware")


def instruction_rows(rooflines: Sequence[Roofline]) -> list[InstructionRow]:
    """A row for each point, device by device."""
    return [InstructionRow(point, roofline.device.id) for roofline in rooflines for point in roofline.instructions]


def instructions_document(plot: RooflinePlot) -> dict[str, Any]:
    """The key `instructions` of `roofmodel.points/1`: ceilings and points of the instruction roofline."""
    several = len(plot.rooflines) > 1
    ceilings = []
    for roofline in plot.rooflines:
        device = {"hardware": roofline.device.id} if several else {}
        issue = issue_peak(roofline.device, roofline.ceilings.clock)
        if roofline.instructions and issue:
            ceilings.append(device | {"name": "issue", "kind": "pipe", "instructions_per_second": issue})
        if roofline.instructions:
            levels = transactions_per_second(roofline.device).items()
            ceilings += [device | {"name": n, "kind": "level", "transactions_per_second": rate} for n, rate in levels]
    table = instruction_table(plot.rooflines)
    return {"ceilings": ceilings, "points": table.records(instruction_rows(plot.rooflines))}


def draw_instructions(plot: RooflinePlot, heading: str, subtitle: str, path: Path, form: str) -> None:
    """Draw the instruction roofline of the first device with counters; `form` is png, svg or pdf."""
    roofline = next(each for each in plot.rooflines if each.instructions)
    issue, levels = issue_peak(roofline.device, roofline.ceilings.clock), transactions_per_second(roofline.device)
    seconds = {point.name: point.seconds for point in roofline.instructions}
    least = min(MIN_SHARE * sum(seconds.values()), max(seconds.values()))
    points = [point for point in roofline.instructions if point.seconds >= least]
    top = issue or max(point.instructions_per_second for point in points)
    window = _limits(points, top)
    left, right, bottom, _ = window
    foot = (
        "One warp instruction per scheduler and cycle; a transaction is 32 bytes. Dotted: access patterns of a warp. "
        "Black outline: the busiest level of a kernel. Arrows: outside the axes."
    )
    with canvas.picture(path, form, heading, subtitle, foot) as (figure, axes):
        axes.set_xlim(*window[:2])
        axes.set_ylim(*window[2:])
        canvas.log_axes(
            axes, "instruction intensity (warp instructions per transaction)", "performance (warp instructions/s)",
            lambda value: f"{value:g}", units.si,
        )  # fmt: skip
        if issue:
            axes.plot([left, right], [issue] * 2, color="0.2", lw=2)
            axes.text(
                right, issue * 1.05, f"issue {units.si(issue, digits=4)}inst/s", ha="right", va="bottom", fontsize=8.5
            )
        for name, rate in levels.items():
            end, color = min(top / rate, right), COLORS.get(name, "0.5")
            axes.plot([left, end], [left * rate, end * rate], color=color, lw=1.5)
        for name, x in WALLS.items():
            axes.axvline(x, color="0.6", lw=0.8, ls=":")
            lines = "\n".join(name.rsplit(" ", 1))
            axes.text(x, window[3] * 1.1, lines, ha="center", va="bottom", fontsize=7, color="0.4")
        for point in points:
            inside = point.intensity <= right and point.instructions_per_second >= bottom
            axes.scatter(
                *_mark(point, window), s=40,
                marker=SHAPES[point.level] if inside else ">" if point.intensity > right else "v",
                color=COLORS[point.level], edgecolor="black" if point.limiting else "white", lw=1, zorder=3,
                clip_on=False,
            )  # fmt: skip
        _legend(figure, axes, points, window)
        for name, rate in levels.items():
            text = axes.text(
                left, bottom, f" {name.upper()} {units.si(rate)}txn/s", ha="left", va="top", fontsize=8,
                color=COLORS.get(name, "0.5"), zorder=4,
            )  # fmt: skip
            start, end = max(left, bottom / rate / 0.5), min(top / rate, right)
            along = [start * (end / start) ** (step / 12) for step in range(12)]
            canvas.place_text(axes, text, [(x, x * rate * 0.8) for x in along], figure.dpi)


def _mark(point: InstructionPoint, window: Window) -> tuple[float, float]:
    """The place of a point; on the edge if it lies outside."""
    _, right, bottom, _ = window
    return min(point.intensity, right), max(point.instructions_per_second, bottom)


def _limits(points: list[InstructionPoint], top: float) -> Window:
    """The limits of the axes; points without traffic or work to speak of may lie outside."""
    low = min(point.instructions_per_second for point in points)
    across = [*(point.intensity for point in points), *WALLS.values()]
    right = min(10 ** math.ceil(math.log10(max(across) * 1.5)), FARTHEST)
    return 10 ** math.floor(math.log10(min(across))), right, max(low / 2, top / LOWEST), top * 2.5


def _legend(figure: Any, axes: Any, points: list[InstructionPoint], window: Window) -> None:
    """Letters of the longest kernels at their points, their names at the right, and the marks of the levels."""
    names = list(dict.fromkeys(point.name for point in points))[:LISTED]
    short = dict(zip(names, short_names(names, 44), strict=True))
    letters = {name: chr(ord("A") + place) for place, name in enumerate(names)}
    places = [(letters[point.name], _mark(point, window)) for point in points if point.name in letters]
    canvas.place_labels(axes, places, figure.dpi)
    present = {point.level for point in points}
    titles = {level: level.upper() for level in SHAPES} | {"global": "global loads and stores"}
    keys = [canvas.mark_key(titles[level], SHAPES[level], COLORS[level]) for level in SHAPES if level in present]
    figure.legend(handles=keys, bbox_to_anchor=(0.668, 0.865), ncols=2, loc="upper left", frameon=False, fontsize=8)
    for place, name in enumerate(names):
        y = 0.76 - 0.045 * place
        figure.text(0.675, y, letters[name], weight="bold", fontsize=10)
        figure.text(0.695, y, short[name], fontsize=9)
