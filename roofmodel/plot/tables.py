"""Tables of kernels and of roofline points in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.errors import Option
from roofmodel.numbers import units
from roofmodel.plot import chart
from roofmodel.plot.panels import COUNTED, panels_of
from roofmodel.plot.place import DeviceProfile, MeasuredKernels, RooflinePlot
from roofmodel.report.columns import FittingTable
from roofmodel.roofline.panel import Panel, point_color
from roofmodel.roofline.points import Point, flops_by_pipe, incomplete

MAX_ROWS = 30  # of a table; its last line counts the rest
DROP_ORDER = ("regs", "occ.", "×", "B/s", "FLOP/s", "bound by", "FLOP/B", "DRAM", "FLOPs", "level", "achieved")
# Explanations of headings and marks, for the line below a table that contains them.
LEGEND = {
    "≥": "≥ lower bound: FLOPs of some pipes were not counted",
    "?": "? unknown: FLOPs of some pipes were not collected and could make compute the limit",
    "!": "! above the ceiling: see the warnings",
    "achieved": "achieved: share of the attainable performance",
    "regs": "regs: registers per thread",
    "occ.": "occ.: achieved occupancy, resident warps / maximum warps (PyTorch: its own estimate)",
}


def kernels_table(found: MeasuredKernels) -> Group:
    """Tables of kernels, longest first; one table per device."""
    return Group(*(block for run in found.runs for block in _kernels(run)))


def _kernels(run: DeviceProfile) -> Iterator[RenderableType]:
    profile, identification = run
    sums = profile.summed()
    known = [kernel.seconds for kernel in sums if kernel.seconds is not None]
    took = f"{units.seconds(sum(known))} in total" if known else "times not collected"
    launches = sum(kernel.invocations for kernel in sums)
    where = f" on {identification.device.name}" if identification else ""
    if not launches:
        yield Text(f"no kernel launches{where} ({profile.tool})", style="bold")
        return
    yield Text(f"{units.count(launches, 'kernel launch', 'es')}{where}, {took} ({profile.tool})", style="bold")
    longest = profile.longest(MAX_ROWS)
    registers = any(kernel.registers is not None for kernel in longest)
    occupancy = any(kernel.occupancy is not None for kernel in longest)
    titles = ["kernel", "×", "time", "FLOPs", "DRAM", *["regs"] * registers, *["occ."] * occupancy]
    table = FittingTable(titles, "kernel", DROP_ORDER, LEGEND)
    for kernel in longest:
        flops, device = flops_by_pipe(kernel.flops), identification and identification.device
        table.add(
            kernel.name,
            str(kernel.invocations) if kernel.invocations > 1 else "",
            "–" if kernel.seconds is None else units.seconds(kernel.seconds),
            _lower_bound(units.si(sum(flops.values())), incomplete(kernel.flops, device)) if flops else "–",
            "–" if kernel.bytes.dram is None else units.si(kernel.bytes.dram, "B"),
            *(["–" if kernel.registers is None else str(kernel.registers)] * registers),
            *(["–" if kernel.occupancy is None else f"{kernel.occupancy:.0%}"] * occupancy),
        )
    yield table
    if rest := len(profile.kernels) - len(longest):
        yield _omitted_rows(rest)


def points_table(plot: RooflinePlot) -> Group:
    """For each device, tables of its points and a roofline chart."""
    panels = panels_of(plot)
    letters = chart.letters_of(panels)
    return Group(*(device_table(panel, letters) for panel in panels))


def device_table(panel: Panel, letters: Mapping[str, str]) -> Group:
    """A device's measured points by share of the time, its predicted points, and a roofline chart."""
    measured, predicted = ([p for p in panel.points if p.predicted is which] for which in (False, True))
    source = {"given": "", "attributes": ", identified by the file", "assumed": ", ASSUMED"}[panel.identified]
    head = f"{panel.device.name} ({panel.device.id}{source}){panel.conditions}{f', {COUNTED}' * panel.counted}"
    blocks: list[RenderableType] = [Text(head, style="bold")]
    if measured or not predicted:
        blocks += _points(panel, measured, letters, panel.item, "share")
        blocks += [Text(panel.groups, style="dim")] if panel.groups else []
    if predicted:
        workload = f": {panel.workload}" if panel.workload else ""
        blocks += [
            Text(f"predicted operators at their bounds{workload}", style="bold"),
            *_points(panel, predicted, letters, "operator", "of phase"),
        ]
    return Group(*blocks, Text(), chart.PointsChart(panel, letters))


def _points(
    panel: Panel, found: Sequence[Point], letters: Mapping[str, str], one: str, share: str
) -> Iterator[RenderableType]:
    """A table of the first MAX_ROWS points, and the number of the others."""
    table = FittingTable(
        ["", one, "×", "level", "FLOP/B", "FLOP/s", "B/s", "achieved", "bound by", share], one, DROP_ORDER, LEGEND
    )
    bandwidths = any(point.flops_per_second is None for point in found[:MAX_ROWS])  # else FLOP/B and FLOP/s imply them
    for point in found[:MAX_ROWS]:
        table.add(
            Text(chart.letter_of(point, letters), style=f"bold {point_color([panel], 0, point.category)}"),
            point.name,
            str(point.invocations) if point.invocations > 1 else "",
            point.level,
            "–" if point.intensity is None else _lower_bound(units.significant(point.intensity), point.incomplete),
            "–" if point.flops_per_second is None else _lower_bound(units.si(point.flops_per_second), point.incomplete),
            units.si(point.bytes_per_second) if bandwidths and point.bytes_per_second is not None else "",
            _achieved(point),
            point.bound or "?" * point.incomplete,
            "–" if point.share is None else f"{point.share:.0%}",
        )
    yield table
    if rest := len(found) - len(table.rows):
        yield _omitted_rows(rest)


def _omitted_rows(rest: int) -> Text:
    return Text(f"and {rest} more; {Option('format', 'csv')} and {Option('format', 'json')} list all", style="dim")


def _achieved(point: Point) -> str:
    """The share of the attainable performance that was achieved; `bound` for predicted points."""
    if point.predicted:
        return "bound"
    if point.fraction is None:
        return "–"
    return _lower_bound(f"{point.fraction:.0%}{'!' * bool(point.finding)}", point.incomplete)


def _lower_bound(figure: str, incomplete: bool) -> str:
    """A number, marked if it is a lower bound."""
    return f"≥ {figure}" if incomplete else figure
