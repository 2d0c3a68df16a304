"""Convert rows of an Nsight Compute table to launches: the base class `RowReader` of all layouts.

A number that is ambiguous until the locale of the file is known waits as text (`cell_values.LocaleNumbers`); all other
numbers go to their column at once.
"""

from __future__ import annotations

import re
import sys
from array import array
from math import isnan, nan
from typing import NamedTuple

from roofmodel.errors import Command, Message, ProfileError, shorten
from roofmodel.files.text_files import printable
from roofmodel.profiles import cell_values
from roofmodel.profiles.kernel import Extent, KernelTable, ReaderWarning, ToolRule
from roofmodel.profiles.ncu import metric_names
from roofmodel.profiles.ncu.device_attributes import in_base_units, nvtx_names, scale
from roofmodel.profiles.ncu.launch_tables import LaunchTable, pad
from roofmodel.profiles.signatures import NCU_HEADER
from roofmodel.profiles.streams import NO_LAST_NEWLINE, Lines, limited_name

RERUN = Message(
    "run the line of ", Command("`roof ncu-command`", "`roofmodel.ncu_command`"),
    ", or `ncu --import REPORT --csv --page raw`",
)  # fmt: skip
_QUOTED_ROW, _BARE_ROW = re.compile(r'"\d*",'), re.compile(r"\d*,")
# Columns that determine the attributes of a launch. Rows of the same launch agree in the _IDENTITY.
_KIND = ["Kernel Name", "Process ID", "Process Name", "Device", "Grid Size", "Block Size"]
_KIND += ["Stream", "CC", "Invocations"]
_IDENTITY = ("name", "process", "device", "grid", "block")
_UNNAMED = re.compile(r"(?<![\w<])unnamed>::")  # ncu on Windows drops the opening bracket

Key = tuple[str, ...]


class MetricColumn:
    """The values of one metric, launch by launch."""

    __slots__ = ("factors", "name", "values")

    def __init__(self, name: str) -> None:
        self.name, self.values = name, array("d")
        self.factors: dict[str, float] = {}  # unit -> factor to base units


class _Cell(NamedTuple):
    """An ambiguous number that waits until the locale of the file is known."""

    column: MetricColumn
    place: int
    text: str
    unit: str
    line: int
    returned: bool  # whether rows of other launches separate it from the first row of its launch


def starts_new_row(line: str) -> bool:
    """Whether a line starts a row or header, or is ncu's own output, so it does not continue a quoted cell."""
    return bool(_QUOTED_ROW.match(line) or NCU_HEADER.match(line) or line.startswith("=="))


