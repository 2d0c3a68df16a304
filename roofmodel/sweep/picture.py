"""Pictures of a sweep: rates against latencies with their Pareto front, the limiting ceiling, the cost per token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from roofmodel.errors import Option, WorkloadError
from roofmodel.numbers import units
from roofmodel.options.values import SERVE, SweepPicture, check_one_of
from roofmodel.report import canvas, marks
from roofmodel.report.marks import SeriesStyle
from roofmodel.sweep.case import LENGTHS, NAMED_OPTIONS, PARALLELISM_OPTIONS
from roofmodel.sweep.data import frame, rows
from roofmodel.sweep.scaling_laws import Scaling
from roofmodel.sweep.sweep import Sweep
from roofmodel.sweep.tables import BOUND_NAMES, SERVICE_OPTIONS
from roofmodel.sweep.titles import LAW_NAMES, TITLES, described, subtitle, suits, sweeps_power, varying_names

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS: tuple[str, ...] = get_args(SweepPicture)
CONFIGURATION = ("hardware", *NAMED_OPTIONS, *PARALLELISM_OPTIONS)
"""Columns that distinguish the series of a picture. The points of a front differ in these and in the batch."""
GPU_COUNTS = ("tp", "dp", "pp")
"""Columns whose product is the number of GPUs; --ep uses GPUs of --tp and --dp."""
TASK_COLUMNS = ("model", "new_tokens", "image")  # with the given lengths, distinguish tasks: a front per task
MAX_LEGEND_SERIES = 20  # series
MAX_MARKERS = 500  # points of a series; more are drawn as small dots
NEAR = 20  # pixels between marks that have one label
MAX_FRONTS = 6  # tasks of a panel with a front or a curve
MAX_PANELS = 6  # heat maps
MAX_CROSSES = 2000  # cells of a heat map; in larger ones a line encloses the cells that do not fit
LATENCY = {
    "prefill": "time to first token", "decode": "time per output token", "forward": "time of a pass",
    "generate": "time of prefill and decodes", "train": "time of a step",
}  # fmt: skip
CAPTIONS = {
    "rates": "Front, per model and lengths: points that no other batch, device, layout or format beats in both rate "
    "and latency.",
    "roofs": "Color: the ceiling that limits most of the bound time; paler if it limits little more than half. "
    "Launches: launch-bound, the host's launches take longer than the kernels.",
    "costs": "Dollars per hour / tokens per hour. Solid: at the expected rate. Dashed: at the bound, the lower limit.",
}
POWER_CAPTION = "Energies of a FLOP and a byte as at the file's limit: at lower limits rates are lower bounds."
LOADS = ("concurrency", "requests")
"""What the points of a curve of services differ in."""
FRONT_CAPTION = "A point is a number of requests in flight or a rate of arrivals; a curve is a layout with its formats."
SCALING_CAPTION = "Speed-up: rate / rate of one GPU{others}. Efficiency: speed-up / GPUs."


def check(kind: str | None, priced: bool, scaled: bool = False) -> None:
    """Raises WorkloadError for an unknown kind of picture, `costs` without prices, `scaling` without scaling."""
    if kind is not None:
        check_one_of("picture", kind, KINDS)
    if kind == "scaling" and not scaled:
        raise WorkloadError(
            Option("picture", "scaling"), " needs ", Option("scaling", "strong"), " or ", Option("scaling", "weak")
        )
    if kind == "costs" and not priced:
        raise WorkloadError(
            Option("picture", "costs"),
            " needs prices in dollars per hour: ",
            Option("price", "2.5"),
            ", or ",
            Option("price", "a100=1.5,h100=3"),
        )


def draw(sweep: Sweep, path: Path, form: str, kind: str | None = None) -> None:
    """Draw a sweep into a file; `form` is png, svg or pdf. Default kind: scaling if the sweep scales, power with
    several power limits, costs if tokens have prices, else rates."""
    if sweep.serving != (kind == "front") and kind is not None:
        given = Option("picture", kind)
        if sweep.serving:
            raise WorkloadError(
                given, " does not apply to ", Option("phase", SERVE), "; try ", Option("picture", "front")
            )
        raise WorkloadError(given, " needs ", Option("phase", SERVE))
    if sweep.serving:
        _draw_front(sweep, path, form)
        return
    if kind == "scaling" or (kind is None and sweep.scaling):
        _draw_scaling(sweep, path, form)
        return
    if kind == "power" or (kind is None and sweeps_power(sweep)):
        _draw_power(sweep, path, form)
        return
    table = frame(sweep, [
        "model", "phase", *CONFIGURATION, *LENGTHS, "new_tokens", "image", "bound_seconds", "expected_seconds", "bound",
        "bound_tokens_per_second", "tokens_per_second", "bound_images_per_second", "images_per_second", "memory_share",
        "communication_seconds", "bubble_seconds", "fits", "host_bound",
        "dollars_per_million_tokens", "bound_dollars_per_million_tokens",
    ])  # fmt: skip
    table = table[table["bound_seconds"].notna()].copy()
    if table.empty:
        raise WorkloadError("no point satisfies ", Option("where"), ", so there is nothing to draw")
    kind = kind or ("costs" if table["bound_dollars_per_million_tokens"].notna().any() else "rates")
    swept_lengths = [name for i, name in enumerate(LENGTHS) if any(len(case.lengths[i]) > 1 for case in sweep.cases)]
    heading = {"rates": "Rate against latency", "roofs": "Limiting ceiling", "costs": "Cost of tokens"}[kind]
    with canvas.picture(path, form, heading, described(sweep), CAPTIONS[kind]) as (figure, axes):
        axes.remove()
        {"rates": _rates, "roofs": _bounds, "costs": _costs}[kind](
            figure, table, [n for n in swept_lengths if n != "batch"]
        )


# --- Series and tasks -------------------------------------------------------------------------------


def _varying(table: pandas.DataFrame, columns: tuple[str, ...]) -> list[str]:
    return [name for name in columns if table[name].nunique() > 1]


def _series(table: pandas.DataFrame) -> dict[str, tuple[Any, SeriesStyle]]:
    """The points and the style of each configuration, by its name."""
    names = _varying(table, ("model", *CONFIGURATION))
    if not names:
        return {"": (table, marks.series_style(0))}
    groups = table.groupby(names, sort=False, dropna=False)
    return {_series_name(names, key): (group, marks.series_style(i)) for i, (key, group) in enumerate(groups)}


def _series_name(names: list[str], key: Any) -> str:
    """`a100-sxm-80gb fp16 weights int4`."""
    plain = ("model", "phase", "hardware", "dtype")
    values = zip(names, _tuple(key), strict=True) if names else ()
    return " ".join(
        _short_text(value) if name in plain else f"{TITLES[name]} {_short_text(value)}" for name, value in values
    )


def _tasks(table: pandas.DataFrame, lengths: list[str]) -> Iterator[tuple[str, pandas.DataFrame]]:
    """The points of each task, after a text of its varying lengths: at most MAX_FRONTS tasks, evenly spaced."""
    names = _varying(table, (*TASK_COLUMNS, *lengths))
    if not names:
        yield "", table
        return
    groups = list(table.groupby(names, sort=True, dropna=False))
    for place in np.unique(np.linspace(0, len(groups) - 1, MAX_FRONTS).round().astype(int)):
        key, group = groups[place]
        values = zip(names, _tuple(key), strict=True)
        yield (
            ", ".join(
                _short_text(value) if name == "model" else f"{name} {_short_text(value)}" for name, value in values
            ),
            group,
        )


def _tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _short_text(value: Any) -> str:
    """A whole number without a decimal point, a model without its organization."""
    return f"{value:.0f}" if isinstance(value, float) else str(value).rpartition("/")[2]


def front(latency: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """The indices of the Pareto front (lower latency, higher rate), by increasing latency."""
    order = np.lexsort((-rate, latency))
    best = np.maximum.accumulate(rate[order])
    first = np.concatenate(([True], best[1:] > best[:-1]))
    return order[first]


def _fits_memory(table: pandas.DataFrame) -> Any:
    """Whether each point fits the device memory; True where its capacity is unknown."""
    return table["fits"].map(lambda fits: fits is not False and fits != 0).to_numpy(dtype=bool)


def _panels(figure: Figure, count: int, edge: float, gap: float = 0.075) -> list[Axes]:
    """Axes side by side, between the left margin and the legend, whose left edge is `edge`."""
    width = (edge - 0.11 - gap * (count - 1)) / count
    return [figure.add_axes((0.085 + i * (width + gap), 0.11, width, 0.74)) for i in range(count)]


# --- Rates against latencies ------------------------------------------------------------------------


def _rates(figure: Figure, table: pandas.DataFrame, lengths: list[str]) -> None:
    has_expected = table["expected_seconds"].notna().all()
    kind, seconds = ("", "expected_seconds") if has_expected else ("bound_", "bound_seconds")
    unit = "images" if table["images_per_second"].notna().any() else "tokens"
    rate, phases = f"{kind}{unit}_per_second", list(table["phase"].unique())[:3]
    gpus = table[list(GPU_COUNTS)].fillna(1).astype(int).prod(axis=1)
    if several := bool((gpus > 1).any()):
        table[rate] = table[rate] / gpus  # layouts of different numbers of GPUs are comparable per GPU only
    series = _series(table)
    several_tasks = len(list(_tasks(table, lengths))) > 1
    remarks, launch_bound = ["line: front, with the batch at its end" + "s" * (not several_tasks)], False
    remarks += ["smaller marks are drawn on top"] * (len(series) > 1)
    fits_memory = _fits_memory(table)
    meanings = [(True, "fits in memory")] * bool(fits_memory.any()) + [(False, "does not fit")] * (
        not fits_memory.all()
    )
    edge = _edge(series, remarks)
    for phase, axes in zip(phases, _panels(figure, len(phases), edge), strict=True):
        for place, (points, style) in enumerate(series.values()):
            here = points[points["phase"] == phase]
            size = 16 * min(len(series) - place, 5)  # later series are drawn on top, so smaller
            for fits in (True, False):
                drawn = here[_fits_memory(here) == fits]
                look: dict[str, Any] = {"marker": style.shape, "zorder": 3}
                if len(drawn) <= MAX_MARKERS:
                    face = style.color if fits else "none"
                    axes.scatter(drawn[seconds], drawn[rate], s=size, facecolor=face, edgecolor=style.color, **look)
                else:
                    look |= {"color": style.color, "mfc": style.color if fits else "none"}
                    axes.plot(drawn[seconds], drawn[rate], ls="", ms=2, rasterized=True, **look)
        signs: dict[marks.Place, list[str]] = {}
        for words, task in _tasks(table[table["phase"] == phase], lengths):
            possible = task[_fits_memory(task)]
            if not possible.empty:
                best = possible.iloc[front(possible[seconds].to_numpy(), possible[rate].to_numpy())]
                axes.plot(best[seconds], best[rate], color="0.25", lw=1.2, zorder=2)
                for row in [best.iloc[0], best.iloc[-1]][-1 if words else -len(best) :]:
                    label = f"{words}: " * bool(words) + f"batch {_short_text(row['batch'])}"
                    signs.setdefault((row[seconds], row[rate]), []).append(label)
        canvas.log_axes(
            axes,
            LATENCY[phase] + (" (bound)" if kind else ""),
            f"{unit}/s" + " per GPU" * several,
            units.seconds,
            units.si,
        )
        axes.set_title(phase, fontsize=10, loc="left")
        launch_bound_points = table[(table["phase"] == phase) & table["host_bound"].eq(True)]
        for least in launch_bound_points[seconds].unique()[:MAX_FRONTS]:
            axes.axvline(least, color="0.6", lw=1, ls=":", zorder=1)
            launch_bound = True
        canvas.place_labels(axes, _labels(axes, signs), figure.dpi)
    if launch_bound:
        remarks += [
            "dotted: launch time of the host;",
            f"same on every device ({Option('engine_option', 'launch=graph')})",
        ]
    _legend(figure, series, edge, *remarks, meanings=meanings)


def _labels(axes: Axes, signs: dict[marks.Place, list[str]]) -> Iterator[tuple[str, marks.Place]]:
    """A label for each place, at most MAX_LETTERS; of three or more at one place the first, and a number."""
    apart: list[tuple[marks.Place, list[str]]] = []
    for place, words in signs.items():
        here = axes.transData.transform(place)
        near = next((w for other, w in apart if np.hypot(*(axes.transData.transform(other) - here)) < NEAR), None)
        if near is None:
            apart.append((place, words.copy()))
        else:
            near += words
    for place, words in apart[: marks.MAX_LETTERS]:
        yield "\n".join(words) if len(words) <= 2 else f"{words[0]}\nand {len(words) - 1} more", place


def _edge(series: Iterable[str], remarks: Iterable[str]) -> float:
    """The left edge of the legend: as wide as its longest line, at most a third of the figure."""
    longest = max(len(words) for words in (*series, *remarks))
    return min(max(0.675, 0.97 - 0.0072 * longest), 0.8)


def _legend(
    figure: Figure, series: dict[str, tuple[Any, SeriesStyle]], x: float, *remarks: str,
    meanings: Sequence[tuple[bool, str]] = (),
) -> None:  # fmt: skip
    """The first series, up to MAX_LEGEND_SERIES, the meaning of filled and hollow marks, and remarks."""
    y = 0.83
    for name, (_, style) in list(series.items())[:MAX_LEGEND_SERIES]:
        if name:
            figure.text(x, y, style.glyph, color=style.color, fontsize=10)
            figure.text(x + 0.017, y, name, fontsize=9)
            y -= 0.03
    for filled, meaning in meanings:
        figure.text(x, y - 0.01, "●" if filled else "○", color="0.35", fontsize=10)
        figure.text(x + 0.017, y - 0.01, meaning, color="0.35", fontsize=8.5)
        y -= 0.03
    if len(series) > MAX_LEGEND_SERIES:
        remarks = (f"and {len(series) - MAX_LEGEND_SERIES} more", *remarks)
    for remark in remarks:
        figure.text(x, y - 0.01, remark, color="0.35", fontsize=8.5)
        y -= 0.03


# --- Limiting ceilings ------------------------------------------------------------------------------


def _bounds(figure: Figure, table: pandas.DataFrame, lengths: list[str]) -> None:
    names = _varying(table, ("phase", "model", *CONFIGURATION))
    all_groups = list(table.groupby(names, sort=False, dropna=False)) if names else [("", table)]
    groups = all_groups[:MAX_PANELS]
    columns = {1: 1, 2: 2, 4: 2}.get(len(groups), 3)
    rows = -(-len(groups) // columns)
    signs = set()
    for place, (key, group) in enumerate(groups):
        row, column = divmod(place, columns)
        width, height = 0.88 / columns - 0.06, (0.83 - 0.13 * rows) / rows
        below = 0.13 + (rows - 1 - row) * (height + 0.13)
        axes = figure.add_axes((0.08 + column * 0.92 / columns, below, width, height))
        across, *others = sorted(lengths or ["seq"], key=lambda name: -group[name].nunique())
        for other in others:  # a heat map has one length: fix the others at their first value
            group = group[group[other] == group[other].iloc[0]]
        signs.add(_heat(axes, group, across))
        fixed = [f"{other} {_short_text(group[other].iloc[0])}" for other in others]
        axes.set_title(" ".join([_series_name(names, key), *fixed]), fontsize=9, loc="left")
    ceilings = [name for name in marks.CEILING_COLORS if table["bound"].eq(name).any()]
    figure.legend(
        handles=[canvas.bar_key(BOUND_NAMES.get(name, name), marks.CEILING_COLORS[name]) for name in ceilings],
        loc="upper right", bbox_to_anchor=(0.985, 0.975), ncols=4, frameon=False, fontsize=9,
    )  # fmt: skip
    if len(all_groups) > MAX_PANELS:
        figure.text(
            0.02,
            0.875,
            f"and {len(all_groups) - MAX_PANELS} more panels: sweep fewer values, or use -o FILE .csv",
            fontsize=9,
        )
    if signs := signs - {""}:
        words = f"{' or '.join(sorted(signs, reverse=True))}: does not fit in memory"
        figure.text(0.98, 0.91, words, fontsize=9, color="0.35", ha="right")


def _heat(axes: Axes, group: pandas.DataFrame, across: str) -> str:
    """Draw a cell per point in the color of its ceiling, paler the less of the time it limits.

    Returns the mark of cells that do not fit in memory: a cross, or a line around them if there are many cells.
    """
    from matplotlib.colors import to_rgb

    xs, ys = sorted(group[across].dropna().unique()) or [0], sorted(group["batch"].unique())
    image = np.ones((len(ys), len(xs), 3))
    column = np.searchsorted(xs, group[across].fillna(0))
    row = np.searchsorted(ys, group["batch"])
    sent, idle = (group[f"{name}_seconds"] / group["bound_seconds"] for name in ("communication", "bubble"))
    shares = {"memory": group["memory_share"], "communication": sent, "overhead": 1 + 0 * sent}
    shares["compute"] = 1 - group["memory_share"] - sent - idle
    for ceiling, color in marks.CEILING_COLORS.items():
        here = (group["bound"] == ceiling).to_numpy()
        opacity = (0.25 + 0.75 * np.clip(2 * shares[ceiling].to_numpy(float) - 1, 0, 1))[here, None]
        image[row[here], column[here]] = 1 - opacity * (1 - np.array(to_rgb(color)))
        _hatch(axes, column[here], row[here], (len(ys), len(xs)), marks.HATCHES[color])
    axes.imshow(image, origin="lower", aspect="auto", interpolation="nearest")
    out = ~_fits_memory(group)
    outlined = len(group) > MAX_CROSSES
    if not outlined:
        axes.plot(column[out], row[out], ls="", marker="x", color="0.1", ms=5, alpha=0.6)
    elif out.any():
        beyond = np.zeros((len(ys), len(xs)))
        beyond[row[out], column[out]] = 1
        window, around = (
            (*axes.get_xlim(), *axes.get_ylim()),
            np.pad(beyond, 1, mode="edge"),
        )  # contours need 2 columns
        cells = (np.arange(-1, size - 1) for size in around.shape[::-1])
        axes.contour(*cells, around, levels=[0.5], colors="0.1", linewidths=1.2)
        axes.axis(window)
    for axis, values in ((axes.xaxis, xs), (axes.yaxis, ys)):
        places = range(0, len(values), -(-len(values) // 8))
        axis.set_ticks(places, [units.significant(float(values[i]), 6) for i in places])
    axes.tick_params(labelsize=8)
    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel("batch", fontsize=9)
    return "" if not out.any() else "outlined" if outlined else "×"


def _hatch(axes: Axes, columns: np.ndarray, rows: np.ndarray, size: tuple[int, int], hatch: str) -> None:
    """Hatch cells of a heat map: each run of cells in a row is one rectangle."""
    from matplotlib.collections import PolyCollection

    cells = np.zeros((size[0], size[1] + 2), dtype=int)
    cells[rows, columns + 1] = 1
    edges = np.diff(cells, axis=1)
    runs = zip(*np.nonzero(edges == 1), np.nonzero(edges == -1)[1], strict=True)  # row, first column, column after it
    boxes = [[(a - 0.5, y - 0.5), (b - 0.5, y - 0.5), (b - 0.5, y + 0.5), (a - 0.5, y + 0.5)] for y, a, b in runs]
    if boxes and hatch:
        axes.add_collection(
            PolyCollection(boxes, facecolor="none", edgecolor=(0, 0, 0, 0.3), lw=0, hatch=hatch, zorder=1.5)
        )


# --- Costs ------------------------------------------------------------------------------------------


def _costs(figure: Figure, table: pandas.DataFrame, lengths: list[str]) -> None:
    table = table[table["bound_dollars_per_million_tokens"].notna()]
    if table.empty:
        raise WorkloadError(Option("picture", "costs"), ": no model of the sweep has tokens, so no cost per token")
    named_series = _series(table)
    table = table[_fits_memory(table)]
    tasks = list(_tasks(table, lengths))
    curves = {
        f"{name}, {words}".strip(", "): table.loc[table.index.isin(points.index) & table.index.isin(task.index)]
        for name, (points, _) in named_series.items()
        for words, task in tasks
    }
    drawn_curves = [(name, points) for name, points in curves.items() if len(points)]
    series = {name: (points, marks.series_style(i)) for i, (name, points) in enumerate(drawn_curves)}
    phases = list(table["phase"].unique())[:3]
    remarks = "— expected    - - lower limit", "points that do not fit are not shown"
    edge = _edge(series, remarks)
    for phase, axes in zip(phases, _panels(figure, len(phases), edge), strict=True):
        for points, style in series.values():
            here = points[points["phase"] == phase].sort_values("batch")
            for column, dashes in (("dollars_per_million_tokens", "-"), ("bound_dollars_per_million_tokens", "--")):
                axes.plot(here["batch"], here[column], color=style.color, ls=dashes, marker=style.shape, ms=4, lw=1.2)
        canvas.log_axes(
            axes, "batch", "dollars per million tokens", "{:g}".format, lambda value: f"${units.significant(value)}"
        )
        canvas.count_axis(axes.xaxis, table["batch"].unique())
        axes.set_title(phase, fontsize=10, loc="left")
    _legend(figure, series, edge, *remarks)


# --- Scaling ----------------------------------------------------------------------------------------


def _draw_power(sweep: Sweep, path: Path, form: str) -> None:
    """Draw rate and energy against the power limit into a file; `form` is png, svg or pdf."""
    of_points = ("model", "phase", *CONFIGURATION, *LENGTHS)
    results = ("power_limit_watts", "power_watts", "tokens_per_second", "images_per_second")
    table = frame(sweep, [*of_points, *results])
    table = table[table["power_limit_watts"].notna() & table["power_watts"].notna()].copy()
    if table.empty:
        raise WorkloadError("no point has a power limit and a power; see ", Option("power_limit", "300W:700W:100W"))
    unit = "image" if table["images_per_second"].notna().any() else "token"
    table["rate"] = table[f"{unit}s_per_second"].astype(float)
    gpus = table[list(GPU_COUNTS)].fillna(1).astype(int).prod(axis=1)
    table["joules"] = table["power_watts"].astype(float) * gpus / table["rate"]
    names = _varying(table, of_points)
    groups = [*table.groupby(names, sort=False, dropna=False)] if names else [((), table)]
    with canvas.picture(path, form, "Rate and energy by power limit", described(sweep), POWER_CAPTION) as (
        figure,
        axes,
    ):
        axes.remove()
        panels = [figure.add_axes((0.07 + place * 0.35, 0.13, 0.28, 0.70)) for place in range(2)]
        for place, (key, points) in enumerate(groups[:MAX_LEGEND_SERIES]):
            points, style = points.sort_values("power_limit_watts"), marks.series_style(place)
            look: dict[str, Any] = {"marker": style.shape, "color": style.color}
            for column, panel in zip(("rate", "joules"), panels, strict=True):
                panel.plot(points["power_limit_watts"], points[column], label=_series_name(names, key), **look)
        for panel, label in zip(panels, (f"{unit}s/s", f"J per {unit}, all GPUs"), strict=True):
            panel.set_xlabel("power limit (W)")
            panel.set_title(label, fontsize=10, loc="left")
            panel.set_ylim(bottom=0)
            panel.yaxis.set_major_formatter(lambda value, _: units.si(value, digits=2) if value else "0")
        if names:
            _scaling_legend(figure, panels[0])


def _draw_front(sweep: Sweep, path: Path, form: str) -> None:
    """Draw the rate per GPU against the rate per user into a file, a curve per layout and formats."""
    of_points = ("model", *CONFIGURATION, *(name for name in SERVICE_OPTIONS if name not in LOADS))
    rates = ("tokens_per_second_per_user", "output_tokens_per_second_per_gpu")
    table = frame(sweep, [*of_points, *LOADS, *rates])
    table = table[table[rates[0]].notna()].copy()
    if table.empty:
        raise WorkloadError("no point has a rate, so there is nothing to draw; see ", Option("hw"))
    names = _varying(table, of_points)
    groups = [*table.groupby(names, sort=False, dropna=False)] if names else [((), table)]
    with canvas.picture(path, form, "Throughput against speed per user", described(sweep), FRONT_CAPTION) as (
        figure,
        axes,
    ):
        signs: list[tuple[str, tuple[float, float]]] = []
        for place, (key, points) in enumerate(groups[:MAX_LEGEND_SERIES]):
            points, style = points.sort_values(rates[0]), marks.series_style(place)
            axes.plot(
                points[rates[0]], points[rates[1]], marker=style.shape, ms=6, lw=1.2, color=style.color,
                label=_series_name(names, key),
            )  # fmt: skip
            ends = {*points.index[[0, -1]]}
            signs += [(_load(row), (row[rates[0]], row[rates[1]])) for index, row in points.iterrows() if index in ends]
        canvas.log_axes(axes, "tokens/s per user (1 / TPOT)", "output tokens/s per GPU", units.si, units.si)
        canvas.place_labels(axes, signs, figure.dpi)
        if names:
            _scaling_legend(figure, axes)


def _load(row: Any) -> str:
    """`64 in flight`, or `5/s`."""
    in_flight = row["concurrency"]
    return f"{row['requests']:g}/s" if in_flight is None or in_flight != in_flight else f"{in_flight:.0f} in flight"


def _draw_scaling(sweep: Sweep, path: Path, form: str) -> None:
    """Draw speed-up and efficiency against GPUs into a file; `form` is png, svg or pdf."""
    scaling = sweep.scaling
    assert scaling is not None
    timed_rows = [row for row in rows(sweep) if row["speedup"] is not None]
    if not timed_rows:
        raise WorkloadError("no point has a time, so there is nothing to draw; see ", Option("gpus"))
    title = f"{scaling.mode.capitalize()} scaling over {scaling.share}"
    smallest = max(min(row["gpus"] for row in timed_rows), min((run.gpus for run in scaling.measured), default=1))
    others = f", or {smallest} x rate / rate of {smallest} GPUs" if smallest > 1 else ""
    with canvas.picture(path, form, title, subtitle(timed_rows), SCALING_CAPTION.format(others=others)) as (
        figure,
        axes,
    ):
        axes.remove()
        panels = [figure.add_axes((0.07 + place * 0.35, 0.13, 0.28, 0.70)) for place in range(2)]
        _scaling_curves(panels, timed_rows, scaling)
        for place, (name, axes) in enumerate(zip(("speed-up", "efficiency"), panels, strict=True)):
            _scaling_frame(axes, name, scaling, [row["gpus"] for row in timed_rows], is_efficiency=bool(place))
        _scaling_legend(figure, panels[0])


def _scaling_curves(panels: Sequence[Axes], timed_rows: Sequence[dict[str, Any]], scaling: Scaling) -> None:
    curves: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    batches = {id(row): _scaled_batch(row, scaling) for row in timed_rows}
    several = len(set(batches.values())) > 1
    for row in timed_rows:
        names = [str(row[name]) for name in varying_names(timed_rows, scaling)] + [batches[id(row)]] * several
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


def _scaled_batch(row: dict[str, Any], scaling: Scaling) -> str:
    """The batch of a curve: it grows with the GPUs in weak scaling."""
    return f"batch {row['batch']}" if scaling.mode == "strong" else f"batch {row['batch'] // row['gpus']} per GPU"


def _scaling_frame(axes: Axes, name: str, scaling: Scaling, gpus: Sequence[int], *, is_efficiency: bool) -> None:
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


def _scaling_legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="upper left", bbox_to_anchor=(0.745, 0.86), fontsize=8.5, frameon=False)
