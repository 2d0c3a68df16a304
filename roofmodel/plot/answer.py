"""The answers of `roof plot` and `roof kernels`: tables, charts, and why the most expensive kernels take their time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from roofmodel.errors import Command, Option
from roofmodel.numbers import units
from roofmodel.plot.columns import (
    CHANGES,
    KERNELS,
    KernelRow,
    PointRow,
    changes_table,
    kernel_rows,
    kernel_table,
    point_file_table,
    point_rows,
    points_table,
)
from roofmodel.plot.data import comparison_document, kernels_document, points_document
from roofmodel.plot.panels import COUNTED, heading, letter_of, letters_of, panels_of, sources
from roofmodel.profiles.kernel import KernelTable
from roofmodel.report.document import Block, Document, Figure, Heading, LazyBlocks, OnlyTerminal, Paragraph, Rows
from roofmodel.report.table import SECONDS, TEXT, Column, Table
from roofmodel.roofline.judged_kernels import (
    WITH_COUNTERS,
    Why,
    collecting,
    idle_before,
    listed_reasons,
    not_judged,
    reasons_by_group,
)
from roofmodel.roofline.launches import issue_peak, transactions_per_second
from roofmodel.roofline.panel import DEVICE_SOURCES, MIN_SHARE, Panel, category_style, provenance
from roofmodel.roofline.points import Point, Reason, group
from roofmodel.roofline.reasons import rank, text_of

if TYPE_CHECKING:
    from roofmodel.plot.comparison import KernelChange
    from roofmodel.plot.measured import DeviceProfile, MeasuredKernels
    from roofmodel.plot.place import Roofline, RooflinePlot

MAX_ROWS = 30  # of a table in a terminal
MAX_INSTRUCTION_ROWS = 40  # the same, of which a kernel has up to four
MAX_CHART_WIDTH = 96  # columns
SECOND = 0.5  # of the cost of the first reason: a second one is shown

Part = tuple[str, Iterable[Block]]
"""The heading of a device, and its blocks."""


def kernels(
    measured: MeasuredKernels, warnings: Sequence[str], most: int | None = MAX_ROWS, source: bool = False
) -> Document:
    """Tables of kernels, longest first; one table per device. A table has at most `most` rows.

    `source` adds the lines of source that cost most.
    """
    title, blocks = _joined(f"kernels on {len(measured.runs)} devices ({measured.tool})", [
        _kernels(run, most, source) for run in measured.runs
    ])  # fmt: skip
    return Document(
        title,
        blocks,
        lambda: kernels_document(measured, source) | {"warnings": list(warnings)},
        lambda: Rows(kernel_table(len(measured.runs)), kernel_rows(measured)),
    )


def changes(
    before: MeasuredKernels,
    after: MeasuredKernels,
    changes: Sequence[KernelChange],
    warnings: Sequence[str],
    most: int | None = MAX_ROWS,
) -> Document:
    """The totals before and after, and the kernels with the largest changes; names of the first `most` are short."""
    from roofmodel.plot.measured import total_seconds

    old, new = total_seconds(before), total_seconds(after)
    took = f"{units.seconds(old)} → {units.seconds(new)}" if old is not None and new is not None else "times unknown"
    ratio = f" ({new / old - 1:+.0%})" if old and new is not None else ""
    verdicts = Counter(change.verdict for change in changes)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())

    def data() -> dict[str, Any]:
        comparison = comparison_document(before, after, changes)
        return kernels_document(after) | {"warnings": list(warnings), "comparison": comparison}

    return Document(
        f"kernels before and after: {took}{ratio}; {counts}",
        [Rows(changes_table(changes[:most] if most else ()), changes, MAX_ROWS)],
        data,
        lambda: Rows(CHANGES, changes),
    )


def points(plot: RooflinePlot, most: int | None = MAX_ROWS) -> Document:
    """For each device, tables of its points and a roofline chart. A table is made for its first `most` rows."""
    panels = panels_of(plot)
    letters = letters_of(panels)
    if plot.instructions:
        parts = [_instructions(roofline) for roofline in plot.rooflines]
    else:
        parts = [device_part(panel, letters, most) for panel in panels]
    title, blocks = _joined(heading(plot), parts)
    what = "each kernel on the instruction roofline" if plot.instructions else "each point on the roofline"
    figure = Figure(partial(_draw, plot), f"{heading(plot)}: {what}")
    return Document(title, [figure, *blocks], partial(points_document, plot), partial(_flat, plot))


def _joined(title: str, parts: Sequence[Part]) -> Part:
    """The title and the blocks of a document of devices: a single device is the title itself."""
    if len(parts) == 1:
        return parts[0]
    return title, LazyBlocks(partial(_with_headings, parts))


def _with_headings(parts: Sequence[Part]) -> Iterator[Block]:
    for head, blocks in parts:
        yield Heading(head)
        yield from (block._replace(level=3) if isinstance(block, Heading) else block for block in blocks)


def _flat(plot: RooflinePlot) -> Rows:
    """A row for each point."""
    if plot.instructions:
        from roofmodel.plot.instructions import instruction_rows, instruction_table

        return Rows(instruction_table(plot.rooflines), instruction_rows(plot.rooflines))
    return Rows(point_file_table(plot.rooflines), point_rows(plot.rooflines))


def _draw(plot: RooflinePlot, file: Path, form: str) -> None:
    """Draw the picture of a plot; `form` is png, svg or pdf."""
    from roofmodel.plot import picture

    subtitle = provenance(panels_of(plot), sources(plot))
    if plot.instructions:
        from roofmodel.plot.instructions import draw_instructions

        draw_instructions(plot, heading(plot), subtitle, file, form)
    else:
        answers = not plot.hide_answers
        picture.draw(panels_of(plot), heading(plot), subtitle, file, form, regions=plot.regions, answers=answers)


# --- Kernels --------------------------------------------------------------------------------------


def _kernels(run: DeviceProfile, most: int | None, source: bool) -> Part:
    profile, identification = run
    sums = group(profile.kernels, "name")
    known_seconds = [seconds for seconds in profile.kernels.seconds() if seconds is not None]
    took = f"{units.seconds(sum(known_seconds))} in total" if known_seconds else "times not collected"
    launches = sum(sums.launches())
    where = f" on {identification.device.name}" if identification else ""
    if not launches:
        return f"no kernel launches{where} ({profile.tool})", []
    title = f"{units.count(launches, 'kernel launch', 'es')}{where}, {took} ({profile.tool})"
    return title, LazyBlocks(partial(_kernel_blocks, run, sums, most, source))


def _kernel_blocks(run: DeviceProfile, sums: KernelTable, most: int | None, source: bool) -> list[Block]:
    profile, identification = run
    device = identification and identification.device
    summed = len(profile.kernels) > MAX_ROWS
    rows = sums if summed else profile.kernels.longest(MAX_ROWS)
    blocks: list[Block] = [
        Rows(KERNELS.without("hardware"), [KernelRow(kernel, device=device) for kernel in rows[:most]])
    ]
    if summed:
        rest, options = len(rows[most:]) if most else 0, f"{Option('format', 'csv')} and {Option('format', 'json')}"
        more = f"and {units.count(rest, 'more kernel')}; " * bool(rest)
        blocks.append(Paragraph(f"{more}summed by name; {options} list every launch", dim=True))
    if len(profile.copies):
        from roofmodel.roofline.reasons.copies import copies_texts

        blocks += [Paragraph(text) for text in copies_texts(profile.copies, profile.kernels, device)]
    judged = reasons_by_group(profile, device)
    by_time = {each.name: judged[each.name] for each in sums if each.name in judged}
    lines = _lines_by_name(profile.kernels) if source else {}
    blocks += why_section(by_time, not_judged(profile, device), collecting(profile, device), lines)
    if source and not lines:
        blocks.append(
            Paragraph("no lines of source: they need a report of ncu (-o) with --set full --import-source yes")
        )
    return blocks


# --- Points ---------------------------------------------------------------------------------------


def device_part(panel: Panel, letters: Mapping[str, str], most: int | None = MAX_ROWS) -> Part:
    """A device's measured points by share of the time, its predicted points, and a roofline chart."""
    measured, predicted = ([p for p in panel.points if p.predicted is which] for which in (False, True))
    source = "" if panel.identified == "given" else f", {DEVICE_SOURCES[panel.identified]}"
    head = f"{panel.device.name} ({panel.device.id}{source}){panel.conditions}{f', {COUNTED}' * panel.counted}"
    blocks: list[Block] = []
    if (share := panel.drawn_share) is not None:
        why = "the other kernels have no counted FLOPs or bytes"
        blocks.append(Paragraph(f"{share:.0%} of the kernel time is drawn; {why}"))
    if measured or not predicted:
        blocks.append(_points(measured, letters, panel.item, "share", most))
        blocks += [Paragraph(panel.groups, dim=True)] * bool(panel.groups)
    if predicted:
        workload = f": {panel.workload}" if panel.workload else ""
        blocks.append(Paragraph(f"predicted operators at their bounds{workload}", bold=True))
        blocks.append(_points(predicted, letters, "operator", "of phase", most))
    judged = {point.name: list(point.reasons) for point in measured}
    blocks += why_section(judged, panel.not_judged, panel.collecting)
    return head, [*blocks, OnlyTerminal(partial(_chart, panel, letters))]


