"""The picture of a scaling table: speed-up and efficiency against GPUs, expected and measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofmodel.errors import Option, WorkloadError
from roofmodel.report import canvas, marks
from roofmodel.sweep.data import rows
from roofmodel.sweep.scaling_laws import Scaling
from roofmodel.sweep.scaling_tables import LAW_NAMES, subtitle, suits, varying
from roofmodel.sweep.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION = "Speed-up: rate / rate of one GPU{others}. Efficiency: speed-up / GPUs."


def draw(sweep: Sweep, path: Path, form: str) -> None:
    """Draw speed-up and efficiency against GPUs into a file; `form` is png, svg or pdf."""
    scaling = sweep.scaling
    assert scaling is not None
    timed_rows = [row for row in rows(sweep) if row["speedup"] is not None]
    if not timed_rows:
        raise WorkloadError("no point has a time, so there is nothing to draw; see ", Option("gpus"))
    title = f"{scaling.mode.capitalize()} scaling over {scaling.share}"
    smallest = max(min(row["gpus"] for row in timed_rows), min((run.gpus for run in scaling.measured), default=1))
    others = f", or {smallest} x rate / rate of {smallest} GPUs" if smallest > 1 else ""
    with canvas.picture(path, form, title, subtitle(timed_rows), CAPTION.format(others=others)) as (figure, axes):
        axes.remove()
        panels = [figure.add_axes((0.07 + place * 0.35, 0.13, 0.28, 0.70)) for place in range(2)]
        _curves(panels, timed_rows, scaling)
        for place, (name, axes) in enumerate(zip(("speed-up", "efficiency"), panels, strict=True)):
            _frame(axes, name, scaling, [row["gpus"] for row in timed_rows], is_efficiency=bool(place))
        _legend(figure, panels[0])


def _curves(panels: Sequence[Axes], timed_rows: Sequence[dict[str, Any]], scaling: Scaling) -> None:
    curves: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    batches = {id(row): _batch(row, scaling) for row in timed_rows}
    several = len(set(batches.values())) > 1
    for row in timed_rows:
        names = [str(row[name]) for name in varying(timed_rows, scaling)] + [batches[id(row)]] * several
        curves.setdefault(tuple(names), []).append(row)
    for place, (key, points) in enumerate(curves.items()):
        points = sorted(points, key=lambda row: row["gpus"])
        gpus, style = [row["gpus"] for row in points], marks.series_style(place)
        label = " ".join(["expected" if points[0]["expected_seconds"] is not None else "bound", *key])
        look: dict[str, Any] = {"marker": style.shape, "color": style.color, "zorder": 3}
        panels[0].plot(gpus, [row["speedup"] for row in points], label=label, **look)
        panels[1].plot(gpus, [100 * row["efficiency"] for row in points], **look)
    if scaling.measured:
        gpus = [run.gpus for run in scaling.measured]
        look = {"marker": "o", "ms": 9, "ls": "", "mfc": "none", "color": "0.1", "zorder": 4}
        panels[0].plot(gpus, [run.speedup for run in scaling.measured], label="measured", **look)
        panels[1].plot(gpus, [100 * run.efficiency for run in scaling.measured], **look)
    for of, law in scaling.fits:
        if suits(law, scaling.mode) and (of == "measured" or not scaling.measured):
            last = max([row["gpus"] for row in timed_rows] + [run.gpus for run in scaling.measured])
            gpus = [last ** (step / 60) for step in range(61)]
            label = f"{LAW_NAMES[law.law]}, {of}:\nserial fraction {law.serial_fraction:.2%}"
            if law.too_few_points:
                label += "\n(too few points for an interval)"
            elif law.low is not None and law.high is not None:
                label += f"\n(95 %: {law.low:.2%} to {law.high:.2%})"
            speedups = [law.speedup(n) for n in gpus]
            panels[0].plot(gpus, speedups, ls="--", color="0.35", lw=1.2, label=label)
            efficiencies = [100 * s / n for s, n in zip(speedups, gpus, strict=True)]
            panels[1].plot(gpus, efficiencies, ls="--", color="0.35", lw=1.2)


def _batch(row: dict[str, Any], scaling: Scaling) -> str:
    """The batch of a curve: it grows with the GPUs in weak scaling."""
    return f"batch {row['batch']}" if scaling.mode == "strong" else f"batch {row['batch'] // row['gpus']} per GPU"


def _frame(axes: Axes, name: str, scaling: Scaling, gpus: Sequence[int], *, is_efficiency: bool) -> None:
    ticks = sorted({*gpus, *(run.gpus for run in scaling.measured)})
    axes.set_xscale("log", base=2)
    canvas.count_axis(axes.xaxis, ticks)
    axes.set_xlabel("GPUs")
    axes.set_title(f"{name}{' (%)' if is_efficiency else ''}", fontsize=10, loc="left")
    axes.grid(True, color="0.92", zorder=0)
    if is_efficiency:
        axes.axhline(100, color="0.6", lw=1)
        axes.set_ylim(0, max(105.0, axes.get_ylim()[1]))
    else:
        axes.plot([ticks[0], ticks[-1]], [ticks[0], ticks[-1]], color="0.6", lw=1, label="ideal")
        axes.set_yscale("log", base=2)
        canvas.count_axis(axes.yaxis, ticks)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="upper left", bbox_to_anchor=(0.745, 0.86), fontsize=8.5, frameon=False)
