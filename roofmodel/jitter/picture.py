"""The comparison of ranks as a picture: deviation by kernel of one step, by step, and by rank and step."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from roofmodel.jitter.jitter import Jitter
from roofmodel.jitter.reduced_steps import StepCurves
from roofmodel.jitter.tables import TOOLS
from roofmodel.numbers import units
from roofmodel.report import canvas, marks
from roofmodel.roofline.categories import category

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 1.5  # of the figure, relative to other pictures
MAX_GRAY = 64  # ranks that are drawn in gray
LATE_GRAY = 12  # the latest ones among them; the others are a sample
MAX_MAP_ROWS = 160  # of the heat map: a row is at least two pixels high
NUMBERED = (16, 8)  # at most so many rows and steps have their values in the cells
MAX_LABELS = 5  # ranks that are named next to the heat map
LABEL_HEIGHT = 0.05  # of such a name, relative to the heat map
NAMED = 0.5  # share of the largest mean deviation from which a rank is named
MAX_TICKS = 12
STEP_CHARACTERS = 36  # of all step numbers below a chart
MAX_STEP_LABELS = 16
MARKS = 12  # of a curve
KEY_COLUMNS = 3
SPARSE = 3  # numbers per step from which steps are drawn at equal distances
LEAST = 1e-9  # seconds; smaller deviations are 0
LINE_LENGTH = 170  # characters of a finding
EARLIEST, LATEST = marks.BLUE, marks.RED


def draw(jitter: Jitter, path: Path, form: str, with_findings: bool = True) -> None:
    """Write the picture in the format `form` (png, svg, pdf), with the findings below it. Raises OSError."""
    files = ", ".join([*jitter.names.values()][:2]) + (" …" if len(jitter.files) > 2 else "")
    heading = f"Which rank is late: {files}"
    about = (
        f"deviation from the mean over {units.count(len(jitter.ranks), 'rank')} · "
        f"{units.count(len(jitter.steps), 'step')} · {TOOLS.get(jitter.tool, jitter.tool)}"
    )
    foot = (
        "Time to the end of a kernel: sum of gaps and durations, collectives with duration 0. Lower left: the same "
        "step, without collectives."
    )
    if (size := _ranks_per_row(len(jitter.ranks))) > 1:
        foot += (
            f" Heat map: each row shows {size} ranks by their deviation with the largest absolute value; the ranks "
            "with the largest mean deviation are named."
        )
    with canvas.picture(path, form, heading, about, foot, HEIGHT) as (figure, axes):
        lines = [
            line
            for number, finding in enumerate(jitter.findings[:4] if with_findings else (), 1)
            for line in textwrap.wrap(f"{number}. {finding}", LINE_LENGTH)
        ]
        bottom = 0.045 + 0.019 * len(lines)
        middle = bottom + 0.045
        height = 0.9 - middle
        upper, lower = middle + height * 0.56, middle + 0.01
        tall = height * 0.38
        axes.set_position((0.09, upper, 0.4, tall))
        curves = jitter.curves
        split = 0.36 * tall if curves is not None and curves.deviations.launch_to_start is not None else 0.0
        if curves is not None:
            _time_to_end(axes, curves, jitter.threshold)
            _parts_of_two_ranks(figure, curves, (0.09, lower, 0.4, tall), split)
        _by_step(figure.add_axes((0.58, upper, 0.39, tall)), jitter)
        for each in figure.axes:
            _scale_zeros(each)
        _heat_map(figure, figure.add_axes((0.58, lower, 0.31, tall)), jitter)
        for place, line in enumerate(lines):
            figure.text(0.02, bottom - 0.019 * (place + 1) + 0.012, line, fontsize=8)


def _style(axes: Axes, title: str, across: str) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(across, fontsize=9)
    axes.yaxis.set_major_formatter(lambda value, _: units.signed_seconds(value))
    axes.grid(True, axis="y", which="major", color="0.92", zorder=0)
    axes.locator_params(axis="x", integer=True)
    axes.tick_params(labelsize=8)


def _scale_zeros(axes: Axes) -> None:
    """Scale axes whose values are all 0 to a microsecond; matplotlib scales them to 50 ms."""
    siblings = axes.get_shared_y_axes().get_siblings(axes)
    if max(np.abs(each.dataLim.intervaly).max() for each in siblings) < LEAST:
        axes.set_ylim(-1e-6, 1e-6)


def _time_to_end(axes: Axes, curves: StepCurves, threshold: float) -> None:
    deviations = curves.deviations
    _style(axes, f"time to the end of each kernel, step {curves.step}", "kernel")
    others = [
        place for place in deviations.lateness.argsort()[::-1] if place not in (deviations.earliest, deviations.latest)
    ]
    for place in others[:LATE_GRAY] + others[LATE_GRAY :: max(1, len(others) // MAX_GRAY)]:
        axes.plot(deviations.times_to_end[place], color="0.85", linewidth=0.6, zorder=1)
    every = max(1, deviations.times_to_end.shape[1] // MARKS)
    for place, color, which in ((deviations.earliest, EARLIEST, "earliest"), (deviations.latest, LATEST, "latest")):
        label, shape = f"rank {curves.ranks[place]} ({which})", marks.SHAPES[color]
        axes.plot(
            deviations.times_to_end[place], color=color, lw=1.3, marker=shape, ms=4, markevery=every, label=label,
            zorder=3,
        )  # fmt: skip
    axes.axvline(deviations.last, color="0.5", linewidth=0.8, linestyle=":", label="before the last collective")
    diverges = deviations.diverges_at(deviations.latest, threshold)
    if diverges is not None:
        axes.axvline(diverges, color=LATEST, linewidth=0.8, linestyle="--", label=f"late by {units.seconds(threshold)}")
    if others:
        axes.plot([], [], color="0.85", linewidth=1, label="other ranks")
    _key_below_title(axes)


def _parts_of_two_ranks(
    figure: Figure, curves: StepCurves, box: tuple[float, float, float, float], split: float
) -> None:
    """The parts of the deviations of the latest rank and, at its right, of the earliest; equal scales.

    `split` is the height of the axes for the launch to start; 0 if it is unknown.
    """
    left, bottom, width, height = box
    ranks = {"latest": curves.deviations.latest, "earliest": curves.deviations.earliest}
    shared: list[Axes | None] = [None, None]
    for column, (which, place) in enumerate(ranks.items()):
        at = left + column * width * 0.52
        axes = figure.add_axes((at, bottom + split, width * 0.48, height - split), sharey=shared[0])
        below = figure.add_axes((at, bottom, width * 0.48, split - 0.02), sharey=shared[1]) if split else None
        _parts(axes, below, curves, place)
        axes.set_title(f"rank {curves.ranks[place]} ({which}), by kernel", fontsize=9, loc="left", pad=17)
        drawn = [each for each in (axes, below) if each is not None]
        if column == 0:
            handles = [handle for each in drawn for handle in each.get_legend_handles_labels()[0]]
            canvas.key(axes, handles, fontsize=7, columns=KEY_COLUMNS)
            shared = [axes, below]
        else:
            for each in drawn:
                each.tick_params(labelleft=False)


def _parts(axes: Axes, below: Axes | None, curves: StepCurves, rank: int) -> None:
    """Durations and gaps of a rank, which sum to its deviation, and on axes of their own launch to start.

    Collectives, and kernels after the last one before which ranks are compared, are left out: the latest rank waits
    least in a collective, and this difference would hide its cause.
    """
    deviations = curves.deviations
    _style(axes, "", "kernel")
    hidden = np.array([category(name) == "communication" for name in curves.names], dtype=bool)
    hidden |= np.arange(len(hidden)) > deviations.last
    parts = [("gap", deviations.gaps, marks.ORANGE), ("duration", deviations.durations, marks.GREEN)]
    drawn = [(axes, *part) for part in parts]
    if below is not None and deviations.launch_to_start is not None:
        _style(below, "", "kernel")
        axes.tick_params(labelbottom=False)
        axes.set_xlabel("")
        drawn.append((below, "launch to start", deviations.launch_to_start, marks.PURPLE))
    for place, (where, label, values, color) in enumerate(drawn):
        every = max(1, values.shape[1] // MARKS)
        where.plot(
            np.where(hidden, np.nan, values[rank]), color=color, lw=0.9, marker=marks.SHAPES[color], ms=4,
            markevery=(place * every // 3, every), label=label, zorder=3 - place,
        )  # fmt: skip
        where.set_xlim(-0.02 * len(hidden), len(hidden) * 1.02)
        where.margins(y=0.15)


def _key_below_title(axes: Axes) -> None:
    """The legend between the title and the axes, where it covers no data."""
    handles = axes.get_legend_handles_labels()[0]
    canvas.key(axes, handles, fontsize=7, columns=KEY_COLUMNS)
    lines = -(-len(handles) // KEY_COLUMNS)
    axes.set_title(axes.get_title(loc="left"), fontsize=10, loc="left", pad=6 + 11 * lines)


def _by_step(axes: Axes, jitter: Jitter) -> None:
    _style(axes, "earliest and latest rank of each step", "step")
    numbers = [step.step for step in jitter.steps]
    if numbers[-1] - numbers[0] >= SPARSE * len(numbers):  # at equal distances, or the marks cover each other
        _ticks(axes, numbers)
        numbers = list(range(len(numbers)))
    every = -(-len(numbers) // MAX_STEP_LABELS)
    for color, values, ranks in (
        (LATEST, [s.latest_seconds for s in jitter.steps], [s.latest_rank for s in jitter.steps]),
        (EARLIEST, [s.earliest_seconds for s in jitter.steps], [s.earliest_rank for s in jitter.steps]),
    ):
        axes.vlines(numbers, 0, values, color=color, linewidth=1)
        axes.plot(numbers, values, marks.SHAPES[color], color=color, markersize=5)
        for number, value, rank in list(zip(numbers, values, ranks, strict=True))[::every]:
            offset: Any = (0, 4 if value >= 0 else -10)
            axes.annotate(str(rank), (number, value), offset, textcoords="offset points", fontsize=6, ha="center")
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.margins(y=0.15)


def _heat_map(figure: Figure, axes: Axes, jitter: Jitter) -> None:
    title, values = "deviation by rank and step", jitter.lateness.T
    ranks = len(values)
    size = _ranks_per_row(ranks)
    title += f", largest of {size} ranks" * (size > 1) + " (gray: no value)" * bool(np.isnan(values).any())
    axes.set_title(title, fontsize=10, loc="left")
    limit = float(np.nanmax(np.abs(values))) or 1e-9
    shown = largest_deviations(values, size)
    axes.set_facecolor("0.8")  # of ranks without a value: white is the center of the map
    image = axes.imshow(
        shown, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest",
        rasterized=True, extent=(-0.5, values.shape[1] - 0.5, len(shown) * size - 0.5, -0.5),
    )  # fmt: skip
    axes.set_ylim(ranks - 0.5, -0.5)
    if len(shown) <= NUMBERED[0] and shown.shape[1] <= NUMBERED[1]:  # in gray, both ends of the map are dark
        for (row, step), value in np.ndenumerate(shown):
            dark = abs(value) > 0.6 * limit
            axes.text(
                step, row, "" if np.isnan(value) else units.signed_seconds(value), ha="center", va="center", fontsize=6,
                color="white" if dark else "0.1",
            )  # fmt: skip
    numbers = [rank.rank.number for rank in jitter.ranks]
    _ticks(axes, [step.step for step in jitter.steps], numbers)
    if ranks > MAX_TICKS:
        for first, last in latest_ranks(values):
            text = str(numbers[first]) if first == last else f"{numbers[first]}–{numbers[last]}"
            axes.annotate(
                text, (1, (first + last) / 2), (3, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points",
                fontsize=7, color=LATEST, va="center",
            )  # fmt: skip
    left, bottom, width, height = axes.get_position().bounds
    bar = figure.colorbar(image, cax=figure.add_axes((left + width + 0.045, bottom, 0.012, height)))
    low, high = min(0.0, float(np.nanmin(shown))), max(0.0, float(np.nanmax(shown)))
    if low < high:
        bar.ax.set_ylim(low, high)
    bar.ax.yaxis.set_major_formatter(lambda value, _: units.signed_seconds(value))
    bar.ax.tick_params(labelsize=7)


def _ranks_per_row(ranks: int) -> int:
    return -(-ranks // MAX_MAP_ROWS)


def largest_deviations(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Of each `size` ranks the largest absolute value, with its sign: ranks x steps to rows x steps.

    A mean would hide a single late rank. NaN if no rank of a row has the step.
    """
    if size == 1:
        return values
    rows = -(-len(values) // size)
    padded = np.full((rows * size, values.shape[1]), np.nan)
    padded[: len(values)] = values
    grouped = padded.reshape(rows, size, -1)
    distances = np.nan_to_num(np.abs(grouped), nan=-1.0)
    return np.asarray(np.take_along_axis(grouped, distances.argmax(axis=1)[:, None], axis=1)[:, 0])


def latest_ranks(deviations: NDArray[np.float64]) -> list[tuple[int, int]]:
    """The first and last place of groups of consecutive late ranks; `deviations` are ranks x steps.

    These ranks have the largest mean deviations, at least NAMED of the largest one. At most MAX_LABELS groups, and none
    whose name would cover another name.
    """
    present = ~np.isnan(deviations)
    means = np.nansum(deviations, axis=1) / np.maximum(present.sum(axis=1), 1)
    if means.max() <= 0:
        return []
    late = np.flatnonzero(means >= NAMED * means.max())
    groups = [(int(group[0]), int(group[-1])) for group in np.split(late, np.flatnonzero(np.diff(late) > 1) + 1)]
    groups.sort(key=lambda group: means[group[0] : group[1] + 1].max(), reverse=True)
    shown_groups: list[tuple[int, int]] = []
    for group in groups:
        if all(abs(sum(group) - sum(other)) / 2 > LABEL_HEIGHT * len(means) for other in shown_groups):
            shown_groups.append(group)
    return shown_groups[:MAX_LABELS]


def _ticks(axes: Axes, steps: list[int], ranks: Sequence[int] = ()) -> None:
    for places, labels, name in ((axes.set_xticks, steps, "step"), (axes.set_yticks, ranks, "rank")):
        if not labels:
            continue
        longest = max(len(str(label)) for label in labels)
        most = MAX_TICKS if name == "rank" else min(MAX_TICKS, STEP_CHARACTERS // longest)
        every = -(-len(labels) // max(1, most))
        chosen = list(range(0, len(labels), every))
        places(chosen, [str(labels[place]) for place in chosen], fontsize=8)
        (axes.set_xlabel if name == "step" else axes.set_ylabel)(name, fontsize=9)
