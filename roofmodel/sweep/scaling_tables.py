"""A scaling table in the terminal, and its picture: speed-up and efficiency against GPUs, expected and measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from roofmodel.errors import Option, WorkloadError
from roofmodel.numbers import units
from roofmodel.report import canvas
from roofmodel.report.columns import bare, fitting
from roofmodel.sweep.data import rows
from roofmodel.sweep.scaling_laws import LawFit, Scaling
from roofmodel.sweep.sweep import Sweep
from roofmodel.sweep.table import BOUND_NAMES

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXPENDABLE = ("bound by", "batch", "memory", "hidden", "replicas")
LAWS_OF_MODES = {"strong": "amdahl", "weak": "gustafson"}
LAW_NAMES = {"amdahl": "Amdahl", "gustafson": "Gustafson"}
COLORS = (canvas.BLUE, canvas.ORANGE, canvas.GREEN, canvas.PURPLE, canvas.RED, canvas.SKY)
CAPTION = (
    "Speed-up: rate / rate of one GPU{others}. Efficiency: speed-up / GPUs. "
    "Filled marks: expected. Open marks: measured."
)
VARYING = ("model", "hardware", "phase", "seq", "context", "dtype", "weights", "kv", "runtime", "tp", "dp", "pp")


class ScalingView:
    """The rows of a scaling table, the measured runs, and the serial fractions of the fitted laws."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        scaling = self.sweep.scaling
        assert scaling is not None
        found = list(rows(self.sweep))
        yield Text.assemble((heading(scaling, found), "bold"))
        names = varying(found, scaling)
        cells = [{**{name: str(row[name] or "") for name in names}, **_cells(row)} for row in found]
        measured = {run.gpus: run for run in scaling.measured}
        if measured:
            for row, texts in zip(found, cells, strict=True):
                run = measured.get(row["gpus"])
                time = "" if run is None or run.seconds is None else f"{units.seconds(run.seconds)}, "
                texts["measured"] = "" if run is None else f"{time}{run.efficiency:.1%}"
        if cells:
            titles = [title for title in cells[0] if any(row[title] for row in cells)]
            widths = {title: max(len(title), *(len(row[title]) for row in cells)) for title in titles}
            kept = fitting(widths, EXPENDABLE, options.max_width)
            table = bare()
            for title in kept:
                table.add_column(title, justify="left" if title in (*names, "bound by") else "right", no_wrap=True)
            for row in cells:
                table.add_row(*(row[title] for title in kept))
            yield table
        yield from (Text(line, style="dim") for line in remarks(scaling, found))


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """The results of a row as text; empty where unknown."""
    expected = row["expected_seconds"]
    seconds = row["bound_seconds"] if expected is None else expected
    kind = "" if expected is None else "expected_"
    exposed = row[f"{kind}communication_exposed_seconds"]

    def shown(value: float | None, form: Any) -> str:
        return "" if value is None else form(value)

    def time(value: float | None) -> str:
        return "" if not value else units.seconds(value)

    return {
        "GPUs": str(row["gpus"]),
        "batch": str(row["batch"]),
        "bound" if expected is None else "time": shown(seconds, units.seconds),
        "speed-up": shown(row["speedup"], lambda value: f"{value:.2f}"),
        "efficiency": shown(row["efficiency"], lambda value: f"{value:.1%}"),
        "exposed": time(exposed),
        "share": shown(row["communication_share"], lambda value: f"{value:.1%}"),
        "hidden": time(row["communication_hidden_seconds"]),
        "replicas": time(row["expected_replica_seconds"]),
        "memory": shown(row["memory_total"], units.binary) + "!" * (row["fits"] is False),
        "bound by": BOUND_NAMES.get(row["bound"], row["bound"] or ""),
    }


def heading(scaling: Scaling, found: Sequence[dict[str, Any]]) -> str:
    """`gpt2 · a100-sxm-80gb · train · weak scaling over dp`."""
    return " · ".join([*filter(None, [subtitle(found)]), f"{scaling.mode} scaling over {scaling.share}"])


