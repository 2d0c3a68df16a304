"""An Estimate as a person reads it in a terminal: summary, tables, a small roofline, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from roofmodel import units
from roofmodel.counting.operator import Cost
from roofmodel.prediction.links import route
from roofmodel.prediction.roofline import ridge
from roofmodel.study.estimate.estimate import Estimate
from roofmodel.study.estimate.phase import PhaseEstimate
from roofmodel.views.estimate.rows import Row, full_label, rows, scripts, signed
from roofmodel.views.estimate.text import (
    describe_exchange,
    describe_expectation,
    describe_largest,
    describe_pairs,
    describe_stage,
    describe_training,
    describe_uncached,
)
from roofmodel.views.kit import chart
from roofmodel.views.kit.columns import fitting
from roofmodel.views.kit.operator_names import kind, title
from roofmodel.views.kit.workload_text import describe_parameters, describe_phase, describe_rate, describe_workload

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
_EIGHTHS = " ▏▎▍▌▋▊▉"


class EstimateView:
    """Renders an Estimate with rich: `console.print(EstimateView(estimate))`."""

    def __init__(self, estimate: Estimate) -> None:
        self.estimate = estimate

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        estimate = self.estimate
        yield _summary(estimate, options.max_width)
        marks: list[chart.Mark] = []
        for i, phase in enumerate(estimate.phases):
            found = signed(i, rows(phase))
            yield Text()
            yield from _phase(phase, found, options.max_width)
            for remark in (
                describe_stage(phase), describe_pairs(phase), describe_uncached(phase),
                describe_training(estimate, phase), describe_exchange(phase),
            ):  # fmt: skip
                if remark:
                    yield Text(remark, style="dim")
            marks += [
                chart.Mark(sign, f"bold {STYLES[kind(row.group)]}", row.cost.intensity, row.flops_per_second)
                for sign, row in found
                if sign
            ]
        yield Text()
        yield from _roofline(estimate, marks, options.max_width)
        yield Text()
        yield from _memory(estimate)


def _summary(estimate: Estimate, width: int) -> RenderableType:
    arch, device, dtype = estimate.architecture, estimate.device, estimate.workload.dtype
    size = describe_parameters(estimate.parameters, estimate.active_parameters)
    pipe = device.matmul_pipe(dtype)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    beside = len(f"workload  {arch.name} · {arch.head.name} · {size}") <= width  # else a line would end within a number
    model = Text.assemble((arch.name, "bold"), f" · {arch.head.name}", " · " if beside else "\n", size)
    grid.add_row("model", model)
    grid.add_row("device", Text.assemble((device.name, "bold"), f" · {device.id}"))
    grid.add_row(
        "roofs",
        f"{units.si(pipe.peak, 'FLOP/s', 4)} ({pipe.name}) · {units.si(device.bandwidth, 'B/s', 4)} DRAM · "
        f"ridge at {units.significant(ridge(device, dtype))} FLOP/B"
        + (f" · {' and '.join(links)} to other GPUs, and from them" if (links := list(_links(estimate))) else ""),
    )
    grid.add_row("workload", f"batch {estimate.workload.batch} · {describe_workload(estimate)}")
    return grid


def _links(estimate: Estimate) -> Iterator[str]:
    """What GPUs exchange over, and how fast each of them sends on that."""
    links = (
        link
        for phase in estimate.phases
        for each in phase.exchanges
        if (collective := each.operator.collective) and (way := route(collective, estimate.device))
        for link in way.links(estimate.device)
    )
    for link in dict.fromkeys(links):
        yield f"{units.si(link.bandwidth / 2, 'B/s', 4)} over {link.name}"


def _phase(phase: PhaseEstimate, found: list[tuple[str, Row]], width: int) -> Iterator[RenderableType]:
    yield Text.assemble((describe_phase(phase), "bold"), ("; share: of the bound", "dim"))
    bar = min(16, width - 80) if width >= 86 else 0
    longest = max(row.share for _, row in found)  # fills the bar
    sizes = Counter((row.stage, row.group) for _, row in found)
    lines: list[tuple[str | tuple[str, str], ...]] = [tuple((name, "dim") for name in COLUMNS)]
    stage, group = "", ""
    for sign, row in found:
        style = STYLES[kind(row.group)]
        alone = sizes[row.stage, row.group] == 1
        if row.stage != stage:
            stage, group = row.stage, ""
            lines.append(_subtotal(stage, [r for _, r in found if r.stage == stage], " " * (bar + 1) if bar else ""))
        if row.group != group and not alone:
            lines.append(("", (title(row.group), style), *[""] * 8))
        group = row.group
        drawn = f"{_bar(row.share / longest, bar)} " if bar else ""
        lines.append(
            (
                (sign, f"bold {style}"),
                (full_label(row), style) if alone else f"  {row.label}",
                f"× {row.times}" if row.times > 1 else "",
                units.si(row.cost.flops),
                units.si(row.cost.bytes, "B"),
                units.significant(row.cost.intensity),
                row.bound,
                units.seconds(row.seconds),
                (f"{drawn}{row.share:4.0%}", style),
                _known(row.expected),
            )
        )
    cost = phase.cost
    flops, size, time = units.si(cost.flops), units.si(cost.bytes, "B"), units.seconds(phase.bound_seconds)
    kernels, idle = phase.kernel_seconds, phase.idle
    if phase.step.parallel.pp > 1:
        share, waits = f"{' ' * (bar + 1) if bar else ''}{idle.bound / phase.bound_seconds:4.0%}", idle.expected
        waited = (units.seconds(idle.bound), share, _known(waits and waits.seconds))
        lines.append(("", "wait for other stages", "", "", "", "", "", *waited))
    waited_for_host = phase.step.parallel.pp > 1 and phase.host_bound  # then waits are of launches, rows of kernels
    added = None if waited_for_host else kernels and idle.expected and kernels.seconds + idle.expected.seconds
    together = _known(added)
    totals = ("", "total", "", flops, size, units.significant(cost.intensity), "", time, "", together)
    lines.append(tuple((text, "bold") for text in totals))
    yield _columns(lines, width)
    expectation = describe_expectation(phase)
    yield Text.assemble((expectation, "bold"), "; " if expectation else "", "at most ", (describe_rate(phase), "bold"))


def _known(seconds: float | None) -> str:
    """A time, or nothing."""
    return "" if seconds is None else units.seconds(float(seconds))


def _subtotal(stage: str, found: list[Row], no_bar: str) -> tuple[str | tuple[str, str], ...]:
    """The line above the rows of a stage: what they cost together."""
    cost, seconds = sum((row.cost for row in found), Cost()), sum(row.seconds for row in found)
    intensity, share = units.significant(cost.intensity), f"{no_bar}{sum(row.share for row in found):4.0%}"
    flops, size, time = units.si(cost.flops), units.si(cost.bytes, "B"), units.seconds(seconds)
    return tuple((text, "bold") for text in ("", stage, "", flops, size, intensity, "", time, share, ""))


COLUMNS = ("", "operator", "×", "FLOPs", "bytes", "FLOP/B", "roof", "bound", "share", "expected")
# On a narrow terminal columns go, in this order, and numbers are never cut.
EXPENDABLE = ("roof", "FLOP/B", "×", "bytes", "FLOPs", "expected")


def _columns(lines: list[tuple[str | tuple[str, str], ...]], width: int) -> Table:
    """Lines as a rich table of one row, a whole column a cell: a tenth of the layout work of a cell each."""
    stacked = {}
    for name, column in zip(COLUMNS, zip(*lines, strict=True), strict=True):
        text = Text(no_wrap=True)
        for index, cell in enumerate(column):
            text.append("\n" if index else "")
            text.append(*([cell] if isinstance(cell, str) else cell))
        stacked[name] = text
    if stacked["expected"].plain.split() == ["expected"]:  # the device is not calibrated
        del stacked["expected"]
    widths = {name: max(map(cell_len, text.plain.split("\n"))) for name, text in stacked.items()}
    kept = fitting(widths, EXPENDABLE, width)
    table = Table.grid(padding=(0, 1, 0, 0))
    for name in kept:
        left = name in ("", "operator", "roof", "share")
        table.add_column(justify="left" if left else "right", no_wrap=True)
    table.add_row(*map(stacked.__getitem__, kept))
    return table


def _bar(fraction: float, columns: int) -> str:
    """A fraction of so many columns as a bar, drawn to an eighth of a column."""
    eighths = round(fraction * columns * 8)
    text = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return f"{text:<{columns}}"


def _roofline(estimate: Estimate, marks: list[chart.Mark], width: int) -> Iterator[RenderableType]:
    device, dtype = estimate.device, estimate.workload.dtype
    who = ", ".join(f"{name} in {script}" for name, script in scripts(estimate))
    yield Text.assemble(
        ("roofline", "bold"),
        (f"  {who}{'; ' if who else ''}letters are rows, at their bounds; ● stands for those after it", "dim"),
    )
    peak = device.matmul_pipe(dtype).peak
    yield Group(*chart.roofline(marks, peak, device.bandwidth, min(64, width - chart.MARGIN - 3)))


def _memory(estimate: Estimate) -> Iterator[RenderableType]:
    mem, capacity = estimate.memory, estimate.device.capacity
    roles = [
        ("weights", mem.weights, "blue"),
        ("KV cache", mem.kv_cache, "magenta"),
        ("activations", mem.activations, "yellow"),
        ("gradients", mem.gradients, "green"),
        ("optimizer", mem.optimizer, "red"),
    ]
    parts = [role for role in roles if role[1]]
    line = Text("memory", style="bold")
    for name, size, style in parts:
        line.append(f"  {name} ", style="not bold dim")
        line.append(units.binary(size), style=f"not bold {style}")
    yield line
    if capacity is None:
        yield Text(f"{units.binary(mem.total)}; the device's memory is not stated", style="dim")
        return
    bar, columns, used, below = Text(), 40, 0, 0
    for _, size, style in parts:
        below += size
        end = min(columns, round(below / capacity * columns))
        bar.append("█" * (end - used), style=style)
        used = end
    bar.append("░" * (columns - used), style="dim")
    verdict = ("fits", "bold green") if estimate.fits else ("does not fit", "bold red")
    yield Text.assemble(
        bar, f" {units.binary(mem.total)} of {units.binary(capacity)} ({mem.total / capacity:.0%}): ", verdict
    )
    if remark := describe_largest(estimate):
        yield Text(remark, style="dim")
