"""Two runs of one program, before and after a change, as records and as tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from roofmodel.errors import Option
from roofmodel.numbers import units
from roofmodel.report.columns import FittingTable
from roofmodel.trace.comparison import GroupChange, RunComparison, RunTotals
from roofmodel.trace.parts import PARTS
from roofmodel.trace.trace import RunAnalysis

MAX_ROWS = 12
_LEGEND = {
    "matched": "matched: change of the launches that both runs have, by name and order; only before, only after: time "
    "of the other launches; after - before = matched - only before + only after",
}


def document(compared: RunComparison) -> dict[str, Any]:
    """The key `comparison` of `roofmodel.trace/1`; seconds. A change is after - before."""
    before, after = compared.before, compared.after
    rows = compared.kernels
    return {
        "before": _run(before),
        "after": _run(after),
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
        "groups": [change_record(row, "group") for row in compared.groups],
        "kernels": [change_record(row, "name") | {"counterpart": row.counterpart} for row in rows],
    }


def _run(run: RunTotals) -> dict[str, Any]:
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


def change_record(row: GroupChange, key: str) -> dict[str, Any]:
    """One record per group or name."""
    return {
        key: row.group, "verdict": row.verdict, "kernels_before": row.launches_before,
        "kernels_after": row.launches_after, "before_seconds": row.before / 1e9, "after_seconds": row.after / 1e9,
        "change_seconds": row.change / 1e9, "matched_change_seconds": row.matched / 1e9,
        "appeared_seconds": row.appeared / 1e9, "vanished_seconds": row.vanished / 1e9,
    }  # fmt: skip


def blocks(trace: RunAnalysis, compared: RunComparison) -> Iterator[RenderableType]:
    """The difference of the wall times by part, and the difference of the GPU work by group and by name."""
    if compared.different_work:
        text = compared.different_work.text
        yield Text(f"{text[0].upper()}{text[1:]}.", style="bold")
    yield from _summary(compared)
    yield Text()
    yield Text("parts of the wall time, sums over the ranks", style="bold")
    yield _parts(compared.before, compared.after)
    for title, rows in ((trace.by, compared.groups), ("name", compared.kernels)):
        yield Text()
        yield Text(f"GPU work by {title}, largest change first", style="bold")
        yield _changes(title, rows[:MAX_ROWS], compared)
        if (rest := len(rows) - MAX_ROWS) > 0:
            yield Text(f"and {rest} more; {Option('format', 'json')} lists all", style="dim")
    if replaced := [row for row in compared.kernels if row.counterpart and row.launches_before]:
        listed = "; ".join(f"{row.group} → {row.counterpart}" for row in replaced[:MAX_ROWS])
        yield Text(f"replaced kernels: {listed}", style="dim")
    yield Text()


def _summary(compared: RunComparison) -> Iterator[RenderableType]:
    before, after = compared.before, compared.after
    if before.step_mean and after.step_mean:
        what, old, new = "mean step", before.step_mean, after.step_mean
    else:
        what, old, new = "wall time", float(before.longest_wall), float(after.longest_wall)
        what += " of the longest rank" * (max(before.ranks, after.ranks) > 1)
    text = f"{what} {units.seconds(old / 1e9)} → {units.seconds(new / 1e9)}"
    if compared.different_work is None and compared.speedup:
        text += f": {compared.speedup:.2f} times as fast"
    yield Text(text, style="bold")
    if "rank" in what or max(before.ranks, after.ranks) > 1:
        yield Text("The clocks of different files are not aligned: only durations are compared.", style="dim")


def _parts(before: RunTotals, after: RunTotals) -> RenderableType:
    shown = FittingTable(("part", "before", "after", "change"), "part", (), {})
    for part, shown_as in PARTS.items():
        if before.parts[part] or after.parts[part]:
            shown.add(shown_as.title, *_times(before.parts[part], after.parts[part]))
    shown.add("wall time", *_times(before.wall, after.wall))
    return shown


def _times(before: int, after: int) -> tuple[str, str, str]:
    return units.seconds(before / 1e9), units.seconds(after / 1e9), _signed(after - before)


def _changes(title: str, rows: Iterable[GroupChange], compared: RunComparison) -> RenderableType:
    titles = (title, "", "×", "before", "after", "change", "matched", "only before", "only after")
    shown = FittingTable(titles, title, ("only before", "only after", "matched", "×"), _LEGEND)
    for row in rows:
        same = row.launches_before == row.launches_after
        count = str(row.launches_after) if same else f"{row.launches_before} → {row.launches_after}"
        shown.add(
            row.group, row.verdict.replace("_", " "), count, *_times(row.before, row.after), _signed(row.matched),
            units.seconds(row.vanished / 1e9) if row.vanished else "",
            units.seconds(row.appeared / 1e9) if row.appeared else "",
        )  # fmt: skip
    shown.add("all", "", "", *_times(compared.before.work, compared.after.work), "", "", "")
    return shown


def _signed(nanoseconds: int) -> str:
    if not nanoseconds:
        return "0"
    return ("+" if nanoseconds > 0 else "-") + units.seconds(abs(nanoseconds) / 1e9)
