"""The terminal table of a sweep: its first rows, with a column for each varying option."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from roofmodel.errors import Command, Message, Option
from roofmodel.numbers import units
from roofmodel.options.workload import DECLARED, DEFAULTS, PARALLELISM, key_of
from roofmodel.report.columns import bare, fitting
from roofmodel.sweep.case import BEYOND_POSITIONS, FORMAT_OPTIONS, LENGTHS, OPTION_COLUMNS
from roofmodel.sweep.conditions import SHARE_COLUMNS
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
    and name not in ("batch", "dtype", "attention", "runtime")
}  # fmt: skip
"""The options that the heading states if all points have the same value and it is not the default."""
BOUND_NAMES = {"overhead": "launches"}  # instead of the names of the JSON document
SHOWN_COLUMNS = (
    "bound_seconds", "bound", "expected_seconds", "bound_tokens_per_second", "tokens_per_second",
    "bound_images_per_second", "images_per_second", "mfu", "memory_total", "fits", "note",
    "bound_dollars_per_million_tokens", "dollars_per_million_tokens",
)  # fmt: skip
"""The columns of results that every table shows."""
OTHER_TITLES = {
    "ttft_seconds": "TTFT", "tpot_seconds": "TPOT", "tokens_per_second_per_gpu": "tokens/s/GPU",
    "tokens_per_second_per_user": "tokens/s/user",
}  # fmt: skip
LEGEND = {
    "tokens/s ≤": "tokens/s ≤: at the bound; tokens/s: at the expected time",
    "images/s ≤": "images/s ≤: at the bound; images/s: at the expected time",
    "$/M ≥": "$/M ≥: dollars per million tokens at the bound; $/M tokens: at the expected time",
}
EXPENDABLE = ("MFU", "bound by", "$/M ≥", "tokens/s ≤", "images/s ≤", "memory", "bound", "tokens/s/user")
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
        others = self._other_columns(shown, varying)
        cells = [
            {**{TITLES[name]: _cell_text(name, row[name]) for name in varying}, **_result_cells(row, others)}
            for row in shown
        ]
        titles = [title for title in cells[0] if any(row[title] for row in cells)]
        widths = {title: max(len(title), *(len(row[title]) for row in cells)) for title in titles}
        table = bare()
        kept = fitting(widths, EXPENDABLE, options.max_width)
        for title in kept:
            left = title in ("model", "device", "phase", "bound by", "")
            table.add_column(title, justify="left" if left else "right", no_wrap=True)
        for row in cells:
            table.add_row(*(row[title] for title in kept))
        yield table
        if (rest := self.sweep.row_count - len(shown)) > 0:
            yield Text(f"and {rest} more; {ALL_ROWS} writes all of them", style="dim")
        if meanings := [meaning for title, meaning in LEGEND.items() if title in kept]:
            yield Text("; ".join(meanings), style="dim")
        signs = "".join(row[""] for row in cells)
        yield from (Text(str(meaning), style="dim") for sign, meaning in MARKS.items() if sign in signs)
        yield from (Text(f"– {note}", style="dim") for note in _refusals(shown))

    def _other_columns(self, shown: Sequence[dict[str, Any]], varying: Sequence[str]) -> list[str]:
        """Latencies of generation, the rate per GPU of several GPUs, and the columns of conditions and of the order."""
        generated = any(row["phase"] == "generate" for row in shown)
        several = any((row["tp"] or 1) * (row["dp"] or 1) * (row["pp"] or 1) > 1 for row in shown)
        found = [
            *(("ttft_seconds", "tpot_seconds", "tokens_per_second_per_user") if generated else ()),
            *(["tokens_per_second_per_gpu"] if several else []),
            *(condition.column for condition in self.sweep.where),
            *([self.sweep.sort.column] if self.sweep.sort else []),
        ]
        return [name for name in dict.fromkeys(found) if name not in (*varying, *SHOWN_COLUMNS)]


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
    given = {name: next(iter(values)) for name in TITLES if len(values := _option_values(sweep, name)) == 1}
    words = [str(given[name]) for name in ("model", "hardware", "phase", "dtype") if name in given]
    words += [f"{name} {given[name]}" for name in ("batch", "seq", "context", "new_tokens") if name in given]
    words += [f"{name} {given[name]}" for name in FORMAT_OPTIONS if name in given]
    words += [f"{given[name]} {name}" for name in ("attention", "runtime") if name in given]
    words += [
        f"{TITLES[column]} {given[column]}"
        for column, name in HEADING_OPTIONS.items()
        if given.get(column, DEFAULTS[name]) != DEFAULTS[name]
    ]
    words += (
        [f"{_cell_text('launch_seconds', given['launch_seconds'])} per launch"] if "launch_seconds" in given else []
    )
    return " · ".join(words)


def counted(sweep: Sweep) -> str:
    """The number of points, and of those that satisfy the conditions."""
    text = units.count(sweep.points, "point")
    if sweep.where:
        text = f"{sweep.row_count} of {text} with {' and '.join(condition.text for condition in sweep.where)}"
    return f"{text}, sorted by {sweep.sort.text}" if sweep.sort else text


def _result_cells(row: dict[str, Any], others: Iterable[str]) -> dict[str, str]:
    """The results at a point with units, with these other columns; empty where unknown."""

    def shown(name: str, form: Callable[[Any], str]) -> str:
        return "" if row[name] is None else form(row[name])

    refused = row["bound_seconds"] is None
    return {
        "bound": shown("bound_seconds", units.seconds),
        "bound by": BOUND_NAMES.get(row["bound"], row["bound"] or ""),
        "expected": shown("expected_seconds", units.seconds),
        **{f"{what}/s ≤": shown(f"bound_{what}_per_second", units.si) for what in ("tokens", "images")},
        **{f"{what}/s": shown(f"{what}_per_second", units.si) for what in ("tokens", "images")},
        **{OTHER_TITLES.get(name, name): _with_unit(name, row[name]) for name in others},
        "MFU": shown("mfu", lambda part: f"{part:.0%}"),
        "memory": shown("memory_total", units.binary),
        "$/M ≥": shown("bound_dollars_per_million_tokens", units.significant),
        "$/M tokens": shown("dollars_per_million_tokens", units.significant),
        "": "–" * refused
        + "!" * (row["fits"] is False)
        + "".join(s for s, n in NOTE_MARKS.items() if n in (row["note"] or "")),
    }


def _with_unit(name: str, value: Any) -> str:
    """A value of any column, with a unit."""
    if value is None or isinstance(value, str | bool):
        return "" if value is None else str(value).lower()
    if name.endswith("_seconds"):
        return units.seconds(value)
    if name in SHARE_COLUMNS:
        return f"{value:.1%}"
    if name.startswith("memory_"):
        return units.binary(value)
    return units.si(value, "B") if name.endswith("bytes") else units.si(value)


def _refusals(shown: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["note"] for row in shown if row["bound_seconds"] is None))


def _cell_text(name: str, value: Any) -> str:
    if value is None:
        return ""
    return units.seconds(value) if name == "launch_seconds" else str(value)
