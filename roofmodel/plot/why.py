"""The section "Why": the reasons for the time of the most expensive kernels, and what the files do not tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from roofmodel.errors import Command
from roofmodel.numbers import units
from roofmodel.report.table import SECONDS, TEXT, Column, Table
from roofmodel.roofline.judged_kernels import WITH_COUNTERS, Why, idle_before, listed_reasons
from roofmodel.roofline.points import Reason
from roofmodel.roofline.reasons import BUSY_SMS, NOTHING, TITLES

SECOND = 0.5  # of the cost of the first reason: a second one is shown

WHY = Table(
    "why",
    (
        Column(None, "saves", SECONDS, value=lambda row: row.saves, unknown="–"),
        Column(None, "reason", TEXT, text=lambda row: f"{row.name}: {_sentence(row)}", wrap=True),
    ),
)


def _sentence(row: Why) -> str:
    return reason_sentence(row.reasons) if row.reasons else row.none


def reason_sentence(reasons: Sequence[Reason]) -> str:
    """The first reason in words, and the second one if it costs nearly as much."""
    first, *others = reasons
    second = [reason for reason in others[:1] if reason.seconds >= SECOND * first.seconds > 0]
    also = [f"; saves {units.seconds(each.seconds)}: {TITLES[each.reason]} ({each.evidence})" for each in second]
    if first.evidence.startswith((NOTHING, BUSY_SMS)):
        return first.evidence
    return f"{TITLES[first.reason]} ({first.evidence}){''.join(also)}"


def why_section(judged: Mapping[str, Sequence[Reason]], missing: Sequence[str]) -> Iterator[RenderableType]:
    """The longest kernels with their first reasons, by cost, the idle time before kernels, and what is not checked.

    `judged` has the kernels by falling time.
    """
    rows, idle = listed_reasons(judged, missing), idle_before(judged)
    if rows:
        yield Text()
        estimate = " (saves: an estimate of the time that removing the reason saves)"
        yield Text(f"Why{estimate * any(row.saves for row in rows)}", style="bold")
        yield WHY.terminal(rows)
    if idle is not None:
        total, name, most = idle
        trace = Command("`roof trace`", "`roofmodel.trace`")
        text = f"GPU idle before kernels: {units.seconds(total)} in total, {units.seconds(most)} of it before {name}"
        yield Text(f"{text}; {trace} lists the causes")
    if not rows:
        return
    if set(missing) >= WITH_COUNTERS:
        yield Text("more reasons need the counters of Nsight Compute: ncu --set full", style="dim")
    elif missing:
        lacking = (
            f"not checked, because their counters are missing (ncu --set full collects them): {', '.join(missing)}"
        )
        yield Text(lacking, style="dim")
