"""A comparison as a picture: for each group of operators a bar from its bound to what was achieved."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roofmodel import units
from roofmodel.study.compare.comparison import Comparison, Row
from roofmodel.views.compare.text import called, closing
from roofmodel.views.kit import canvas
from roofmodel.views.kit.workload_text import describe_phase, describe_workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

SHOWN = 18  # bars; the rest is in the table
NAME, LINE = 40, 170  # letters that there is room for


def draw(found: Comparison, path: Path, form: str) -> None:
    """Write the picture. Raises OSError where it cannot."""
    timed = sorted((row for row in found.rows if row.measured_seconds), key=_achieved)[-SHOWN:]
    compared = {passes.phase for passes in found.passes}
    phases = [describe_phase(phase) for phase in found.estimate.phases if phase.step.phase in compared]
    heading = f"{found.estimate.architecture.name} on {found.identified.device.name}: predicted and achieved"
    about = f"{'; '.join(phases)} · {describe_workload(found.estimate)} · {found.profile.tool}"
    expected = any(row.expected_seconds is not None for row in timed)
    across = (
        "; the line across it is the expectation"
        if expected
        else "; nothing is expected: the device has no timing model"
    )
    foot = f"A bar runs from the bound to what was achieved, in one pass{across}."
    with canvas.picture(path, form, heading, about, foot) as (figure, axes):
        said = [line for i, words in enumerate(closing(found), 1) for line in textwrap.wrap(f"{i}. {words}", LINE)]
        below = 0.03 * max(3, len(said))
        axes.set_position((0.27, 0.11 + below, 0.7, 0.73 - below))
        several = len(found.passes) > 1
        names = [called(found, row) + (f" · {row.phase}" if several else "") for row in timed]
        axes.set_yticks(range(len(timed)), [_cut(name, NAME) for name in names])
        axes.set_ylim(-0.7, len(timed) - 0.3)
        axes.set_xscale("log")
        if timed:
            ends = [_end(row) for row in timed]
            axes.set_xlim(min(min(row.bound_seconds, _achieved(row)) for row in timed) / 1.3, max(ends))
            written = [_bar(axes, place, row) for place, row in enumerate(timed)]
            _make_room(axes, ends, written)
        axes.xaxis.set_major_formatter(lambda value, _: units.seconds(value))
        axes.grid(True, axis="x", which="major", color="0.92", zorder=0)
        axes.tick_params(axis="y", length=0)
        _legend(figure, expected, any(_achieved(row) < row.bound_seconds for row in timed))
        for line, words in enumerate(said):
            figure.text(0.02, 0.015 + below - 0.03 * line, words, fontsize=8)


def _achieved(row: Row) -> float:
    return row.measured_seconds or 0.0


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _end(row: Row) -> float:
    """Where what is written of a row begins, behind all that is drawn of it."""
    return max(_achieved(row), row.bound_seconds, row.expected_seconds or 0.0)


def _make_room(axes: Axes, ends: Sequence[float], written: Sequence[Text]) -> None:
    """Move the right end of a logarithmic axis until what is written behind the bars fits."""
    left, wide = axes.get_xlim()[0], axes.get_window_extent().width
    widths = [text.get_window_extent().width for text in written]
    axes.set_xlim(left, max(left * (end / left) ** (wide / (wide - w)) for end, w in zip(ends, widths, strict=True)))


def _bar(axes: Axes, place: int, row: Row) -> Text:
    achieved, bound = _achieved(row), row.bound_seconds
    beaten = achieved < bound
    axes.barh(
        place, abs(achieved - bound), left=min(achieved, bound), height=0.62, zorder=2,
        color=canvas.YELLOW if beaten else canvas.SKY,
    )  # fmt: skip
    axes.plot([bound] * 2, [place - 0.31, place + 0.31], color="0.15", lw=2, zorder=3)
    if row.expected_seconds is not None:
        axes.plot([row.expected_seconds] * 2, [place - 0.4, place + 0.4], color=canvas.RED, lw=2, zorder=4)
    part = f"  {units.seconds(achieved)}, {units.significant(achieved / bound, 2)} × its bound"
    return axes.text(_end(row), place, part, va="center", fontsize=8.5, color="0.25", zorder=5)


def _legend(figure: Figure, expected: bool, beaten: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks = [
        Line2D([], [], color="0.15", lw=2, label="bound"),
        *([Line2D([], [], color=canvas.RED, lw=2, label="expected")] if expected else []),
        Patch(color=canvas.SKY, label="bound to achieved"),
        *([Patch(color=canvas.YELLOW, label="quicker than its bound")] if beaten else []),
    ]
    figure.legend(handles=marks, loc="upper right", bbox_to_anchor=(0.98, 0.9), ncols=4, frameon=False, fontsize=9)
