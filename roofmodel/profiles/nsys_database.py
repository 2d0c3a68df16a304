"""Tables of an SQLite export of Nsight Systems, in a database of unknown origin.

Only kernels, copies, strings, NVTX ranges, API calls, GPU attributes and GPU metrics are read. The export also contains
environment variables, paths and user names, which are never read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.files.text_files import printable
from roofmodel.profiles.kernel import AMD_ALTERNATIVE
from roofmodel.profiles.signatures import SQLITE
from roofmodel.profiles.streams import as_file, limited_name

HOW_TO_COLLECT = (
    "collect with `nsys profile --trace=cuda,nvtx --cuda-graph-trace=node -o report COMMAND` "
    "and export with `nsys export --type sqlite report.nsys-rep`"
)
MAX_VALUE = 2**20  # bytes of a value in a column; kernel names have some kilobytes
_ROW_BYTES = 4  # of the shortest row: its pointer, its length, its number and an empty header


def _check_export(database: Database, name: str) -> None:
    """Raises ProfileError unless the database is an nsys export."""
    if database.tables & {"CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "StringTable"}:
        raise ProfileError(
            f"{name}: an nvprof database whose list of tables is not at the start of the file; convert it with "
            "`nvprof --csv --print-gpu-trace -i FILE --log-file trace.csv` and give trace.csv"
        )
    if any(table.startswith("rocpd_") for table in database.tables) or {"HIP", "KERN"} <= database.tables:
        raise ProfileError(f"{name}: a database of AMD's rocprof, which is not supported; {AMD_ALTERNATIVE}")
    if "StringIds" not in database.tables:
        raise ProfileError(f"{name}: an SQLite database, but not an nsys export (no table StringIds); {HOW_TO_COLLECT}")


@contextmanager
def opened(
    file: BinaryIO, name: str, again: str = "export it again", check: Callable[[Database, str], None] = _check_export
) -> Iterator[Database]:
    """The tables of a database, opened read-only; `check` raises ProfileError for another one than an nsys export.

    Raises ProfileError, within the context too, for a damaged database; `again` says what to do then.
    """
    with as_file(file, SQLITE, name) as path:
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                database = Database(connection, path.stat().st_size)
                check(database, name)
                try:
                    yield database
                except (TypeError, ValueError):  # whose message would quote content
                    problem = f"the table {database.last_table} has a missing or invalid number"
                    raise ProfileError(f"{name}: {problem}; {again}") from None
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's own message may quote bytes that are not UTF-8
            why = getattr(error, "sqlite_errorname", "not a valid database")  # the message itself would quote content
            raise ProfileError(f"{name}: the SQLite database cannot be read ({why}); {again}") from None
        except OverflowError:
            raise ProfileError(f"{name}: the database contains times that no run has; {again}") from None


class Database:
    """Access to tables and columns that may be missing, in a database of unknown origin.

    Only tables that SQLite stores are read: no views and no virtual tables, whose queries may never end. `size` is that
    of the file in bytes. A damaged or forged file may link a page to itself, so the rows and the text of a query are
    limited to what a file of this size can contain.
    """

    def __init__(self, connection: sqlite3.Connection, size: int) -> None:
        self._connection, self._size = connection, size
        self.last_table = ""  # of `rows`
        self._text_left = 0  # bytes
        self._connection.text_factory = self._text
        self._connection.row_factory = sqlite3.Row
        self._connection.set_authorizer(_authorize)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(MAX_VALUE, size))
        # rootpage is 0 for views and virtual tables
        self.tables = {
            str(table["name"])
            for table in self._limited("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
        }

    def rows(
        self, table: str, columns: Sequence[str], only: tuple[str, Collection[int]] | None = None
    ) -> Iterator[sqlite3.Row]:
        """The rows of a table, with None for missing columns; no rows if the table is missing.

        `only` is a column and its values in the rows; no rows if the column is missing.
        """
        if table not in self.tables:
            return
        self.last_table = table
        existing = {str(info["name"]) for info in self._connection.execute(f'PRAGMA table_info("{table}")')}
        if only is not None and only[0] not in existing:
            return
        selected = ", ".join(f'"{column}"' if column in existing else f'NULL AS "{column}"' for column in columns)
        condition = "" if only is None else f' WHERE "{only[0]}" IN ({", ".join(map(str, only[1]))})'
        yield from self._limited(f'SELECT {selected} FROM "{table}"{condition}')

    def count(self, table: str) -> int:
        """The number of rows of a table; 0 if the table is missing."""
        return sum(1 for _ in self._limited(f'SELECT 1 FROM "{table}"')) if table in self.tables else 0

    def _limited(self, query: str) -> Iterator[sqlite3.Row]:
        """The rows of a query. Raises sqlite3.DatabaseError for more rows or text than the file can contain."""
        most = self._size // _ROW_BYTES
        self._text_left = self._size
        for number, row in enumerate(self._connection.execute(query)):
            if number >= most:
                raise sqlite3.DatabaseError("more rows than the file can contain")
            yield row

    def _text(self, raw: bytes) -> str:
        self._text_left -= len(raw)
        if self._text_left < 0:
            raise sqlite3.DatabaseError("more text than the file can contain")
        return limited_name(printable(raw.decode("utf-8", errors="replace")))


def _authorize(action: int, *_: object) -> int:
    """Allow SQLite to read columns and list them, nothing else."""
    allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA)
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY
