"""The columns of a sweep as arrays with one element per point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.sweep.case import NAMED_OPTIONS, RESULT_COLUMNS, Columns

TEXT_COLUMNS = (
    "model", "hardware", "phase", *NAMED_OPTIONS, "engine_version", "engine_file", "runtime", "bound", "note"
)  # fmt: skip
"""Columns of strings."""


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


def known_values(column: Any) -> list[Any]:
    """Python numbers and strings; None for unknown."""
    return [None if value != value else value for value in column.tolist()]
