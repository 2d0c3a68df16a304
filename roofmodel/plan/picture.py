"""The picture of a plan: the Pareto front of output tokens/s per GPU against tokens/s per user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roofmodel.numbers import units
from roofmodel.plan.candidate import Candidate
from roofmodel.plan.plan import ServingPlan
from roofmodel.plan.ranking import format_text, name
from roofmodel.report import canvas, marks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MAX_SERIES = 24  # in the legend
CAPTION = "Front: candidates that no other one beats in both rates. Requests in flight fill every batch."


def draw(plan: ServingPlan, heading: str, path: Path, form: str) -> None:
    """Draw the Pareto front into a file; `form` is png, svg or pdf. A front without points is a sentence."""
    with canvas.picture(path, form, "Throughput against speed per user", heading, CAPTION) as (figure, axes):
        if plan.front:
            _draw(figure, axes, plan)
        else:
            axes.remove()
            why = "no candidate gives the first token in time" if plan.ranked else "no candidate fits in the memory"
            figure.text(0.02, 0.5, f"There is no front: {why}.", fontsize=11)


def _draw(figure: Figure, axes: Axes, plan: ServingPlan) -> None:
    along = sorted(plan.front, key=lambda candidate: candidate.tpot.value)
    axes.plot(*_places(along), color="0.6", lw=1.2, zorder=2)
    y = 0.83
    for place, (series, points) in enumerate(_series(plan).items()):
        style = marks.series_style(place)
        axes.plot(*_places(points), ls="", marker=style.shape, ms=6, color=style.color, zorder=3)
        if place < MAX_SERIES:
            figure.text(0.68, y, style.glyph, color=style.color, fontsize=10)
            figure.text(0.697, y, series, fontsize=8.5)
            y -= 0.03
    remarks = []
    if (target := plan.service.targets.tpot) is not None:
        axes.axvline(1 / target, color="0.3", lw=1, ls="--", zorder=1)
        remarks.append(f"dashed: TPOT {units.seconds(target)}, users to its right are served in time")
    best = plan.ranked[0].candidate if plan.ranked else None
    if best is not None and best.meets:
        x, height = _places([best])
        axes.plot(x, height, ls="", marker="o", ms=13, mfc="none", mec="0.1", mew=1.6, zorder=4)
        remarks.append("circle: the best candidate that meets the targets")
    remarks.append("line: front")
    canvas.log_axes(axes, "tokens/s per user (1 / TPOT)", "output tokens/s per GPU", units.si, units.si)
    for remark in remarks:
        figure.text(0.68, y - 0.01, remark, color="0.35", fontsize=8)
        y -= 0.03
    ends = [along[0], *([along[-1]] if len(along) > 1 else []), *([best] if best is not None and best.meets else [])]
    signs = {(1 / end.tpot.value, end.highest_per_paid_gpu.value): f"batch {end.batch}" for end in ends}
    canvas.place_labels(axes, [(label, place) for place, label in signs.items()], figure.dpi)


def _series(plan: ServingPlan) -> dict[str, list[Candidate]]:
    """The points of the front by layout, formats and device."""
    series: dict[str, list[Candidate]] = {}
    for candidate in plan.front:
        words = [name(candidate), format_text(candidate), *([candidate.device] if len(plan.devices) > 1 else [])]
        series.setdefault(" · ".join(words), []).append(candidate)
    return series


def _places(points: Sequence[Candidate]) -> tuple[list[float], list[float]]:
    return [1 / point.tpot.value for point in points], [point.highest_per_paid_gpu.value for point in points]
