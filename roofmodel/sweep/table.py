"""The terminal table of a sweep: its first rows, with a column for each varying option."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from roofmodel.errors import Command, Message, Option
from roofmodel.numbers import units
from roofmodel.options.workload import DECLARED, DEFAULTS, PARALLELISM, key_of
from roofmodel.report.table import COUNT, SECONDS, TEXT, Column, Table
from roofmodel.sweep.case import BEYOND_POSITIONS, FORMAT_OPTIONS, LENGTHS, OPTION_COLUMNS
from roofmodel.sweep.columns import BY_KEY
from roofmodel.sweep.data import rows
from roofmodel.sweep.sweep import Sweep

SHOWN = 40  # rows; the last line counts the others
TITLES = {
    "model": "model", "hardware": "device",
    **{column: DECLARED[name].title or name.replace("_", "-") for column, name in OPTION_COLUMNS.items()},
}  # fmt: skip
HEADING_OPTIONS = {
    key_of(name): name for name, option in DECLARED.items()
    if (DEFAULTS[name] is not None or option.group == PARALLELISM)
    and name not in ("batch", "dtype", "attention")
}  # fmt: skip
"""The options that the heading states if all points have the same value and it is not the default."""
RESULTS = (
    "bound_seconds", "bound", "expected_seconds", "bound_tokens_per_second", "tokens_per_second",
    "bound_images_per_second", "images_per_second", "mfu", "memory_total", "bound_dollars_per_million_tokens",
    "dollars_per_million_tokens",
)  # fmt: skip
"""The results that every table shows; other ones precede `mfu`."""
ALL_ROWS = Command("-o FILE .csv, .json or .parquet", "save() to .csv, .json or .parquet")
MARKS: dict[str, str | Message] = {
    "!": Message("! does not fit in the usable memory (", Option("memory_utilization"), ")"),
    "†": "† beyond the model's maximum positions; the limit is not enforced",
}
NOTE_MARKS = {"†": BEYOND_POSITIONS}


class View:
    """The first rows of a sweep. Varying options are columns; the heading gives the others."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = list(islice(rows(self.sweep), SHOWN))
        varying = [name for name in TITLES if len(_option_values(self.sweep, name)) > 1]
        yield Text.assemble((described(self.sweep), "bold"), f" · {counted(self.sweep)}")
        if not shown:
            return
        yield self._table(shown, varying).terminal(shown)
        if (rest := self.sweep.row_count - len(shown)) > 0:
            yield Text(f"and {rest} more; {ALL_ROWS} writes all of them", style="dim")
        signs = "".join(map(_mark, shown))
        yield from (Text(str(meaning), style="dim") for sign, meaning in MARKS.items() if sign in signs)
        yield from (Text(f"– {note}", style="dim") for note in _refusals(shown))

    def _table(self, shown: Sequence[dict[str, Any]], varying: Sequence[str]) -> Table:
        """Columns of the varying options, of the results, and of the mark of a row."""
        place = RESULTS.index("mfu")
        names = (*varying, *RESULTS[:place], *self._other_columns(shown, varying), *RESULTS[place:])
        return Table("rows", (*map(_column, names), Column(None, "", text=_mark)))

    def _other_columns(self, shown: Sequence[dict[str, Any]], varying: Sequence[str]) -> list[str]:
        """Latencies of generation, the rate per GPU of several GPUs, and the columns of conditions and of the order."""
        generated = any(row["phase"] == "generate" for row in shown)
        several = any((row["tp"] or 1) * (row["dp"] or 1) * (row["pp"] or 1) > 1 for row in shown)
        candidates = [
            *(("ttft_seconds", "tpot_seconds", "tokens_per_second_per_user") if generated else ()),
            *(["tokens_per_second_per_gpu"] if several else []),
            *(column for condition in self.sweep.where for each in condition.comparisons for column in each.columns),
            *(self.sweep.sort.columns if self.sweep.sort else ()),
        ]
        return [name for name in dict.fromkeys(candidates) if name not in (*varying, *RESULTS, "fits", "note")]


def _option_values(sweep: Sweep, name: str) -> set[object]:
    """The values that options set in a column; none for formats that equal `dtype`."""
    if name in LENGTHS:
        return {value for case in sweep.cases for value in case.lengths[LENGTHS.index(name)][:2]}
    labels = [case.labels for case in sweep.cases]
    if name in FORMAT_OPTIONS and all(label[name] == label["dtype"] for label in labels):
        return set()
    values = {label.get(name) for label in labels}
    return values if name == "micro_batch" else values - {None}  # None: the whole batch


def described(sweep: Sweep) -> str:
    """The options that all points share, as text."""
    shared_values = {name: next(iter(values)) for name in TITLES if len(values := _option_values(sweep, name)) == 1}
    words = [str(shared_values[name]) for name in ("model", "hardware", "phase", "dtype") if name in shared_values]
    words += [
        f"{name} {shared_values[name]}" for name in ("batch", "seq", "context", "new_tokens") if name in shared_values
    ]
    words += [f"{name} {shared_values[name]}" for name in FORMAT_OPTIONS if name in shared_values]
    words += [f"{shared_values['attention']} attention"] if "attention" in shared_values else []
    words += [str(shared_values[name]) for name in ("engine", "engine_option") if name in shared_values]
    words += [
        f"{TITLES[column]} {shared_values[column]}"
        for column, name in HEADING_OPTIONS.items()
        if shared_values.get(column, DEFAULTS[name]) != DEFAULTS[name]
    ]
    return " · ".join(words)


def counted(sweep: Sweep) -> str:
    """The number of points, and of those that satisfy the conditions."""
    text = units.count(sweep.points, "point")
    if sweep.where:
        text = f"{sweep.row_count} of {text} with {' and '.join(map(str, sweep.where))}"
    return f"{text}, sorted by {sweep.sort.text}" if sweep.sort else text


def _mark(row: dict[str, Any]) -> str:
    """`–` for a refused point, `!` for one that does not fit, and the signs of its notes."""
    signs = (sign for sign, note in NOTE_MARKS.items() if note in (row["note"] or ""))
    return "–" * (row["bound_seconds"] is None) + "!" * (row["fits"] is False) + "".join(signs)


def _column(name: str) -> Column:
    """The column of an option or of a result."""
    if name in TITLES:
        unit = SECONDS if name == "launch_seconds" else TEXT if name in ("model", "hardware", "phase") else COUNT
        return Column(None, TITLES[name], unit, name)
    column = BY_KEY[name]
    return column if column.title else column._replace(title=name)


def _refusals(shown: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["note"] for row in shown if row["bound_seconds"] is None))
