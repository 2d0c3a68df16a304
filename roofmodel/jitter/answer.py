"""The answer of `roof jitter`: which rank is late and why, then the ranks and the steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from roofmodel.jitter import picture
from roofmodel.jitter.jitter import Jitter
from roofmodel.jitter.tables import TOOLS, rank_rows, ranks_table, steps_table
from roofmodel.numbers import units
from roofmodel.report.document import Block, Document, Figure, Heading, Items, Paragraph, Rows
from roofmodel.report.table import Table, omitted

MAX_ROWS = 16  # of ranks and of steps, in a terminal
MAX_PAGE_ROWS = 200


_PICTURE = (
    "Deviations of the ranks from their mean: by kernel in the step with the largest one, with the parts of the latest "
    "and of the earliest rank; of the latest and of the earliest rank by step; and by rank and step"
)


def document(jitter: Jitter, most: int = MAX_ROWS) -> Document:
    """The findings, how the ranks are compared, the picture, and the `most` latest ranks and worst steps."""
    files = ", ".join([*jitter.names.values()][:3])
    if len(jitter.files) > 3:
        files += f" and {len(jitter.files) - 3} more"
    counts = f"{units.count(len(jitter.ranks), 'rank')}, {units.count(len(jitter.steps), 'step')}"
    ranks = rank_rows(jitter)
    blocks: list[Block] = [
        Items([f"{finding}." for finding in jitter.findings], numbered=True),
        Heading("Comparison", only_page=True),
        Paragraph(alignment_text(jitter), dim=True),
        Figure(partial(picture.draw, jitter, with_findings=False), _PICTURE),
        Heading("Ranks", only_page=True),
        *_rows(ranks_table(), ranks, jitter.latest_ranks(most)),
    ]
    if any(step.has_latest for step in jitter.steps):
        blocks += [
            Heading("Steps", only_page=True),
            *_rows(steps_table(jitter), jitter.steps, jitter.worst_steps(most)),
        ]
    return Document(
        f"{files}: {counts} ({TOOLS.get(jitter.tool, jitter.tool)})",
        blocks,
        partial(to_dict, jitter),
        partial(Rows, steps_table(), jitter.steps),
    )


def _rows(table: Table, rows: Sequence[Any], chosen: Sequence[int]) -> Iterator[Block]:
    """The chosen rows, and how many others there are."""
    yield Rows(table, [rows[place] for place in chosen])
    if rest := len(rows) - len(chosen):
        yield Paragraph(omitted(rest, "json", which="with smaller deviations"), dim=True)


def alignment_text(jitter: Jitter) -> str:
    """How the kernels and the clocks of the ranks are matched."""
    text = f"{jitter.common_kernels} kernels compared, matched by the {jitter.aligned_by}"
    clocks = jitter.clocks
    if clocks.error_seconds is not None and clocks.start_skew_seconds is not None:
        low, high = map(units.signed_seconds, clocks.start_skew_seconds)
        text += (
            ". After the clocks are aligned, collectives end on all ranks within "
            f"{units.seconds(clocks.error_seconds)}. They start {low} to {high} after their start on rank "
            f"{jitter.ranks[0].rank.number}."
        )
    return text


def to_dict(jitter: Jitter) -> dict[str, Any]:
    """The document `roofmodel.jitter/1`; times in seconds."""
    difference = jitter.difference
    return {
        "schema": "roofmodel.jitter/1",
        "source": {"tool": jitter.tool, "files": list(jitter.names.values())},
        "threshold_seconds": jitter.threshold,
        "step_seconds": jitter.step_seconds,
        "ranks": ranks_table().records(rank_rows(jitter)),
        "alignment": {
            "by": jitter.aligned_by,
            "first_gap": jitter.first_gap,
            "common_kernels": jitter.common_kernels,
            "first_difference": difference and difference.kernel,
            "difference": difference and difference._asdict(),
            "clock_error_seconds": jitter.clocks.error_seconds,
            "collective_start_skew_seconds": jitter.clocks.start_skew_seconds and [*jitter.clocks.start_skew_seconds],
        },
        "steps": steps_table().records(jitter.steps),
        "causes": [cause._asdict() | {"ranks": list(cause.ranks)} for cause in jitter.causes],
        "findings": list(jitter.findings),
        "warnings": list(map(str, jitter.warnings)),
    }
