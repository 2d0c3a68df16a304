"""The rows under a header of Nsight Compute's CSV -> launches: what all its layouts share.

A number whose locale nothing has shown yet waits as text (`cells.Numbers`); all others go to their column at once.
"""

from __future__ import annotations

import re
import sys
from array import array
from math import isnan
from typing import NamedTuple

from roofmodel.errors import ProfileError, shorten
from roofmodel.profiles import cell_values
from roofmodel.profiles.kernel import Extent
from roofmodel.profiles.ncu import metric_names
from roofmodel.profiles.ncu.device_attributes import in_base_units, nvtx_names, scale
from roofmodel.profiles.ncu.launch_tables import Kind, Table, pad
from roofmodel.profiles.streams import UNENDED, Lines, printable

AGAIN = "run the line that `roof ncu-command` prints, or `ncu --import REPORT --csv --page raw`"
HEADER = re.compile(r'^\ufeff?(?:"?ID"?|"?Process ID"?),.*\bKernel Name\b', re.MULTILINE)
_QUOTED_ROW, _BARE_ROW = re.compile(r'"\d*",'), re.compile(r"\d*,")
# What tells the kind of a launch; the first ones of a `Kind` say which launch a row is of, as far as it can say that.
_KIND = ["Kernel Name", "Process ID", "Process Name", "Device", "Grid Size", "Block Size"]
_KIND += ["Stream", "CC", "Invocations"]
_SAME = 5
_UNNAMED = re.compile(r"(?<![\w<])unnamed>::")  # as ncu writes it on Windows, where the bracket is lost

Key = tuple[str, ...]


class Column:
    """The values of one metric, launch by launch."""

    __slots__ = ("factors", "name", "values")

    def __init__(self, name: str) -> None:
        self.name, self.values = name, array("d")
        self.factors: dict[str, float] = {}  # what turns a number in a unit into base units


class _Cell(NamedTuple):
    """A number that reads two ways while nothing has shown the locale; where it stands, and where it belongs."""

    column: Column
    place: int
    text: str
    unit: str
    line: int
    returned: bool  # whether rows of other launches stand between it and its launch's


def is_new(line: str) -> bool:
    """Whether a line begins a row or a header, or is the profiler's own: no continuation of a text in quotes."""
    return bool(_QUOTED_ROW.match(line) or HEADER.match(line) or line.startswith("=="))


