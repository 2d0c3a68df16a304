"""The roofline picture of an Estimate, drawn by matplotlib as PNG, SVG or PDF."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from roofmodel.estimate.rows import OperatorRow, alphabet, full_label, rows, with_letters
from roofmodel.numbers import units
from roofmodel.report import canvas, labels
from roofmodel.report.operator_names import kind
from roofmodel.roofline.panel import window
from roofmodel.steps.estimate import Estimate
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.workload_text import describe_parameters, describe_phase, describe_rate, describe_workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {
    "embedding": canvas.SKY,
    "stem": canvas.SKY,
    "stage": canvas.BLUE,
    "attention": canvas.BLUE,
    "mlp": canvas.ORANGE,
    "input": canvas.ORANGE,
    "norm": canvas.GREEN,
    "activation": canvas.GREEN,
    "residual": canvas.GREEN,
    "ssm": canvas.SKY,
    "linear": canvas.SKY,
    "convolution": canvas.RED,
    "bias": canvas.GREEN,
    "head": canvas.PURPLE,
    "communication": canvas.YELLOW,
    "optimizer": canvas.RED,
}
MARKERS = {"o": "●", "D": "◆", "s": "■", "^": "▲"}  # by phase and stage: for matplotlib, and as text
LARGEST, SMALLEST = 0.0265, 0.0265 * 6.5 / 9
"""The height of a line of the legend in type of 9 points and of 6.5, as a part of a picture's usual height."""
FIXED_HEIGHT = 0.18  # the part of the usual height that is not legend
Table = list[tuple[str, OperatorRow, str]]  # of a phase: letter, row, marker
LISTED = 0.02
"""The smallest share of a phase, of its bound or of its expected time, with which a row is in the legend."""
FOOT = "Filled marks are bounds, the least time that the ceilings allow. Size: share of the phase's bound."
EXPECTED_FOOT = " Hollow marks: expected time."


def draw(estimate: Estimate, path: Path, form: str) -> None:
    """Draw the estimate into a file; `form` is png, svg or pdf."""
    arch, device, dtype = estimate.architecture, estimate.device, estimate.workload.dtype
    top, vector = device.matmul_pipe(dtype), device.vector_pipe(dtype)
    whole = [_marked(i, rows(phase)) for i, phase in enumerate(estimate.phases)]
    tables = [[entry for entry in table if _is_listed(phase, entry[1])]
              for phase, table in zip(estimate.phases, whole, strict=True)]  # fmt: skip
    listed = {id(row) for table in tables for _, row, _ in table}
    marks = [
        (sign if id(row) in listed else "", row, marker)
        for table in whole
        for sign, row, marker in table
        if row.cost.flops
    ]
    at = [(row.cost.intensity, row.flops_per_second) for _, row, _ in marks]
    heading = f"{arch.name} on {device.name}"
    parameters = describe_parameters(estimate.parameters, estimate.active_parameters)
    subtitle = f"{parameters}, {describe_workload(estimate)}"
    lines = sum(len(table) + len({row.stage for _, row, _ in table}) + 1.7 for table in tables)
    lines += sum(2 + (phase.step.parallel.pp > 1) for phase in estimate.phases)  # communication, omitted rows, wait
    expected = [(x, row.cost.flops / row.expected if row.expected else None)
                for (x, _), (_, row, _) in zip(at, marks, strict=True)]  # fmt: skip
    drawn = [*at, *((x, y) for x, y in expected if y)]
    foot = FOOT + EXPECTED_FOOT * any(y for _, y in expected)
    height_factor = max(1, lines * SMALLEST + FIXED_HEIGHT)
    with canvas.picture(path, form, heading, subtitle, foot, height_factor) as (figure, axes):
        lower = [vector] if vector and vector.peak < top.peak else []
        canvas.frame(axes, *window(drawn, [(top.peak, device.bandwidth)]))
        slope = canvas.draw_ceilings(axes, device, top, lower)
        for (_, row, marker), (x, y), (_, slower) in zip(marks, at, expected, strict=True):
            size, color = 30 + 500 * row.share, COLORS[kind(row.group)]
            axes.scatter(x, y, s=size, color=color, marker=marker, alpha=0.8, edgecolor="white", lw=0.8, zorder=3)
            if slower:
                axes.plot([x, x], [slower, y], color=color, lw=0.8, alpha=0.5, zorder=2.5)
                axes.scatter(x, slower, s=size, facecolor="none", edgecolor=color, marker=marker, lw=1.2, zorder=3)
        canvas.draw_ceiling_names(axes, [slope], [(pipe, canvas.DEVICE_STYLES[0]) for pipe in (top, *lower)])
        signs = [(sign, x, y) for (sign, _, _), (x, y) in zip(marks, at, strict=True) if sign]
        labels.place(axes, signs, figure.dpi)
        _legend(
            figure,
            zip(estimate.phases, whole, strict=True),
            min(LARGEST, (height_factor - FIXED_HEIGHT) / lines),
            height_factor,
        )


