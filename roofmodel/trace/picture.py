"""Where the time goes, as charts below each other.

The parts of the wall time are stacked bars, one per step or rank. Below them are the lanes of a few steps, GPU work by
`--by`, and heatmaps of the copies between GPUs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roofmodel.errors import cut
from roofmodel.numbers import units
from roofmodel.report import canvas, marks
from roofmodel.trace import intervals, timeline_axes
from roofmodel.trace.several_runs.answer import groups_by_run, longest_of_each
from roofmodel.trace.steps import StepWindow, total
from roofmodel.trace.tables import COMPUTATION_FIRST, OUTSIDE, PARTS
from roofmodel.trace.timeline_axes import IDLE_STYLES, Style
from roofmodel.trace.trace import RankReport, RunAnalysis
from roofmodel.trace.transfers import PeerMatrix, matrices

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

MAX_BARS, MAX_GROUPS = 24, 8
MAX_FILES = 3  # that the title names
MAX_GROUPS_OF_RUNS = 5  # with a bar for each run
NAME_LENGTH = 34  # characters of a group's name
MAX_FINDINGS = 3
LINE_LENGTH = 165  # characters of a finding
KEY_COLUMNS = 3
MAX_MATRICES = 3  # of runs, with the copies between their GPUs
# Inches of the figure, from the top: heading, keys and charts, findings, foot
HEADING, KEY_LINE, GAP, LINE, FOOT = 0.68, 0.19, 0.78, 0.19, 0.33
BAR, BARS = 0.42, (1.2, 4.0)  # a bar of the parts; the least and the most of all
GROUP, LANE = 0.25, 0.23
MATRIX_ROW, MATRIX = 0.45, (1.3, 3.8)
LEFT, WIDTH = 0.23, 0.73  # of the axes, relative to the figure


class _PartBar(NamedTuple):
    label: str
    parts: StepWindow
    idle: dict[str, float]  # seconds by cause


def title(trace: RunAnalysis) -> str:
    """What is shown of which files on which device."""
    names = [*trace.names.values()]
    listed = ", ".join(names) if len(names) <= MAX_FILES else f"{', '.join(names[:2])} and {len(names) - 2} more"
    device = f" on {trace.identified.device.name}" if trace.identified else ""
    return f"Where the time goes: {listed}{device}"


def draw(trace: RunAnalysis, path: Path, form: str, with_findings: bool = True) -> None:
    """Write the picture in the format `form` (png, svg, pdf), with the findings below it. Raises OSError."""
    canvas.import_matplotlib()
    bars = _bars(trace)
    counts = [units.count(len(trace.runs), "run")] * (len(trace.runs) > 1)
    if len(trace.ranks) != len(trace.runs) or not counts:
        counts.append(units.count(len(trace.ranks), "rank"))
    about = " · ".join(["parts of the wall time", *counts, trace.tool])
    foot = "The parts of a bar sum to its wall time. Exposed: while no computation runs."
    if len(bars) > MAX_BARS:
        foot += f" The first {MAX_BARS} of {len(bars)} bars."
        bars = bars[:MAX_BARS]
    texts = [finding.text for finding in trace.run_findings][:MAX_FINDINGS]
    listed = trace.rank_findings[: MAX_FINDINGS - len(texts) if with_findings else None]
    texts += [f"{number}. {finding.text}" for number, finding in enumerate(listed, 1)]
    lines = [line for text in texts if with_findings for line in textwrap.wrap(text, LINE_LENGTH)]
    charts = [*_charts(trace, bars, len(listed))]
    if any(chart.has_lanes for chart in charts):
        foot += " Timeline: the height of a color is its share of the time."
    height = HEADING + sum(chart.inches + GAP for chart in charts) + LINE * len(lines) + FOOT - 0.2
    with canvas.picture(path, form, title(trace), about, foot, height / canvas.HEIGHT) as (figure, axes):
        top = HEADING
        for number, chart in enumerate(charts):
            top += chart.inches
            place = (LEFT, 1 - top / height, WIDTH, chart.height / height)
            if number:
                axes = figure.add_axes(place)
            axes.set_position(place)
            chart.draw(axes)
            if chart.keys:
                canvas.key(axes, chart.keys, columns=KEY_COLUMNS)
            top += GAP
        for number, line in enumerate(reversed(lines)):
            figure.text(0.02, (FOOT + LINE * number) / height, line, fontsize=8)


class _Chart(NamedTuple):
    """One of the charts, which are below each other."""

    height: float  # of the axes, inches
    draw: Callable[[Axes], None]
    keys: Sequence[Patch] = ()  # above the axes
    has_lanes: bool = False

    @property
    def inches(self) -> float:
        return self.height + KEY_LINE * -(-len(self.keys) // KEY_COLUMNS)


def _charts(trace: RunAnalysis, bars: Sequence[_PartBar], listed: int) -> Iterator[_Chart]:
    keys = _part_keys(bars)
    yield _Chart(min(max(BAR * len(bars), BARS[0]), BARS[1]), lambda axes: _draw_parts(axes, bars), keys)
    if shown := timeline_axes.view(trace, listed):
        named = {key.get_label() for key in keys}
        styles = [style for style in shown.styles if style.label not in named]
        pad = 6 + 72 * KEY_LINE * -(-len(styles) // KEY_COLUMNS)  # points: the title is above the keys
        yield _Chart(
            LANE * len(shown.rows), lambda axes: timeline_axes.draw(axes, shown, pad), [*map(_patch, styles)], True
        )
    if len(trace.runs) > 1:
        rows = min(len(groups_by_run(trace.runs)), max(MAX_GROUPS_OF_RUNS, len(trace.runs)))
        yield _Chart(0.3 + GROUP * rows * 2, lambda axes: _draw_groups_of_runs(axes, trace))
    else:
        rows = min(len({group.group for group in trace.groups}), MAX_GROUPS)
        yield _Chart(0.2 + GROUP * rows, lambda axes: _draw_groups(axes, trace))
    highest = max((each.bytes_per_second or 0 for each in trace.peers), default=0)
    for matrix in matrices(trace.peers)[:MAX_MATRICES]:
        height = min(max(MATRIX[0], MATRIX_ROW * len(matrix.devices)), MATRIX[1])
        yield _Chart(height, partial(_draw_matrix, matrix=matrix, highest_rate=highest))


def _patch(style: Style) -> Patch:
    from matplotlib.patches import Patch

    return Patch(facecolor=style.color, hatch=style.hatch, edgecolor=style.edge, lw=0, label=style.label)


def _part_keys(bars: Sequence[_PartBar]) -> list[Patch]:
    present = [p for p in COMPUTATION_FIRST if p != "idle" and any(getattr(bar.parts, p) for bar in bars)]
    causes = [style for cause, style in IDLE_STYLES.items() if any(bar.idle.get(cause) for bar in bars)]
    return [canvas.bar_key(PARTS[part].legend, PARTS[part].color) for part in present] + [*map(_patch, causes)]


def _draw_parts(axes: Axes, bars: Sequence[_PartBar]) -> None:
    for place, bar in enumerate(bars):
        left = 0.0
        for part in COMPUTATION_FIRST:
            if part != "idle":
                width, color = getattr(bar.parts, part) / 1e9, PARTS[part].color
                axes.barh(
                    place, width, left=left, height=0.72, zorder=2,
                    color=color, hatch=marks.HATCHES.get(color, ""), edgecolor="white", lw=0,
                )  # fmt: skip
                left += width
        for cause, width in bar.idle.items():
            style = IDLE_STYLES[cause]
            axes.barh(
                place, width, left=left, height=0.72, zorder=2, color=style.color, hatch=style.hatch,
                edgecolor=style.edge, lw=0,
            )  # fmt: skip
            left += width
        if bar.parts.length:
            active = 1 - bar.parts.idle / bar.parts.length
            text = f" {units.seconds(bar.parts.length / 1e9)}, {active:.0%} active"
            axes.text(left, place, text, va="center", fontsize=8, color="0.25")
    longest = max((bar.parts.length for bar in bars), default=0) / 1e9
    axes.set_xlim(0, longest * 1.2 or 1)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    _style(axes)


def _draw_groups(axes: Axes, trace: RunAnalysis) -> None:
    """The longest groups of `--by`, summed over the ranks."""
    seconds: dict[str, float] = {}
    for group in trace.groups:
        seconds[group.group] = seconds.get(group.group, 0.0) + group.seconds
    longest = sorted(seconds.items(), key=lambda item: -item[1])[:MAX_GROUPS]
    summed = sum(seconds.values()) or 1.0
    more = f", the longest {MAX_GROUPS} of {len(seconds)}" if len(seconds) > MAX_GROUPS else ""
    axes.set_title(f"GPU work by {trace.by}{more} (summed: overlapping work counts fully)", fontsize=10, loc="left")
    for place, (_, time) in enumerate(longest):
        axes.barh(place, time, height=0.72, zorder=2, color="0.55")
        axes.text(time, place, f" {units.seconds(time)}, {time / summed:.0%}", va="center", fontsize=8, color="0.25")
    axes.set_xlim(0, max((time for _, time in longest), default=0) * 1.2 or 1)
    axes.set_yticks(range(len(longest)), [cut(name, NAME_LENGTH) for name, _ in longest])
    axes.set_ylim(max(len(longest), 1) - 0.4, -0.6)
    _style(axes)


def _draw_groups_of_runs(axes: Axes, trace: RunAnalysis) -> None:
    """The longest groups of `--by`: a bar for each run, with its time per GPU."""
    every = groups_by_run(trace.runs)
    rows, runs = longest_of_each(every, MAX_GROUPS_OF_RUNS), trace.runs[: len(marks.SERIES)]
    more = f", the longest {len(rows)} of {len(every)}" if len(every) > len(rows) else ""
    axes.set_title(f"GPU work by {trace.by}, time per GPU{more}", fontsize=10, loc="left")
    height = 0.84 / len(runs)
    for number, run in enumerate(runs):
        color = marks.SERIES[number]
        for place, row in enumerate(rows):
            if time := row.seconds[number]:
                axes.barh(
                    place - 0.42 + (number + 0.5) * height, time, height=height, zorder=2,
                    color=color, hatch=marks.HATCHES.get(color, ""), edgecolor="white", lw=0,
                    label=f"run {run.run}" if isinstance(run.run, int) else run.run,
                )  # fmt: skip
    axes.set_xlim(0, max((time or 0 for row in rows for time in row.seconds), default=0) * 1.2 or 1)
    axes.set_yticks(range(len(rows)), [cut(row.group, NAME_LENGTH) for row in rows])
    axes.set_ylim(max(len(rows), 1) - 0.4, -0.6)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(handles.values(), handles.keys(), loc="lower right", fontsize=8)
    _style(axes)


def _draw_matrix(axes: Axes, matrix: PeerMatrix, highest_rate: float) -> None:
    """Bytes and rates (the shade, up to the highest B/s of all runs) from each GPU (row) to each other one (column)."""
    import numpy as np

    places = {device: place for place, device in enumerate(matrix.devices)}
    count = len(places)
    rates = np.full((count, count), np.nan)
    box = axes.get_window_extent()
    width, height = (72 / axes.figure.dpi * length / count for length in (box.width, box.height))  # of a cell, points
    for (source, destination), copies in matrix.copies.items():
        rates[places[source], places[destination]] = copies.bytes_per_second or np.nan
        values = ((copies.bytes, "B"), (copies.bytes_per_second, "B/s"))
        axes.text(
            places[destination], places[source],
            "\n".join("–" if value is None else units.si(value, unit) for value, unit in values),
            ha="center", va="center", fontsize=min(8.0, height / 2.8, width / 5.5), color="0.05",
        )  # fmt: skip
    # the darkest shade is light enough for dark text
    axes.imshow(rates, cmap="Blues", vmin=0, vmax=1.8 * highest_rate or 1, aspect="auto")
    axes.set_title(matrix.title + " (the darker, the faster)" * bool(highest_rate), fontsize=10, loc="left", pad=6)
    axes.set_xticks(range(count), [cut(f"to {device}", NAME_LENGTH // 2) for device in matrix.devices])
    axes.set_yticks(range(count), [cut(f"from {device}", NAME_LENGTH // 2) for device in matrix.devices])
    axes.set_xticks([place + 0.5 for place in range(count - 1)], minor=True)
    axes.set_yticks([place + 0.5 for place in range(count - 1)], minor=True)
    axes.grid(True, which="minor", color="0.8", lw=0.6)
    axes.tick_params(length=0, labelsize=8, which="both")


def _style(axes: Axes) -> None:
    canvas.seconds_axis(axes.xaxis)
    axes.grid(True, axis="x", which="major", color="0.92", zorder=0)
    axes.tick_params(axis="y", length=0, labelsize=8)


def _bars(trace: RunAnalysis) -> list[_PartBar]:
    if len(trace.ranks) == 1 and (steps := trace.ranks[0].steps.complete):
        return [_PartBar(f"step {step.label}", step, _idle_of_step(trace.ranks[0], step)) for step in steps]
    return [_PartBar(_label(trace, each), total(each.rank), each.idle_by_cause) for each in trace.ranks]


def _idle_of_step(report: RankReport, step: StepWindow) -> dict[str, float]:
    """The idle seconds of a step by cause; they sum to its idle time."""
    nanoseconds = {
        cause: int(intervals.covered(times, [step.start], [step.end])[0]) for cause, times in report.idle.items()
    }
    nanoseconds[OUTSIDE] = step.idle - sum(nanoseconds.values())
    return {cause: number / 1e9 for cause, number in nanoseconds.items() if number}


def _label(trace: RunAnalysis, report: RankReport) -> str:
    rank = report.rank
    if rank.run is None:
        return f"rank {rank.number}: {rank.label}"
    if len(trace.ranks) > len(trace.runs):
        return rank.label
    return cut(f"{rank.label.partition(',')[0]}: {trace.names[rank.timeline.file]}", NAME_LENGTH)
