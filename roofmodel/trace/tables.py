"""The analysis of a run in the terminal: findings, parts of the wall time, steps, groups, longest kernels, copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.errors import Option
from roofmodel.numbers import units
from roofmodel.report.columns import FittingTable
from roofmodel.roofline.counted_kernels import AUXILIARY
from roofmodel.trace import comparison_tables as comparison
from roofmodel.trace import intervals
from roofmodel.trace.findings import Finding
from roofmodel.trace.groups import GroupTime, lecture_shares
from roofmodel.trace.parts import CAUSE_TEXTS, PARTS, largest_part
from roofmodel.trace.steps import StepWindow, total
from roofmodel.trace.trace import RankReport, RunAnalysis

MAX_ROWS = 12  # of groups and of steps per rank
MAX_REASONS = 3  # why kernels have no FLOPs
NO_SHAPES = (
    "roofline: no FLOPs or bytes, because the trace has no shapes of operators; "
    "record them with torch.profiler.profile(record_shapes=True)"
)
PART_TITLES = tuple(part.title for part in PARTS.values())
LEGEND = {
    "overlap": "compute, communication, copies: alone; overlap: computation during communication or copies; "
    "these and idle sum to the wall time",
    "busy": "busy: share of the wall time in which a kernel runs",
    "launch → start": "launch → start: median time from a kernel's launch on the CPU to its start",
    "share": "share: of the summed time of the rank's GPU work, which counts overlapping work fully",
    "waiting": "waiting: part of the time before the last rank started; bandwidths leave it out",
    "bus": "algorithm, bus: bandwidths as in nccl-tests",
    "of link": "of link: bus bandwidth over the link's rate in one direction",
    "!": "! above the ceiling: bytes are counted from shapes, and an expanded (broadcast) tensor or one in L2 moves "
    "fewer; or an algorithm (Winograd) takes fewer multiplications than were counted",
    "achieved": "FLOP/s, B/s: FLOPs and bytes counted from the recorded shapes of operators, over the measured time; "
    "achieved: share of the attainable performance",
}


def table(trace: RunAnalysis) -> RenderableType:
    """Everything, the findings first."""
    return Group(*_blocks(trace))


def _blocks(trace: RunAnalysis) -> Iterator[RenderableType]:
    device = f" on {trace.identified.device.name}" if trace.identified else ""
    yield Text(f"{_files(trace)}{device} ({trace.tool})", style="bold")
    if trace.reading is not None:
        yield Text(str(trace.reading), style="dim")
    if not trace.ranks:
        yield Text("no GPU work")
        return
    if trace.comparison is not None:
        yield from comparison.blocks(trace, trace.comparison)
        yield from _findings([each for each in trace.findings if each.kind != "different_work"])
        yield _parts(trace.ranks)
        yield from _idle(trace.ranks)
        return
    yield from _findings(trace.findings)
    if not trace.findings:
        yield Text(largest_part(trace.ranks))
    yield from _roofline(trace)
    yield Text()
    yield _parts(trace.ranks)
    if len(trace.files) > 1:
        yield Text("The clocks of different files are not aligned: compare durations, not starts.", style="dim")
    yield from _graphs(trace.ranks)
    yield from _idle(trace.ranks)
    yield from _steps(trace.ranks)
    yield from _groups(trace)
    yield Text()
    yield Text("longest kernels and copies, by name", style="bold")
    yield _times("name", trace.top, several=len(trace.ranks) > 1)
    yield from _copies(trace.ranks)
    yield from _collectives(trace.ranks)


def _roofline(trace: RunAnalysis) -> Iterator[RenderableType]:
    """One sentence on how much of the kernel time has known FLOPs, and the reasons for the rest."""
    if text := roofline_text(trace):
        yield Text(text)
    unknown = trace.roofline.unknown if trace.roofline else {}
    rest = [(reason, *each) for reason, each in unknown.items() if not reason.startswith(AUXILIARY)]
    if rest:
        listed = "; ".join(
            f"{reason} ({units.count(kernels, 'kernel')}, {units.seconds(seconds)})"
            for reason, kernels, seconds in rest[:MAX_REASONS]
        )
        more = f"; and {units.count(len(rest) - MAX_REASONS, 'other reason')}" if len(rest) > MAX_REASONS else ""
        yield Text(f"without FLOPs and bytes: {listed}{more}", style="dim")


def roofline_text(trace: RunAnalysis) -> str:
    """How much of the kernel time has known FLOPs, and what these kernels achieve; empty if nothing is known of it."""
    if trace.roofline is None:
        return NO_SHAPES if trace.tool == "torch" and trace.ranks else ""
    roofline, found = trace.roofline, trace.roofline.achieved
    if found is None:
        return "roofline: no kernel has FLOPs and bytes"
    text = f"roofline: {roofline.explained_share:.0%} of the kernel time has FLOPs and bytes, counted from shapes; "
    rates = f"{units.si(found.flops_per_second or 0, 'FLOP/s')} and {units.si(found.bytes_per_second or 0, 'B/s')}"
    if found.attainable_share is None or trace.identified is None:
        return f"{text}it achieves {rates}"
    return f"{text}it achieves {found.attainable_share:.0%} of what {trace.identified.device.id} attains ({rates})"


def _findings(found: Iterable[Finding]) -> Iterator[RenderableType]:
    for number, finding in enumerate(found, 1):
        yield Text(f"{number}. {finding.text}.")


def _files(trace: RunAnalysis) -> str:
    """The names of the files: before and after a change, if there are two runs."""
    if trace.comparison is None:
        return f"{_listed(trace.names.values())}: {units.count(len(trace.ranks), 'rank')}"
    sides: dict[str, list[str]] = {"before": [], "after": []}
    for each in trace.ranks:
        sides[each.rank.run or "after"].append(trace.names[each.rank.timeline.file])
    return "; ".join(
        f"{run}: {_listed(dict.fromkeys(names))}, {units.count(len(names), 'rank')}" for run, names in sides.items()
    )


def _listed(names: Iterable[str]) -> str:
    known = [*names]
    return ", ".join(known[:3]) + (f" and {len(known) - 3} more" if len(known) > 3 else "")


def _parts(ranks: Iterable[RankReport]) -> RenderableType:
    titles = ("rank", "wall", *PART_TITLES, "busy", "kernels", "launch → start")
    shown = FittingTable(titles, "rank", ("launch → start", "kernels", "busy", "overlap"), LEGEND)
    for report in ranks:
        rank = report.rank
        whole = total(rank)
        delay = rank.launch_to_start_median_seconds
        shown.add(
            f"{rank.number}: {rank.label}",
            units.seconds(whole.length / 1e9),
            *_step_parts(whole),
            _share(intervals.length(rank.kernels), whole.length),
            str(whole.kernels),
            "–" if delay is None else units.seconds(delay),
        )
    return shown


def _step_parts(step: StepWindow) -> Iterator[str]:
    for part in PARTS:
        yield _share(getattr(step, part), step.length)


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if part and whole else ""


def _graphs(ranks: Iterable[RankReport]) -> Iterator[RenderableType]:
    for report in ranks:
        rank = report.rank
        if launches := rank.graph_launches:
            kernels = f"{int(rank.in_graph.sum())} of {int(rank.is_kernel.sum())} kernels of rank {rank.number}"
            yield Text(f"{kernels} were launched by {units.count(launches, 'CUDA graph launch', 'es')}", style="dim")


def _idle(ranks: Iterable[RankReport]) -> Iterator[RenderableType]:
    for report in ranks:
        causes = sorted(report.idle_by_cause.items(), key=lambda item: -item[1])
        if causes:
            listed = "; ".join(f"{CAUSE_TEXTS[cause]} {units.seconds(seconds)}" for cause, seconds in causes)
            yield Text(f"idle time of rank {report.rank.number}: {listed}", style="dim")


def _steps(ranks: Iterable[RankReport]) -> Iterator[RenderableType]:
    for report in ranks:
        steps = report.steps.complete
        if not steps:
            continue
        how = "marked in the trace" if report.steps.source == "marks" else "found as a repeating sequence of kernels"
        mean = sum(step.length for step in steps) / len(steps) / 1e9
        kernels = sum(step.kernels for step in steps) / len(steps)
        heading = f"{units.count(len(steps), 'step')} of rank {report.rank.number}, {how}"
        yield Text()
        yield Text(f"{heading}; mean {units.seconds(mean)}, {units.significant(kernels)} kernels", style="bold")
        shown = FittingTable(("step", "wall", *PART_TITLES, "kernels"), "step", ("kernels", "overlap"), {})
        for step in steps[:MAX_ROWS]:
            shown.add(step.label, units.seconds(step.length / 1e9), *_step_parts(step), str(step.kernels))
        yield shown
        yield from _omitted_rows(len(steps) - MAX_ROWS)


def _groups(trace: RunAnalysis) -> Iterator[RenderableType]:
    for report in trace.ranks:
        rows = [row for row in trace.groups if row.rank == report.rank.number]
        where = f", rank {report.rank.number}" if len(trace.ranks) > 1 else ""
        yield Text()
        yield Text(f"GPU work by {trace.by}{where}", style="bold")
        yield _times(trace.by, rows[:MAX_ROWS], several=False)
        yield from _omitted_rows(len(rows) - MAX_ROWS)
        if trace.by == "lecture" and (shares := lecture_shares(report.rank)):
            text = f"communication (memory_mgmt) {shares.memory_mgmt:.2%}; collectives alone {shares.collectives:.2%}"
            yield Text(text, style="dim")


def _times(title: str, rows: Iterable[GroupTime], several: bool) -> RenderableType:
    listed = list(rows)
    counted = any(row.achieved for row in listed)
    ceilings = any(row.achieved and row.achieved.minimum_seconds is not None for row in listed)
    titles = (
        title, *["rank"] * several, "×", "time", "share", *["FLOP/s", "B/s"] * counted,
        *["achieved", "bound by"] * ceilings, "mean", "median", "min", "max",
    )  # fmt: skip
    shown = FittingTable(titles, title, ("min", "max", "median", "mean", "×", "B/s"), LEGEND)
    for row in listed:
        times = (units.seconds(value) for value in (row.mean, row.median, row.min, row.max))
        rank, found = [str(row.rank)] * several, row.achieved
        rates = (
            [units.si(rate or 0) for rate in (found.flops_per_second, found.bytes_per_second)] if found else ["–"] * 2
        )
        share = found.attainable_share if found else None
        against = ["–" if share is None else f"{share:.0%}{'!' * (share > 1)}", (found and found.bound) or "–"]
        shown.add(
            row.group, *rank, str(row.kernels), units.seconds(row.seconds), f"{row.share:.1%}", *rates[: 2 * counted],
            *against[: 2 * ceilings], *times,
        )  # fmt: skip
    return shown


def _omitted_rows(rest: int) -> Iterator[RenderableType]:
    if rest > 0:
        yield Text(f"and {rest} more; {Option('format', 'json')} lists all", style="dim")


def _copies(ranks: Iterable[RankReport]) -> Iterator[RenderableType]:
    rows = [(report, copies) for report in ranks for copies in report.copies]
    if not rows:
        return
    yield Text()
    yield Text("copies and memsets", style="bold")
    shown = FittingTable(("kind", "memory", "rank", "×", "bytes", "time", "rate", "overlapped"), "kind", (), {})
    for report, copies in rows:
        rate = copies.bytes_per_second
        shown.add(
            copies.kind,
            copies.memory or "",
            str(report.rank.number),
            str(copies.number),
            "–" if copies.bytes is None else units.si(copies.bytes, "B"),
            units.seconds(copies.seconds),
            "–" if rate is None else units.si(rate, "B/s"),
            f"{copies.overlapped:.0%}",
        )
    yield shown


def _collectives(ranks: Iterable[RankReport]) -> Iterator[RenderableType]:
    rows = [(report, collective) for report in ranks for collective in report.collectives]
    if not rows:
        return
    yield Text()
    yield Text("collectives; their time includes waiting for the last rank", style="bold")
    known = any(each.waiting_seconds is not None for _, each in rows)
    titles = (
        "collective",
        "rank",
        "×",
        "GPUs",
        "time",
        *["waiting"] * known,
        "exposed",
        "bytes",
        "algorithm",
        "bus",
        "of link",
    )
    shown = FittingTable(titles, "collective", ("algorithm", "bytes"), LEGEND)
    for report, each in rows:
        shown.add(
            each.name,
            str(report.rank.number),
            str(each.number),
            str(each.group_size or ""),
            units.seconds(each.seconds),
            *(["–" if each.waiting_seconds is None else units.seconds(each.waiting_seconds)] * known),
            units.seconds(each.exposed_seconds),
            "" if each.bytes is None else units.si(each.bytes, "B"),
            *("" if r is None else units.si(r, "B/s") for r in (each.bytes_per_second, each.bus_bytes_per_second)),
            "" if each.link_share is None else f"{each.link_share:.0%} {each.link}",
        )
    yield shown
