"""Columns of a table: what is read from a column of arrays is what was given."""

from __future__ import annotations

import numpy as np

from roofmodel.profiles.columns import UNKNOWN, ColumnTable

COLUMNS = {"name": str, "start": int}


def test_equal_texts_of_two_codes_are_one_text() -> None:
    table = ColumnTable(COLUMNS)
    table.extend(4)
    table.put("name", np.array([0, 2, 1, UNKNOWN], np.int32), ["a", "b", "a"])
    assert table.cells("name") == ["a", "a", "b", None]
    assert list(table.distinct("name")) == ["a", "b"]


def test_a_column_of_a_numpy_array_is_read_without_a_copy_and_selected() -> None:
    starts = np.array([3, 5, 8])
    table = ColumnTable(COLUMNS)
    table.extend(3)
    table.put("start", starts)
    assert np.shares_memory(table.array("start"), starts)
    assert table.select([2, 0]).array("start").tolist() == [8, 3]


def test_a_function_of_a_column_is_called_once_for_each_text_and_not_for_missing_ones() -> None:
    table = ColumnTable(COLUMNS)
    for name in ("a", "bc", None, "a"):
        table.add(name=name)
    called: list[str] = []

    def length(name: str) -> int:
        called.append(name)
        return len(name)

    assert table.mapped("name", length, -1, np.int64).tolist() == [1, 2, -1, 1]
    assert called == ["a", "bc"]
