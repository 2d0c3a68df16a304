"""An Estimate in a terminal: the answers first, then a table per phase, on request with every operator and a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from roofmodel.counting.operator import Cost
from roofmodel.errors import Option
from roofmodel.estimate.rows import (
    OperatorRow,
    alphabets,
    full_label,
    group_rows,
    replica_rows,
    rows,
    signed_seconds,
    with_letters,
)
from roofmodel.estimate.summary import Answer, summary
from roofmodel.estimate.text import describe_remarks
from roofmodel.numbers import units
from roofmodel.report import chart
from roofmodel.report.columns import Cell, bar, stacked
from roofmodel.report.operator_names import kind, title
from roofmodel.steps.estimate import Estimate
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.workload_text import describe_parameters, describe_phase, describe_workload
from roofmodel.timing.links import route
from roofmodel.timing.roofline import ridge

STYLES = {
    "embedding": "cyan",
    "stem": "cyan",
    "stage": "blue",
    "attention": "blue",
    "ssm": "bright_blue",
    "linear": "bright_blue",
    "convolution": "red",
    "mlp": "yellow",
    "input": "yellow",
    "norm": "green",
    "activation": "green",
    "residual": "green",
    "bias": "green",
    "head": "magenta",
    "communication": "bright_red",
    "optimizer": "red",
}
BAR, WIDTH_WITHOUT_BAR = 16, 82  # columns of the share's bar, and of a table without it


class EstimateView:
    """Renders an Estimate with rich: `console.print(EstimateView(estimate))`.

    `ops`: a row per operator instead of one per group. `roofline`: the tables' rows in a roofline chart as well.
    `hint`: a last line with the options of the command line that show more.
    """

    def __init__(self, estimate: Estimate, *, ops: bool = False, roofline: bool = False, hint: bool = False) -> None:
        self.estimate = estimate
        self.ops = ops
        self.roofline = roofline
        self.hint = hint

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        estimate, width = self.estimate, options.max_width
        yield Text.assemble((estimate.architecture.name, "bold"), " on ", (estimate.device.name, "bold"))
        yield _grid(_answer(answer) for answer in summary(estimate))
        yield Text()
        yield _grid(_setting(estimate, width))
        marks: list[chart.Mark] = []
        for i, phase in enumerate(estimate.phases):
            found = with_letters(i, rows(phase) if self.ops else group_rows(phase))
            shown = found if self.roofline else [("", row) for _, row in found]
            yield Text()
            yield Text(describe_phase(phase), style="bold")
            yield from _table(phase, shown, width, self.ops)
            yield from (Text(remark, style="dim") for remark in describe_remarks(estimate, phase))
            marks += [
                chart.Mark(letter, f"bold {STYLES[kind(row.group)]}", row.cost.intensity, row.flops_per_second)
                for letter, row in found
                if letter
            ]
        if self.roofline:
            yield Text()
            yield from _roofline(estimate, marks, width)
        if self.hint:
            more = [f"{Option('ops')} (every operator)"] * (not self.ops) + [f"{Option('roofline')} (chart)"] * (
                not self.roofline
            )
            yield Text()
            yield Text(f"more: {' · '.join([*more, '-o FILE.png (picture) or .html'])}", style="dim")


def _grid(lines: Iterator[tuple[str, RenderableType]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", min_width=11)
    grid.add_column(overflow="fold")
    for label, text in lines:
        grid.add_row(label, text)
    return grid


def _answer(answer: Answer) -> tuple[str, Text]:
    """An answer with its expected time and its verdict on memory in color."""
    text = Text(answer.text)
    text.highlight_regex(r"[\d.]+ \S+(?= expected)|launch-bound", "bold")
    text.highlight_regex(r"\bfits\b", "bold green")
    text.highlight_regex(r"\bdoes not fit\b", "bold red")
    return answer.label, text


def _setting(estimate: Estimate, width: int) -> Iterator[tuple[str, RenderableType]]:
    """What was estimated: the model, the workload, and the device with its ceilings."""
    arch, device, dtype = estimate.architecture, estimate.device, estimate.workload.dtype
    size = describe_parameters(estimate.parameters, estimate.active_parameters)
    one_line = f"{arch.head.name} · {size}"
    yield "model", one_line if len(one_line) <= width - 13 else f"{arch.head.name}\n{size}"
    yield "workload", f"batch {estimate.workload.batch} · {describe_workload(estimate)}"
    pipe, links = device.matmul_pipe(dtype), " and ".join(_links(estimate))
    yield (
        "ceilings",
        f"{device.id}: {units.si(pipe.peak, 'FLOP/s', 4)} ({pipe.name}), {units.si(device.bandwidth, 'B/s', 4)} DRAM, "
        f"ridge point {units.significant(ridge(device, dtype))} FLOP/B"
        + (f"; links, each direction: {links}" if links else ""),
    )


def _links(estimate: Estimate) -> Iterator[str]:
    """`450 GB/s nvlink`: each link that the collectives use, with its bandwidth in one direction."""
    links = (
        link
        for phase in estimate.phases
        for each in phase.exchanges
        if (collective := each.operator.collective) and (way := route(collective, estimate.device))
        for link in way.links(estimate.device)
    )
    for link in dict.fromkeys(links):
        yield f"{units.si(link.bandwidth / 2, 'B/s', 4)} {link.label}"


# --- The table of a phase -------------------------------------------------------------------------

TITLES = ("FLOPs", "bytes", "FLOP/B", "bound by", "bound", "share", "expected")
OPERATOR_TITLES, GROUP_TITLES = ("", "operator", "×", *TITLES), ("", "group", "ops", *TITLES)
EXPENDABLE = ("bound by", "FLOP/B", "×", "ops", "bytes", "FLOPs", "expected")
"""Columns that a narrow terminal leaves out, in this order."""


def _table(
    phase: PhaseEstimate, found: list[tuple[str, OperatorRow]], width: int, ops: bool
) -> Iterator[RenderableType]:
    """The table of a phase, and the names of columns that the terminal is too narrow for; bars are left out first."""
    titles, left = OPERATOR_TITLES if ops else GROUP_TITLES, ("", "operator", "group", "bound by", "share")
    hidden: list[str] = []
    for columns in (BAR, 0) if width >= WIDTH_WITHOUT_BAR + BAR else (0,):
        table, hidden = stacked(titles, _lines(phase, found, columns, ops), left, EXPENDABLE, width)
        if not hidden:
            break
    yield table
    if hidden:
        yield Text(f"not shown at {width} columns: {', '.join(hidden)}", style="dim")


def _lines(
    phase: PhaseEstimate, found: list[tuple[str, OperatorRow]], columns: int, ops: bool
) -> list[tuple[Cell, ...]]:
    """A line per row, subtotals above the rows of a stage, the wait for other pipeline stages, the total.

    `columns` is the width of the bars of shares, 0 for none.
    """
    margin = " " * (columns + 1) if columns else ""
    longest = max(row.share for _, row in found)  # fills the bar
    sizes = Counter((row.stage, row.group) for _, row in found)
    lines: list[tuple[Cell, ...]] = []
    stage, group, indent = "", "", ""
    for letter, row in found:
        style = STYLES[kind(row.group)]
        alone = sizes[row.stage, row.group] == 1
        if row.stage != stage:
            stage, group = row.stage, ""
            of_stage = [other for _, other in found if other.stage == stage]
            if indent := "  " * (len(of_stage) > 1):
                lines.append(_subtotal(stage, of_stage, margin))
        if row.group != group and not alone:
            lines.append(("", (f"{indent}{title(row.group)}", style), *[""] * 8))
        group = row.group
        label = full_label(row) if ops else row.label
        if not indent and stage not in ("", label):  # the only row of its stage
            label = f"{stage}: {label}"
        name = (f"{indent}{label}", style) if alone else f"{indent}  {row.label}"
        lines.append(
            (
                (letter, f"bold {style}"),
                name,
                str(row.times) if not ops else f"× {row.times}" if row.times > 1 else "",
                units.si(row.cost.flops),
                units.si(row.cost.bytes, "B"),
                units.significant(row.cost.intensity),
                row.bound,
                units.seconds(row.seconds),
                (f"{bar(row.share / longest, columns)} {row.share:4.0%}" if columns else f"{row.share:4.0%}", style),
                _time(row.expected),
            )
        )
    return [*lines, *_totals(phase, margin)]


def _totals(phase: PhaseEstimate, margin: str) -> Iterator[tuple[Cell, ...]]:
    idle, pipelined = phase.idle, phase.step.parallel.pp > 1
    if pipelined:
        share = f"{margin}{idle.bound / phase.bound_seconds:4.0%}"
        wait = _time(idle.expected and idle.expected.value)
        yield ("", "wait for other stages", "", "", "", "", "", units.seconds(idle.bound), share, wait)
    for name, bound, expected in replica_rows(phase):
        share = f"{margin}{bound / phase.bound_seconds:4.0%}" if bound else ""
        yield ("", name, "", "", "", "", "", signed_seconds(bound), share, signed_seconds(expected))
    kernels, waits = phase.work_seconds, idle.expected
    # the wait of a launch-bound pipeline consists of launches, the rows above of kernels: the two do not add up
    together = None if pipelined and phase.host_bound else kernels and waits and kernels.value + waits.value
    cost, seconds = phase.cost, units.seconds(phase.bound_seconds)
    flops, size, intensity = units.si(cost.flops), units.si(cost.bytes, "B"), units.significant(cost.intensity)
    name = "kernels total" if phase.host_bound and not pipelined else "total"
    totals = ("", name, "", flops, size, intensity, "", seconds, "", _time(together))
    yield tuple((text, "bold") for text in totals)


def _time(seconds: float | None) -> str:
    """A time; empty if it is not known."""
    return "" if seconds is None else units.seconds(float(seconds))


def _subtotal(stage: str, found: list[OperatorRow], margin: str) -> tuple[Cell, ...]:
    """The line above the rows of a stage: the sums of their costs, bounds and expected times."""
    cost, seconds = sum((row.cost for row in found), Cost()), sum(row.seconds for row in found)
    intensity, share = units.significant(cost.intensity), f"{margin}{sum(row.share for row in found):4.0%}"
    flops, size, time = units.si(cost.flops), units.si(cost.bytes, "B"), units.seconds(seconds)
    known = [row.expected for row in found if row.expected is not None]
    expected = _time(sum(known)) if len(known) == len(found) else ""
    return tuple((text, "bold") for text in ("", stage, "", flops, size, intensity, "", time, share, expected))


# --- The chart ------------------------------------------------------------------------------------


def _roofline(estimate: Estimate, marks: list[chart.Mark], width: int) -> Iterator[RenderableType]:
    device, dtype = estimate.device, estimate.workload.dtype
    legend = [f"{name}: {letters}" for name, letters in alphabets(estimate)]
    legend += ["a letter is a row of the table at its bound", "● several rows at one place, their letters follow"]
    yield Text.assemble(("roofline", "bold"), ("  " + "; ".join(legend), "dim"))
    peak = device.matmul_pipe(dtype).peak
    yield Group(*chart.roofline(marks, peak, device.bandwidth, min(64, width - chart.MARGIN - 3)))
