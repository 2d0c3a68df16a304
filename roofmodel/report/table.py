"""Tables: columns that are declared once, and what their rows give: terminal, JSON, CSV, Markdown, HTML, a data frame.

    OPERATORS = Table("ops", [
        Column("name", "operator"),
        Column("bound_seconds", "bound", SECONDS, meaning="the least time at the device's ceilings"),
    ])
    OPERATORS.records(rows)   # for JSON: {"name": "mlp.up", "bound_seconds": 6.7e-05}
    OPERATORS.terminal(rows)  # for `console.print`: 67 µs

A row is a dict, a named tuple or another object. Files have values in base units, unrounded; None is unknown.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from roofmodel.errors import Option, cut
from roofmodel.files.text_files import printable
from roofmodel.numbers import units

if TYPE_CHECKING:
    import pandas
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table as RichTable
    from rich.text import Text

Cell = str | tuple[str, str]  # text, or text and its style


_EIGHTHS = " ▏▎▍▌▋▊▉"


class Unit(NamedTuple):
    """How people read a value."""

    write: Callable[[Any], str]
    left: bool = False  # alignment
    shorten: Callable[[Sequence[str], int], Sequence[str]] | None = None
    """For names, which take the width that other columns leave: the names in at most so many characters."""


def bar(fraction: float, columns: int = 16) -> str:
    """A bar of `fraction` of so many columns, drawn to an eighth of a column."""
    eighths = round(fraction * columns * 8)
    text = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return f"{text:<{columns}}"


def _shorten(names: Sequence[str], width: int) -> Sequence[str]:
    return [shorten(name, width) for name in names]


def _seconds(value: float) -> str:
    return f"-{units.seconds(-value)}" if value < 0 else units.seconds(value)


TEXT = Unit(str, left=True)
NAME = Unit(str, left=True, shorten=_shorten)
COUNT = Unit(str)
TIMES = Unit(lambda value: "" if value == 1 else str(value))  # only numbers other than 1 are written
NUMBER = Unit(units.significant)
FLOP = Unit(units.si)
BYTES = Unit(lambda value: units.si(value, "B"))
MEMORY = Unit(units.binary)
SECONDS = Unit(_seconds)
RATE = Unit(units.si)
BYTES_PER_SECOND = Unit(lambda value: units.si(value, "B/s"))
PERCENT = Unit("{:.0%}".format)
FINE_PERCENT = Unit("{:.1%}".format)
BAR = Unit(bar, left=True)  # of a fraction


class Column(NamedTuple):
    """A column: its key in files, its title for people, and where its values come from."""

    key: str | None  # JSON key and CSV header; None: not in files
    title: str | None = None  # in the terminal and on pages; None: not there
    unit: Unit = TEXT
    value: str | Callable[[Any], Any] | None = (
        None  # in base units: a function of the row, or its field (default: `key`)
    )
    text: Callable[[Any], Cell | None] | None = None  # of a row, for people; default: the value in `unit`
    unknown: str = ""  # the text of None
    priority: int | None = None  # a narrow terminal leaves out the lowest first; None: never
    wrap: bool = False  # whether a terminal that is still too narrow wraps the text
    only: str = ""  # "terminal", "page", "json" or "csv"
    flat: Callable[[Any], Any] | tuple[str, ...] | None = None
    """The CSV's text of a list, or the keys of a record that are columns of their own: `gemm_m`, `gemm_n`."""
    legend: str = ""  # a line below the terminal's table
    meaning: str = ""  # for the reference of the files

    def get(self, row: Any) -> Any:
        """The value of a row; a Fraction as a float. A path such as `cost.flops` ends at None."""
        if callable(self.value):
            row = self.value(row)
        else:
            for name in (self.value or self.key or "").split("."):
                row = row[name] if isinstance(row, dict) else getattr(row, name) if row is not None else None
        return float(row) if isinstance(row, Fraction) else row

    def cell(self, row: Any) -> Cell:
        """The text of a row."""
        if self.text is not None:
            text = self.text(row)
            return self.unknown if text is None else text
        value = self.get(row)
        return self.unknown if value is None else self.unit.write(value)

    @property
    def csv_keys(self) -> list[str]:
        """The columns of the CSV: the key, or one for each key of a record."""
        return [f"{self.key}_{part}" for part in self.flat] if isinstance(self.flat, tuple) else [self.key or ""]

    def csv_values(self, row: Any) -> list[Any]:
        """The values of a row in these columns."""
        value = self.get(row)
        if isinstance(self.flat, tuple):
            return [None if value is None else value[part] for part in self.flat]
        return [value if value is None or self.flat is None else self.flat(value)]

    def shown(self, where: str) -> bool:
        """Whether `terminal`, `page` (Markdown, HTML, LaTeX), `json` or `csv` has the column."""
        name = self.key if where in ("json", "csv") else self.title
        return name is not None and self.only in ("", where)


