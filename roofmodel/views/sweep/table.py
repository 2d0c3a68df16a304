"""A sweep as a table to read, and as rows for programs: JSON, CSV, Parquet, a data frame.

Files are written block by block, so that a grid may be larger than memory.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from roofmodel import units
from roofmodel.errors import OutputError
from roofmodel.study.estimate.parallelism import GPUS
from roofmodel.study.sweep.case import COLUMNS, COUNTS, DEALT, FORMATTED, FOUND, LENGTHS, NAMED, ROLES, Columns
from roofmodel.study.sweep.sweep import Sweep
from roofmodel.views.kit import files
from roofmodel.views.kit.columns import bare, fitting

if TYPE_CHECKING:
    import pandas

Found = TypeVar("Found")

SUFFIXES = (*files.PICTURES, "csv", "json", "parquet")
SHOWN = 40  # rows of the table; the rest is counted in its last line
WHOLE = (*LENGTHS, "new_tokens", "image", *DEALT, *COUNTS, "kernels", *(f"memory_{role}" for role in ROLES))
"""Columns of whole numbers; but of experts, some of whose weights are read, the expected bytes are fractions."""
FRACTIONAL = ("bytes", "weight_bytes")
WORDS = ("model", "hardware", "phase", *NAMED, "bound", "note")


def save(sweep: Sweep, path: str, picture: str | None = None) -> Path:
    """The rows, or a picture of this kind (see sweep_picture), as the suffix says."""
    from roofmodel.views.sweep import picture as sweep_picture

    target = files.check(path, SUFFIXES)
    suffix = target.suffix.lower().lstrip(".")
    texts = {"csv": write_csv, "json": write_json}

    def write(file: Path) -> None:
        if suffix in texts:
            with file.open("w", encoding="utf-8", newline="") as out:
                texts[suffix](sweep, out)
        elif suffix == "parquet":
            write_parquet(sweep, file)
        else:
            sweep_picture.draw(sweep, file, suffix, picture)

    files.replace(target, write)
    return target


# --- Rows -------------------------------------------------------------------------------------------


def frame(sweep: Sweep, columns: Iterable[str] = COLUMNS) -> pandas.DataFrame:
    """A row a point, base units: counts as exact ints, NaN or None for unknown."""
    import pandas

    kept = [[_full(block, name) for name in columns] for block in sweep.blocks()]
    return pandas.DataFrame(
        {name: _joined(parts) for name, parts in zip(columns, zip(*kept, strict=True), strict=True)}
    )


def _full(block: Columns, name: str) -> Any:
    """A column as an array with an element a point; unknown numbers are NaN."""
    import numpy

    value = block[name]
    if isinstance(value, numpy.ndarray):
        return value
    unknown = value is None and name in FOUND and name not in WORDS
    return numpy.full(len(block["batch"]), float("nan") if unknown else value, dtype=float if unknown else object)


def _joined(parts: Sequence[Any]) -> Any:
    """The pieces of a column as one, without loss: what a float cannot hold stays as it is, among objects."""
    import numpy

    kinds = {part.dtype.kind for part in parts}
    lost = kinds == {"i", "f"} and any(part.dtype.kind == "i" and abs(part).max() > 2**53 for part in parts)
    if lost or kinds == {"b", "f"}:
        parts = [numpy.array(_values(part), dtype=object) for part in parts]
    return numpy.concatenate(parts)


def _values(column: Any) -> list[Any]:
    """Python's own numbers and words; None for what is not known."""
    return [None if value != value else value for value in column.tolist()]