def _points(points: Sequence[Point], letters: Mapping[str, str], title: str, share: str, most: int | None) -> Rows:
    columns = points_table(title, share)
    if all(point.flops_per_second is not None for point in points[:most]):  # FLOP/B and FLOP/s imply the bandwidth
        columns = columns.without("B/s")
    rows = [
        PointRow(point, letter=(letter_of(point, letters), f"bold {category_style(point.category).color}"))
        for point in points
    ]
    return Rows(columns, rows, MAX_ROWS)


def _chart(panel: Panel, letters: Mapping[str, str], width: int) -> Group:
    """A panel's DRAM points in a chart of characters, marked with the letters of their rows."""
    from roofmodel.report import chart

    top = panel.pipes[0]
    drawn = [p for p in panel.drawn if p.level == "dram" and (p.share is None or p.share >= MIN_SHARE)]
    chart_marks = [
        chart.Mark(
            letter_of(p, letters),
            f"bold {category_style(p.category).color}",
            p.intensity or 0,
            p.flops_per_second or 0,
        )
        for p in drawn
    ]
    used = next((pipe for pipe in panel.pipes if any(p.pipe == pipe.name for p in drawn)), top)
    lower = f", {used.name} (╌) {units.si(used.peak, 'FLOP/s')}" if used != top else ""
    bandwidth = units.si(panel.device.bandwidth, "B/s", 4)
    rest = sum(p.level == "dram" for p in panel.points) - len(drawn)
    notes = [chart.NO_LETTER] * any(not mark.sign for mark in chart_marks)
    notes += [f"not drawn: {rest} without FLOPs or under {MIN_SHARE:.0%} of the time"] * bool(rest)
    legend = "; ".join([f"{top.name}{lower}, DRAM {bandwidth}", *notes])
    columns = min(MAX_CHART_WIDTH, width - chart.MARGIN - 3)
    lines = chart.roofline(chart_marks, top.peak, panel.device.bandwidth, columns, used.peak)
    return Group(Text(), Text.assemble(("roofline", "bold"), (f"  {legend}", "dim")), *lines)