class Reader:
    """Reads the rows under one header into a table."""

    def __init__(self, columns: list[str], quoted: bool, lines: Lines, numbers: cell_values.Numbers) -> None:
        self.header, self.lines, self.numbers = columns, lines, numbers
        self.pattern = _QUOTED_ROW if quoted else _BARE_ROW
        self.at = {name: index for index, name in reversed(list(enumerate(columns)))}
        self.table = Table(lines.file, summary="Invocations" in self.at)
        # Ranges that start and stop anywhere in the process stand outside of those that a thread pushes and pops.
        kinds = ("Start/Stop_Range", "Push/Pop_Range")
        self.ranges = [index for kind in kinds for index, name in enumerate(columns) if kind in name]
        self.telling = [self.at[name] for name in (*_KIND, *self.also_telling()) if name in self.at] + self.ranges
        self.kinds: dict[Key, int] = {}  # the cells that tell a kind -> its index
        self.last: tuple[str, Key] = "", ()  # the ID and these cells of the row before
        self.open, self.returned = -1, False  # the place of its launch; whether other launches came in between
        self.columns: dict[str, Column] = {}
        self.undecided: list[_Cell] = []  # numbers that read two ways while nothing has shown the locale
        self.line = array("q")  # of each launch the first
        self.highest: dict[str | None, int] = {}  # ID in each process
        self.place: dict[tuple[object, ...], int] = {}  # of launches, where it had to be looked up

    def also_telling(self) -> tuple[str, ...]:
        """Columns that tell the kind of a launch beside those that all tables have."""
        return ()

    def starts_row(self, line: str) -> bool:
        """Whether a line begins a row of this table; what does not is output of the program or of ncu."""
        return self.pattern.match(line) is not None

    def skim(self) -> str:
        """The next line that is to be read with care; those before it are read. An empty string at the end."""
        return self.lines.next()

    def read_row(self, line: str) -> None:
        """Read the row that begins in `line`. Raises ProfileError, with file and line, for one that is damaged."""
        fields = self.lines.row(line, is_new)
        if self.pattern is _BARE_ROW and not line.endswith("\n"):
            self.table.warnings.append(f"{self.lines.file}: {UNENDED}")
        self.row(fields)

    def row(self, fields: list[str]) -> None:
        raise NotImplementedError

    def finish(self, number: int) -> Table:
        """The table, its numbers read. Launches of a file's second table, the next `number`, get ids of their own."""
        for cell in self.undecided:
            self.put(*cell)
        for name, column in self.columns.items():
            if column.values:
                self.table.values[name] = column.values
        self.table.pad()
        self.table.prefix = f"{number + 1}/" if number else ""
        return self.table

    def fail(self, what: str, line: int | None = None) -> ProfileError:
        return ProfileError(f"{self.lines.file}:{line or self.lines.number}: {what}")

    def damaged(self, fields: list[str]) -> ProfileError:
        return self.fail(f"a row of {len(fields)} cells under a header of {len(self.header)}: the file is damaged")

    def of(self, fields: list[str], column: str) -> str | None:
        """A cell by its column's name; None where the table lacks the column or the cell is empty."""
        index = self.at.get(column)
        return printable(fields[index].strip()) or None if index is not None and index < len(fields) else None

    def launch(self, fields: list[str]) -> None:
        """Open the launch that a row belongs to, new or known. Equal ids must mean equal launches."""
        told = tuple(map(fields.__getitem__, self.telling))
        written = fields[self.at["ID"]] if "ID" in self.at else ""
        if self.last == (written, told):
            return
        index = self.kinds.get(told)
        if index is None:
            index = self.kinds[told] = len(self.table.kinds)
            self.table.kinds.append(self.kind(fields))
        kind, place = self.table.kinds[index], len(self.table.ids)
        number = place if self.table.summary else self.id(written)
        self.open, self.last = self.find(kind, number), (written, told)
        self.returned = self.open < place
        if self.returned and kind[:_SAME] != self.table.kinds[self.table.kind[self.open]][:_SAME]:
            raise self.fail(
                f"launch {number} of this process was another kernel before; where files were put together, "
                "keep the header of each, or give them one by one"
            )
        if self.returned and kind.invocations != (before := self.table.kinds[self.table.kind[self.open]].invocations):
            raise self.fail(f"{shorten(kind.name)} has {kind.invocations} invocations here and {before} before")
        if not self.returned:
            self.table.ids.append(number)
            self.table.kind.append(index)
            self.line.append(self.lines.number)

    def id(self, written: str) -> int:
        number = written.strip()
        if not (number.isascii() and number.isdecimal() and len(number) < 19):
            raise self.fail(f"{shorten(written)} is not the ID of a launch")
        return int(number)

    def find(self, kind: Kind, number: int) -> int:
        """The place of a launch, that behind all others for a new one.

        The IDs of a process rise, so that nothing need be kept of each; only one that does not is looked up.
        """
        if not self.table.summary and number > self.highest.get(kind.process, -1):
            self.highest[kind.process] = number
            return len(self.table.ids)
        for place in range(len(self.place), len(self.table.ids)):
            self.place[self.key(self.table.kinds[self.table.kind[place]], self.table.ids[place])] = place
        return self.place.get(self.key(kind, number), len(self.table.ids))

    def key(self, kind: Kind, number: int) -> tuple[object, ...]:
        return kind[:_SAME] if self.table.summary else (kind.process, number)

    def kind(self, fields: list[str]) -> Kind:
        """What a row says of its launch. Raises ProfileError for one without a name."""
        name = self.of(fields, "Kernel Name")
        if name is None:
            raise self.fail("a row without the name of a kernel")
        return Kind(
            # Nsight Compute on Windows loses the bracket of a namespace without a name
            name=sys.intern(_UNNAMED.sub("<unnamed>::", name)),
            process=_process(self.of(fields, "Process Name"), self.of(fields, "Process ID")),
            device=self.device(fields),
            stream=self.of(fields, "Stream"),
            grid=self.extent(fields, "Grid"),
            block=self.extent(fields, "Block"),
            capability=self.capability(fields),
            nvtx=tuple(sys.intern(name) for index in self.ranges for name in nvtx_names(fields[index])),
            invocations=self.invocations(fields),
        )

    def extent(self, fields: list[str], which: str) -> Extent | None:
        return cell_values.triple(self.of(fields, f"{which} Size") or "")

    def device(self, fields: list[str]) -> str | None:
        return self.of(fields, "Device")

    def capability(self, fields: list[str]) -> str | None:
        return metric_names.capability(self.of(fields, "CC"))

    def invocations(self, fields: list[str]) -> int:
        if not self.table.summary:
            return 1
        number = cell_values.count(self.of(fields, "Invocations"))
        if not number:
            raise self.fail(f"{shorten(self.of(fields, 'Invocations'))} is not a number of invocations")
        return number

    def column(self, name: str) -> Column:
        """The column of a metric that is read, new or known."""
        return self.columns.get(name) or self.columns.setdefault(name, Column(name))

    def take(self, column: Column | None, unit: str, whole: bool, text: str) -> None:
        """Read a cell of the open launch; of a column that nobody reads only what it tells of the locale."""
        if not text.isdecimal():
            if column is None and self.numbers.decimal is not None:
                return
            text = cell_values.bare(text)
            if cell_values.missing(text):
                return
            self.numbers.note(text, self.lines.number, whole)
        if column is None:
            return
        if self.numbers.decimal is None and ("," in text or "." in text):
            self.undecided.append(_Cell(column, self.open, text, unit, self.lines.number, self.returned))
        else:
            self.put(column, self.open, text, unit, self.lines.number, self.returned)

    def put(self, column: Column, place: int, text: str, unit: str, line: int, returned: bool) -> None:
        """Give a launch a value. Equal duplicates collapse; unequal ones are an error."""
        if (factor := column.factors.get(unit)) is None:
            factor = column.factors[unit] = self.factor(column.name, unit, line)
        plain = len(text) < 16 and text.isdecimal() and text.isascii()
        value = int(text) if plain else self.numbers.value(text, line, column.name)
        value = in_base_units(value, factor)
        if value < 0:
            raise self.fail(f"{column.name} is {shorten(text)}, and no count or time is below zero", line)
        values = column.values
        if place >= len(values):
            if place > len(values):
                pad(values, place)
            values.append(value)
        elif isnan(values[place]):
            values[place] = value
        elif values[place] != value:
            raise self.fail(
                f"{column.name} is {shorten(text)} here and {values[place]:.15g} in base units before, for the same "
                f"launch, which begins in line {self.line[place]}",
                line,
            )
        elif returned and not self.table.warnings:
            self.table.warnings.append(
                f"{self.lines.file}:{line}: repeats a launch of line {self.line[place]}, number for number: "
                "such repetitions are counted once"
            )

    def factor(self, name: str, unit: str, line: int) -> float:
        """What turns a metric's numbers in this unit into base units."""
        factor = scale(name, unit)
        if factor is not None:
            return factor
        if not unit:
            raise self.fail(f"{name} has no unit, and its numbers mean nothing without one; {AGAIN}", line)
        raise self.fail(
            f"{name} is in {shorten(unit)}, which is not read here; add --print-units base to ncu's line", line
        )


def _process(name: str | None, number: str | None) -> str | None:
    """`python3 (11)`; without the folder that a path would tell."""
    short = re.split(r"[/\\]", name)[-1] if name else ""
    return " ".join(part for part in (short, f"({number})" if number else "") if part) or None
