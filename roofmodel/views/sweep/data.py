"""The rows of a sweep as a data frame, as dicts and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.study.sweep.case import COLUMNS, NAMED_OPTIONS, RESULT_COLUMNS, Columns
from roofmodel.study.sweep.sweep import Sweep

if TYPE_CHECKING:
    import pandas

TEXT_COLUMNS = ("model", "hardware", "phase", *NAMED_OPTIONS, "bound", "note")
"""Columns of strings."""


def frame(sweep: Sweep, columns: Iterable[str] = COLUMNS) -> pandas.DataFrame:
    """A row per point, in base units: counts as exact ints, NaN or None for unknown."""
    import pandas

    kept = [[full_column(block, name) for name in columns] for block in sweep.blocks()]
    return pandas.DataFrame(
        {name: _joined(parts) for name, parts in zip(columns, zip(*kept, strict=True), strict=True)}
    )


def full_column(block: Columns, name: str) -> Any:
    """A column as an array with one element per point; unknown numbers are NaN."""
    import numpy

    value = block[name]
    if isinstance(value, numpy.ndarray):
        return value
    unknown = value is None and name in RESULT_COLUMNS and name not in TEXT_COLUMNS
    return numpy.full(len(block["batch"]), float("nan") if unknown else value, dtype=float if unknown else object)


def _joined(parts: Sequence[Any]) -> Any:
    """The blocks of a column as one array, without loss: ints that a float cannot represent make it an object array."""
    import numpy

    kinds = {part.dtype.kind for part in parts}
    inexact = kinds == {"i", "f"} and any(part.dtype.kind == "i" and abs(part).max() > 2**53 for part in parts)
    if inexact or kinds == {"b", "f"}:
        parts = [numpy.array(known_values(part), dtype=object) for part in parts]
    return numpy.concatenate(parts)


def known_values(column: Any) -> list[Any]:
    """Python numbers and strings; None for unknown."""
    return [None if value != value else value for value in column.tolist()]


def rows(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """A dict per point, with the same keys as an estimate's totals."""
    for block in sweep.blocks():
        for values in zip(*(known_values(full_column(block, name)) for name in COLUMNS), strict=True):
            yield dict(zip(COLUMNS, values, strict=True))


def document(sweep: Sweep) -> dict[str, Any]:
    """The document `roofmodel.sweep/1`."""
    return {**summary(sweep), "rows": list(rows(sweep))}


def summary(sweep: Sweep) -> dict[str, Any]:
    """The document without its rows."""
    return {"schema": "roofmodel.sweep/1", "points": sweep.points, "notes": list(map(str, sweep.notes))}
