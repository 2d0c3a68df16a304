"""A comparison as a picture: one bar per row, from its bound to its achieved time."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roofmodel.compare.columns import row_label
from roofmodel.compare.comparison import ComparisonRow, ModelComparison
from roofmodel.errors import cut
from roofmodel.numbers import units
from roofmodel.report import canvas, marks
from roofmodel.steps.estimate import describe_phase, describe_workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_BARS = 18  # the table has all rows
LABEL_LENGTH, LINE_LENGTH = 40, 170  # characters that fit
EXPECTED_DASHES = (0, (2, 1))  # of the line at the expected time
LABELS_LEFT = 0.84  # of the figure: where the column of achieved times begins


def draw(comparison: ModelComparison, findings: Sequence[str], path: Path, form: str) -> None:
    """Write the picture, with the findings below it, in the format `form` (png, svg, pdf). Raises OSError."""
    bars = sorted((row for row in comparison.rows if row.measured_seconds), key=_achieved)[-MAX_BARS:]
    compared = {passes.phase for passes in comparison.passes}
    phases = [describe_phase(phase) for phase in comparison.estimate.phases if phase.step.phase in compared]
    heading = f"{comparison.estimate.architecture.name} on {comparison.identified.device.name}: predicted and achieved"
    about = f"{'; '.join(phases)} · {describe_workload(comparison.estimate)} · {comparison.profile.tool}"
    expected = any(row.expected_seconds is not None for row in bars)
    meaning = (
        "the dashed line marks the expected time" if expected else "no expected times: the device has no timing model"
    )
    foot = f"Time per pass. A bar runs from the bound to the achieved time; {meaning}."
    with canvas.picture(path, form, heading, about, foot) as (figure, axes):
        lines = [
            line
            for number, sentence in enumerate(findings, 1)
            for line in textwrap.wrap(f"{number}. {sentence}", LINE_LENGTH)
        ]
        below = 0.03 * max(3, len(lines))
        axes.set_position((0.27, 0.11 + below, LABELS_LEFT - 0.28, 0.71 - below))
        with_phase = len(comparison.passes) > 1
        names = [row_label(comparison, row) + (f" · {row.phase}" if with_phase else "") for row in bars]
        axes.set_yticks(range(len(bars)), [cut(name, LABEL_LENGTH) for name in names])
        axes.set_ylim(-0.7, len(bars) - 0.3)
        axes.set_xscale("log")
        if bars:
            times = [t for row in bars for t in (_achieved(row), row.bound_seconds, row.expected_seconds) if t]
            axes.set_xlim(min(times) / 1.3, max(times) * 1.3)
            for place, row in enumerate(bars):
                _bar(axes, place, row)
            _label(axes, len(bars) - 0.3, "achieved", "bottom")
        axes.xaxis.set_major_formatter(lambda value, _: units.seconds(value))
        axes.grid(True, axis="x", which="major", color="0.92", zorder=0)
        axes.tick_params(axis="y", length=0)
        _key(axes, expected, any(_achieved(row) < row.bound_seconds for row in bars))
        for place, text in enumerate(lines):
            figure.text(0.02, 0.015 + below - 0.03 * place, text, fontsize=8)


def _achieved(row: ComparisonRow) -> float:
    return row.measured_seconds or 0.0


def _label(axes: Axes, place: float, text: str, alignment: str = "center") -> None:
    """Write into the column right of the axes, where no mark of another time is next to the text."""
    axes.text(
        1 + 0.01 / axes.get_position().width, place, text, va=alignment, fontsize=8.5, color="0.25",
        transform=axes.get_yaxis_transform(),
    )  # fmt: skip


def _bar(axes: Axes, place: int, row: ComparisonRow) -> None:
    achieved, bound = _achieved(row), row.bound_seconds
    below_bound = achieved < bound
    color = marks.ORANGE if below_bound else marks.SKY
    axes.barh(
        place, abs(achieved - bound), left=min(achieved, bound), height=0.62, zorder=2,
        color=color, hatch=marks.HATCHES[color], edgecolor="white", lw=0,
    )  # fmt: skip
    axes.plot([bound] * 2, [place - 0.31, place + 0.31], color="0.15", lw=2, zorder=3)
    if row.expected_seconds is not None:
        ends = [place - 0.4, place + 0.4]
        axes.plot([row.expected_seconds] * 2, ends, color=marks.RED, lw=2, ls=EXPECTED_DASHES, zorder=4)
    _label(axes, place, f"{units.seconds(achieved)}, {units.significant(achieved / bound, 2)} × bound")


def _key(axes: Axes, expected: bool, below_bound: bool) -> None:
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], color="0.15", lw=2, label="bound"),
        *([Line2D([], [], color=marks.RED, lw=2, ls=EXPECTED_DASHES, label="expected")] if expected else []),
        canvas.bar_key("bound to achieved", marks.SKY),
        *([canvas.bar_key("faster than the bound", marks.ORANGE)] if below_bound else []),
    ]
    canvas.key(axes, entries)
