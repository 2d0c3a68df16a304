"""Tables stored column by column: integers and numbers in 8 bytes, texts as codes of the distinct texts.

The columns are arrays of the standard library, so that reading a short table imports no other one; `array` and `frame`
give the same memory to NumPy and pandas. A column that no row gives takes no memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from numpy.typing import NDArray

UNKNOWN = -1
"""An integer that the file does not record; in a column of texts, the code of a missing one."""

Kind = type
"""int; float; str and Hashable, of which the distinct values are stored once; object, of which each is."""
_TYPECODES = {int: "q", float: "d", str: "i", Hashable: "i"}
_CODED = (str, Hashable)
_LARGEST = (1 << 63) - 1
MANY = 10_000  # rows: from here on, NumPy is worth its import


class Codes(dict[Any, int]):
    """The number of each distinct value; -1 for None. A value and its text, as 7 and `7`, have the same number."""

    def __init__(self, kind: Kind, values: Iterable[Any] = ()) -> None:
        super().__init__({None: UNKNOWN})
        self.convert = str if kind is str else None
        self.values_by_code: list[Any] = []
        for value in values:
            self[value]

    def __missing__(self, value: object) -> int:
        stored = value if self.convert is None else self.convert(value)
        code = self.get(stored)
        if code is None:
            self[stored] = code = len(self.values_by_code)
            self.values_by_code.append(stored)
        self[value] = code
        return code


def _unknown(kind: Kind) -> Any:
    return nan if kind is float else UNKNOWN


def _integers(cells: Sequence[Any]) -> array[int]:
    """Integers; those that need more than 64 bits, which are impossible in every column, become the largest ones."""
    try:
        return array("q", [UNKNOWN if cell is None else int(cell) for cell in cells])
    except OverflowError:
        return array("q", [UNKNOWN if cell is None else max(-_LARGEST, min(int(cell), _LARGEST)) for cell in cells])


class ColumnTable:
    """Rows of the same columns; `columns` has the kind of each."""

    def __init__(self, columns: Mapping[str, Kind]) -> None:
        self.columns = dict(columns)
        self._rows = 0
        self._cells: dict[str, Any] = {}  # column -> array or, for objects, list; shorter if later rows do not give it
        self._codes: dict[str, Codes] = {}

    def __len__(self) -> int:
        return self._rows

    def has(self, column: str) -> bool:
        """Whether any row gives a column."""
        return column in self._cells

    # --- Writing --------------------------------------------------------------------------------------

    def add(self, **cells: object) -> None:
        """Add a row; columns that are not given are unknown."""
        self.extend(1, **{column: (cell,) for column, cell in cells.items()})

    def extend(self, rows: int, **columns: Sequence[Any]) -> None:
        """Add rows; columns that are not given are unknown."""
        for column, cells in columns.items():
            stored, kind = self.stored(column), self.columns[column]
            if kind in _CODED:
                stored.extend(map(self._codes[column].__getitem__, cells))
            elif kind is int:
                stored.extend(_integers(cells))
            elif kind is float:
                stored.extend(array("d", [nan if cell is None else cell for cell in cells]))
            else:
                stored.extend(cells)
        self._rows += rows

    def set(self, column: str, cells: Sequence[Any]) -> None:
        """Set a column, of one cell for each row."""
        self.drop(column)
        rows, self._rows = self._rows, 0
        self.extend(rows, **{column: cells})

    def fill(self, **cells: object) -> None:
        """Set each of these columns to the same cell in all rows."""
        for column, cell in cells.items():
            self.drop(column)
            rows, self._rows = self._rows, 0
            self.extend(1, **{column: (cell,)})
            self._cells[column] *= rows
            self._rows = rows

    def set_array(self, column: str, stored: NDArray[Any], values: Iterable[Any] = ()) -> None:
        """Set a column from its stored numbers, or from codes and the values of the codes."""
        typecode = _TYPECODES[self.columns[column]]
        self.put(column, array(typecode, stored.astype(typecode).tobytes()), values)

    def update(self, column: str, rows: Iterable[int], cells: Iterable[Any]) -> None:
        """Set some cells of a column."""
        stored, codes = self.stored(column), self._codes.get(column)
        for row, cell in zip(rows, cells, strict=True):
            stored[row] = cell if codes is None else codes[cell]

    def put(self, column: str, stored: array[Any] | NDArray[Any], values: Iterable[Any] = ()) -> None:
        """Set a column to an array of its numbers or codes, which is not copied and may lack the last rows.

        A NumPy array has one element for each row, of any type; only `array`, `mapped` and `select` read it.
        """
        if self.columns[column] in _CODED:
            listed = list(values)
            self._codes[column] = codes = Codes(self.columns[column], listed)
            if len(codes.values_by_code) < len(listed):  # some are equal
                listed.append(None)
                stored = array("i", [codes[listed[code]] for code in stored])
        self._cells[column] = stored

    def drop(self, *columns: str) -> None:
        """Make columns unknown."""
        for column in columns:
            self._cells.pop(column, None)
            self._codes.pop(column, None)

    def declare(self, **columns: Kind) -> None:
        """Add columns that only some tables have."""
        self.columns |= columns

    def append(self, other: ColumnTable) -> None:
        """Add the rows of another table, and its columns."""
        self.columns |= other.columns
        for column, kind in other.columns.items():
            if other.has(column):
                more, stored = other.stored(column), self.stored(column)
                if kind in _CODED:
                    code = self._codes[column]
                    codes = [*(code[value] for value in other.distinct(column)), UNKNOWN]
                    more = map(codes.__getitem__, more)
                stored.extend(more)
        self._rows += len(other)

    # --- Reading --------------------------------------------------------------------------------------

    def stored(self, column: str) -> Any:
        """The stored cells of a column, one for each row: numbers, codes or objects."""
        kind = self.columns[column]
        stored = self._cells.get(column)
        if stored is None:
            stored = self._cells[column] = [] if kind is object else array(_TYPECODES[kind])
            if kind in _CODED:
                self._codes[column] = Codes(kind)
        if missing := self._rows - len(stored):
            stored.extend([None] * missing if kind is object else array(_TYPECODES[kind], [_unknown(kind)]) * missing)
        return stored

    def distinct(self, column: str) -> Sequence[Any]:
        """The values of a column of which the distinct ones are stored, by code."""
        return self._codes[column].values_by_code if self.has(column) else ()

    def cell(self, column: str, row: int) -> Any:
        """One cell; None if it is unknown."""
        stored = self._cells.get(column)
        if stored is None or row >= len(stored):
            return None
        value, codes = stored[row], self._codes.get(column)
        if codes is not None:
            return None if value == UNKNOWN else codes.values_by_code[value]
        unknown = value != value if type(value) is float else type(stored) is array and value == UNKNOWN
        return None if unknown else value

    def cells(self, column: str) -> list[Any]:
        """All cells of a column; None where it is unknown."""
        if not self.has(column):
            return [None] * self._rows
        stored, kind = self.stored(column), self.columns[column]
        if kind in _CODED:
            values = [*self.distinct(column), None]
            return [values[code] for code in stored]
        if kind is float:
            return [None if value != value else value for value in stored]
        return list(stored) if kind is object else [None if value == UNKNOWN else value for value in stored]

    def array(self, column: str) -> NDArray[Any]:
        """The stored numbers or codes of a column, in the same memory; UNKNOWN or NaN where no row gives it."""
        import numpy as np

        kind = self.columns[column]
        if not self.has(column):
            return np.full(self._rows, _unknown(kind), np.dtype(_TYPECODES[kind]))
        stored = self.stored(column)
        return np.asarray(stored)

    def mapped(self, column: str, value: Callable[[Any], object], missing: object = None, dtype: Any = object) -> Any:
        """An array of what `value` returns for each cell of a column whose distinct values are stored; called for each
        of these once.
        """
        import numpy as np

        values = np.empty(len(self.distinct(column)) + 1, dtype)
        values[:-1] = [value(each) for each in self.distinct(column)]
        values[-1] = missing
        return values[self.array(column)]

    # --- Other tables -----------------------------------------------------------------------------------

    def like(self) -> Self:
        """An empty table of these columns."""
        table = type(self).__new__(type(self))
        ColumnTable.__init__(table, self.columns)
        return table

    def select(self, rows: Sequence[int] | NDArray[np.intp]) -> Self:
        """The table of these rows, in their order."""
        chosen = self.like()
        chosen._rows = len(rows)
        for column in self._cells:
            stored = self.stored(column)
            if isinstance(stored, list):
                chosen._cells[column] = [stored[row] for row in rows]
            elif not isinstance(stored, array):
                chosen._cells[column] = stored[rows]
            elif len(rows) < MANY:
                chosen._cells[column] = array(stored.typecode, map(stored.__getitem__, rows))
            else:
                import numpy as np

                chosen._cells[column] = array(stored.typecode, self.array(column)[np.asarray(rows)].tobytes())
        chosen._codes = dict(self._codes)
        return chosen

    def copy(self) -> Self:
        """A table of these rows, of which columns can be set; the columns themselves are not copied."""
        table = self.like()
        table._rows, table._codes = self._rows, dict(self._codes)
        table._cells = {column: self.stored(column) for column in self._cells}
        return table

    def frame(self, columns: Iterable[str] = ()) -> pandas.DataFrame:
        """The table, or these columns of it, in pandas; texts are categorical."""
        import pandas

        def series(column: str) -> object:
            if self.columns[column] not in _CODED:
                return self.cells(column) if self.columns[column] is object else self.array(column)
            categories = pandas.Index(list(self.distinct(column)), dtype=object, tupleize_cols=False)
            return pandas.Categorical.from_codes(self.array(column), categories=categories)

        return pandas.DataFrame({column: series(column) for column in columns or self.columns}, copy=False)
