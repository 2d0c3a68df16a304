"""The roofline picture of an Estimate, drawn by matplotlib as PNG, SVG or PDF."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roofmodel.devices.device import Device
from roofmodel.errors import Option, WorkloadError
from roofmodel.estimate.tables import OperatorRow, full_label, rows, with_letters
from roofmodel.numbers import units
from roofmodel.report import canvas, marks
from roofmodel.report.marks import SeriesStyle
from roofmodel.report.operator_names import kind
from roofmodel.roofline.panel import window
from roofmodel.steps.estimate import Estimate, describe_parameters, describe_phase, describe_rate, describe_workload
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.timing.roofline import has_sustained_rate, sustained_flops

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {
    "embedding": marks.SKY,
    "stem": marks.SKY,
    "stage": marks.BLUE,
    "attention": marks.BLUE,
    "mlp": marks.ORANGE,
    "input": marks.ORANGE,
    "norm": marks.GREEN,
    "activation": marks.GREEN,
    "residual": marks.GREEN,
    "ssm": marks.SKY,
    "linear": marks.SKY,
    "convolution": marks.RED,
    "bias": marks.GREEN,
    "projector": marks.PURPLE,
    "head": marks.PURPLE,
    "communication": marks.YELLOW,
    "optimizer": marks.RED,
}
LARGEST, SMALLEST = 0.0265, 0.0265 * 6.5 / 9
"""The height of a line of the legend in type of 9 points and of 6.5, as a part of a picture's usual height."""
LABEL_SIZE = 370  # the type of a name in the legend times its characters, so that the name ends before its share
FIXED_HEIGHT = 0.18  # the part of the usual height that is not legend
LISTED = 0.02
"""The smallest share of a phase, of its bound or of its expected time, with which a row is in the legend."""
FOOT = (
    "Bound: the least time that the ceilings allow. Size of a mark: share of the phase's bound. "
    "Rows with the same letter are close to each other."
)

SUSTAINED = " Dashed: GEMMs under long load."


class MarkedRow(NamedTuple):
    """A row with its letter and the style of its mark, which its phase and stage have, or else its kind."""

    letter: str
    row: OperatorRow
    style: SeriesStyle
    listed: bool  # has a line of its own in the legend


def draw(estimate: Estimate, path: Path, form: str) -> None:
    """Draw the estimate into a file; `form` is png, svg or pdf."""
    if not estimate.has_total:
        raise WorkloadError("unknown weight format, so there are no times to draw; give ", Option("weights", "int4"))
    arch, device, dtype = estimate.architecture, estimate.device, estimate.workload.dtype
    top, vector = device.matmul_pipe(dtype), device.vector_pipe(dtype)
    tables = _tables(estimate)
    marked_rows = [marked for table in tables for marked in table if marked.row.has_mark]
    at = [(row.kernels.intensity, row.flops_per_second) for _, row, *_ in marked_rows]
    expected = [
        (x, row.kernels.flops / row.expected if row.expected else None)
        for (x, _), (_, row, *_) in zip(at, marked_rows, strict=True)
    ]
    heading = f"{arch.name} on {device.name}"
    parameters = describe_parameters(estimate.parameters, estimate.active_parameters)
    subtitle = f"{parameters}, {describe_workload(estimate)}"
    lines = sum(sum(m.listed for m in table) + len({m.row.stage for m in table}) + 1.7 for table in tables)
    # communication, hidden communication, omitted rows, wait
    lines += sum(2 + bool(phase.hidden_bound) + (phase.step.parallel.pp > 1) for phase in estimate.phases)
    height_factor = max(1, lines * SMALLEST + FIXED_HEIGHT)
    is_sustained = has_sustained_rate(device, dtype)
    foot = FOOT + SUSTAINED * is_sustained
    with canvas.picture(path, form, heading, subtitle, foot, height_factor) as (figure, axes):
        lower = [vector] if vector and vector.peak < top.peak else []
        drawn = [*at, *((x, y) for x, y in expected if y)]
        canvas.frame(axes, *window(drawn, [(top.peak, device.bandwidth)]))
        slope = canvas.draw_ceilings(axes, device, top, lower)
        for (letter, row, style, _), (x, y), (_, slower) in zip(marked_rows, at, expected, strict=True):
            size, color, shape = marks.area(row.share, letter), style.color, style.shape
            axes.scatter(x, y, s=size, color=color, marker=shape, alpha=0.8, edgecolor="white", lw=0.8, zorder=3)
            if slower:
                axes.plot([x, x], [slower, y], color=color, lw=0.8, alpha=0.5, zorder=2.5)
                axes.scatter(x, slower, s=size, facecolor="none", edgecolor=color, marker=shape, lw=1.2, zorder=3)
        if is_sustained:
            rate = partial(sustained_flops, device=device, dtype=dtype)
            canvas.draw_sustained_ceiling(axes, _sustained_name(device), rate)
        canvas.draw_ceiling_names(axes, [slope], [(pipe, canvas.DEVICE_STYLES[0]) for pipe in (top, *lower)])
        largest = sorted(zip(marked_rows, at, strict=True), key=lambda entry: entry[0].row.share)
        places = {m.letter: place for m, place in largest if m.letter}
        canvas.place_labels(axes, places.items(), figure.dpi, _names_of_letters(tables))
        meanings = [canvas.mark_key("at its bound")]
        meanings += [canvas.mark_key("at its expected time", hollow=True)] * any(y for _, y in expected)
        meanings += [canvas.mark_key("without a letter", small=True)] * (
            not all(marked.letter for marked in marked_rows)
        )
        canvas.key(axes, meanings)
        _legend(
            figure,
            zip(estimate.phases, tables, strict=True),
            min(LARGEST, (height_factor - FIXED_HEIGHT) / lines),
            height_factor,
        )


