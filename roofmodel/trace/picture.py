"""Where the time goes: the parts of the wall time as stacked bars, one per step or rank, and GPU work by `--by`.

Runs with copies between GPUs also have a heatmap of them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roofmodel.errors import cut
from roofmodel.numbers import units
from roofmodel.report import canvas, marks
from roofmodel.trace import intervals
from roofmodel.trace.parts import CAUSE_TEXTS, COMPUTATION_FIRST, PARTS
from roofmodel.trace.peers import PeerMatrix, matrices
from roofmodel.trace.several_runs.run_tables import groups_by_run, longest_of_each
from roofmodel.trace.steps import StepWindow, total
from roofmodel.trace.trace import RankReport, RunAnalysis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_BARS, MAX_GROUPS = 24, 8
MAX_FILES = 3  # that the title names
MAX_GROUPS_OF_RUNS = 5  # with a bar for each run
NAME_LENGTH = 34  # characters of a group's name
LINE_LENGTH = 165  # characters of a finding
KEY_COLUMNS = 3
HEIGHT = 1.45  # of the figure, relative to other pictures
MAX_MATRICES = 3  # of runs, with the copies between their GPUs
MATRIX_ROW, MATRIX_HEIGHTS = 0.05, (0.14, 0.42)  # of the figure without matrices: a GPU; the least and the most
# Pale, so that idle time differs from work in color; the hatches distinguish its causes in gray print.
IDLE_STYLES = {
    "input": ("#F6C6B4", "//"), "synchronization": ("#E6D3EA", "\\\\"), "launch": ("#CFE2F3", ".."),
    "cpu_work": ("#F7E3B0", "xx"), "other_rank": ("#CDE8DC", "--"), "queued": ("#EFEFEF", "||"),
    "allocation": ("#D8CFC4", "++"), "unknown": ("#E2E2E2", ""),
}  # fmt: skip
HATCH_COLOR = "0.55"


class _PartBar(NamedTuple):
    label: str
    parts: StepWindow
    idle: dict[str, float]  # seconds by cause


def draw(trace: RunAnalysis, path: Path, form: str) -> None:
    """Write the picture in the format `form` (png, svg, pdf). Raises OSError."""
    bars = _bars(trace)
    device = f" on {trace.identified.device.name}" if trace.identified else ""
    names = [*trace.names.values()]
    listed = ", ".join(names) if len(names) <= MAX_FILES else f"{', '.join(names[:2])} and {len(names) - 2} more"
    heading = f"Where the time goes: {listed}{device}"
    counts = [units.count(len(trace.runs), "run")] * (len(trace.runs) > 1)
    if len(trace.ranks) != len(trace.runs) or not counts:
        counts.append(units.count(len(trace.ranks), "rank"))
    about = " · ".join(["parts of the wall time", *counts, trace.tool])
    foot = "The parts of a bar sum to its wall time. Exposed: while no computation runs."
    if len(bars) > MAX_BARS:
        foot += f" The first {MAX_BARS} of {len(bars)} bars."
        bars = bars[:MAX_BARS]
    peers = matrices(trace.peers)[:MAX_MATRICES]
    least, most = MATRIX_HEIGHTS
    matrix_height = min(max([least, *(MATRIX_ROW * len(each.devices) for each in peers)]), most) if peers else 0.0
    taller = 1 + matrix_height + 0.09 * bool(peers)
    with canvas.picture(path, form, heading, about, foot, HEIGHT * taller) as (figure, axes):
        lines = [
            line
            for number, finding in enumerate(trace.findings[:3], 1)
            for line in textwrap.wrap(f"{number}. {finding.text}", LINE_LENGTH)
        ]
        line_height = 0.021 / taller
        below = line_height * len(lines)
        above_lines, groups_height, gap = 0.08 / taller + below, 0.23 / taller, 0.1 / taller
        for place, matrix in enumerate(peers):
            width = 0.67 / len(peers)
            where = (0.3 + place * width, above_lines, width - 0.07 * (len(peers) > 1), matrix_height / taller)
            _draw_matrix(figure.add_axes(where), matrix, max(each.bytes_per_second or 0 for each in trace.peers))
        lower = above_lines + (taller - 1) / taller
        key_lines = _draw_parts(axes, bars)
        bottom, top = lower + groups_height + gap, 1 - 0.085 / taller - line_height * key_lines
        axes.set_position((0.2, bottom, 0.77, top - bottom))
        below_parts = figure.add_axes((0.3, lower, 0.67, groups_height))
        (_draw_groups_of_runs if len(trace.runs) > 1 else _draw_groups)(below_parts, trace)
        for place, line in enumerate(lines):
            figure.text(0.02, 0.014 / taller + below - line_height * place, line, fontsize=8)


def _draw_parts(axes: Axes, bars: Sequence[_PartBar]) -> int:
    """Draw the bars; returns the number of lines of the key above them."""
    from matplotlib.patches import Patch

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
            color, hatch = IDLE_STYLES[cause]
            axes.barh(
                place, width, left=left, height=0.72, zorder=2, color=color, hatch=hatch, edgecolor=HATCH_COLOR, lw=0
            )
            left += width
        if bar.parts.length:
            active = 1 - bar.parts.idle / bar.parts.length
            text = f" {units.seconds(left)}, {active:.0%} active"
            axes.text(left, place, text, va="center", fontsize=8, color="0.25")
    longest = max((bar.parts.length for bar in bars), default=0) / 1e9
    axes.set_xlim(0, longest * 1.2 or 1)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    _style(axes)
    present = [p for p in COMPUTATION_FIRST if p != "idle" and any(getattr(bar.parts, p) for bar in bars)]
    keys = [canvas.bar_key(PARTS[part].legend, PARTS[part].color) for part in present]
    for cause, (color, hatch) in IDLE_STYLES.items():
        if any(bar.idle.get(cause) for bar in bars):
            label = f"idle: {CAUSE_TEXTS[cause].partition(' (')[0]}"
            keys.append(Patch(facecolor=color, hatch=hatch, edgecolor=HATCH_COLOR, lw=0, label=label))
    canvas.key(axes, keys, columns=KEY_COLUMNS)
    return -(-len(keys) // KEY_COLUMNS)


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
    axes.xaxis.set_major_formatter(lambda value, _: units.seconds(value))
    axes.grid(True, axis="x", which="major", color="0.92", zorder=0)
    axes.tick_params(axis="y", length=0, labelsize=8)


def _bars(trace: RunAnalysis) -> list[_PartBar]:
    if len(trace.ranks) == 1 and (steps := trace.ranks[0].steps.complete):
        idle = trace.ranks[0].idle
        return [
            _PartBar(
                f"step {step.label}",
                step,
                {
                    cause: float(intervals.covered(times, [step.start], [step.end])[0]) / 1e9
                    for cause, times in idle.items()
                },
            )
            for step in steps
        ]
    return [_PartBar(_label(trace, each), total(each.rank), each.idle_by_cause) for each in trace.ranks]


def _label(trace: RunAnalysis, report: RankReport) -> str:
    rank = report.rank
    if rank.run is None:
        return f"rank {rank.number}: {rank.label}"
    if len(trace.ranks) > len(trace.runs):
        return rank.label
    return cut(f"{rank.label.partition(',')[0]}: {trace.names[rank.timeline.file]}", NAME_LENGTH)
