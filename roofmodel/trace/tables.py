"""The analysis of a run in the terminal: findings, parts of the wall time, steps, groups, longest kernels, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.numbers import units
from roofmodel.report.columns import omitted_rows
from roofmodel.report.table import TEXT, Column, Table, Unit
from roofmodel.roofline.counted_kernels import AUXILIARY
from roofmodel.trace.columns import COLLECTIVES, COPIES, RANKS, STEPS, RankRow, StepRow, groups_table, rank_rows
from roofmodel.trace.communication import CollectiveCalls
from roofmodel.trace.copies import Copies, PeerMatrix, matrices
from roofmodel.trace.findings import Finding
from roofmodel.trace.groups import lecture_shares
from roofmodel.trace.parts import describe_causes, largest_part
from roofmodel.trace.ranks import Run
from roofmodel.trace.several_runs import comparison_tables as comparison
from roofmodel.trace.several_runs import run_tables
from roofmodel.trace.several_runs.merged import merged_collectives, merged_copies
from roofmodel.trace.trace import RankReport, RunAnalysis

MAX_ROWS = 12  # of groups and of steps per rank
MAX_REASONS = 3  # why kernels have no FLOPs
NO_SHAPES = (
    "roofline: no FLOPs or bytes, because the trace has no shapes of operators; "
    "record them with torch.profiler.profile(record_shapes=True)"
)


def table(trace: RunAnalysis) -> RenderableType:
    """Everything, the findings first."""
    return Group(*blocks(trace))


def blocks(trace: RunAnalysis) -> Iterator[RenderableType]:
    """Lines and tables; the first line has the files, ranks and device."""
    yield from _answer(trace)
    yield from _peers(trace)


def _answer(trace: RunAnalysis) -> Iterator[RenderableType]:
    device = f" on {trace.identified.device.name}" if trace.identified else ""
    yield Text(f"{_files(trace)}{device} ({trace.tool})", style="bold")
    if trace.reading is not None:
        yield Text(str(trace.reading), style="dim")
    if not trace.ranks:
        yield Text("no GPU work")
        return
    if trace.comparison is not None:
        yield from comparison.blocks(trace, trace.comparison)
        yield from _findings(trace.rank_findings)
        yield RANKS.terminal(rank_rows(trace))
        yield from _power(trace.ranks)
        yield from _idle(trace.ranks)
        return
    if len(trace.runs) > 1:
        yield from (
            Text(f"{finding.text[0].upper()}{finding.text[1:]}.", style="bold") for finding in trace.run_findings
        )
        yield from run_tables.blocks(trace)
        yield Text()
        yield from _findings(trace.rank_findings)
        if len(trace.ranks) > len(trace.runs):
            yield RANKS.terminal(rank_rows(trace))
        yield from _power(trace.ranks)
        yield from _idle_of_runs(trace)
        return
    yield from _findings(trace.rank_findings)
    if not trace.findings:
        yield Text(largest_part(trace.ranks))
    yield from _roofline(trace)
    if len(trace.ranks) > 1:
        yield from _ranks(trace)
        return
    yield Text()
    yield RANKS.terminal(rank_rows(trace))
    yield from _graphs(trace.ranks)
    yield from _power(trace.ranks)
    yield from _idle(trace.ranks)
    yield from _steps(trace.ranks)
    yield from _groups(trace)
    yield Text()
    yield Text("longest kernels and copies, by name", style="bold")
    yield groups_table(title="name").without("rank").terminal(trace.top)
    (row,) = rank_rows(trace)
    yield from _copies([(each, row) for each in row.report.copies], COPIES)
    yield from _collectives([(each, row) for each in row.report.collectives], COLLECTIVES)


def _ranks(trace: RunAnalysis) -> Iterator[RenderableType]:
    """A run of several ranks: groups over all ranks, then a line for each rank; JSON has the groups of each rank."""
    (run,), rows = trace.runs, rank_rows(trace)
    for heading, title, groups, shown in (
        (f"GPU work by {trace.by}, all ranks", trace.by, run.groups, MAX_ROWS),
        ("longest kernels and copies, by name, all ranks", "name", run.names, trace.listed),
    ):
        yield Text()
        yield Text(heading, style="bold")
        yield run_tables.merged_table(title).terminal(groups[:shown])
        if title == trace.by:
            yield from omitted_rows(len(groups) - shown, "json")
    yield Text()
    yield RANKS.terminal(rows)
    if len(trace.files) > 1:
        yield Text("The clocks of different files are not aligned: compare durations, not starts.", style="dim")
    yield from _graphs(trace.ranks)
    yield from _power(trace.ranks)
    yield from _idle_of_runs(trace)
    yield from _steps_of_ranks(trace.ranks)
    device = rows[0]
    copies = merged_copies(each for row in rows for each in row.report.copies)
    yield from _copies([(each, device) for each in copies], COPIES.without("rank"))
    calls = merged_collectives(each for row in rows for each in row.report.collectives)
    yield from _collectives([(each, device) for each in calls], COLLECTIVES.without("rank"), " of the slowest rank")


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


def _findings(findings: Iterable[Finding]) -> Iterator[RenderableType]:
    for number, finding in enumerate(findings, 1):
        yield Text(f"{number}. {finding.text}.")


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


def _graphs(ranks: Iterable[RankReport]) -> Iterator[RenderableType]:
    for report in ranks:
        rank = report.rank
        if launches := rank.graph_launches:
            kernels = f"{int(rank.in_graph.sum())} of {int(rank.is_kernel.sum())} kernels of rank {rank.number}"
            yield Text(f"{kernels} were launched by {units.count(launches, 'CUDA graph launch', 'es')}", style="dim")


def _power(ranks: Iterable[RankReport]) -> Iterator[RenderableType]:
    for report in ranks:
        if report.power is not None:
            yield Text(f"energy of the GPU of rank {report.rank.number}: {report.power}", style="dim")


def _idle(ranks: Iterable[RankReport]) -> Iterator[RenderableType]:
    for report in ranks:
        if listed := describe_causes(report.idle_by_cause):
            yield Text(f"idle time of rank {report.rank.number}: {listed}", style="dim")


def _idle_of_runs(trace: RunAnalysis) -> Iterator[RenderableType]:
    """The idle time of each run by cause, summed over its ranks."""
    for run in trace.runs:
        of_run = "" if run.run is None else f" of run {run.run}"
        summed = f", sum over {run.totals.ranks} ranks" if run.totals.ranks > 1 else ""
        if listed := describe_causes(run.idle_by_cause):
            yield Text(f"idle time{of_run}{summed}: {listed}", style="dim")


def _steps_of_ranks(ranks: Iterable[RankReport]) -> Iterator[RenderableType]:
    """One line on the steps of all ranks."""
    means = []
    for report in ranks:
        if steps := report.steps.complete:
            means.append((sum(step.length for step in steps) / len(steps) / 1e9, report.rank.number, len(steps)))
    if means:
        (least, fastest, _), (most, slowest, _) = min(means), max(means)
        numbers = sorted({number for *_, number in means})
        steps_of_rank = " or ".join(map(str, numbers)) if len(numbers) < 3 else f"{numbers[0]} to {numbers[-1]}"
        text = f"{steps_of_rank} steps a rank, mean {units.seconds(least)} (rank {fastest})"
        yield Text(f"{text} to {units.seconds(most)} (rank {slowest}); JSON has each step", style="dim")


def _steps(ranks: Iterable[RankReport]) -> Iterator[RenderableType]:
    for report in ranks:
        steps = report.steps.complete
        if not steps:
            continue
        how = "marked in the trace" if report.steps.source == "marks" else "found as a repeating sequence of kernels"
        mean = sum(step.length for step in steps) / len(steps) / 1e9
        kernels = sum(step.kernels for step in steps) / len(steps)
        heading = f"{units.count(len(steps), 'step')} of rank {report.rank.number}, {how}; mean {units.seconds(mean)}"
        noun = "kernel" if kernels == 1 else "kernels"
        yield Text()
        yield Text(f"{heading}, {units.significant(kernels)} {noun}", style="bold")
        yield STEPS.terminal(StepRow(report.rank, step) for step in steps[:MAX_ROWS])
        yield from omitted_rows(len(steps) - MAX_ROWS, "json")


def _groups(trace: RunAnalysis) -> Iterator[RenderableType]:
    """The groups of the only rank."""
    yield Text()
    yield Text(f"GPU work by {trace.by}", style="bold")
    yield groups_table(title=trace.by).without("rank").terminal(trace.groups[:MAX_ROWS])
    yield from omitted_rows(len(trace.groups) - MAX_ROWS, "json")
    if trace.by == "lecture" and (shares := lecture_shares(trace.ranks[0].rank)):
        text = f"communication (memory_mgmt) {shares.memory_mgmt:.2%}; collectives alone {shares.collectives:.2%}"
        yield Text(text, style="dim")


def _copies(rows: Sequence[tuple[Copies, RankRow]], table: Table) -> Iterator[RenderableType]:
    if rows:
        yield Text()
        yield Text("copies and memsets", style="bold")
        yield table.terminal(rows)


def _peers(trace: RunAnalysis) -> Iterator[RenderableType]:
    """Bytes and rates between GPUs as matrices."""
    for matrix in matrices(trace.peers):
        for field, unit in (("bytes", "B"), ("bytes_per_second", "B/s")):
            largest = max(getattr(each, field) or 0 for each in trace.peers)
            if not largest:
                continue  # the file does not record it
            prefix = units.si(largest, unit).rpartition(" ")[2].removesuffix(unit)
            values = {pair: getattr(each, field) for pair, each in matrix.copies.items()}
            yield Text()
            yield Text(f"{matrix.title}: {prefix}{unit} from each GPU (row) to each other (column)", style="bold")
            yield _matrix_table(matrix, values, units.DECIMAL[prefix]).terminal(matrix.devices)


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
) -> Iterator[RenderableType]:
    if rows:
        yield Text()
        rates = f", bandwidths{bandwidths}" if bandwidths else ""
        yield Text(f"collectives; their time includes waiting for the last rank{rates}", style="bold")
        yield table.terminal(rows)