def _names_of_letters(tables: Iterable[Iterable[MarkedRow]]) -> dict[str, str]:
    """What each letter stands for: the label of its largest row, and how many other labels it has."""
    rows_of: dict[str, list[OperatorRow]] = {}
    for marked in sorted((m for table in tables for m in table if m.letter), key=lambda m: -m.row.share):
        rows_of.setdefault(marked.letter, []).append(marked.row)
    names = {}
    for letter, own in rows_of.items():
        first, *others = dict.fromkeys(map(full_label, own))
        names[letter] = f"{first} and {len(others)} more" if others else first
    return names


def _sustained_name(device: Device) -> str:
    """`sustained at 700 W`; without power, `sustained`."""
    return f"sustained at {device.power.limit:.0f} W" if device.power else "sustained"


def _tables(estimate: Estimate) -> list[list[MarkedRow]]:
    """The rows of each phase.

    The largest row of each letter and of each shape is listed, so that the legend has every letter and shape.
    """
    tables = with_letters([rows(phase) for phase in estimate.phases])
    parts = list(dict.fromkeys((i, row.stage) for i, table in enumerate(tables) for _, row in table))
    largest = {letter: row for table in tables for letter, row in sorted(table, key=lambda entry: entry[1].share)}
    marked_tables = []
    for i, (phase, table) in enumerate(zip(estimate.phases, tables, strict=True)):
        entries = []
        for letter, row in table:
            color = COLORS[kind(row.group)]
            of_kind = SeriesStyle(color, marks.SHAPES[color])
            style = marks.series_style(parts.index((i, row.stage))) if len(parts) > 1 else of_kind
            listed = _is_listed(phase, row) or bool(letter and largest[letter] is row)
            entries.append(MarkedRow(letter, row, style, listed))
        of_style = {m.style: m for m in sorted(entries, key=lambda m: (m.listed, m.row.share)) if m.row.cost.flops}
        marked_tables.append([m._replace(listed=m.listed or of_style.get(m.style) is m) for m in entries])
    return marked_tables


def _is_listed(phase: PhaseEstimate, row: OperatorRow) -> bool:
    """Whether the row is large enough for a line of its own; the collectives have one line together."""
    kernels = phase.kernel_seconds
    share = float(row.expected / kernels.value) if row.expected and kernels else 0.0
    return kind(row.group) != "communication" and max(row.share, share) >= LISTED


def _legend(
    figure: Figure, phases: Iterable[tuple[PhaseEstimate, list[MarkedRow]]], line: float, height_factor: float
) -> None:
    """The legend: for each phase its bound, then marker, letter, name, count and share of each row.

    `line` is the height of a line as a part of a picture's usual height; this picture is `height_factor` times as high.
    """
    left, right, y = 0.675, 0.985, 1 - 0.15 / height_factor
    size, step = 9 * line / LARGEST, line / height_factor
    for phase, table in phases:
        title = describe_phase(phase)
        figure.text(left, y, title, weight="bold", fontsize=min(size * 1.1, 400 / len(title)))
        y -= step
        bound = f"bound {units.seconds(phase.bound_seconds)}"
        figure.text(left, y, f"{bound}, {describe_rate(phase)}", color="0.3", fontsize=size)
        figure.text(right, y, "share", color="0.3", ha="right", fontsize=size)
        y -= step
        stage = ""
        for letter, row, style, listed in table:
            if not listed:
                continue
            if row.stage != stage:
                stage = row.stage
                figure.text(left, y, stage, weight="bold", fontsize=size)
                y -= step
            count = f" × {row.times}" if row.times > 1 else ""
            if row.has_mark:
                figure.text(left, y, style.glyph, color=style.color, fontsize=size if letter else max(6.5, 0.7 * size))
            figure.text(left + 0.016, y, letter, weight="bold", fontsize=size)
            name = f"{full_label(row)}{count}"
            figure.text(left + 0.033, y, name, fontsize=min(size, LABEL_SIZE / len(name)))
            figure.text(right, y, f"{row.share:.0%}", ha="right", fontsize=size)
            y -= step
        exchanged = [m.row for m in table if kind(m.row.group) == "communication"]
        own = [m.row for m in table if not m.listed and m.row.seconds is not None]
        omitted = [row for row in own if row not in exchanged]
        if exchanged:
            text = f"communication × {sum(row.times for row in exchanged)}: no FLOPs, no mark"
            figure.text(left + 0.033, y, text, fontsize=size)
            figure.text(right, y, f"{sum(row.share for row in exchanged):.0%}", ha="right", fontsize=size)
            y -= step
        if phase.hidden_bound:
            figure.text(left + 0.033, y, "hidden communication", fontsize=size)
            figure.text(right, y, f"{-phase.hidden_bound / phase.bound_seconds:.0%}", ha="right", fontsize=size)
            y -= step
        if omitted:
            text = f"{units.count(len(omitted), 'row')} under {LISTED:.0%} (bound and expected)"
            figure.text(left + 0.033, y, text, color="0.3", fontsize=size)
            figure.text(right, y, f"{sum(row.share for row in omitted):.0%}", ha="right", fontsize=size)
            y -= step
        if phase.step.parallel.pp > 1:
            figure.text(left + 0.033, y, "wait for other stages", fontsize=size)
            figure.text(right, y, f"{phase.idle.bound / phase.bound_seconds:.0%}", ha="right", fontsize=size)
            y -= step
        y -= step * 0.7
