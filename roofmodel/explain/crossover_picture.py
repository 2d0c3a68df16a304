"""Picture of a crossover: the time under each ceiling over the size; the longest is the bound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from roofmodel.explain.crossover import BoundChange, Changes, Crossover
from roofmodel.explain.crossover_answer import NAMES, answer, equation_text, subject
from roofmodel.numbers import units
from roofmodel.report import canvas, marks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARGIN = 20  # the sizes reach from the first change / MARGIN to the last change × MARGIN
LARGEST = 10_000  # size, where there is no change
MAX_EQUATION = 48  # characters of an equation that fits beside the axes


def draw(crossover: Crossover, path: Path, form: str) -> None:
    """Write the picture in the format `form` (png, svg). Raises OSError."""
    changes, variable = crossover.subject, crossover.variable
    heading = f"{subject(crossover).rstrip(',')} on {crossover.device.name}"
    foot = "The longest of these times is the bound."
    with canvas.picture(path, form, heading, answer(changes, variable, crossover.operators), foot) as (figure, axes):
        sizes = _sizes(changes, every=variable == "gpus")
        placed = [changes.placed(n) for n in sizes]
        curves = {
            "compute": [float(each.compute_seconds) for each in placed],
            "memory": [float(each.memory_seconds) for each in placed],
            "communication": [float(each.link_seconds) for each in placed],
        }
        bounds = [float(each.bound_seconds) for each in placed]
        axes.plot(sizes, bounds, color="0.85", lw=6, solid_capstyle="round", label="bound", zorder=1)
        for name, curve in curves.items():
            if any(curve):
                axes.plot(sizes, curve, color=marks.CEILING_COLORS[name], lw=2, label=name)
        _mark(axes, changes)
        canvas.log_axes(axes, NAMES[variable], "time", lambda n: units.grouped(round(n)), units.seconds)
        axes.set_xlim(sizes[0], sizes[-1])
        if variable == "gpus":
            canvas.count_axis(axes.xaxis, sizes)
        canvas.key(axes, axes.get_legend_handles_labels()[0])
        for place, line in enumerate(line for change in changes.changes for line in _lines(change, variable)):
            figure.text(0.675, 0.82 - 0.05 * place, line, fontsize=9)


def _sizes(changes: Changes, every: bool) -> list[int]:
    """The sizes of the curves: around the changes, or all."""
    if every:
        return [*changes.sizes]
    values = [change.value for change in changes.changes]
    low, high = (values[0] / MARGIN, values[-1] * MARGIN) if values else (1, LARGEST)
    return sorted({*(n for n in changes.sizes if low <= n <= high), *values})


def _mark(axes: Axes, changes: Changes) -> None:
    """A line at each change, with its size."""
    for change in changes.changes:
        axes.axvline(change.value, color="0.4", lw=0.8, ls=":", zorder=1)
        below = axes.get_xaxis_transform()
        axes.text(change.value, 0.02, f" {units.grouped(change.value)}", transform=below, color="0.3", fontsize=9)


def _lines(change: BoundChange, variable: str) -> Iterator[str]:
    """A change in words, and its equation if it is short."""
    equation = equation_text(change.equation) if change.equation else ""
    fits = 0 < len(equation) <= MAX_EQUATION
    yield f"{change.to}-bound from {variable} = {units.grouped(change.value)}{':' if fits else ''}"
    if fits:
        yield f"    {equation}"
