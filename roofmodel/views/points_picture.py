"""Measured points under a device's roofs: a hierarchical roofline by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roofmodel import units
from roofmodel.study.identify import Identified
from roofmodel.study.points import Point, base_name
from roofmodel.views import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "matrix product": canvas.ORANGE,
    "convolution": canvas.RED,
    "attention": canvas.BLUE,
    "norm": canvas.GREEN,
    "softmax": canvas.GREEN,
    "elementwise": canvas.SKY,
    "reduction": canvas.SKY,
    "embedding": canvas.PURPLE,
    "communication": canvas.YELLOW,
    "layout": canvas.GREY,
    "mlp": canvas.ORANGE,
    "residual": canvas.SKY,
    "head": canvas.PURPLE,
}
MARKERS = {"dram": "o", "l2": "s", "l1": "^"}
LISTED = 18  # points with a number in the picture and a line beside it
FOOT = (
    "Filled: measured (circle DRAM, square L2, triangle L1). Hollow: predicted, at its bound. "
    "Arrow: a lower bound, for no tensor counter was collected. Size: share of the time."
)


def draw(found: Sequence[Point], identified: Identified, subtitle: str, path: Path, form: str) -> None:
    """Draw points into a file; `form` is png, svg or pdf. Points without FLOPs stand in the table alone."""
    device = identified.device
    drawn = [p for p in found if p.intensity and p.flops_per_second]
    pipes = {device.pipes[p.pipe] for p in drawn if p.pipe} or set(device.pipes.values())
    if any(p.incomplete for p in drawn):  # the roof that the work that was not counted would stand under
        pipes.add(device.matmul_pipe("fp16"))
    falling = sorted(pipes, key=lambda pipe: -pipe.peak)
    heading = f"{device.name}{' (assumed)' if identified.how == 'assumed' else ''}: measured kernels"
    with canvas.picture(path, form, heading, subtitle, FOOT) as (figure, axes):
        canvas.roofs(
            axes, device, falling[0], falling[1:4], [(p.intensity or 0, p.flops_per_second or 0) for p in drawn]
        )
        for level in ("l2", "l1"):
            bandwidth = device.levels[level].bandwidth if level in device.levels else None
            if bandwidth and any(p.level == level for p in drawn):
                canvas.cache_roof(axes, level.upper(), bandwidth, falling[0].peak)
        signs = []
        numbers = _numbers(found)
        for p in drawn:
            x, y = p.intensity or 0, p.flops_per_second or 0
            colour = COLOURS.get(p.category, canvas.GREY)
            axes.scatter(
                x, y, s=25 + 400 * (p.share or 0), marker=MARKERS[p.level], alpha=0.8 if p.level == "dram" else 0.45,
                facecolor="none" if p.predicted else colour, edgecolor=colour if p.predicted else "white",
                lw=1.4 if p.predicted else 0.7, zorder=3,
            )  # fmt: skip
            if p.incomplete and p.level == "dram":
                axes.annotate("", (x, y * 2.5), (x, y), arrowprops={"arrowstyle": "->", "color": colour, "lw": 1})
            if p.level == "dram" and p.name in numbers:
                signs.append((numbers[p.name], x, y))
        canvas.labels(axes, signs, figure.dpi)
        _legend(figure, found, numbers)


def _numbers(found: Sequence[Point]) -> dict[str, str]:
    """A number for each of the longest groups that are listed beside the picture."""
    names = list(dict.fromkeys(p.name for p in found))
    return {name: str(i) for i, name in enumerate(names[:LISTED], 1)}


def _legend(figure: Figure, found: Sequence[Point], numbers: dict[str, str]) -> None:
    left, y, step = 0.675, 0.85, 0.0365
    figure.text(left, y, "longest first: share of time, part of what the roofs allow", color="0.3", fontsize=8)
    y -= step
    seen: set[str] = set()
    for p in found:
        if p.name in seen or p.name not in numbers:
            continue
        seen.add(p.name)
        name = p.name if p.predicted else base_name(p.name)
        name = name if len(name) <= 36 else f"{name[:35]}…"
        figure.text(left, y, numbers[p.name], weight="bold", fontsize=8.5, color=COLOURS.get(p.category, canvas.GREY))
        figure.text(left + 0.02, y, name, fontsize=7.5)
        share = "–" if p.share is None else f"{p.share:.0%}"
        part = "–" if p.fraction is None else f"{'≥' if p.incomplete else ''}{p.fraction:.0%}"
        figure.text(0.945, y, share, ha="right", fontsize=8)
        figure.text(0.99, y, part, ha="right", fontsize=8)
        y -= step
    rest = len({p.name for p in found}) - len(seen)
    if rest:
        figure.text(left + 0.02, y, f"and {units.grouped(rest)} more", fontsize=8, color="0.4")
