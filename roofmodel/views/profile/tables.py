"""Measured kernels, and points under their roofs, as tables in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from roofmodel import units
from roofmodel.errors import Option
from roofmodel.study.profile.place import Kernels, Measured, Placed
from roofmodel.study.profile.points import Point, incomplete, work
from roofmodel.views.kit.columns import bare, fitting
from roofmodel.views.kit.panel import Panel, colour, panels_of, short
from roofmodel.views.profile import chart

SHOWN = 30  # rows of a table; the rest is counted in its last line
LETTERS = 18  # of a name, for which other columns go
EXPENDABLE = ("regs", "occ.", "×", "FLOP/s", "roof", "FLOP/B", "DRAM", "FLOPs", "level", "of roof")
WORDS = ("", "level", "roof", "bound by")  # columns that begin at the left, as names do
# What a heading or a mark means, for the line below a table in which it occurs.
MEANING = {
    "≥": "≥ a lower bound, for not all FLOPs were counted",
    "?": "? a roof that those FLOPs could change",
    "!": "! above its roof: see the warnings",
    "of roof": "of roof: the part achieved of what the roofs allow",
    "regs": "regs: registers a thread",
    "occ.": "occ.: achieved occupancy, the part of the warps that fit which are resident; PyTorch's is its estimate",
}


def kernels_table(found: Kernels) -> Group:
    """Kernels, longest first; a table a device."""
    return Group(*(block for run in found.runs for block in _kernels(run)))


def _kernels(run: Measured) -> Iterator[RenderableType]:
    profile, identified = run
    sums = profile.summed()
    known = [kernel.seconds for kernel in sums if kernel.seconds is not None]
    took = f"{units.seconds(sum(known))} together" if known else "times not collected"
    launches = sum(kernel.invocations for kernel in sums)
    where = f" on {identified.device.name}" if identified else ""
    if not launches:
        yield Text(f"no kernel launches{where}, by {profile.tool}", style="bold")
        return
    yield Text(f"{units.count(launches, 'kernel launch', 'es')}{where}, {took}, by {profile.tool}", style="bold")
    longest = profile.longest(SHOWN)
    registers = any(kernel.registers is not None for kernel in longest)
    occupancy = any(kernel.occupancy is not None for kernel in longest)
    titles = ["kernel", "×", "time", "FLOPs", "DRAM", *["regs"] * registers, *["occ."] * occupancy]
    table = Narrowing(titles, "kernel")
    for kernel in longest:
        flops, device = work(kernel.flops), identified and identified.device
        table.add(
            kernel.name,
            str(kernel.invocations) if kernel.invocations > 1 else "",
            "–" if kernel.seconds is None else units.seconds(kernel.seconds),
            _least(units.si(sum(flops.values())), incomplete(kernel.flops, device)) if flops else "–",
            "–" if kernel.bytes.dram is None else units.si(kernel.bytes.dram, "B"),
            *(["–" if kernel.registers is None else str(kernel.registers)] * registers),
            *(["–" if kernel.occupancy is None else f"{kernel.occupancy:.0%}"] * occupancy),
        )
    yield table
    if rest := len(profile.kernels) - len(longest):
        yield _more(rest)


def points_table(placed: Placed) -> Group:
    """A table and a small roofline a device: intensity, performance, how much of the attainable that is."""
    return Group(*(device_table(panel) for panel in panels_of(placed)))


def device_table(panel: Panel) -> Group:
    """A device's points by share of the time, what is predicted apart, and the roofline that they stand under."""
    letters = chart.signs(panel.points)
    measured, predicted = ([p for p in panel.points if p.predicted is which] for which in (False, True))
    how = {"given": "", "attributes": ", by the file's attributes", "assumed": ", ASSUMED"}[panel.how]
    head = f"{panel.device.name} ({panel.device.id}{how}){panel.conditions}"
    blocks: list[RenderableType] = [Text(head, style="bold")]
    if measured or not predicted:
        blocks += _points(panel, measured, letters, panel.one, "share")
        blocks += [Text(panel.groups, style="dim")] if panel.groups else []
    if predicted:
        about = f"predicted, each at its bound: {panel.workload}" if panel.workload else "predicted, each at its bound"
        blocks += [Text(about, style="bold"), *_points(panel, predicted, letters, "operator", "of phase")]
    return Group(*blocks, Text(), chart.PointsChart(panel))


def _points(
    panel: Panel, found: Sequence[Point], letters: Mapping[Point, str], one: str, share: str
) -> Iterator[RenderableType]:
    """The longest of some points, and how many more there are."""
    table = Narrowing(["", one, "×", "level", "FLOP/B", "FLOP/s", "of roof", "roof", share], one)
    for point in found[:SHOWN]:
        table.add(
            Text(letters.get(point, ""), style=f"bold {colour([panel], 0, point.category)}"),
            point.name,
            str(point.invocations) if point.invocations > 1 else "",
            point.level,
            "–" if point.intensity is None else _least(units.significant(point.intensity), point.incomplete),
            "–" if point.flops_per_second is None else _least(units.si(point.flops_per_second), point.incomplete),
            _part(point),
            point.bound or "?" * point.incomplete,
            "–" if point.share is None else f"{point.share:.0%}",
        )
    yield table
    if rest := len(found) - len(table.rows):
        yield _more(rest)


def _more(rest: int) -> Text:
    return Text(f"and {rest} more; all of them in {Option('format', 'csv')} or {Option('format', 'json')}", style="dim")


def _part(point: Point) -> str:
    """How much of the roof was achieved; what is predicted achieved nothing."""
    if point.predicted:
        return "bound"
    if point.fraction is None:
        return "–"
    return _least(f"{point.fraction:.0%}{'!' * bool(point.finding)}", point.incomplete)


def _least(figure: str, incomplete: bool) -> str:
    """A figure, marked where it is a lower bound."""
    return f"≥ {figure}" if incomplete else figure


class Narrowing:
    """A table of rich in which the names of one column take what room the figures leave, with a legend below."""

    def __init__(
        self, titles: Sequence[str], names: str, expendable: Sequence[str] = EXPENDABLE,
        meaning: Mapping[str, str] = MEANING,
    ) -> None:  # fmt: skip
        self.titles, self.names = titles, names
        self.expendable, self.meaning = expendable, meaning
        self.rows: list[dict[str, str | Text]] = []

    def add(self, *cells: str | Text) -> None:
        """A row, a cell a title."""
        self.rows.append(dict(zip(self.titles, cells, strict=True)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = {title: [str(row[title]) for row in self.rows] for title in self.titles}
        widths = {title: max(map(cell_len, (title, *cells))) for title, cells in columns.items() if any(cells)}
        widths[self.names] = LETTERS
        kept = fitting(widths, self.expendable, options.max_width)
        figures = [title for title in kept if title != self.names]
        room = options.max_width - sum(widths[title] + 1 for title in figures)
        table = bare(expand=True)
        for title in kept:
            if title == self.names:
                table.add_column(title, no_wrap=True, ratio=1)
            else:
                table.add_column(title, justify="left" if title in WORDS else "right", no_wrap=True)
        for row in self.rows:
            cells = row | {self.names: Text(short(str(row[self.names]), room))}
            table.add_row(*map(cells.__getitem__, kept))
        yield table
        signs = {sign for title in figures for cell in columns[title] for sign in cell}
        if legend := [meaning for sign, meaning in self.meaning.items() if sign in signs or sign in figures]:
            yield Text("; ".join(legend), style="dim")