def subtitle(found: Sequence[dict[str, Any]]) -> str:
    """The model, device and phase, where all rows have the same: `gpt2 · a100-sxm-80gb · train`."""
    return " · ".join(str(found[0][name]) for name in VARYING[:3] if len({row[name] for row in found}) == 1)


def varying(found: Sequence[dict[str, Any]], scaling: Scaling) -> list[str]:
    """The columns that distinguish curves."""
    return [name for name in VARYING if name != scaling.share and len({row[name] for row in found}) > 1]


def remarks(scaling: Scaling, found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The serial fractions, the meaning of columns, and the reasons of rows without results."""
    yield (
        "exposed: time of communication without overlap; share: exposed / time; hidden: time of communication that "
        "overlaps with the backward pass"
    )
    if any(row["expected_replica_seconds"] for row in found):
        yield (
            "replicas: copies of gradients into buckets, slowdown of the backward pass, and wait for the slowest GPU; "
            "the time includes them"
        )
    if any(row["fits"] is False for row in found):
        yield "! does not fit in the usable memory"
    yield from _replica_memory({row["zero"] for row in found if row["phase"] == "train" and (row["dp"] or 1) > 1})
    for of, law in sorted(scaling.fits, key=lambda each: (each[0] == "measured", not _suits(each[1], scaling.mode))):
        if of == "measured" or _suits(law, scaling.mode):
            yield f"{of}: {describe_fit(law, scaling.mode)}"
    yield from dict.fromkeys(f"– {row['note']}" for row in found if row["bound_seconds"] is None and row["note"])


def _replica_memory(stages: Collection[int]) -> Iterator[str]:
    """What each replica stores in training, with these stages of ZeRO; nothing for no stage."""
    if 0 in stages:
        without = f" without {Option('zero', 1)}" if 1 in stages else ""
        yield f"memory{without}: each of the --dp replicas stores all gradients and all of the optimizer state"
    if 1 in stages:
        sharded = f" with {Option('zero', 1)}" if 0 in stages else ""
        yield f"memory{sharded}: each of the --dp replicas stores all gradients; they shard the optimizer state"


def describe_fit(law: LawFit, mode: str) -> str:
    """`Amdahl's law: serial fraction 4.1 % (95 %: 3.2 % to 5.0 %)`, with a remark on values outside 0 to 100 %."""
    suited = next(name for name, its_law in LAWS_OF_MODES.items() if its_law == law.law)
    text = f"{LAW_NAMES[law.law]}'s law{'' if suited == mode else f' (for {suited} scaling)'}"
    text += f": serial fraction {law.serial_fraction:.2%}"
    interval = "one point, no interval"
    if law.low is not None and law.high is not None:
        interval = f"95 % interval {law.low:.2%} to {law.high:.2%}, {law.points} points"
    limits = impossible(law)
    return f"{text} ({interval})" + (f"; {limits}" if limits else "")


def impossible(law: LawFit) -> str:
    """What a serial fraction or an interval outside 0 to 100 % means; empty for one inside."""
    if law.serial_fraction > 1:
        return "above 100 %: slower than one GPU"
    if law.serial_fraction < 0:
        return "below 0 %: faster than ideal"
    if law.low is not None and law.high is not None and (law.low < 0 or law.high > 1):
        return "only 0 % to 100 % of the interval is possible"
    return ""


def _suits(law: LawFit, mode: str) -> bool:
    return law.law == LAWS_OF_MODES[mode]


# --- The picture ------------------------------------------------------------------------------------


def draw(sweep: Sweep, path: Path, form: str) -> None:
    """Draw speed-up and efficiency against GPUs into a file; `form` is png, svg or pdf."""
    scaling = sweep.scaling
    assert scaling is not None
    found = [row for row in rows(sweep) if row["speedup"] is not None]
    if not found:
        raise WorkloadError("no point has a time, so there is nothing to draw; see ", Option("gpus"))
    title = f"{scaling.mode.capitalize()} scaling over {scaling.share}"
    smallest = max(min(row["gpus"] for row in found), min((run.gpus for run in scaling.measured), default=1))
    others = f", or {smallest} x rate / rate of {smallest} GPUs" if smallest > 1 else ""
    with canvas.picture(path, form, title, subtitle(found), CAPTION.format(others=others)) as (figure, axes):
        axes.remove()
        panels = [figure.add_axes((0.07 + place * 0.35, 0.13, 0.28, 0.70)) for place in range(2)]
        _curves(panels, found, scaling)
        for place, (name, axes) in enumerate(zip(("speed-up", "efficiency"), panels, strict=True)):
            _frame(axes, name, scaling, [row["gpus"] for row in found], is_efficiency=bool(place))
        _legend(figure, panels[0])


def _curves(panels: Sequence[Axes], found: Sequence[dict[str, Any]], scaling: Scaling) -> None:
    curves: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in found:
        curves.setdefault(tuple(str(row[name]) for name in varying(found, scaling)), []).append(row)
    for place, (key, points) in enumerate(curves.items()):
        points = sorted(points, key=lambda row: row["gpus"])
        gpus, color = [row["gpus"] for row in points], COLORS[place % len(COLORS)]
        label = " ".join(["expected" if points[0]["expected_seconds"] is not None else "bound", *key])
        panels[0].plot(gpus, [row["speedup"] for row in points], marker="o", color=color, label=label, zorder=3)
        panels[1].plot(gpus, [100 * row["efficiency"] for row in points], marker="o", color=color, zorder=3)
    if scaling.measured:
        gpus = [run.gpus for run in scaling.measured]
        style: dict[str, Any] = {"marker": "s", "ls": "", "mfc": "white", "color": "0.1", "zorder": 4}
        panels[0].plot(gpus, [run.speedup for run in scaling.measured], label="measured", **style)
        panels[1].plot(gpus, [100 * run.efficiency for run in scaling.measured], **style)
    for of, law in scaling.fits:
        if _suits(law, scaling.mode) and (of == "measured" or not scaling.measured):
            last = max([row["gpus"] for row in found] + [run.gpus for run in scaling.measured])
            gpus = [last ** (step / 60) for step in range(61)]
            label = f"{LAW_NAMES[law.law]}, {of}:\nserial fraction {law.serial_fraction:.2%}"
            if law.low is not None and law.high is not None:
                label += f"\n(95 %: {law.low:.2%} to {law.high:.2%})"
            speedups = [law.speedup(n) for n in gpus]
            panels[0].plot(gpus, speedups, ls="--", color="0.35", lw=1.2, label=label)
            efficiencies = [100 * s / n for s, n in zip(speedups, gpus, strict=True)]
            panels[1].plot(gpus, efficiencies, ls="--", color="0.35", lw=1.2)


def _frame(axes: Axes, name: str, scaling: Scaling, gpus: Sequence[int], *, is_efficiency: bool) -> None:
    ticks = sorted({*gpus, *(run.gpus for run in scaling.measured)})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("GPUs")
    axes.set_title(f"{name}{' (%)' if is_efficiency else ''}", fontsize=10, loc="left")
    axes.grid(True, color="0.92", zorder=0)
    if is_efficiency:
        axes.axhline(100, color="0.6", lw=1)
        axes.set_ylim(0, max(105.0, axes.get_ylim()[1]))
    else:
        axes.plot([ticks[0], ticks[-1]], [ticks[0], ticks[-1]], color="0.6", lw=1, label="ideal")
        axes.set_yscale("log", base=2)
        axes.set_yticks(ticks, [str(n) for n in ticks])
        axes.set_yticks([], minor=True)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="upper left", bbox_to_anchor=(0.745, 0.86), fontsize=8.5, frameon=False)