class Table(NamedTuple):
    """Columns under the name that the table has in a document."""

    name: str
    columns: Sequence[Column]
    marks: Mapping[str, str] = {}  # a sign in a cell -> a line below the terminal's table
    style: Callable[[Any], str] | None = None  # of a row that stands out, such as a total: `bold`

    def without(self, *names: str | None) -> "Table":
        """The table without the columns of these keys or titles."""
        return self._replace(columns=[c for c in self.columns if not {c.key, c.title} & {*names} - {None}])

    def terminal(self, rows: Iterable[Any]) -> "TerminalTable":
        """The table for `console.print`: as many columns as fit, without those in which nothing is known."""
        return TerminalTable(self, [*rows])

    def records(self, rows: Iterable[Any]) -> list[dict[str, Any]]:
        """A dict for each row, for JSON."""
        return [self.record(row) for row in rows]

    def record(self, row: Any) -> dict[str, Any]:
        """A row for JSON."""
        return {column.key or "": column.get(row) for column in self.columns if column.shown("json")}

    @property
    def csv_keys(self) -> list[str]:
        """The columns of the CSV and of data frames."""
        return [key for column in self.columns if column.shown("csv") for key in column.csv_keys]

    def flat(self, rows: Iterable[Any]) -> list[dict[str, Any]]:
        """A dict for each row without lists and records, for CSV and data frames."""
        columns, keys = [column for column in self.columns if column.shown("csv")], self.csv_keys
        return [dict(zip(keys, (value for c in columns for value in c.csv_values(row)), strict=True)) for row in rows]

    def csv(self, rows: Iterable[Any]) -> str:
        """A header, and a line for each row; an unknown value is an empty field."""
        return as_csv(self.csv_keys, self.flat(rows))

    def frame(self, rows: Iterable[Any]) -> "pandas.DataFrame":
        """A row for each row, with the columns of the CSV."""
        import pandas

        return pandas.DataFrame(self.flat(rows), columns=self.csv_keys)

    def cells(self, rows: Sequence[Any], where: str) -> dict[Column, list[Cell]]:
        """The texts of the rows in the columns of `terminal` or `page`, without columns in which nothing is known."""
        shown = {c: [c.cell(row) for row in rows] for c in self.columns if c.shown(where)}
        return {
            c: cells for c, cells in shown.items() if any(plain_text(cell) not in ("", c.unknown) for cell in cells)
        }

    def legends(self, cells: Mapping[Column, Sequence[Cell]]) -> list[str]:
        """The legends of the marks in these cells and of their columns."""
        text = "".join(plain_text(cell) for column in cells if not column.unit.shorten for cell in cells[column])
        lines = [line for mark, line in self.marks.items() if mark in text] + [column.legend for column in cells]
        return [*dict.fromkeys(filter(None, lines))]


