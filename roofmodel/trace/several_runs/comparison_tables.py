"""Two runs of one program, before and after a change, as records and as tables in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from roofmodel.numbers import units
from roofmodel.report.columns import omitted_rows
from roofmodel.report.table import COUNT, NAME, SECONDS, Column, Table, TerminalTable, Unit
from roofmodel.roofline.kernel_names import KERNEL_NAME
from roofmodel.trace.parts import PARTS
from roofmodel.trace.several_runs.comparison import GroupChange, RunComparison, RunTotals
from roofmodel.trace.trace import RunAnalysis

MAX_ROWS = 12
_LEGEND = (
    "matched: change of the launches that both runs have, by name and order; only before, only after: time of the "
    "other launches; after - before = matched - only before + only after"
)


def document(compared: RunComparison) -> dict[str, Any]:
    """The key `comparison` of `roofmodel.trace/1`; seconds. A change is after - before."""
    before, after = compared.before, compared.after
    rows = compared.kernels
    return {
        "before": run_record(before),
        "after": run_record(after),
        "speedup": compared.speedup,
        "wall_change_seconds": (after.wall - before.wall) / 1e9,
        "parts": [
            {
                "part": part,
                "before_seconds": before.parts[part] / 1e9,
                "after_seconds": after.parts[part] / 1e9,
                "change_seconds": (after.parts[part] - before.parts[part]) / 1e9,
            }
            for part in PARTS
        ],
        "work_change_seconds": (after.work - before.work) / 1e9,
        "faster_seconds": sum(min(row.matched, 0) for row in rows) / 1e9,
        "slower_seconds": sum(max(row.matched, 0) for row in rows) / 1e9,
        "appeared_seconds": sum(row.appeared for row in rows) / 1e9,
        "vanished_seconds": sum(row.vanished for row in rows) / 1e9,
        "groups": changes_table("group").records(compared.groups),
        "kernels": [changes_table("name").record(row) | {"counterpart": row.counterpart} for row in rows],
    }


def run_record(run: RunTotals) -> dict[str, Any]:
    """The sums over the ranks of a run; seconds."""
    return {
        "ranks": run.ranks,
        "kernels": run.kernels,
        "compute_kernels": run.compute_kernels,
        "work_seconds": run.work / 1e9,
        "compute_seconds": run.compute / 1e9,
        "gemm_seconds": run.gemm / 1e9,
        "flops": run.flops,
        "wall_seconds": run.wall / 1e9,
        "longest_wall_seconds": run.longest_wall / 1e9,
        "steps": run.steps,
        "step_seconds": None if run.step_mean is None else run.step_mean / 1e9,
    }


class _Total(NamedTuple):
    """The sum over all groups."""

    before: int
    after: int
    change: int
    group: str = "all"
    verdict: str = ""
    launches_before: None = None
    launches_after: None = None
    matched: None = None
    appeared: None = None
    vanished: None = None


def _signed(seconds: float) -> str:
    return f"{'+' if seconds > 0 else '-'}{units.seconds(abs(seconds))}" if seconds else "0"


CHANGE = Unit(_signed)
PART = Unit(lambda seconds: units.seconds(seconds) if seconds else "")


def _seconds(field: str) -> Callable[[GroupChange | _Total], float | None]:
    def seconds(row: GroupChange | _Total) -> float | None:
        nanoseconds = getattr(row, field)
        return None if nanoseconds is None else nanoseconds / 1e9

    return seconds


def _launches(row: GroupChange | _Total) -> str | None:
    before, after = row.launches_before, row.launches_after
    return None if after is None else str(after) if before == after else f"{before} → {after}"


def changes_table(key: str = "group", title: str = "") -> Table:
    """The change of each group or name (GroupChange); the key and the title of the first column."""
    return Table(
        "changes",
        (
            Column(key, title, KERNEL_NAME if key == "name" else NAME, "group", meaning=f"the {key} of GPU work"),
            Column(
                "verdict", "", text=lambda row: row.verdict.replace("_", " "),
                meaning="`faster`, `slower`, `unchanged`, `appeared`, `vanished`, `fewer_launches` or `more_launches`",
            ),
            Column("kernels_before", value="launches_before", meaning="launches"),
            Column("kernels_after", "×", COUNT, "launches_after", _launches, priority=4, meaning="launches"),
            Column("before_seconds", "before", SECONDS, _seconds("before"), meaning="summed durations"),
            Column("after_seconds", "after", SECONDS, _seconds("after"), meaning="summed durations"),
            Column("change_seconds", "change", CHANGE, _seconds("change"), meaning="after - before"),
            Column(
                "matched_change_seconds", "matched", CHANGE, _seconds("matched"), priority=3, legend=_LEGEND,
                meaning="change of the launches that match by name and order",
            ),
            Column(None, "only before", PART, _seconds("vanished"), priority=1),
            Column(
                "appeared_seconds", "only after", PART, _seconds("appeared"), priority=2,
                meaning="time of the launches in the second, or in the first run only",
            ),
            Column(
                "vanished_seconds", value=_seconds("vanished"),
                meaning="time of the launches in the second, or in the first run only",
            ),
        ),
    )  # fmt: skip


def blocks(trace: RunAnalysis, compared: RunComparison) -> Iterator[RenderableType]:
    """The difference of the wall times by part, and the difference of the GPU work by group and by name."""
    if compared.different_work:
        text = compared.different_work.text
        yield Text(f"{text[0].upper()}{text[1:]}.", style="bold")
    yield from _summary(compared)
    yield Text()
    yield Text("parts of the wall time, sums over the ranks", style="bold")
    yield _parts(compared.before, compared.after)
    before, after = compared.before.work, compared.after.work
    for title, rows in ((trace.by, compared.groups), ("name", compared.kernels)):
        yield Text()
        yield Text(f"GPU work by {title}, largest change first", style="bold")
        yield changes_table("name", title).terminal([*rows[:MAX_ROWS], _Total(before, after, after - before)])
        yield from omitted_rows(len(rows) - MAX_ROWS, "json")
    if replaced := [row for row in compared.kernels if row.counterpart and row.launches_before]:
        listed = "; ".join(f"{row.group} → {row.counterpart}" for row in replaced[:MAX_ROWS])
        yield Text(f"replaced kernels: {listed}", style="dim")
    yield Text()


def _summary(compared: RunComparison) -> Iterator[RenderableType]:
    before, after = compared.before, compared.after
    quantity, old, new = compared.duration
    if quantity == "wall time":
        quantity += " of the longest rank" * (max(before.ranks, after.ranks) > 1)
    text = f"{quantity} {units.seconds(old / 1e9)} → {units.seconds(new / 1e9)}"
    if compared.different_work is None and compared.speedup:
        text += f": {compared.speedup:.2f} times as fast"
    yield Text(text, style="bold")
    if "rank" in quantity or max(before.ranks, after.ranks) > 1:
        yield Text("The clocks of different files are not aligned: only durations are compared.", style="dim")


def _parts(before: RunTotals, after: RunTotals) -> TerminalTable:
    parts = [(shown.title, before.parts[part], after.parts[part]) for part, shown in PARTS.items()]
    rows = [(title, old, new) for title, old, new in parts if old or new]
    return _PARTS.terminal([*rows, ("wall time", before.wall, after.wall)])


_PARTS = Table(
    "parts",
    (
        Column(None, "part", NAME, lambda row: row[0]),
        Column(None, "before", SECONDS, lambda row: row[1] / 1e9),
        Column(None, "after", SECONDS, lambda row: row[2] / 1e9),
        Column(None, "change", CHANGE, lambda row: (row[2] - row[1]) / 1e9),
    ),
)
