"""The answer of `roof trace`: findings, parts of the wall time, steps, groups, longest kernels, copies, collectives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from roofmodel.numbers import units
from roofmodel.report.document import Block, Document, Figure, Heading, Items, Paragraph, Rows
from roofmodel.report.table import TEXT, Column, Table, Unit
from roofmodel.roofline.counted_kernels import AUXILIARY
from roofmodel.trace import picture
from roofmodel.trace.achieved import RunRoofline
from roofmodel.trace.findings import Finding
from roofmodel.trace.groups import lecture_shares
from roofmodel.trace.ranks import Run
from roofmodel.trace.several_runs import answer as several_runs
from roofmodel.trace.several_runs.run_summary import merged_collectives, merged_copies
from roofmodel.trace.steps import mean_seconds, total
from roofmodel.trace.tables import (
    ACHIEVED,
    CAUSE_TEXTS,
    COLLECTIVES,
    COPIES,
    MAX_ROWS,
    OUTSIDE,
    PEERS,
    RANKS,
    STEPS,
    RankRow,
    StepRow,
    describe_causes,
    groups_table,
    rank_rows,
    step_rows,
)
from roofmodel.trace.trace import RankReport, RunAnalysis
from roofmodel.trace.transfers import CollectiveCalls, Copies, PeerMatrix, matrices

MAX_REASONS = 3  # why kernels have no FLOPs
NO_SHAPES = (
    "roofline: no FLOPs or bytes, because the trace has no shapes of operators; "
    "record them with torch.profiler.profile(record_shapes=True)"
)


def document(trace: RunAnalysis) -> Document:
    """What limits the run, the picture, then the tables. The title has the files, ranks and device."""
    device = f" on {trace.identified.device.name}" if trace.identified else ""
    return Document(
        f"{_files(trace)}{device} ({trace.tool})",
        [*_blocks(trace), *_peers(trace)],
        partial(to_dict, trace),
        partial(main_table, trace),
    )


def _blocks(trace: RunAnalysis) -> Iterator[Block]:
    if trace.reading is not None:
        yield Paragraph(str(trace.reading), dim=True)
    if not trace.ranks:
        yield Paragraph("no GPU work")
    elif trace.comparison is not None:
        yield from several_runs.change(trace.comparison)
        yield _figure(trace)
        yield from several_runs.changes(trace, trace.comparison)
        yield Heading("What limits each rank", only_page=True)
        yield from _findings(trace.rank_findings)
        yield Rows(RANKS, rank_rows(trace))
        yield from _power(trace.ranks)
        yield from _idle(trace.ranks)
    elif len(trace.runs) > 1:
        yield from (
            Paragraph(f"{finding.text[0].upper()}{finding.text[1:]}.", bold=True) for finding in trace.run_findings
        )
        yield _figure(trace)
        yield from several_runs.side_by_side(trace)
        yield Heading("What limits each rank", only_page=True)
        yield from _findings(trace.rank_findings)
        if len(trace.ranks) > len(trace.runs):
            yield Rows(RANKS, rank_rows(trace))
        yield from _power(trace.ranks)
        yield from _idle_of_runs(trace)
    else:
        yield from _findings(trace.rank_findings)
        if not trace.findings:
            yield Paragraph(largest_part(trace.ranks))
        yield from _roofline(trace)
        yield _figure(trace)
        yield from _ranks(trace) if len(trace.ranks) > 1 else _rank(trace)


def _figure(trace: RunAnalysis) -> Figure:
    return Figure(
        partial(picture.draw, trace, with_findings=False),
        "Parts of the wall time of each step or rank as stacked bars, the lanes of a few steps, and the GPU work by "
        f"{trace.by}",
    )


def _rank(trace: RunAnalysis) -> Iterator[Block]:
    """A run of one rank."""
    (row,) = rank_rows(trace)
    yield Heading("Wall time", only_page=True)
    yield Rows(RANKS, [row])
    yield from _graphs(trace.ranks)
    yield from _power(trace.ranks)
    yield from _idle(trace.ranks)
    yield from _steps(row.report)
    yield from _groups(trace)
    yield Heading("longest kernels and copies, by name")
    yield Rows(groups_table(title="name").without("rank"), trace.top)
    yield from _copies([(each, row) for each in row.report.copies], COPIES)
    yield from _collectives([(each, row) for each in row.report.collectives], COLLECTIVES)


def _ranks(trace: RunAnalysis) -> Iterator[Block]:
    """A run of several ranks: groups over all ranks, then a line for each rank; JSON has the groups of each rank."""
    (run,), rows = trace.runs, rank_rows(trace)
    yield Heading(f"GPU work by {trace.by}, all ranks")
    yield Rows(several_runs.merged_table(trace.by), run.groups, MAX_ROWS, formats=["json"])
    yield Heading("longest kernels and copies, by name, all ranks")
    yield Rows(several_runs.merged_table("name"), run.names[: trace.listed])
    yield Heading("Ranks", only_page=True)
    yield Rows(RANKS, rows)
    if len(trace.files) > 1:
        yield Paragraph("The clocks of different files are not aligned: compare durations, not starts.", dim=True)
    yield from _graphs(trace.ranks)
    yield from _power(trace.ranks)
    yield from _idle_of_runs(trace)
    yield from _steps_of_ranks(trace.ranks)
    device = rows[0]
    copies = merged_copies(each for row in rows for each in row.report.copies)
    yield from _copies([(each, device) for each in copies], COPIES.without("rank"))
    calls = merged_collectives(each for row in rows for each in row.report.collectives)
    yield from _collectives([(each, device) for each in calls], COLLECTIVES.without("rank"), " of the slowest rank")


def _roofline(trace: RunAnalysis) -> Iterator[Block]:
    """One sentence on how much of the kernel time has known FLOPs, and the reasons for the rest."""
    if text := roofline_text(trace):
        yield Paragraph(text)
    unknown = trace.roofline.unknown if trace.roofline else {}
    rest = [(reason, *each) for reason, each in unknown.items() if not reason.startswith(AUXILIARY)]
    if rest:
        listed = "; ".join(
            f"{reason} ({units.count(kernels, 'kernel')}, {units.seconds(seconds)})"
            for reason, kernels, seconds in rest[:MAX_REASONS]
        )
        more = f"; and {units.count(len(rest) - MAX_REASONS, 'other reason')}" if len(rest) > MAX_REASONS else ""
        yield Paragraph(f"without FLOPs and bytes: {listed}{more}", dim=True)


def roofline_text(trace: RunAnalysis) -> str:
    """How much of the kernel time has known FLOPs, and what these kernels achieve; empty if nothing is known of it."""
    if trace.roofline is None:
        return NO_SHAPES if trace.tool == "torch" and trace.ranks else ""
    roofline, achieved = trace.roofline, trace.roofline.achieved
    if achieved is None:
        return "roofline: no kernel has FLOPs and bytes"
    text = f"roofline: {roofline.explained_share:.0%} of the kernel time has FLOPs and bytes, counted from shapes; "
    rates = (
        f"{units.si(achieved.flops_per_second or 0, 'FLOP/s')} and {units.si(achieved.bytes_per_second or 0, 'B/s')}"
    )
    if achieved.attainable_share is None or trace.identified is None:
        return f"{text}it achieves {rates}"
    return f"{text}it achieves {achieved.attainable_share:.0%} of what {trace.identified.device.id} attains ({rates})"


def _findings(findings: Iterable[Finding]) -> Iterator[Block]:
    if lines := [f"{finding.text}." for finding in findings]:
        yield Items(lines, numbered=True)


def _files(trace: RunAnalysis) -> str:
    """The names of the files, by run if there are several."""
    sides: dict[Run | None, list[str]] = {"before": [], "after": []} if trace.comparison else {}
    for each in trace.ranks:
        sides.setdefault(each.rank.run, []).append(trace.names[each.rank.timeline.file])
    if not sides or None in sides:
        return f"{_listed(trace.names.values())}: {units.count(len(trace.ranks), 'rank')}"
    return "; ".join(
        f"{f'run {run}' if isinstance(run, int) else run}: {_listed(dict.fromkeys(names))}, "
        f"{units.count(len(names), 'rank')}"
        for run, names in sides.items()
    )


def _listed(names: Iterable[str]) -> str:
    every_name = [*names]
    return ", ".join(every_name[:3]) + (f" and {len(every_name) - 3} more" if len(every_name) > 3 else "")


def _graphs(ranks: Iterable[RankReport]) -> Iterator[Block]:
    for report in ranks:
        rank = report.rank
        if launches := rank.graph_launches:
            kernels = f"{int(rank.in_graph.sum())} of {int(rank.is_kernel.sum())} kernels of rank {rank.number}"
            yield Paragraph(f"{kernels} were launched by {units.count(launches, 'CUDA graph launch', 'es')}", dim=True)


def _power(ranks: Iterable[RankReport]) -> Iterator[Block]:
    for report in ranks:
        if report.power is not None:
            yield Paragraph(f"energy of the GPU of rank {report.rank.number}: {report.power}", dim=True)


def _idle(ranks: Iterable[RankReport]) -> Iterator[Block]:
    for report in ranks:
        if listed := describe_causes(report.idle_by_cause):
            yield Paragraph(f"idle time of rank {report.rank.number}: {listed}", dim=True)


def _idle_of_runs(trace: RunAnalysis) -> Iterator[Block]:
    """The idle time of each run by cause, summed over its ranks."""
    for run in trace.runs:
        of_run = "" if run.run is None else f" of run {run.run}"
        summed = f", sum over {run.totals.ranks} ranks" if run.totals.ranks > 1 else ""
        if listed := describe_causes(run.idle_by_cause):
            yield Paragraph(f"idle time{of_run}{summed}: {listed}", dim=True)


def _steps_of_ranks(ranks: Iterable[RankReport]) -> Iterator[Block]:
    """One line on the steps of all ranks."""
    means = []
    for report in ranks:
        if steps := report.steps.steady:
            means.append((mean_seconds(steps), report.rank.number, len(steps)))
    if means:
        (least, fastest, _), (most, slowest, _) = min(means), max(means)
        numbers = sorted({number for *_, number in means})
        steps_of_rank = " or ".join(map(str, numbers)) if len(numbers) < 3 else f"{numbers[0]} to {numbers[-1]}"
        text = f"{steps_of_rank} steps a rank, mean {units.seconds(least)} (rank {fastest})"
        yield Paragraph(f"{text} to {units.seconds(most)} (rank {slowest}); JSON has each step", dim=True)


def _steps(report: RankReport) -> Iterator[Block]:
    """The steps of a rank; of steps of a single kernel, only what they take."""
    steps, steady = report.steps.complete, report.steps.steady
    if not steps:
        return
    how = "marked in the trace" if report.steps.source == "marks" else "found as a repeating sequence of kernels"
    mean = units.seconds(mean_seconds(steady))
    if warm_up := len(steps) - len(steady):
        mean += f" without {units.count(warm_up, 'warm-up step')} ({units.seconds(mean_seconds(steps))} with)"
    kernels = sum(step.kernels for step in steps) / len(steps)
    heading = f"{units.count(len(steps), 'step')} of rank {report.rank.number}, {how}; mean {mean}"
    noun = "kernel" if kernels == 1 else "kernels"
    yield Heading(f"{heading}, {units.significant(kernels)} {noun}")
    if kernels <= 1 and len(steps) > MAX_ROWS:
        lengths = sorted(step.length / 1e9 for step in steady)
        shortest, middle, longest = (units.seconds(lengths[i]) for i in (0, len(lengths) // 2, -1))
        yield Paragraph(f"shortest {shortest}, median {middle}, longest {longest}; JSON has each step", dim=True)
        return
    yield Rows(STEPS, [StepRow(report.rank, step) for step in steps], MAX_ROWS, formats=["json"])


def _groups(trace: RunAnalysis) -> Iterator[Block]:
    """The groups of the only rank."""
    yield Heading(f"GPU work by {trace.by}")
    yield Rows(groups_table(title=trace.by).without("rank"), trace.groups, MAX_ROWS, formats=["json"])
    if trace.by == "lecture" and (shares := lecture_shares(trace.ranks[0].rank)):
        text = f"communication (memory_mgmt) {shares.memory_mgmt:.2%}; collectives alone {shares.collectives:.2%}"
        yield Paragraph(text, dim=True)


def _copies(rows: Sequence[tuple[Copies, RankRow]], table: Table) -> Iterator[Block]:
    if rows:
        yield Heading("copies and memsets")
        yield Rows(table, rows)


def _peers(trace: RunAnalysis) -> Iterator[Block]:
    """Bytes and rates between GPUs as matrices."""
    for matrix in matrices(trace.peers):
        for field, unit in (("bytes", "B"), ("bytes_per_second", "B/s")):
            largest = max(getattr(each, field) or 0 for each in trace.peers)
            if not largest:
                continue  # the file does not record it
            prefix = units.si(largest, unit).rpartition(" ")[2].removesuffix(unit)
            values = {pair: getattr(each, field) for pair, each in matrix.copies.items()}
            yield Heading(f"{matrix.title}: {prefix}{unit} from each GPU (row) to each other (column)")
            yield Rows(_matrix_table(matrix, values, units.DECIMAL[prefix]), matrix.devices)


def _matrix_table(matrix: PeerMatrix, values: Mapping[tuple[str, str], float | None], scale: int) -> Table:
    """A row for each source, a column for each destination; a narrow terminal leaves out the last columns."""

    def cell(destination: str) -> Callable[[str], float | None]:
        return lambda source: values.get((source, destination))

    number = Unit(lambda value: units.significant(value / scale))
    columns = [
        Column(None, device, number, cell(device), unknown="·", priority=len(matrix.devices) - place)
        for place, device in enumerate(matrix.devices)
    ]
    return Table("peer_copies", [Column(None, "from", TEXT, lambda device: device), *columns])


def _collectives(
    rows: Sequence[tuple[CollectiveCalls, RankRow]], table: Table, bandwidths: str = ""
) -> Iterator[Block]:
    if rows:
        rates = f", bandwidths{bandwidths}" if bandwidths else ""
        yield Heading(f"collectives; their time includes waiting for the last rank{rates}")
        yield Rows(table, rows)


def largest_part(ranks: Sequence[RankReport]) -> str:
    """The largest part of the wall time, summed over the ranks, and the main cause if it is idle time."""
    seconds: dict[str, float] = defaultdict(float)
    causes: dict[str, float] = defaultdict(float)
    for report in ranks:
        window = total(report.rank)
        seconds["computation"] += (window.compute_only + window.overlap) / 1e9
        seconds["exposed communication"] += window.communication_exposed / 1e9
        seconds["copying"] += window.copies_exposed / 1e9
        seconds["idle time"] += window.idle / 1e9
        for cause, idle in report.idle_by_cause.items():
            causes[cause] += idle
    if not seconds:
        return "no GPU work"
    wall = sum(seconds.values())
    if not wall:
        return "the GPU work takes no time"
    part, longest = max(seconds.items(), key=lambda item: item[1])
    size = "takes most" if 2 * longest > wall else "is the largest part"
    text = f"{part} {size} of the wall time: {units.seconds(longest)} of {units.seconds(wall)} ({longest / wall:.0%})"
    if part == "idle time" and causes:
        text += f", main cause: {CAUSE_TEXTS[max(causes, key=causes.__getitem__)]}"
    if (outside := sum(map(_outside_seconds, ranks))) > wall / 10:
        text += f". The steps last {units.seconds(outside)} longer, {CAUSE_TEXTS[OUTSIDE]}"
    return text


def _outside_seconds(report: RankReport) -> float:
    """The time of complete steps before the first GPU work of the rank and after the last."""
    steps, (low, high) = report.steps.complete, report.rank.span
    return (max(low - steps[0].start, 0) + max(steps[-1].end - high, 0)) / 1e9 if steps else 0.0


# --- JSON and CSV ----------------------------------------------------------------------------------


def to_dict(trace: RunAnalysis) -> dict[str, Any]:
    """The document `roofmodel.trace/1`; times in seconds, steps relative to the first activity of their file."""
    identified = trace.identified
    names = groups_table("name")
    devices = {report.rank.number: report.rank.device for report in trace.ranks}
    return {
        "schema": "roofmodel.trace/1",
        "source": {"tool": trace.tool, "files": list(trace.names.values())},
        "hardware": identified and identified.device.id,
        "hardware_from": identified and identified.source,
        "ranks": RANKS.records(rank_rows(trace)),
        "peer_copies": PEERS.records(trace.peers),
        "by": trace.by,
        "groups": groups_table().records(trace.groups),
        "top": [{"device": devices[row.rank]} | names.record(row) for row in trace.top],
        "steps": STEPS.records(step_rows(trace)),
        "roofline": _roofline_record(trace.roofline),
        "findings": [{"kind": f.kind, "seconds": f.seconds, "text": f.text} for f in trace.findings],
        "reading": None if trace.reading is None else str(trace.reading),
        "runs": several_runs.run_records(trace),
        "comparison": trace.comparison and several_runs.comparison_record(trace.comparison),
        "warnings": list(map(str, trace.warnings)),
    }


def main_table(trace: RunAnalysis) -> Rows:
    """A row per rank and group; of two runs one per group, with its change."""
    if trace.comparison is not None:
        return Rows(several_runs.changes_table("group"), trace.comparison.groups)
    return Rows(groups_table(), trace.groups)


def _roofline_record(roofline: RunRoofline | None) -> dict[str, Any] | None:
    """How much of the kernel time has known FLOPs and bytes; null if the files have no shapes of operators."""
    if roofline is None:
        return None
    return {
        "counted_from": "shapes",
        "kernel_seconds": roofline.kernel_seconds,
        "explained": roofline.explained_share,
        **Table("", ACHIEVED).record(roofline),
        "not_counted": [
            {"reason": reason, "kernels": kernels, "seconds": seconds}
            for reason, (kernels, seconds) in roofline.unknown.items()
        ],
    }
