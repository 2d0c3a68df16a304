"""CSV, JSON, Parquet and picture files of a sweep. Written block by block, so a grid can exceed memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TextIO, TypeVar

from roofmodel.errors import OutputError
from roofmodel.files import output_files
from roofmodel.report.encoding import csv_cell
from roofmodel.sweep.arrays import TEXT_COLUMNS, full_column, known_values
from roofmodel.sweep.case import COUNT_OPTIONS, COUNTS, ROLES, Columns
from roofmodel.sweep.data import rows, summary
from roofmodel.sweep.sweep import Sweep

Item = TypeVar("Item")

SUFFIXES = (*output_files.PICTURES, "csv", "json", "parquet")
MAX_PICTURE_POINTS = 2_000_000
"""A picture needs all points in memory, about 300 bytes each."""
INTEGER_COLUMNS = (
    *COUNT_OPTIONS,
    *COUNTS,
    "kernels",
    *(f"memory_{role}" for role in ROLES),
)
"""Columns of whole numbers."""
EXPECTED_COUNTS = ("bytes", "weight_bytes")
"""Integer columns that have fractions for MoE models, which read the expected number of routed experts."""


def save(sweep: Sweep, path: str, picture: str | None = None) -> Path:
    """Write the rows, or a picture of this kind (see picture.py), in the format that the suffix names."""
    target = output_files.check(path, SUFFIXES)
    suffix = target.suffix.lower().lstrip(".")
    if suffix in output_files.PICTURES and sweep.points > MAX_PICTURE_POINTS:
        raise OutputError(
            f"{path}: a picture shows at most {MAX_PICTURE_POINTS} points, and this sweep has {sweep.points}; "
            "give fewer values, or write .csv"
        )
    texts = {"csv": write_csv, "json": write_json}

    def write(file: Path) -> None:
        if suffix in texts:
            with file.open("w", encoding="utf-8", newline="") as out:
                texts[suffix](sweep, out)
        elif suffix == "parquet":
            write_parquet(sweep, file)
        else:
            from roofmodel.sweep.picture import draw  # imports NumPy

            draw(sweep, file, suffix, picture)

    output_files.replace(target, write)
    return target


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
    kinds |= dict.fromkeys(TEXT_COLUMNS, pyarrow.string()) | dict.fromkeys(("host_bound", "fits"), pyarrow.bool_())
    schema = pyarrow.schema(kinds.items())
    with parquet.ParquetWriter(file, schema) as writer:
        for block in sweep.blocks():
            columns = [pyarrow.array(full_column(block, name), kind, from_pandas=True) for name, kind in kinds.items()]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
