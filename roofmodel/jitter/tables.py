"""The comparison of ranks in the terminal: findings, ranks, steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.errors import Option
from roofmodel.jitter.jitter import OPERATIONS, Jitter
from roofmodel.jitter.pipelines.what_if import WhatIf
from roofmodel.jitter.reduced_steps import StepSummary
from roofmodel.numbers import units
from roofmodel.report.columns import FittingTable
from roofmodel.roofline.kernel_names import short_name

MAX_ROWS = 16  # of ranks and of steps
MAX_SLOWDOWNS = 4  # of each group
TOOLS = {"steps": "tables of kernels by step", OPERATIONS: "table of operations"}
LEGEND = {
    "compute": "compute: kernels that all ranks share, collectives apart",
    "launch → start": "launch → start: median time from a kernel's launch on the CPU to its start",
    "late by": "late by, early by: deviation of the latest and of the earliest rank from the mean over ranks, before "
    "the last collective of the step; from kernel: the first kernel at which the latest rank is late by more than "
    "{threshold}",
}

OPERATIONS_LEGEND = {
    "compute": "compute: forward and backward computations",
    "late by": "late by, early by: compute time of the latest and of the earliest rank, minus the mean over ranks; "
    "from computation: the first computation at which the latest rank is late by more than {threshold}",
}


def table(jitter: Jitter) -> RenderableType:
    """Everything, the findings first."""
    return Group(*_blocks(jitter))


def _blocks(jitter: Jitter) -> Iterator[RenderableType]:
    files = ", ".join([*jitter.names.values()][:3])
    if len(jitter.files) > 3:
        files += f" and {len(jitter.files) - 3} more"
    steps = units.count(len(jitter.steps), "step")
    yield Text(
        f"{files}: {units.count(len(jitter.ranks), 'rank')}, {steps} ({TOOLS.get(jitter.tool, jitter.tool)})",
        style="bold",
    )
    for number, finding in enumerate(jitter.findings, 1):
        yield Text(f"{number}. {finding}.")
    yield Text()
    yield Text(alignment_text(jitter), style="dim")
    yield Text()
    yield _ranks(jitter)
    yield from _omitted_rows(len(jitter.ranks) - MAX_ROWS)
    if any(step.has_latest for step in jitter.steps):
        yield Text()
        yield _steps(jitter)
        yield from _omitted_rows(len(jitter.steps) - MAX_ROWS)
    if jitter.what_if is not None:
        yield Text()
        yield Text(what_if_text(jitter.what_if))
        yield _slowdowns(jitter.what_if)


def alignment_text(jitter: Jitter) -> str:
    """How the kernels and the clocks of the ranks are matched."""
    text = f"{jitter.common_kernels} {unit_of_work(jitter)}s compared, matched by the {jitter.aligned_by}"
    clocks = jitter.clocks
    if clocks.error_seconds is not None and clocks.start_skew_seconds is not None:
        low, high = clocks.start_skew_seconds
        text += (
            f"; collectives end within {units.seconds(clocks.error_seconds)} on all ranks (error of the aligned "
            f"clocks), and start {signed(low)} to {signed(high)} after rank {jitter.ranks[0].rank.number}"
        )
    return text


def unit_of_work(jitter: Jitter) -> str:
    """What is compared between ranks."""
    return "computation" if jitter.tool == OPERATIONS else "kernel"


def _legend(jitter: Jitter) -> dict[str, str]:
    legend = OPERATIONS_LEGEND if jitter.tool == OPERATIONS else LEGEND
    threshold = units.seconds(jitter.threshold)
    return {title: text.format(threshold=threshold) for title, text in legend.items()}


def signed(seconds: float) -> str:
    """Such as `+3.34 ms`."""
    return f"{'-' if seconds < 0 else '+'}{units.seconds(abs(seconds))}" if seconds else "0"


def _ranks(jitter: Jitter) -> RenderableType:
    count_title = "operations" if jitter.tool == OPERATIONS else "kernels"
    shown = FittingTable(
        ("rank", count_title, "compute", "launch → start", "latest", "mean deviation"),
        "rank",
        ("launch → start", count_title),
        _legend(jitter),
    )
    latest = [step.latest_rank for step in jitter.steps if step.has_latest]
    means = jitter.mean_deviations
    for place in jitter.latest_ranks(MAX_ROWS):
        rank, compute, delay, _, worker = jitter.ranks[place]
        mean = means[place]
        labels = [f"GPU {rank.device}"] * (rank.device is not None) + [f"process {rank.process}"] * bool(rank.process)
        if worker is not None:
            labels = [f"dp_rank {worker.dp_rank}", f"stage {worker.stage}"]
        count = latest.count(rank.number)
        shown.add(
            f"{rank.number}: {', '.join([*labels, jitter.names[rank.file]])}",
            str(rank.kernels),
            "–" if compute is None else units.seconds(compute, 4),
            "–" if delay is None else units.seconds(delay),
            units.count(count, "step") if count else "",
            "–" if mean is None else signed(mean),
        )
    return _without_unknown(shown)


def _steps(jitter: Jitter) -> RenderableType:
    first, legend = f"from {unit_of_work(jitter)}", _legend(jitter)
    titles = ("step", "latest", "late by", "earliest", "early by", first, "cause")
    names: str | None = first
    if all(step.diverges_at_kernel is None for step in jitter.steps):  # below the threshold: no column of kernels
        meaning = legend["late by"].partition(";")[0]
        names, legend = None, {"late by": f"{meaning}; no rank is late by more than {units.seconds(jitter.threshold)}"}
    shown = FittingTable(titles, names, ("early by", "earliest"), legend)
    for step in (jitter.steps[place] for place in jitter.worst_steps(MAX_ROWS)):
        shown.add(
            str(step.step),
            str(step.latest_rank) if step.has_latest else "–",
            units.seconds(step.latest_seconds) if step.has_latest else "–",
            str(step.earliest_rank) if step.has_latest else "–",
            units.seconds(max(-step.earliest_seconds, 0)) if step.has_latest else "–",
            _first_late(step),
            step.cause or "",
        )
    return _without_unknown(shown)


def _without_unknown(shown: FittingTable) -> FittingTable:
    """The table without the cells of columns that have no value in any row; such columns are not printed."""
    for title in shown.titles:
        if all(row[title] in ("–", "") for row in shown.rows):
            for row in shown.rows:
                row[title] = ""
    return shown


def _first_late(step: StepSummary) -> str:
    """Index and name of the first kernel at which the latest rank is late, such as `6 layer_norm`."""
    if step.diverges_at_kernel is None:
        return ""
    return f"{step.diverges_at_kernel} {short_name(step.kernel_name) if step.kernel_name else ''}".rstrip()


def what_if_text(found: WhatIf) -> str:
    """The slowdown, the shares that workers and the last stage explain, and the error of the replay."""
    text = (
        f"What if: stragglers slow the job down by a factor of {found.slowdown:.3f} (steps without launch delays / "
        "steps in which all operations take the ideal time of their kind). The replay differs from the recorded steps "
        f"by {found.replay_error:.1%}."
    )
    if found.m_w is None or found.m_s is None:
        return text
    ranks = [str(found.ranks[worker]) for worker in found.worst_workers]
    workers = f"worker{'s' * (len(ranks) > 1)} {' and '.join(filter(None, [', '.join(ranks[:-1]), ranks[-1]]))}"
    shares = f"of the {workers}: {found.m_w:.1%}; of the last stage: {found.m_s:.1%}"
    above = " Above 100%: the other parts are faster than their ideal (mean) times." * (max(found.m_w, found.m_s) > 1)
    return (
        f"{text} Share of the lost time that is saved if all operations take ideal times: {shares}. It includes all "
        "differences from the ideal times, also those of microbatches; the share of a finding is that of one cause."
        f"{above}"
    )


def slowdown_rows(found: WhatIf) -> list[tuple[str, str, float]]:
    """What keeps its recorded time, with the slowdown: kinds of operations, stages, data-parallel ranks, workers.

    The largest come first within each group.
    """
    groups: tuple[tuple[str, dict[str, float]], ...] = (
        ("operation", found.by_operation),
        ("stage", {str(stage): value for stage, value in found.by_stage.items()}),
        ("dp_rank", {str(dp_rank): value for dp_rank, value in found.by_dp_rank.items()}),
        ("rank", {str(found.ranks[worker]): value for worker, value in found.by_worker.items()}),
    )
    return [
        (group, name, value)
        for group, slowdowns in groups
        for name, value in sorted(slowdowns.items(), key=lambda item: -item[1])
    ]


def _slowdowns(found: WhatIf) -> RenderableType:
    shown = FittingTable(("only this at its recorded time", "slowdown"), "only this at its recorded time", (), {})
    listed: Counter[str] = Counter()
    for group, name, value in slowdown_rows(found):
        listed[group] += 1
        if listed[group] <= MAX_SLOWDOWNS:
            shown.add(f"{group} {name}", f"{value:.4f}")
    return shown


def _omitted_rows(rest: int) -> Iterator[RenderableType]:
    if rest > 0:
        yield Text(f"and {rest} more with smaller deviations; {Option('format', 'json')} lists all", style="dim")
