"""The comparison of ranks in the terminal: findings, ranks, steps."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.jitter.columns import rank_rows, ranks_table, signed, steps_table
from roofmodel.jitter.jitter import Jitter
from roofmodel.numbers import units
from roofmodel.report.columns import omitted_rows

MAX_ROWS = 16  # of ranks and of steps
SMALLER = "with smaller deviations"  # the rows that are left out
TOOLS = {"steps": "tables of kernels by step"}


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
    yield ranks_table().terminal(ranks[place] for place in jitter.latest_ranks(MAX_ROWS))
    yield from omitted_rows(len(jitter.ranks) - MAX_ROWS, "json", which=SMALLER)
    if any(step.has_latest for step in jitter.steps):
        yield Text()
        yield steps_table(jitter).terminal(jitter.steps[place] for place in jitter.worst_steps(MAX_ROWS))
        yield from omitted_rows(len(jitter.steps) - MAX_ROWS, "json", which=SMALLER)


def alignment_text(jitter: Jitter) -> str:
    """How the kernels and the clocks of the ranks are matched."""
    text = f"{jitter.common_kernels} kernels compared, matched by the {jitter.aligned_by}"
    clocks = jitter.clocks
    if clocks.error_seconds is not None and clocks.start_skew_seconds is not None:
        low, high = clocks.start_skew_seconds
        text += (
            f"; collectives end within {units.seconds(clocks.error_seconds)} on all ranks (error of the aligned "
            f"clocks), and start {signed(low)} to {signed(high)} after rank {jitter.ranks[0].rank.number}"
        )
    return text
