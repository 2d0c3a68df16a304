"""The rows of a sweep as arrays, dicts, a data frame, JSON, CSV and Parquet.

Files are written block by block, so that a grid can exceed memory.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from roofmodel.errors import OutputError
from roofmodel.report.table import csv_cell
from roofmodel.sweep.case import COUNT_OPTIONS, COUNTS, NAMED_OPTIONS, RESULT_COLUMNS, ROLES, Columns
from roofmodel.sweep.scaling_laws import Scaling
from roofmodel.sweep.sweep import Sweep

if TYPE_CHECKING:
    import pandas

Item = TypeVar("Item")

TEXT_COLUMNS = (
    "model", "hardware", "phase", *NAMED_OPTIONS, "engine_version", "engine_file", "runtime", "draft", "bound", "note"
)  # fmt: skip
"""Columns of strings."""
INTEGER_COLUMNS = (
    *COUNT_OPTIONS,
    *COUNTS,
    "kernels",
    *(f"memory_{role}" for role in ROLES),
)
"""Columns of whole numbers."""
EXPECTED_COUNTS = ("bytes", "weight_bytes")
"""Integer columns that have fractions for MoE models, which read the expected number of routed experts."""


def full_column(block: Columns, name: str) -> Any:
    """A column as an array with one element per point; unknown numbers are NaN."""
    import numpy

    value = block[name]
    if isinstance(value, numpy.ndarray):
        return value
    unknown = value is None and name in RESULT_COLUMNS and name not in TEXT_COLUMNS
    return numpy.full(len(block["batch"]), float("nan") if unknown else value, dtype=float if unknown else object)


def concatenated(parts: Sequence[Any]) -> Any:
    """The blocks of a column as one array, without loss: ints that a float cannot represent make it an object array."""
    import numpy

    kinds = {part.dtype.kind for part in parts}
    inexact = kinds == {"i", "f"} and any(part.dtype.kind == "i" and abs(part).max() > 2**53 for part in parts)
    if inexact or kinds == {"b", "f"}:
        parts = [numpy.array(known_values(part), dtype=object) for part in parts]
    return numpy.concatenate(parts)


def block_of(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> Columns:
    """The rows as one block with these columns."""
    import numpy

    block: Columns = {}
    for name in columns:
        values = [row[name] for row in rows]
        numeric = name not in TEXT_COLUMNS and all(isinstance(value, int | float | None) for value in values)
        if numeric and any(value is None or isinstance(value, float) for value in values):
            exact = all(value is None or abs(value) < 2**53 for value in values)
            figures = [numpy.nan if value is None else value for value in values]
            column = numpy.array(figures, float if exact else object)
        else:
            column = numpy.array(values, dtype=object if not numeric else None)
        block[name] = column if len(values) else numpy.array([], dtype=object)
    return block


def known_values(column: Any) -> list[Any]:
    """Python numbers and strings; None for unknown."""
    return [None if value != value else value for value in column.tolist()]


def frame(sweep: Sweep, columns: Iterable[str] | None = None) -> pandas.DataFrame:
    """A row per point, in base units: counts as exact ints, NaN or None for unknown."""
    import pandas

    columns = list(sweep.columns if columns is None else columns)
    blocks = [[full_column(block, name) for name in columns] for block in sweep.blocks()]
    return pandas.DataFrame(
        {name: concatenated(parts) for name, parts in zip(columns, zip(*blocks, strict=True), strict=True)}
    )


def rows(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """A dict per point, with the same keys as an estimate's totals."""
    for block in sweep.blocks():
        for values in zip(*(known_values(full_column(block, name)) for name in sweep.columns), strict=True):
            yield dict(zip(sweep.columns, values, strict=True))


def document(sweep: Sweep) -> dict[str, Any]:
    """The document `roofmodel.sweep/1`."""
    return {**summary(sweep), "rows": list(rows(sweep))}


def summary(sweep: Sweep) -> dict[str, Any]:
    """The document without its rows."""
    return {
        "schema": "roofmodel.sweep/1",
        "points": sweep.points,
        "where": [*map(str, sweep.where)],
        "sort": sweep.sort and sweep.sort.text,
        **({"scaling": _scaling(sweep.scaling)} if sweep.scaling else {}),
        "notes": list(map(str, sweep.notes)),
    }


def _scaling(scaling: Scaling) -> dict[str, Any]:
    """The settings of a scaling table, the measured runs, and the fitted laws."""
    return {
        "mode": scaling.mode,
        "share": scaling.share,
        "gpus": list(scaling.gpus),
        "measured": [{**run._asdict(), "efficiency": run.efficiency} for run in scaling.measured],
        "fits": [{"of": of, **law._asdict()} for of, law in scaling.fits],
    }


# --- Files ------------------------------------------------------------------------------------------


def write_json(sweep: Sweep, out: TextIO) -> None:
    """The document, with one line per row."""
    items = _with_first_computed(rows(sweep))
    out.write(json.dumps(summary(sweep)).removesuffix("}") + ', "rows": [')
    for number, row in enumerate(items):
        out.write(",\n" if number else "\n")
        out.write(json.dumps(row, allow_nan=False))
    out.write("\n]}\n")


def _with_first_computed(items: Iterator[Item]) -> Iterator[Item]:
    """The same iterator with its first element computed: if that fails, no file is written."""
    first = next(items, None)
    return items if first is None else chain([first], items)


def write_csv(sweep: Sweep, out: TextIO) -> None:
    """A line per point; unknown values are empty."""
    writer, blocks = csv.writer(out, lineterminator="\n"), _with_first_computed(sweep.blocks())
    writer.writerow(sweep.columns)
    for block in blocks:
        writer.writerows(zip(*(_csv_column(block, name) for name in sweep.columns), strict=True))


def _csv_column(block: Columns, name: str) -> Iterable[Any]:
    """The cells of a column; texts are those of `csv_cell`."""
    values = known_values(full_column(block, name))
    return map(csv_cell, values) if name in TEXT_COLUMNS else values


def write_parquet(sweep: Sweep, file: Path) -> None:
    """The columns, counts as int64. Raises OutputError where pyarrow is missing or a count needs more than 64 bits."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise OutputError("Parquet needs pyarrow: pip install pyarrow, or use .csv") from None
    if any(not case.fits_int64 for case in sweep.cases):
        raise OutputError("some counts are too large for the 64 bits of a Parquet column; use .csv or .json")
    integer_columns = [
        name
        for name in INTEGER_COLUMNS
        if not (name in EXPECTED_COUNTS and any(case.fractional for case in sweep.cases))
    ]
    kinds = dict.fromkeys(sweep.columns, pyarrow.float64()) | dict.fromkeys(integer_columns, pyarrow.int64())
    texts = [name for name in TEXT_COLUMNS if name in kinds]
    kinds |= dict.fromkeys(texts, pyarrow.string()) | dict.fromkeys(("host_bound", "fits"), pyarrow.bool_())
    schema = pyarrow.schema(kinds.items())
    with parquet.ParquetWriter(file, schema) as writer:
        for block in sweep.blocks():
            columns = [pyarrow.array(full_column(block, name), kind, from_pandas=True) for name, kind in kinds.items()]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
