"""The answer of `roof trace` for several ranks and runs: groups over all ranks, a change, runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from roofmodel.numbers import units
from roofmodel.report.document import Block, Heading, Paragraph, Rows
from roofmodel.report.table import COUNT, NAME, SECONDS, Column, Table, Unit, omitted
from roofmodel.roofline.naming import KERNEL_NAME
from roofmodel.trace.several_runs.comparison import GroupChange, RunComparison, RunTotals
from roofmodel.trace.several_runs.run_summary import MergedGroup, RunSummary
from roofmodel.trace.tables import MAX_ROWS, PARTS, PARTS_LEGEND, SHARE_OF_WALL, groups_table
from roofmodel.trace.trace import RunAnalysis

# --- Several ranks ----------------------------------------------------------------------------------


def merged_table(title: str) -> Table:
    """GPU work by group over all ranks (MergedGroup); the title of the first column."""
    columns = groups_table(title=title).without("rank", "median", "min", "max").columns
    spread = (
        Column(
            None, "least", SECONDS, lambda row: row.least[0], _of_rank("least"), priority=3,
            legend="least, most: the time of the rank with the least and the most",
        ),
        Column(None, "most", SECONDS, lambda row: row.most[0], _of_rank("most"), priority=3),
    )  # fmt: skip
    legend = "share: of the summed time of the GPU work of all ranks, which counts overlapping work fully"
    columns = [column._replace(legend=legend) if column.title == "share" else column for column in columns]
    return Table("groups", [*columns, *spread], marks=groups_table().marks)


def _of_rank(field: str) -> Callable[[MergedGroup], str]:
    def text(row: MergedGroup) -> str:
        seconds, rank = getattr(row, field)
        return f"{units.seconds(seconds)} ({rank})"

    return text


# --- Two runs, before and after a change ------------------------------------------------------------

_LEGEND = (
    "matched: change of the launches that both runs have, by name and order; only before, only after: time of the "
    "other launches; after - before = matched - only before + only after"
)


def comparison_record(compared: RunComparison) -> dict[str, Any]:
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


CHANGE = Unit(units.signed_seconds)
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


def change(compared: RunComparison) -> Iterator[Block]:
    """How much faster the run after the change is, and whether both do the same work."""
    if compared.different_work:
        text = compared.different_work.text
        yield Paragraph(f"{text[0].upper()}{text[1:]}.", bold=True)
    before, after = compared.before, compared.after
    quantity, old, new = compared.duration
    if quantity == "wall time":
        quantity += " of the longest rank" * (max(before.ranks, after.ranks) > 1)
    text = f"{quantity} {units.seconds(old / 1e9)} → {units.seconds(new / 1e9)}"
    if quantity == "mean step" and (left_out := (before.warm_up_steps, after.warm_up_steps)) != (0, 0):
        text += f", without {left_out[0]} and {left_out[1]} warm-up steps"
    if compared.different_work is None and compared.speedup:
        text += f": {compared.speedup:.2f} times as fast"
    yield Paragraph(text, bold=True)
    if "rank" in quantity or max(before.ranks, after.ranks) > 1:
        yield Paragraph("The clocks of different files are not aligned: only durations are compared.", dim=True)


def changes(trace: RunAnalysis, compared: RunComparison) -> Iterator[Block]:
    """The difference of the wall times by part, and the difference of the GPU work by group and by name."""
    before, after = compared.before, compared.after
    parts = [(shown.title, before.parts[part], after.parts[part]) for part, shown in PARTS.items()]
    yield Heading("parts of the wall time, sums over the ranks")
    yield Rows(_PARTS, [*(row for row in parts if any(row[1:])), ("wall time", before.wall, after.wall)])
    every = _Total(before.work, after.work, after.work - before.work)
    for title, rows in ((trace.by, compared.groups), ("name", compared.kernels)):
        yield Heading(f"GPU work by {title}, largest change first")
        yield Rows(changes_table("name", title), [*rows[:MAX_ROWS], every])
        yield from _omitted(len(rows) - MAX_ROWS)
    if replaced := [row for row in compared.kernels if row.counterpart and row.launches_before]:
        listed = "; ".join(f"{row.group} → {row.counterpart}" for row in replaced[:MAX_ROWS])
        yield Paragraph(f"replaced kernels: {listed}", dim=True)


def _omitted(rest: int) -> Iterator[Block]:
    if rest > 0:
        yield Paragraph(omitted(rest, "json"), dim=True)


_PARTS = Table(
    "parts",
    (
        Column(None, "part", NAME, lambda row: row[0]),
        Column(None, "before", SECONDS, lambda row: row[1] / 1e9),
        Column(None, "after", SECONDS, lambda row: row[2] / 1e9),
        Column(None, "change", CHANGE, lambda row: (row[2] - row[1]) / 1e9),
    ),
)


# --- Runs side by side ------------------------------------------------------------------------------

WORK = {
    "first": "", "same": "as the first", "same_per_gpu": "as the first, per GPU", "different": "differs"
}  # fmt: skip
_FACTOR = Unit(lambda factor: f"{factor:.2f}")


def _share(part: str) -> Callable[[RunSummary], float | None]:
    return lambda run: run.totals.parts[part] / run.totals.wall if run.totals.wall else None


def _time(by_steps: bool) -> Column:
    """The mean step, or the longest wall time of a rank."""
    if by_steps:
        return Column(None, "step", SECONDS, lambda run: (run.totals.step_mean or 0) / 1e9)
    return Column(None, "wall", SECONDS, lambda run: run.totals.longest_wall / 1e9)


def _runs_table(by_steps: bool) -> Table:
    return Table(
        "runs",
        (
            Column(None, "run", NAME, lambda run: f"{run.run}: {run.files[0]}"),
            Column(None, "GPUs", COUNT, "totals.ranks"),
            _time(by_steps),
            Column(
                None, "× as fast", _FACTOR, "speedup", unknown="–",
                legend="× as fast: time of the first run / time of this run (times the ratio of GPUs if the work grows "
                "with them); –: other work",
            ),
            Column(None, "work", COUNT, text=lambda run: WORK[run.work], priority=3),
            *(
                Column(
                    None, part.title, SHARE_OF_WALL, _share(name), priority=2 if name == "overlap" else None,
                    legend=PARTS_LEGEND if name == "overlap" else "",
                )
                for name, part in PARTS.items()
            ),
            Column(None, "kernels", COUNT, "totals.kernels", priority=1),
        ),
    )  # fmt: skip


class GroupOfRuns(NamedTuple):
    """The time of a group per GPU of each run; None: the run does not have it."""

    group: str
    seconds: tuple[float | None, ...]


def groups_by_run(runs: Sequence[RunSummary], field: str = "groups") -> list[GroupOfRuns]:
    """The groups (or `names`) of all runs, by the longest time per GPU."""
    by_run = [{row.group: row.seconds / run.totals.ranks for row in getattr(run, field)} for run in runs]
    groups = dict.fromkeys(group for times in by_run for group in times)
    rows = [GroupOfRuns(group, tuple(times.get(group) for times in by_run)) for group in groups]
    return sorted(rows, key=lambda row: -max(seconds or 0 for seconds in row.seconds))


def longest_of_each(rows: Sequence[GroupOfRuns], shown: int) -> list[GroupOfRuns]:
    """The longest rows of each run in turn, `shown` of them or one for each run, in the order of `rows`."""

    def by_time(run: int) -> list[GroupOfRuns]:
        return sorted(rows, key=lambda row: -(row.seconds[run] or 0))

    by_run = [by_time(run) for run in range(len(rows[0].seconds))] if rows else []
    in_turn = dict.fromkeys(row for same_place in zip(*by_run, strict=True) for row in same_place)
    chosen = {*[*in_turn][: max(shown, len(by_run))]}
    return [row for row in rows if row in chosen]


def _times_table(title: str, runs: Sequence[RunSummary]) -> Table:
    def seconds(place: int) -> Callable[[GroupOfRuns], float | None]:
        return lambda row: row.seconds[place]

    return Table(
        "groups",
        [
            Column(None, title, KERNEL_NAME if title == "name" else NAME, "group"),
            *(
                Column(None, f"run {run.run}", SECONDS, seconds(place), unknown="–", priority=len(runs) - place)
                for place, run in enumerate(runs)
            ),
        ],
    )


def side_by_side(trace: RunAnalysis) -> Iterator[Block]:
    """Several runs: what each takes and whether it does the same work, then its GPU work by group and by name."""
    runs = [run._replace(files=tuple(trace.names[file] for file in run.files)) for run in trace.runs]
    yield Heading("Runs", only_page=True)
    yield Rows(_runs_table(all(run.totals.step_mean for run in runs)), runs)
    for title, field, shown in ((trace.by, "groups", MAX_ROWS), ("name", "names", trace.listed)):
        rows = groups_by_run(runs, field)
        total = GroupOfRuns("all", tuple(run.totals.work / run.totals.ranks / 1e9 for run in runs))
        listed = longest_of_each(rows, shown)
        yield Heading(f"GPU work by {title}, time per GPU")
        yield Rows(_times_table(title, runs), [*listed, *[total] * (field == "groups")])
        if field == "groups":
            yield from _omitted(len(rows) - len(listed))


def run_records(trace: RunAnalysis) -> list[dict[str, Any]]:
    """The key `runs` of the document; [] for one run."""
    if len(trace.runs) < 2:
        return []
    return [
        {
            "run": run.run,
            "files": [trace.names[file] for file in run.files],
            **run_record(run.totals),
            "parts": {part: nanoseconds / 1e9 for part, nanoseconds in run.totals.parts.items()},
            "idle_by_cause": run.idle_by_cause,
            "work": run.work,
            "speedup": run.speedup,
            "groups": [
                {"group": row.group, "kernels": row.kernels, "seconds": row.seconds, "share": row.share}
                for row in run.groups
            ],
        }
        for run in trace.runs
    ]
