"""Several ranks or runs in the terminal and in JSON: groups over all ranks, and runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from roofmodel.numbers import units
from roofmodel.report.columns import omitted_rows
from roofmodel.report.table import COUNT, NAME, SECONDS, Column, Table, Unit
from roofmodel.roofline.kernel_names import KERNEL_NAME
from roofmodel.trace.columns import PARTS_LEGEND, SHARE_OF_WALL, groups_table
from roofmodel.trace.parts import PARTS
from roofmodel.trace.several_runs.comparison_tables import run_record
from roofmodel.trace.several_runs.merged import MergedGroup
from roofmodel.trace.several_runs.run_summary import RunSummary
from roofmodel.trace.trace import RunAnalysis

MAX_ROWS = 12
WORK = {
    "first": "", "same": "as the first", "same_per_gpu": "as the first, per GPU", "different": "differs"
}  # fmt: skip
_FACTOR = Unit(lambda factor: f"{factor:.2f}")


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


# --- Runs side by side ------------------------------------------------------------------------------


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


def _groups_table(title: str, runs: Sequence[RunSummary]) -> Table:
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


def blocks(trace: RunAnalysis) -> Iterator[RenderableType]:
    """Several runs: what each takes and whether it does the same work, then its GPU work by group and by name."""
    runs = [run._replace(files=tuple(trace.names[file] for file in run.files)) for run in trace.runs]
    yield Text()
    yield _runs_table(all(run.totals.step_mean for run in runs)).terminal(runs)
    for title, field, shown in ((trace.by, "groups", MAX_ROWS), ("name", "names", trace.listed)):
        rows = groups_by_run(runs, field)
        yield Text()
        yield Text(f"GPU work by {title}, time per GPU", style="bold")
        total = GroupOfRuns("all", tuple(run.totals.work / run.totals.ranks / 1e9 for run in runs))
        listed = longest_of_each(rows, shown)
        yield _groups_table(title, runs).terminal([*listed, *[total] * (field == "groups")])
        if field == "groups":
            yield from omitted_rows(len(rows) - len(listed), "json")


def records(trace: RunAnalysis) -> list[dict[str, Any]]:
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