def rows(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """A dict a point, with the keys that an estimate's totals have."""
    for block in sweep.blocks():
        for values in zip(*(_values(_full(block, name)) for name in COLUMNS), strict=True):
            yield dict(zip(COLUMNS, values, strict=True))


def document(sweep: Sweep) -> dict[str, Any]:
    """The document `roofmodel.sweep/1`."""
    return {**_head(sweep), "rows": list(rows(sweep))}


def _head(sweep: Sweep) -> dict[str, Any]:
    return {"schema": "roofmodel.sweep/1", "points": sweep.points, "notes": list(sweep.notes)}


def write_json(sweep: Sweep, out: TextIO) -> None:
    """The document, a line a row."""
    found = _begun(rows(sweep))
    out.write(json.dumps(_head(sweep)).removesuffix("}") + ', "rows": [')
    for number, row in enumerate(found):
        out.write(",\n" if number else "\n")
        out.write(json.dumps(row, allow_nan=False))
    out.write("\n]}\n")


def _begun(found: Iterator[Found]) -> Iterator[Found]:
    """The same, its first made already: where that fails, as without a cluster, nothing is written."""
    return chain([next(found)], found)


def write_csv(sweep: Sweep, out: TextIO) -> None:
    """A line a point, empty for unknown."""
    writer, blocks = csv.writer(out, lineterminator="\n"), _begun(sweep.blocks())
    writer.writerow(COLUMNS)
    for block in blocks:
        writer.writerows(zip(*(_values(_full(block, name)) for name in COLUMNS), strict=True))


def write_parquet(sweep: Sweep, file: Path) -> None:
    """The columns, counts as int64. Raises OutputError where pyarrow is missing, or 64 bits are too few."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise OutputError("Parquet needs pyarrow: pip install pyarrow; .csv needs nothing") from None
    if any(not case.narrow for case in sweep.cases):
        raise OutputError("some counts are too large for the 64 bits of a Parquet column; .csv and .json hold them")
    whole = [name for name in WHOLE if not (name in FRACTIONAL and any(case.fractional for case in sweep.cases))]
    kinds = dict.fromkeys(COLUMNS, pyarrow.float64()) | dict.fromkeys(whole, pyarrow.int64())
    kinds |= dict.fromkeys(WORDS, pyarrow.string()) | dict.fromkeys(("host_bound", "fits"), pyarrow.bool_())
    schema = pyarrow.schema(kinds.items())
    with parquet.ParquetWriter(file, schema) as writer:
        for block in sweep.blocks():
            columns = [pyarrow.array(_full(block, name), kind, from_pandas=True) for name, kind in kinds.items()]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))


# --- Table ------------------------------------------------------------------------------------------

TITLES = {
    "model": "model", "hardware": "device", "phase": "phase", "batch": "batch", "seq": "seq", "decoder_seq": "prompt",
    "context": "cached", "new_tokens": "new", "image": "pixels",
    **{name: name.replace("_", "-") for name in (*NAMED, *DEALT)},
    "launch_seconds": "launch",
}  # fmt: skip
USUAL = {**dict.fromkeys(GPUS, 1), "micro_batch": None, "sequence_parallel": "off", "recompute": "none"}
"""What goes without saying."""
EXPENDABLE = ("MFU", "roof", "memory", "$/M ≥", "tokens/s ≤", "images/s ≤", "bound")
MARKS = {"!": "! does not fit the device's memory", "†": "† beyond the model's positions, counted as if it had more"}


class View:
    """The first rows of a sweep, with what varies in columns and what does not above them."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = list(islice(rows(self.sweep), SHOWN))
        varying = [name for name in TITLES if len(_asked(self.sweep, name)) > 1]
        yield Text.assemble((described(self.sweep), "bold"), f" · {self.sweep.points} points")
        cells = [{**{TITLES[name]: _word(name, row[name]) for name in varying}, **_figures(row)} for row in shown]
        titles = [title for title in cells[0] if any(row[title] for row in cells)]
        widths = {title: max(len(title), *(len(row[title]) for row in cells)) for title in titles}
        table = bare()
        kept = fitting(widths, EXPENDABLE, options.max_width)
        for title in kept:
            left = title in ("model", "device", "phase", "roof", "")
            table.add_column(title, justify="left" if left else "right", no_wrap=True)
        for row in cells:
            table.add_row(*(row[title] for title in kept))
        yield table
        if (rest := self.sweep.points - len(shown)) > 0:
            yield Text(f"and {rest} more; -o FILE .csv, .json or .parquet has all of them", style="dim")
        signs = "".join(row[""] for row in cells)
        yield from (Text(meaning, style="dim") for sign, meaning in MARKS.items() if sign in signs)
        yield from (Text(f"– {note}", style="dim") for note in _refusals(shown))


def _asked(sweep: Sweep, name: str) -> set[object]:
    """The values that a column has, as far as they were asked for; none of formats that are the working one."""
    if name in LENGTHS:
        return {value for case in sweep.cases for value in case.lengths[LENGTHS.index(name)][:2]}
    labels = [case.labels for case in sweep.cases]
    if name in FORMATTED and all(label[name] == label["dtype"] for label in labels):
        return set()
    values = {label.get(name) for label in labels}
    return values if name == "micro_batch" else values - {None}  # without one a replica takes all at a time


def described(sweep: Sweep) -> str:
    """What all points have in common, in words."""
    said = {name: next(iter(values)) for name in TITLES if len(values := _asked(sweep, name)) == 1}
    words = [str(said[name]) for name in ("model", "hardware", "phase", "dtype") if name in said]
    words += [f"{name} {said[name]}" for name in ("batch", "seq", "context", "new_tokens") if name in said]
    words += [f"{name} {said[name]}" for name in FORMATTED if name in said]
    words += [f"{said[name]} {name}" for name in ("attention", "runtime") if name in said]
    words += [f"{TITLES[name]} {said[name]}" for name, usual in USUAL.items() if said.get(name, usual) != usual]
    words += [f"{_word('launch_seconds', said['launch_seconds'])} a launch"] if "launch_seconds" in said else []
    return " · ".join(words)


def _figures(row: dict[str, Any]) -> dict[str, str]:
    """What was found at a point, as a person reads it; empty where it is not known."""

    def shown(name: str, form: Callable[[Any], str]) -> str:
        return "" if row[name] is None else form(row[name])

    refused = row["bound_seconds"] is None
    return {
        "bound": shown("bound_seconds", units.seconds),
        "roof": row["bound"] or "",
        "expected": shown("expected_seconds", units.seconds),
        **{f"{what}/s ≤": shown(f"bound_{what}_per_second", units.si) for what in ("tokens", "images")},
        **{f"{what}/s": shown(f"{what}_per_second", units.si) for what in ("tokens", "images")},
        "MFU": shown("mfu", lambda part: f"{part:.0%}"),
        "memory": shown("memory_total", units.binary),
        "$/M ≥": shown("bound_dollars_per_million_tokens", units.significant),
        "$/M tokens": shown("dollars_per_million_tokens", units.significant),
        "": "–" * refused + "!" * (row["fits"] is False) + "†" * (row["note"] is not None and not refused),
    }


def _refusals(shown: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["note"] for row in shown if row["bound_seconds"] is None))


def _word(name: str, value: Any) -> str:
    if value is None:
        return ""
    return units.seconds(value) if name == "launch_seconds" else str(value)