def _instructions(roofline: Roofline) -> Part:
    """The points of the instruction roofline of a device."""
    from roofmodel.plot.instructions import instruction_rows, instruction_table

    issue = issue_peak(roofline.device, roofline.ceilings.clock)
    ceilings = [f"issue {units.si(issue)}inst/s"] if issue else []
    ceilings += [
        f"{name.upper()} {units.si(rate)}txn/s" for name, rate in transactions_per_second(roofline.device).items()
    ]
    head = f"{roofline.device.name}: warp instructions ({', '.join(ceilings)})"
    rows = instruction_rows([roofline])
    return head, [Rows(instruction_table([roofline]), rows, MAX_INSTRUCTION_ROWS)]


# --- Why ------------------------------------------------------------------------------------------

WHY = Table(
    "why",
    (
        Column(None, "saves", SECONDS, value=lambda row: row.saves, unknown="–"),
        Column(None, "reason", TEXT, text=lambda row: f"{row.name}: {_sentence(row)}", wrap=True),
    ),
)


def _sentence(row: Why) -> str:
    lines = f"\n{row.lines}" if row.lines else ""
    return (reason_sentence(row.reasons) if row.reasons else row.none) + lines


def reason_sentence(reasons: Sequence[Reason]) -> str:
    """The first reason in words, and the second one if it costs nearly as much."""
    first, *others = reasons
    if not first.seconds:  # the cost of neither is known
        return text_of(first) + "".join(f"; also {text_of(each)}" for each in others[:1] if rank(each)[0] == 0)
    # The tool's rules may overlap: none of them stands for the others.
    shown = others[: 2 if first.source == "ncu" else 1]
    second = [reason for reason in shown if reason.seconds >= SECOND * first.seconds]
    return text_of(first) + "".join(f"; saves {units.seconds(each.seconds)}: {text_of(each)}" for each in second)


def _lines_by_name(kernels: KernelTable) -> dict[str, str]:
    """The lines that cost most of the longest launch of each name, if the file has counters of SASS."""
    if not kernels.has("lines"):
        return {}
    lines: dict[str, str] = {}
    for kernel in kernels.longest(len(kernels)):
        if kernel.lines and kernel.name not in lines:
            listed = ", ".join(f"{line.place} {line.share:.0%}" for line in kernel.lines)
            lines[kernel.name] = f"lines by {kernel.lines[0].measure}: {listed}"
    return lines


def why_section(
    judged: Mapping[str, Sequence[Reason]],
    missing: Sequence[str],
    collecting: str,
    lines: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Block]:
    """The longest kernels with their first reasons, by cost, the idle time before kernels, and what is not checked.

    `judged` has the kernels by falling time, `collecting` says what collects missing counters, `lines` has the lines of
    source that cost most, by kernel.
    """
    rows, idle = listed_reasons(judged, missing, lines), idle_before(judged)
    if rows:
        estimate = " (saves: an estimate of the time that removing the reason saves)"
        yield Heading(f"Why{estimate * any(row.saves for row in rows)}")
        yield Rows(WHY, rows)
    if idle is not None:
        total, name, most = idle
        trace = Command("`roof trace`", "`roofmodel.trace`")
        text = f"GPU idle before kernels: {units.seconds(total)} in total, {units.seconds(most)} of it before {name}"
        yield Paragraph(f"{text}; {trace} lists the causes")
    if not rows:
        return
    if set(missing) >= WITH_COUNTERS:
        yield Paragraph(f"more reasons need counters: {collecting}", dim=True)
    elif missing:
        lacking = f"not checked, because their counters are missing (to collect them: {collecting})"
        yield Paragraph(f"{lacking}: {', '.join(missing)}", dim=True)
