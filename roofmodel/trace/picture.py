"""The parts of the wall time as stacked bars: one per step, or one per rank of several ranks or without steps."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

from roofmodel.numbers import units
from roofmodel.report import canvas, marks
from roofmodel.trace.parts import COMPUTATION_FIRST, PARTS
from roofmodel.trace.steps import StepWindow, total
from roofmodel.trace.trace import RunAnalysis

MAX_BARS = 24
LINE_LENGTH = 165  # characters of a finding


class _PartBar(NamedTuple):
    label: str
    parts: StepWindow


def draw(trace: RunAnalysis, path: Path, form: str) -> None:
    """Write the picture in the format `form` (png, svg, pdf). Raises OSError."""
    bars = _bars(trace)
    device = f" on {trace.identified.device.name}" if trace.identified else ""
    heading = f"Where the time goes: {', '.join([*trace.names.values()][:2])}{device}"
    about = f"parts of the wall time · {units.count(len(trace.ranks), 'rank')} · {trace.tool}"
    foot = "The parts of a bar sum to its wall time. Exposed: while no computation runs."
    if len(bars) > MAX_BARS:
        foot += f" The first {MAX_BARS} of {len(bars)} bars."
        bars = bars[:MAX_BARS]
    with canvas.picture(path, form, heading, about, foot) as (figure, axes):
        lines = [
            line
            for number, finding in enumerate(trace.findings[:3], 1)
            for line in textwrap.wrap(f"{number}. {finding.text}", LINE_LENGTH)
        ]
        below = 0.03 * len(lines)
        axes.set_position((0.2, 0.13 + below, 0.77, 0.68 - below))
        for place, bar in enumerate(bars):
            left = 0.0
            for part in COMPUTATION_FIRST:
                width = getattr(bar.parts, part) / 1e9
                color = PARTS[part].color
                axes.barh(
                    place, width, left=left, height=0.72, zorder=2,
                    color=color, hatch=marks.HATCHES.get(color, ""), edgecolor="white", lw=0,
                )  # fmt: skip
                left += width
            if bar.parts.length:
                active = 1 - bar.parts.idle / bar.parts.length
                text = f" {units.seconds(left)}, {active:.0%} active"
                axes.text(left, place, text, va="center", fontsize=8, color="0.25")
        longest = max((bar.parts.length for bar in bars), default=0) / 1e9
        axes.set_xlim(0, longest * 1.2 or 1)
        axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.xaxis.set_major_formatter(lambda value, _: units.seconds(value))
        axes.grid(True, axis="x", which="major", color="0.92", zorder=0)
        axes.tick_params(axis="y", length=0, labelsize=8)
        present = [PARTS[part] for part in COMPUTATION_FIRST if any(getattr(bar.parts, part) for bar in bars)]
        canvas.key(axes, [canvas.bar_key(part.legend, part.color) for part in present])
        for place, line in enumerate(lines):
            figure.text(0.02, 0.02 + below - 0.03 * place, line, fontsize=8)


def _bars(trace: RunAnalysis) -> list[_PartBar]:
    if len(trace.ranks) == 1 and (steps := trace.ranks[0].steps.complete):
        return [_PartBar(f"step {step.label}", step) for step in steps]
    return [
        _PartBar(
            each.rank.label if each.rank.run else f"rank {each.rank.number}: {each.rank.label}",
            total(each.rank),
        )
        for each in trace.ranks
    ]