def _marked(phase: int, found: list[OperatorRow]) -> Table:
    """Each row with its letter and the marker of its stage."""
    return [(sign, row, list(MARKERS)[alphabet(phase, row.stage)]) for sign, row in with_letters(phase, found)]


def _is_listed(phase: PhaseEstimate, row: OperatorRow) -> bool:
    """Whether the row has a line of its own in the legend; the collectives have one line together."""
    kernels = phase.kernel_seconds
    share = float(row.expected / kernels.value) if row.expected and kernels else 0.0
    return kind(row.group) != "communication" and max(row.share, share) >= LISTED


def _legend(figure: Figure, phases: Iterable[tuple[PhaseEstimate, Table]], line: float, height_factor: float) -> None:
    """The legend: for each phase its bound, then marker, letter, name, count and share of each row.

    `line` is the height of a line as a part of a picture's usual height; this picture is `rise` times as high.
    """
    left, right, y = 0.675, 0.985, 1 - 0.15 / height_factor
    size, step = 9 * line / LARGEST, line / height_factor
    for phase, table in phases:
        title = describe_phase(phase)
        figure.text(left, y, title, weight="bold", fontsize=min(size * 1.1, 400 / len(title)))
        y -= step
        bound = f"bound {units.seconds(phase.bound_seconds)}"
        figure.text(left, y, f"{bound}, {describe_rate(phase)}", color="0.3", fontsize=size)
        y -= step
        stage = ""
        for sign, row, marker in table:
            if not _is_listed(phase, row):
                continue
            if row.stage != stage:
                stage = row.stage
                figure.text(left, y, stage, weight="bold", fontsize=size)
                y -= step
            count = f" × {row.times}" if row.times > 1 else ""
            figure.text(left, y, MARKERS[marker], color=COLORS[kind(row.group)], fontsize=size)
            figure.text(left + 0.016, y, sign, weight="bold", fontsize=size)
            figure.text(left + 0.033, y, f"{full_label(row)}{count}", fontsize=size)
            figure.text(right, y, f"{row.share:.0%}", ha="right", fontsize=size)
            y -= step
        exchanged = [row for _, row, _ in table if kind(row.group) == "communication"]
        omitted = [row for _, row, _ in table if row not in exchanged and not _is_listed(phase, row)]
        if exchanged:
            text = f"communication × {sum(row.times for row in exchanged)}: no FLOPs, no mark"
            figure.text(left + 0.033, y, text, fontsize=size)
            figure.text(right, y, f"{sum(row.share for row in exchanged):.0%}", ha="right", fontsize=size)
            y -= step
        if omitted:
            text = f"{len(omitted)} rows under {LISTED:.0%} (bound and expected)"
            figure.text(left + 0.033, y, text, color="0.3", fontsize=size)
            figure.text(right, y, f"{sum(row.share for row in omitted):.0%}", ha="right", fontsize=size)
            y -= step
        if phase.step.parallel.pp > 1:
            figure.text(left + 0.033, y, "wait for other stages", fontsize=size)
            figure.text(right, y, f"{phase.idle.bound / phase.bound_seconds:.0%}", ha="right", fontsize=size)
            y -= step
        y -= step * 0.7
