"""The section "Why": the reasons for the time of the most expensive kernels, and what the files do not tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from roofmodel.numbers import units
from roofmodel.report.table import SECONDS, TEXT, Column, Table
from roofmodel.roofline.kernel_names import short_names
from roofmodel.roofline.launch_terms import LIMIT
from roofmodel.roofline.points import Reason
from roofmodel.roofline.reasons import NOTHING, REASONS, TITLES

SHOWN = 8  # kernels in the section
NAME_WIDTH = 60  # characters
SECOND = 0.5  # of the cost of the first reason: a second one is shown
WITH_COUNTERS = {rule.title for rule in REASONS if any(not need.startswith(LIMIT) for need in rule.needs)}

WHY = Table(
    "why",
    (
        Column(None, "saves", SECONDS, value=lambda row: row[1][0].seconds or None, unknown="–"),
        Column(None, "why", TEXT, text=lambda row: f"{row[0]}: {reason_sentence(row[1])}", wrap=True),
    ),
)


def reason_sentence(reasons: Sequence[Reason]) -> str:
    """The first reason in words, and the second one if it costs nearly as much."""
    first, *others = reasons
    second = [reason for reason in others[:1] if reason.seconds >= SECOND * first.seconds > 0]
    also = [f"; saves {units.seconds(each.seconds)}: {TITLES[each.reason]} ({each.evidence})" for each in second]
    if first.evidence.startswith(NOTHING):
        return first.evidence
    return f"{TITLES[first.reason]} ({first.evidence}){''.join(also)}"


def why_section(judged: Mapping[str, Sequence[Reason]], missing: Sequence[str]) -> Iterator[RenderableType]:
    """The longest kernels with their first reasons, by cost, and the reasons that the files' counters cannot tell."""
    longest = [name for name, listed in judged.items() if listed][:SHOWN]
    rows = [(short, judged[name]) for name, short in zip(longest, short_names(longest, NAME_WIDTH), strict=True)]
    rows.sort(key=lambda row: -row[1][0].seconds)
    if not rows:
        return
    yield Text()
    yield Text("Why (saves: an estimate of the time that removing the reason saves)", style="bold")
    yield WHY.terminal(rows)
    if set(missing) >= WITH_COUNTERS:
        yield Text("more reasons need the counters of Nsight Compute: ncu --set full", style="dim")
    elif missing:
        lacking = (
            f"not checked, because their counters are missing (ncu --set full collects them): {', '.join(missing)}"
        )
        yield Text(lacking, style="dim")