def as_csv(columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> str:
    """A header, and a line per record; an unknown value is an empty field. Texts are those of `csv_cell`."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: csv_cell(value) for key, value in record.items()} for record in records)
    return out.getvalue().rstrip("\n")


def csv_cell(value: Any) -> Any:
    """The value; a text in printable characters, with an apostrophe in front if a spreadsheet would run it.

    Spreadsheets take a cell for a formula if it begins with `=`, `+`, `-` or `@`, or with a tab or a line end before
    one of these (OWASP, "CSV injection"). Numbers and a minus sign alone are unchanged, also as text.
    """
    if not isinstance(value, str):
        return value
    value = printable(value)
    if not value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) or _is_number(value) or value == "-":
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def joined(between: str) -> Callable[[Iterable[Any]], str]:
    """Writes a list as one text, for `Column.flat`."""
    return lambda values: between.join(map(str, values))


MIN_NAME_WIDTH = 18  # characters of a name; narrower terminals leave out other columns


class TerminalTable:
    """The rows of a table in a terminal of any width; no number is ever cut.

    A column without a known value is left out. On a narrow terminal, columns are left out by their priority, and names
    are shortened. Below the table are the legends of its columns and marks, and the titles of columns that do not fit.
    """

    def __init__(self, table: Table, rows: Sequence[Any]) -> None:
        self.table, self.rows = table, rows
        self.styles = [(table.style and table.style(row)) or "" for row in rows]
        self.cells = table.cells(rows, "terminal")

    def fitting(self, width: int) -> list[Column]:
        """The columns that fit into so many characters."""
        widths = {
            column: MIN_NAME_WIDTH if column.unit.shorten else _width(column, cells)
            for column, cells in self.cells.items()
        }
        expendable = [column for column in widths if column.priority is not None]
        for column in sorted(expendable, key=lambda column: column.priority or 0):
            if sum(widths.values()) + len(widths) - 1 <= width:
                break
            del widths[column]
        return list(widths)

    def titles(self, width: int) -> list[str]:
        """The titles of the columns that fit."""
        return [column.title or "" for column in self.fitting(width)]

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        if not (fitting_columns := self.fitting(options.max_width)):
            return
        table = bare()
        columns = [self.cells[column] for column in fitting_columns]
        for place, column in enumerate(fitting_columns):
            justify: Literal["left", "right"] = "left" if column.unit.left else "right"
            overflow: Literal["fold", "ellipsis"] = "fold" if column.wrap else "ellipsis"
            table.add_column(column.title or "", justify=justify, no_wrap=not column.wrap, overflow=overflow)
            if column.unit.shorten:
                others = sum(_width(other, self.cells[other]) + 1 for other in fitting_columns if other is not column)
                room = options.max_width - others
                names = column.unit.shorten([*map(plain_text, columns[place])], room)
                columns[place] = [_fill(*each, room) for each in zip(columns[place], names, strict=True)]
        lines = [*zip(self.styles, *columns, strict=True)]
        # rich lays out one row of long cells in a tenth of the time of a row for each line
        for part in [[line] for line in lines] if any(column.wrap for column in fitting_columns) else [lines]:
            styles, *parts = zip(*part, strict=True)
            table.add_row(*(_stacked(cells, styles) for cells in parts))
        yield table
        if legends := self.table.legends({column: self.cells[column] for column in fitting_columns}):
            yield Text("; ".join(legends), style="dim")
        if left_out := [column.title for column in self.cells if column not in fitting_columns and column.title]:
            yield Text(f"not shown at {options.max_width} columns: {', '.join(left_out)}", style="dim")


def _width(column: Column, cells: Sequence[Cell]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, (column.title or "", *map(plain_text, cells))))


def plain_text(cell: Cell) -> str:
    """The text of a cell without its style."""
    return cell if isinstance(cell, str) else cell[0]


def _fill(cell: Cell, name: str, width: int) -> Cell:
    """The cell with this name, padded to this width."""
    from rich.cells import cell_len

    text = name + " " * (width - cell_len(name))
    return text if isinstance(cell, str) else (text, cell[1])


def _stacked(cells: Iterable[Cell], styles: Iterable[str]) -> "Text":
    """Cells of one column, a line each."""
    from rich.text import Text

    text = Text()
    for number, (cell, style) in enumerate(zip(cells, styles, strict=True)):
        text.append("\n" * bool(number))
        content, style = (cell, style) if isinstance(cell, str) else cell
        text.append(printable(content), style)  # a line end in a name would shift the cells below it
    return text


# --- Parts that modules use on their own ------------------------------------------------------------

_LEADING = re.compile(r"void |static |(?:\(anonymous namespace\)|<unnamed>|\w+)::")
_BASE = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|[^<(])*")


def bare(**options: Any) -> "RichTable":
    """A table without lines, with a dim header; `options` are those of rich."""
    from rich.table import Table as RichTable

    return RichTable(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", **options)


def omitted_rows(rest: int, *formats: str, which: str = "") -> Iterator["Text"]:
    """The line below a table without its last `rest` rows: `and 5 more; --format json lists all`; none without rest.

    `which` describes the omitted rows: `and 5 more with smaller deviations`.
    """
    from rich.text import Text

    if rest > 0:
        yield Text(omitted(rest, *formats, which=which), style="dim")


def omitted(rest: int, *formats: str, which: str = "") -> str:
    """The line of `omitted_rows`, of one row or more."""
    options = " and ".join(str(Option("format", name)) for name in formats)
    more = f"{rest} more {which}".rstrip()
    return f"and {more}; {options} {'lists' if len(formats) == 1 else 'list'} all"


def shorten(name: str, width: int) -> str:
    """A kernel's name in at most `width` characters: without return type and namespaces if necessary, then cut."""
    while len(name) > width and (base := _BASE.match(name)) and base.end() >= width and (lead := _LEADING.match(name)):
        name = name[lead.end() :]
    return cut(name, width)
