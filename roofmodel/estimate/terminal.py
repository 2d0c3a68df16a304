"""An Estimate in a terminal: the answers first, then a table per phase, on request with every operator and a chart."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from roofmodel.errors import Option
from roofmodel.estimate.rows import group_rows, rows, with_letters
from roofmodel.estimate.summary import Answer, summary
from roofmodel.estimate.tables import GROUP_LINES, OPERATOR_LINES, known_columns, style, terminal_lines
from roofmodel.estimate.text import describe_remarks
from roofmodel.numbers import units
from roofmodel.report import chart
from roofmodel.steps.estimate import Estimate
from roofmodel.steps.workload_text import describe_parameters, describe_phase, describe_workload
from roofmodel.timing.links import route
from roofmodel.timing.roofline import ridge


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
        tables = with_letters([rows(phase) if self.ops else group_rows(phase) for phase in estimate.phases])
        for phase, lettered_rows in zip(estimate.phases, tables, strict=True):
            shown = lettered_rows if self.roofline else [("", row) for _, row in lettered_rows]
            yield Text()
            yield Text(describe_phase(phase), style="bold")
            table = known_columns(OPERATOR_LINES if self.ops else GROUP_LINES, estimate)
            yield table.terminal(terminal_lines(phase, shown, self.ops))
            if estimate.has_total:
                yield from (Text(remark, style="dim") for remark in describe_remarks(estimate, phase))
            marks += [
                chart.Mark(letter, f"bold {style(row)}", row.cost.intensity, row.flops_per_second)
                for letter, row in lettered_rows
                if row.cost.flops
            ]
        if self.roofline and estimate.has_total:
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
    text.highlight_regex(r"[\d.]+ \S+(?= expected)|(launch|host)-bound", "bold")
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


# --- The chart ------------------------------------------------------------------------------------


def _roofline(estimate: Estimate, marks: list[chart.Mark], width: int) -> Iterator[RenderableType]:
    device, dtype = estimate.device, estimate.workload.dtype
    yield Text.assemble(("roofline", "bold"), (f"  rows of the tables at their bounds; {chart.LEGEND}", "dim"))
    peak = device.matmul_pipe(dtype).peak
    yield Group(*chart.roofline(marks, peak, device.bandwidth, min(64, width - chart.MARGIN - 3)))
