"""The files of a sweep: CSV, JSON and Parquet, block by block, so that a grid may be larger than memory; pictures."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TextIO, TypeVar

from roofmodel.errors import OutputError
from roofmodel.study.sweep.case import COLUMNS, COUNTS, DEALT, LENGTHS, ROLES
from roofmodel.study.sweep.sweep import Sweep
from roofmodel.views.kit import files
from roofmodel.views.sweep.data import WORDS, full_column, known_values, rows, summary

Item = TypeVar("Item")

SUFFIXES = (*files.PICTURES, "csv", "json", "parquet")
WHOLE = (*LENGTHS, "new_tokens", "image", *DEALT, *COUNTS, "kernels", *(f"memory_{role}" for role in ROLES))
"""Columns of whole numbers."""
FRACTIONAL = ("bytes", "weight_bytes")
"""Columns of whole numbers that are fractions for MoE models: the expected number of routed experts."""


def save(sweep: Sweep, path: str, picture: str | None = None) -> Path:
    """Write the rows, or a picture of this kind (see picture.py), in the format of the suffix."""
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
            from roofmodel.views.sweep.picture import draw  # imports NumPy

            draw(sweep, file, suffix, picture)

    files.replace(target, write)
    return target


def write_json(sweep: Sweep, out: TextIO) -> None:
    """The document, with one line per row."""
    found = _begun(rows(sweep))
    out.write(json.dumps(summary(sweep)).removesuffix("}") + ', "rows": [')
    for number, row in enumerate(found):
        out.write(",\n" if number else "\n")
        out.write(json.dumps(row, allow_nan=False))
    out.write("\n]}\n")


def _begun(found: Iterator[Item]) -> Iterator[Item]:
    """The same iterator with its first element computed: if that fails, as without a cluster, nothing is written."""
    return chain([next(found)], found)


def write_csv(sweep: Sweep, out: TextIO) -> None:
    """A line per point; unknown values are empty."""
    writer, blocks = csv.writer(out, lineterminator="\n"), _begun(sweep.blocks())
    writer.writerow(COLUMNS)
    for block in blocks:
        writer.writerows(zip(*(known_values(full_column(block, name)) for name in COLUMNS), strict=True))


def write_parquet(sweep: Sweep, file: Path) -> None:
    """The columns, counts as int64. Raises OutputError where pyarrow is missing or a count needs more than 64 bits."""
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
            columns = [pyarrow.array(full_column(block, name), kind, from_pandas=True) for name, kind in kinds.items()]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
