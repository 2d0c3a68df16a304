"""Tables of kernels and of roofline points in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.errors import Option
from roofmodel.numbers import units
from roofmodel.plot import chart
from roofmodel.plot.columns import KERNELS, KernelRow, PointRow
from roofmodel.plot.columns import changes_table as changes_columns
from roofmodel.plot.columns import points_table as points_columns
from roofmodel.plot.comparison import KernelChange, total_seconds
from roofmodel.plot.panels import COUNTED, panels_of
from roofmodel.plot.place import DeviceProfile, MeasuredKernels, RooflinePlot
from roofmodel.plot.why import why_section
from roofmodel.profiles.kernel import Kernel
from roofmodel.report.columns import omitted_rows
from roofmodel.roofline.judged_kernels import not_judged, reasons_by_group
from roofmodel.roofline.panel import DEVICE_SOURCES, Panel, category_style
from roofmodel.roofline.points import KernelGroup, Point, group

MAX_ROWS = 30  # of a table; its last line counts the rest


def kernels_table(measured: MeasuredKernels) -> Group:
    """Tables of kernels, longest first; one table per device."""
    return Group(*(block for run in measured.runs for block in _kernels(run)))


def _kernels(run: DeviceProfile) -> Iterator[RenderableType]:
    profile, identification = run
    sums = profile.summed()
    known_seconds = [kernel.seconds for kernel in sums if kernel.seconds is not None]
    took = f"{units.seconds(sum(known_seconds))} in total" if known_seconds else "times not collected"
    launches = sum(kernel.invocations for kernel in sums)
    where = f" on {identification.device.name}" if identification else ""
    if not launches:
        yield Text(f"no kernel launches{where} ({profile.tool})", style="bold")
        return
    yield Text(f"{units.count(launches, 'kernel launch', 'es')}{where}, {took} ({profile.tool})", style="bold")
    device = identification and identification.device
    rows: Sequence[Kernel | KernelGroup] = profile.longest(MAX_ROWS)
    if summed := len(profile.kernels) > MAX_ROWS:
        rows = group(sums, "name")
    longest = rows[:MAX_ROWS]
    yield KERNELS.without("hardware").terminal(KernelRow(kernel, device=device) for kernel in longest)
    if summed:
        rest, options = len(rows) - len(longest), f"{Option('format', 'csv')} and {Option('format', 'json')}"
        more = f"and {units.count(rest, 'more kernel')}; " * bool(rest)
        yield Text(f"{more}summed by name; {options} list every launch", style="dim")
    judged = reasons_by_group(profile, device)
    by_time = {each.name: judged[each.name] for each in group(sums, "name") if each.name in judged}
    yield from why_section(by_time, not_judged(profile, device))


def changes_table(before: MeasuredKernels, after: MeasuredKernels, changes: Sequence[KernelChange]) -> Group:
    """The totals before and after, and the kernels with the largest changes."""
    old, new = total_seconds(before), total_seconds(after)
    took = f"{units.seconds(old)} → {units.seconds(new)}" if old is not None and new is not None else "times unknown"
    ratio = f" ({new / old - 1:+.0%})" if old and new is not None else ""
    verdicts = Counter(change.verdict for change in changes)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    head = Text(f"kernels before and after: {took}{ratio}; {counts}", style="bold")
    listed = changes[:MAX_ROWS]
    return Group(head, changes_columns(listed).terminal(listed), *omitted_rows(len(changes) - MAX_ROWS, "csv", "json"))


def points_table(plot: RooflinePlot) -> Group:
    """For each device, tables of its points and a roofline chart."""
    panels = panels_of(plot)
    letters = chart.letters_of(panels)
    return Group(*(device_table(panel, letters) for panel in panels))


def device_table(panel: Panel, letters: Mapping[str, str]) -> Group:
    """A device's measured points by share of the time, its predicted points, and a roofline chart."""
    measured, predicted = ([p for p in panel.points if p.predicted is which] for which in (False, True))
    source = "" if panel.identified == "given" else f", {DEVICE_SOURCES[panel.identified]}"
    head = f"{panel.device.name} ({panel.device.id}{source}){panel.conditions}{f', {COUNTED}' * panel.counted}"
    blocks: list[RenderableType] = [Text(head, style="bold")]
    if (share := panel.drawn_share) is not None:
        blocks += [Text(f"{share:.0%} of the kernel time is drawn; the other kernels have no counted FLOPs or bytes")]
    if measured or not predicted:
        blocks += _points(panel, measured, letters, panel.item, "share")
        blocks += [Text(panel.groups, style="dim")] if panel.groups else []
    if predicted:
        workload = f": {panel.workload}" if panel.workload else ""
        blocks += [
            Text(f"predicted operators at their bounds{workload}", style="bold"),
            *_points(panel, predicted, letters, "operator", "of phase"),
        ]
    reasons_by_name = {point.name: list(point.reasons) for point in measured}
    blocks += why_section(reasons_by_name, panel.not_judged)
    return Group(*blocks, Text(), chart.PointsChart(panel, letters))


def _points(
    panel: Panel, points: Sequence[Point], letters: Mapping[str, str], title: str, share: str
) -> Iterator[RenderableType]:
    """A table of the first MAX_ROWS points, and the number of the others."""
    listed = points[:MAX_ROWS]
    columns = points_columns(title, share)
    if all(point.flops_per_second is not None for point in listed):  # FLOP/B and FLOP/s imply the bandwidth
        columns = columns.without("B/s")
    yield columns.terminal(
        PointRow(point, letter=(chart.letter_of(point, letters), f"bold {category_style(point.category).color}"))
        for point in listed
    )
    yield from omitted_rows(len(points) - len(listed), "csv", "json")
