"""The lanes of a few steps as axes of a picture.

The time across is divided into columns of about a pixel. In each column a kind of span takes the share of the lane's
height that its union takes of that time, so a lane of any number of spans is one polygon a kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.numbers import units
from roofmodel.profiles.timelines.timeline import COPY, MEMSET, UNKNOWN
from roofmodel.report import canvas, marks
from roofmodel.trace import intervals, lanes
from roofmodel.trace.lanes import Section
from roofmodel.trace.tables import CAUSE_TEXTS, OUTSIDE, PARTS
from roofmodel.trace.trace import RankReport, RunAnalysis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = 2  # that are drawn, unless the user selects some
MAX_RANKS, MAX_LANES = 4, 28  # that are drawn, without CPU threads
MAX_THREADS = 2  # of a process
COLUMNS = 1200  # of time
LEAST_HEIGHT = 0.12  # of a kind in a column, relative to the lane, so that one short kernel is visible
HEIGHT = 0.8  # of a lane, relative to the distance of lanes
STEP_COLORS = ("0.9", "0.8")
MIN_STEP_WIDTH = 0.04  # of the axes, from which a step has its name


class Style(NamedTuple):
    """The color, hatch and meaning of a kind of span or of a part of the wall time."""

    color: str
    hatch: str
    edge: str  # the color of the hatch
    label: str


def _marked(color: str, label: str) -> Style:
    return Style(color, marks.HATCHES.get(color, ""), "white", label)


# Pale, so that idle time differs from work in color; the hatches distinguish its causes in gray print.
IDLE_STYLES = {
    cause: Style(color, hatch, "0.55", f"idle: {CAUSE_TEXTS[cause].partition(' (')[0]}")
    for cause, color, hatch in (
        ("input", "#F6C6B4", "//"), ("synchronization", "#E6D3EA", "\\\\"), ("launch", "#CFE2F3", ".."),
        ("cpu_work", "#F7E3B0", "xx"), ("other_rank", "#CDE8DC", "--"), ("queued", "#EFEFEF", "||"),
        ("allocation", "#D8CFC4", "++"), ("unknown", "#E2E2E2", ""), (OUTSIDE, "#FAFAFA", "/"),
    )
}  # fmt: skip
STYLES = {
    lanes.COMPUTE: _marked(PARTS["compute_only"].color, "computation"),
    lanes.COMMUNICATION: _marked(PARTS["communication_exposed"].color, "communication"),
    COPY: _marked(PARTS["copies_exposed"].color, "copy"),
    MEMSET: _marked(marks.GRAY, "memset"),
    lanes.PEER: _marked(marks.GREEN, "copy to or from this GPU that another rank records"),
    **IDLE_STYLES,
    lanes.WAITING: IDLE_STYLES["synchronization"]._replace(label="CPU: waits for the GPU"),
    lanes.LOADER: IDLE_STYLES["input"]._replace(label="CPU: data loader"),
    lanes.CALL: Style("0.45", "", "0.45", "CPU: CUDA call"),
    lanes.OPERATOR: Style("#C9D6E2", "", "0.55", "CPU: operator"),
}
"""Of two kinds at one time in a lane the first is drawn. Ranges, which enclose everything, are not drawn."""


_Shares = Mapping[str, NDArray[np.float64]]


class Row(NamedTuple):
    """A lane, or the heading of a section; times are nanoseconds from the left edge."""

    label: str
    kind: str = ""  # of the lane; empty: a heading
    shares: _Shares = MappingProxyType({})  # of each column of time, by kind of span
    steps: Sequence[tuple[int, int, str]] = ()  # start, end, name
    markers: Sequence[tuple[int, int]] = ()  # number of the finding, time


class TimelineView(NamedTuple):
    """What the axes show."""

    title: str
    across: str  # title of the axis
    length: int  # nanoseconds
    rows: list[Row]

    @property
    def styles(self) -> list[Style]:
        """Those of the kinds that occur."""
        return [style for kind, style in STYLES.items() if any(kind in row.shares for row in self.rows)]


class _Window(NamedTuple):
    """The time of a file that is drawn, on its clock."""

    start: int
    end: int
    steps: Sequence[str] = ()  # their labels; empty: the whole run


def view(trace: RunAnalysis, listed: int) -> TimelineView | None:
    """The lanes of the selected steps, else of two consecutive steps around the median one, else of the whole run.

    Marks the first `listed` findings. None if that takes no time.
    """
    reports = _drawn_ranks(trace)
    windows: dict[int, _Window] = {}  # by file: ranks of a file have one clock
    for report in reports:
        if id(report.rank.timeline) not in windows:
            first = next(iter(windows.values()), None)
            windows[id(report.rank.timeline)] = _window(report, reports, first.steps if first else ())
    length = max((window.end - window.start for window in windows.values()), default=0)
    if not length:
        return None
    markers, sections = [*lanes.markers(trace)][:listed], [*lanes.sections(trace, reports)]
    edges = np.linspace(0, length, COLUMNS + 1).round().astype(np.int64)
    rows, left_out, start, end = list[Row](), 0, 0, 0
    for section in sections:
        visible, most = [], MAX_THREADS
        if section.report is not None:  # CPU threads follow a rank of their file
            rank, most = section.report.rank, MAX_LANES // len(reports)
            start, end, _ = windows[id(rank.timeline)]
            start, end = start - rank.timeline.origin, end - rank.timeline.origin
            visible = [each for each in markers if each.rank is rank and each.has_interval and start <= each.time < end]
        found = _rows(section, start, end, edges)
        kept = [row for number, row in enumerate(found) if number in _most_active(found)[:most]]
        left_out += len(found) - len(kept)
        if kept:
            places = [(each.number, each.time - start) for each in visible]
            rows += [Row(section.label, markers=places), *kept]
    omitted = [
        units.count(number, noun)
        for number, noun in ((len(trace.ranks) - len(reports), "rank"), (left_out, "less active lane"))
        if number
    ]
    title, across = _titles([window.steps for window in windows.values()])
    return TimelineView(title + f"; not drawn: {', '.join(omitted)}" * bool(omitted), across, length, rows)


def _titles(steps: Sequence[Sequence[str]]) -> tuple[str, str]:
    """The titles of the chart and of its axis, from the labels of the steps of each file."""
    labels = steps[0]
    if any(each != labels for each in steps):
        return "timeline, each file from its first step here", "time from the left edge"
    if not labels:
        return "timeline of the run", "time from the first GPU activity"
    which = " and ".join(labels) if len(labels) < 3 else f"{labels[0]} to {labels[-1]}"
    return f"timeline of {'steps' if len(labels) > 1 else 'step'} {which}", f"time from the start of step {labels[0]}"


def _drawn_ranks(trace: RunAnalysis) -> list[RankReport]:
    """The first ranks of each run."""
    of_run: dict[object, list[RankReport]] = {}
    for report in trace.ranks:
        of_run.setdefault(report.rank.run, []).append(report)
    each = max(1, MAX_RANKS // max(len(of_run), 1))
    return [report for reports in of_run.values() for report in reports[:each]][:MAX_RANKS]


def _window(report: RankReport, reports: Sequence[RankReport], wanted: Sequence[str]) -> _Window:
    """The window of a file: that of its first rank, or the span of all its ranks if this one has no steps.

    `wanted` are the labels of the steps to choose, if the rank has them.
    """
    steps, is_selected = report.steps.complete, report.rank.unrestricted is not report.rank
    if is_selected:
        return _Window(*report.rank.span, [step.label for step in report.steps.steps])
    if not steps:
        spans = [each.rank.span for each in reports if each.rank.timeline is report.rank.timeline]
        return _Window(min(low for low, _ in spans), max(high for _, high in spans))
    low, high = report.rank.span  # a step that extends beyond it has idle time without a cause
    if {*wanted} <= {step.label for step in steps} and wanted:
        shown = [step for step in steps if step.label in wanted]
        return _Window(shown[0].start, shown[-1].end, wanted)
    steps = [step for step in steps if low <= step.start and step.end <= high] or steps
    by_length = sorted(range(len(steps)), key=lambda place: steps[place].length)
    first = max(0, min(by_length[(len(steps) - 1) // 2], len(steps) - STEPS))
    shown = steps[first : first + STEPS]
    return _Window(shown[0].start, shown[-1].end, [step.label for step in shown])


def _rows(section: Section, start: int, end: int, edges: NDArray[np.int64]) -> list[Row]:
    """The lanes with spans in the window, without CPU threads that launch nothing."""
    rows = []
    for lane in section.lanes:
        spans = lane.spans[(lane.spans["start"] < end) & (lane.spans["end"] > start)]
        if not len(spans) or (lane.kind == lanes.THREAD and not (lane.spans["call"] != UNKNOWN).any()):
            continue
        times = np.clip(spans[["start", "end"]].to_numpy(), start, end) - start
        if lane.kind == lanes.STEPS:
            rows.append(Row(lane.label, lane.kind, steps=[*zip(*times.T.tolist(), spans["name"], strict=True)]))
        elif shares := _shares(times, spans["kind"].to_numpy(), edges):
            rows.append(Row(lane.label, lane.kind, shares=shares))
    return rows


def _most_active(rows: Sequence[Row]) -> list[int]:
    """The places of the rows: first the most active one of each kind, in the order of the kinds, then the others."""
    activity = [sum(float(share.sum()) for share in row.shares.values()) for row in rows]
    by_activity = sorted(range(len(rows)), key=lambda place: -activity[place])
    first_of_kind = {rows[place].kind: place for place in reversed(by_activity)}.values()
    return [*sorted(first_of_kind), *(place for place in by_activity if place not in first_of_kind)]


def _shares(times: NDArray[np.int64], kinds: NDArray[np.object_], edges: NDArray[np.int64]) -> _Shares:
    """By kind of span, the share of each column of time that it takes and no kind before it in STYLES."""
    explained, shares = intervals.NONE, {}
    for kind in STYLES:
        mine = times[kinds == kind]
        if len(mine):
            alone = intervals.subtract(intervals.union(mine[:, 0], mine[:, 1]), explained)
            shares[kind] = intervals.covered(alone, edges[:-1], edges[1:]) / np.maximum(np.diff(edges), 1)
            explained = intervals.join(explained, alone)
    return {kind: share for kind, share in shares.items() if share.any()}


# --- Drawing ----------------------------------------------------------------------------------------


def draw(axes: Axes, shown: TimelineView, pad: float) -> None:
    """Draw the lanes, the first one at the top; the title is `pad` points above the axes."""
    axes.set_title(shown.title, fontsize=10, loc="left", pad=pad)
    axes.set_xlim(0, shown.length / 1e9)
    axes.set_ylim(len(shown.rows) - 0.4, -0.6)
    axes.set_yticks(range(len(shown.rows)), [row.label if row.kind else "" for row in shown.rows])
    for place, row in enumerate(shown.rows):
        if not row.kind:
            axes.text(0, place, f" {row.label}", fontsize=8, weight="bold", va="center", zorder=3)
        _draw_steps(axes, place, row, shown.length)
        _draw_shares(axes, place, row, shown.length)
        for number, time in row.markers:
            lane = place + 1 + bool(shown.rows[place + 1].steps)
            axes.text(
                time / 1e9, lane, f"▼ {number}", fontsize=8, ha="left", va="center", color=marks.RED, zorder=4,
                bbox={"facecolor": "white", "alpha": 0.85, "lw": 0, "pad": 0.5},
            )  # fmt: skip
    axes.set_xlabel(shown.across, fontsize=9)
    canvas.seconds_axis(axes.xaxis)
    axes.grid(True, axis="x", which="major", color="0.92", zorder=0)
    axes.tick_params(axis="y", length=0, labelsize=8)


def _draw_steps(axes: Axes, place: int, row: Row, length: int) -> None:
    for number, (start, end, name) in enumerate(row.steps):
        axes.barh(
            place, (end - start) / 1e9, left=start / 1e9, height=HEIGHT, color=STEP_COLORS[number % 2], lw=0, zorder=2
        )
        if end - start > MIN_STEP_WIDTH * length:
            axes.text((start + end) / 2e9, place, name, fontsize=7.5, ha="center", va="center", clip_on=True, zorder=3)


def _draw_shares(axes: Axes, place: int, row: Row, length: int) -> None:
    """A polygon for each kind; kinds of one column are stacked, the first one below."""
    if not row.shares:
        return
    heights = np.array([np.where(share > 0, np.maximum(share, LEAST_HEIGHT), 0) for share in row.shares.values()])
    heights *= HEIGHT / np.maximum(heights.sum(axis=0), 1)
    tops = place + HEIGHT / 2 - heights.cumsum(axis=0)  # the axis points down
    edges = np.linspace(0, length / 1e9, COLUMNS + 1)
    for kind, height, top in zip(row.shares, heights, tops, strict=True):
        first = np.flatnonzero(np.concatenate([[True], (np.diff(height) != 0) | (np.diff(top) != 0)]))  # of a run
        height, top = height[first], top[first]
        style = STYLES[kind]
        axes.stairs(
            np.where(height > 0, top, np.nan), [*edges[first], edges[-1]], baseline=top + height, fill=True, lw=0,
            color=style.color, hatch=style.hatch, edgecolor=style.edge, zorder=2,
        )  # fmt: skip