class RowReader:
    """Reads the rows under one header into a table."""

    def __init__(self, columns: list[str], quoted: bool, lines: Lines, numbers: cell_values.LocaleNumbers) -> None:
        self.header, self.lines, self.numbers = columns, lines, numbers
        self.pattern = _QUOTED_ROW if quoted else _BARE_ROW
        self.at = {name: index for index, name in reversed(list(enumerate(columns)))}
        self.table = LaunchTable(lines.file, summary="Invocations" in self.at)
        # Start/stop ranges of the process enclose the push/pop ranges of a thread.
        kinds = ("Start/Stop_Range", "Push/Pop_Range")
        self.ranges = [index for kind in kinds for index, name in enumerate(columns) if kind in name]
        self.identity_columns = [
            self.at[name] for name in (*_KIND, *self.extra_identity_columns()) if name in self.at
        ] + self.ranges
        self.kinds: dict[Key, int] = {}  # identifying cells -> row of their attributes, which many launches share
        self.attributes = KernelTable()
        self.attributes.declare(capability=str)
        self.identities: list[tuple[object, ...]] = []  # by row
        self.ids, self.kind_of = array("q"), array("i")  # of each launch: its number, and the row of its attributes
        self.last: tuple[str, Key] = "", ()  # ID and identifying cells of the previous row
        self.open, self.returned = -1, False  # index of the current launch; whether it has earlier, separate rows
        self.columns: dict[str, MetricColumn] = {}
        self.undecided: list[_Cell] = []  # ambiguous numbers until the locale is known
        self.line = array("q")  # first line of each launch
        self.highest: dict[object, int] = {}  # highest ID of each process
        self.place: dict[tuple[object, ...], int] = {}  # launch -> its index, built only if IDs repeat
        self.rules: dict[int, list[ToolRule]] = {}  # of a launch, by its index

    def extra_identity_columns(self) -> tuple[str, ...]:
        """Further columns of this layout that determine the kind of a launch."""
        return ()

    def starts_row(self, line: str) -> bool:
        """Whether a line starts a row of this table; other lines are output of the program or of ncu."""
        return self.pattern.match(line) is not None

    def read_known_rows(self) -> str:
        """Read rows by the fast path of the layout; returns the next other line, empty at the end."""
        return self.lines.next()

    def read_row(self, line: str) -> None:
        """Read the row that starts at `line`. Raises ProfileError, with file and line, if it is damaged."""
        fields = self.lines.row(line, starts_new_row)
        if self.pattern is _BARE_ROW and not line.endswith("\n"):
            self.table.warnings.append(ReaderWarning(f"{self.lines.file}: {NO_LAST_NEWLINE}"))
        self.row(fields)

    def row(self, fields: list[str]) -> None:
        raise NotImplementedError

    def finish(self, number: int) -> LaunchTable:
        """The complete table. Launch ids of the second and later tables of a file (`number` > 0) get a prefix."""
        for cell in self.undecided:
            self.store(*cell)
        self.table.launches = launches = self.attributes.select(self.kind_of)
        launches.put("number", self.ids)
        for name, column in self.columns.items():
            if column.values:
                launches.declare(**{name: float})
                launches.put(name, column.values)
        if self.rules:
            launches.set("rules", [tuple(self.rules.get(place, ())) or None for place in range(len(self.ids))])
        launches.fill(file=self.lines.file, part=f"{number + 1}/" if number else "")
        return self.table

    def fail(self, problem: str, line: int | None = None) -> ProfileError:
        return ProfileError(f"{self.lines.file}:{line or self.lines.number}: {problem}")

    def damaged(self, fields: list[str]) -> ProfileError:
        return self.fail(f"the row has {len(fields)} cells but the header {len(self.header)}: the file is damaged")

    def cell(self, fields: list[str], column: str) -> str | None:
        """A cell by column name; None if the table lacks the column or the cell is empty."""
        index = self.at.get(column)
        return printable(fields[index].strip()) or None if index is not None and index < len(fields) else None

    def launch(self, fields: list[str]) -> None:
        """Make the launch of a row, which may be new, the current launch. Rows with the same ID must agree."""
        identity = tuple(map(fields.__getitem__, self.identity_columns))
        written = fields[self.at["ID"]] if "ID" in self.at else ""
        if self.last == (written, identity):
            return
        index = self.kinds.get(identity)
        if index is None:
            index = self.kinds[identity] = len(self.identities)
            attributes = self.launch_attributes(fields)
            self.attributes.add(**{name: cell for name, cell in attributes.items() if cell not in (None, ())})
            self.identities.append(tuple(attributes[name] for name in _IDENTITY))
        place = len(self.ids)
        number = place if self.table.summary else self.id(written)
        self.open, self.last = self.find(index, number), (written, identity)
        self.returned = self.open < place
        if self.returned and self.identities[index] != self.identities[self.kind_of[self.open]]:
            raise self.fail(
                f"launch {number} of this process was another kernel in an earlier row; if files were concatenated, "
                "keep the header of each file, or give the files separately"
            )
        if self.returned and index != self.kind_of[self.open]:
            now, before = self.attributes[index], self.attributes[self.kind_of[self.open]]
            if now.invocations != before.invocations:
                raise self.fail(
                    f"{shorten(now.name)} has {now.invocations} invocations in this row but {before.invocations} in "
                    "an earlier row"
                )
        if not self.returned:
            self.ids.append(number)
            self.kind_of.append(index)
            self.line.append(self.lines.number)

    def id(self, written: str) -> int:
        number = written.strip()
        if not (number.isascii() and number.isdecimal() and len(number) < 19):
            raise self.fail(f"{shorten(written)} is not a launch ID")
        return int(number)

    def find(self, kind: int, number: int) -> int:
        """The index of a launch; the next free index if it is new.

        The IDs of a process usually increase, which needs no lookup; the lookup table is built only if one does not.
        """
        process = self.identities[kind][1]
        if not self.table.summary and number > self.highest.get(process, -1):
            self.highest[process] = number
            return len(self.ids)
        for place in range(len(self.place), len(self.ids)):
            self.place[self.key(self.kind_of[place], self.ids[place])] = place
        return self.place.get(self.key(kind, number), len(self.ids))

    def key(self, kind: int, number: int) -> tuple[object, ...]:
        return self.identities[kind] if self.table.summary else (self.identities[kind][1], number)

    def launch_attributes(self, fields: list[str]) -> dict[str, object]:
        """The attributes of a row's launch. Raises ProfileError if the row has no kernel name."""
        name = self.cell(fields, "Kernel Name")
        if name is None:
            raise self.fail("the row has no kernel name")
        return dict(
            name=sys.intern(limited_name(_UNNAMED.sub("<unnamed>::", name))),
            process=_process(self.cell(fields, "Process Name"), self.cell(fields, "Process ID")),
            device=self.device(fields),
            stream=self.cell(fields, "Stream"),
            grid=self.extent(fields, "Grid"),
            block=self.extent(fields, "Block"),
            capability=self.capability(fields),
            nvtx=tuple(sys.intern(limited_name(name)) for index in self.ranges for name in nvtx_names(fields[index])),
            invocations=self.invocations(fields),
        )

    def extent(self, fields: list[str], which: str) -> Extent | None:
        return cell_values.parse_extent(self.cell(fields, f"{which} Size") or "")

    def device(self, fields: list[str]) -> str | None:
        return self.cell(fields, "Device")

    def capability(self, fields: list[str]) -> str | None:
        return metric_names.capability(self.cell(fields, "CC"))

    def invocations(self, fields: list[str]) -> int | None:
        if not self.table.summary:
            return None  # one
        number = cell_values.parse_count_any_locale(self.cell(fields, "Invocations"))
        if not number:
            raise self.fail(f"{shorten(self.cell(fields, 'Invocations'))} is not a valid number of invocations")
        return number

    def add_rule(self, kind: str, description: str, speedup: str, scope: str) -> None:
        """Add a rule of the tool to the current launch, and the metrics that only its text states."""
        from roofmodel.profiles.ncu import tool_rules

        if rule := tool_rules.tool_rule(kind, description, tool_rules.speedup_share(speedup), scope):
            self.rules.setdefault(self.open, []).append(rule)
        for name, value in tool_rules.stated_metrics(description):
            values = self.column(name).values
            if self.open >= len(values):
                pad(values, self.open)
                values.append(value)

    def column(self, name: str) -> MetricColumn:
        """The column of a metric that is read, created if new."""
        return self.columns.get(name) or self.columns.setdefault(name, MetricColumn(name))

    def add_value(self, column: MetricColumn | None, unit: str, integer: bool, text: str) -> None:
        """Read a value of the current launch. Without a column, use the value only to learn the locale."""
        if not text.isdecimal():
            if column is None and self.numbers.decimal is not None:
                return
            text = cell_values.without_instances(text)
            if cell_values.is_missing(text):
                return
            self.numbers.detect_locale(text, self.lines.number, integer)
        if column is None:
            return
        if self.numbers.decimal is None and ("," in text or "." in text):
            self.undecided.append(_Cell(column, self.open, text, unit, self.lines.number, self.returned))
        else:
            self.store(column, self.open, text, unit, self.lines.number, self.returned)

    def store(self, column: MetricColumn, place: int, text: str, unit: str, line: int, returned: bool) -> None:
        """Store a value of a launch. An equal duplicate is ignored; a different one is an error."""
        if (factor := column.factors.get(unit)) is None:
            factor = column.factors[unit] = self.factor(column.name, unit, line)
        if isnan(factor):
            return
        plain = len(text) < 16 and text.isdecimal() and text.isascii()
        value = int(text) if plain else self.numbers.value(text, line, column.name)
        value = in_base_units(value, factor)
        if value < 0:
            raise self.fail(f"{column.name} is {shorten(text)}, but counts and times cannot be negative", line)
        values = column.values
        if place >= len(values):
            if place > len(values):
                pad(values, place)
            values.append(value)
        elif isnan(values[place]):
            values[place] = value
        elif values[place] != value and metric_names.is_interpreted(column.name):
            raise self.fail(
                f"{column.name} is {shorten(text)}, but an earlier row of the same launch (line {self.line[place]}) "
                f"has {values[place]:.15g} in base units",
                line,
            )
        elif returned and not self.table.warnings:
            text = f"{self.lines.file}:{line}: repeats the launch of line {self.line[place]}"
            self.table.warnings.append(ReaderWarning(f"{text}: repeated launches are counted once"))

    def factor(self, name: str, unit: str, line: int) -> float:
        """The factor from this unit of a metric to base units; NaN for a metric that can be left out."""
        factor = scale(name, unit)
        if factor is not None:
            return factor
        if not metric_names.is_interpreted(name):
            return nan
        if not unit:
            raise self.fail(f"{name} has no unit; {RERUN}", line)
        raise self.fail(
            f"{name} has the unit {shorten(unit)}, which does not fit; run ncu with --print-units base", line
        )


def _process(name: str | None, number: str | None) -> str | None:
    """`python3 (11)`, without the folder of the executable."""
    short = re.split(r"[/\\]", name)[-1] if name else ""
    return " ".join(part for part in (short, f"({number})" if number else "") if part) or None
