"""The comparison of ranks in the terminal: findings, ranks, steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.jitter.columns import SLOWDOWNS, rank_rows, ranks_table, signed, steps_table, unit_of_work
from roofmodel.jitter.jitter import OPERATIONS, Jitter
from roofmodel.jitter.pipelines.what_if import WhatIf
from roofmodel.numbers import units
from roofmodel.report.columns import omitted_rows

MAX_ROWS = 16  # of ranks and of steps
MAX_SLOWDOWNS = 4  # of each group
SMALLER = "with smaller deviations"  # the rows that are left out
TOOLS = {"steps": "tables of kernels by step", OPERATIONS: "table of operations"}


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
    ranks = rank_rows(jitter)
    yield ranks_table(jitter.tool == OPERATIONS).terminal(ranks[place] for place in jitter.latest_ranks(MAX_ROWS))
    yield from omitted_rows(len(jitter.ranks) - MAX_ROWS, "json", which=SMALLER)
    if any(step.has_latest for step in jitter.steps):
        yield Text()
        yield steps_table(jitter).terminal(jitter.steps[place] for place in jitter.worst_steps(MAX_ROWS))
        yield from omitted_rows(len(jitter.steps) - MAX_ROWS, "json", which=SMALLER)
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


def what_if_text(what_if: WhatIf) -> str:
    """The slowdown, the shares that workers and the last stage explain, and the error of the replay."""
    text = (
        f"What if: stragglers slow the job down by a factor of {what_if.slowdown:.3f} (steps without launch delays / "
        "steps in which all operations take the ideal time of their kind). The replay differs from the recorded steps "
        f"by {what_if.replay_error:.1%}."
    )
    if what_if.m_w is None or what_if.m_s is None:
        return text
    ranks = [str(what_if.ranks[worker]) for worker in what_if.worst_workers]
    workers = f"worker{'s' * (len(ranks) > 1)} {' and '.join(filter(None, [', '.join(ranks[:-1]), ranks[-1]]))}"
    shares = f"of the {workers}: {what_if.m_w:.1%}; of the last stage: {what_if.m_s:.1%}"
    above = " Above 100%: the other parts are faster than their ideal (mean) times." * (
        max(what_if.m_w, what_if.m_s) > 1
    )
    return (
        f"{text} Share of the lost time that is saved if all operations take ideal times: {shares}. It includes all "
        "differences from the ideal times, also those of microbatches; the share of a finding is that of one cause."
        f"{above}"
    )


def slowdown_rows(what_if: WhatIf) -> list[tuple[str, str, float]]:
    """What keeps its recorded time, with the slowdown: kinds of operations, stages, data-parallel ranks, workers.

    The largest come first within each group.
    """
    groups: tuple[tuple[str, dict[str, float]], ...] = (
        ("operation", what_if.by_operation),
        ("stage", {str(stage): value for stage, value in what_if.by_stage.items()}),
        ("dp_rank", {str(dp_rank): value for dp_rank, value in what_if.by_dp_rank.items()}),
        ("rank", {str(what_if.ranks[worker]): value for worker, value in what_if.by_worker.items()}),
    )
    return [
        (group, name, value)
        for group, slowdowns in groups
        for name, value in sorted(slowdowns.items(), key=lambda item: -item[1])
    ]


def _slowdowns(what_if: WhatIf) -> RenderableType:
    listed: Counter[str] = Counter()
    rows = []
    for row in slowdown_rows(what_if):
        listed[row[0]] += 1
        if listed[row[0]] <= MAX_SLOWDOWNS:
            rows.append(row)
    return SLOWDOWNS.terminal(rows)
