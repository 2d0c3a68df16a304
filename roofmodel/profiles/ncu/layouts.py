"""The layouts of Nsight Compute's tables: long, a row a metric; wide, a row a launch. Columns are found by name."""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.errors import ProfileError
from roofmodel.profiles import cell_values
from roofmodel.profiles.kernel import Evidence, Extent, extent
from roofmodel.profiles.ncu import metric_names
from roofmodel.profiles.ncu.device_attributes import ATTRIBUTE, ATTRIBUTES, evidence
from roofmodel.profiles.ncu.launch_tables import Kind
from roofmodel.profiles.ncu.rows import AGAIN, Column, Key, Reader, is_new
from roofmodel.profiles.streams import Lines


def reader(line: str, lines: Lines, numbers: cell_values.Numbers) -> Reader:
    """The reader of the table whose header is `line`. Raises ProfileError for a header that lacks a column."""
    columns = [column.strip() for column in lines.row(line, is_new)]
    summary = "Invocations" in columns
    kind: type[Reader] = Long if "Metric Name" in columns else Wide
    needed = ["Kernel Name", *(["Invocations", "Average", "Metric Name"] if summary else ["ID"])]
    if kind is Long:
        needed += ["Metric Unit", "Average" if summary else "Metric Value"]
    if absent := [name for name in dict.fromkeys(needed) if name not in columns]:
        raise ProfileError(f"{lines.where}: a header without {' and '.join(absent)}; {AGAIN}")
    return kind(columns, line.lstrip().startswith('"'), lines, numbers)


class _Metric(NamedTuple):
    """What a table calls a metric, understood once."""

    column: Column | None  # None for one that is not read
    unit: str
    whole: bool  # whether it counts things


class Long(Reader):
    """A row is one metric of one launch or, in a summary, its mean over the launches of one kernel."""

    def __init__(self, columns: list[str], quoted: bool, lines: Lines, numbers: cell_values.Numbers) -> None:
        super().__init__(columns, quoted, lines, numbers)
        naming = ("Metric Name", "Metric Unit", "Section Name", "Body Item Label")
        self.naming = [self.at.get(name) for name in naming]
        self.known: dict[Key, _Metric | None] = {}  # None is a rule's advice
        self.value = self.at["Average" if self.table.summary else "Metric Value"]
        named = [index for index in self.naming if index is not None]
        self.least = 1 + max(self.value, *named, *self.telling)
        # Where the cells that tell the launch stand first, those that name the metric next, the value last:
        self.first = min(named) if max(self.telling) < min(named) and max(named) < self.value else 0
        self.lead = "\n"  # what rows of the open launch begin with
        self.heads: dict[str, _Metric] = {}  # what follows, up to the value

    def skim(self) -> str:
        """Read on while a line is of the open launch and nothing in it is new but its value. The line that is not.

        What stands before the value was read with care in other rows, and holds no quotes but those around its cells,
        so that this line's cells are the same.
        """
        lead, heads, take, numbers = self.lead, self.heads, self.take, self.numbers
        length = len(lead)
        for line in self.lines:
            head, _, tail = line.rpartition('","')
            if not head.startswith(lead) or (metric := heads.get(head[length:])) is None:
                return line
            text, _, end = tail.partition('"')
            if end != "\n" and end != ",\n":
                return line
            if metric.column is not None or numbers.decimal is None:
                take(*metric, text)
        return ""

    def row(self, fields: list[str]) -> None:
        # Rows of rules have cells at the end that the others lack.
        if len(fields) < self.least or any(map(str.strip, fields[len(self.header) :])):
            raise self.damaged(fields)
        before = self.open
        self.launch(fields)
        written = tuple(fields[i] if i is not None else "" for i in self.naming)
        if written not in self.known:
            self.known[written] = metric = self.metric(*map(str.strip, written))
            head = '","'.join(fields[self.first : self.value])
            if metric is not None and head.count('"') == 2 * (self.value - self.first - 1):  # no cell holds a quote
                self.heads[head] = metric
        if (metric := self.known[written]) is not None:
            self.take(*metric, fields[self.value])
        if self.first and self.open != before:
            lead = '","'.join(fields[: self.first])
            self.lead = f'"{lead}","' if lead.count('"') == 2 * (self.first - 1) else "\n"

    def metric(self, label: str, unit: str, section: str, item: str) -> _Metric | None:
        measured = cell_values.unit(unit)
        name = metric_names.canonical(label, measured[1] if measured else unit, section, item) if label else ""
        if not name:
            return None
        self.table.metrics.add(name)
        whole = not self.table.summary and _whole(name, unit)
        return _Metric(self.column(name) if metric_names.wanted(name) else None, unit, whole)


class Wide(Reader):
    """A row is a launch; the row under the header holds the units."""

    def __init__(self, columns: list[str], quoted: bool, lines: Lines, numbers: cell_values.Numbers) -> None:
        super().__init__(columns, quoted, lines, numbers)
        self.units: list[str] = [""] * len(columns)
        measured = [(index, name) for index, name in enumerate(columns) if "__" in name]
        self.table.metrics = {name for _, name in measured}
        self.wanted = [(index, self.column(name)) for index, name in measured if metric_names.wanted(name)]
        self.measured = [(i, name) for i, name in measured if not name.startswith((ATTRIBUTE, "nvlink__"))]

    def also_telling(self) -> tuple[str, ...]:
        extents = (f"launch__{what}_dim_{axis}" for what in ("block", "grid") for axis in "xyz")
        return ("launch__device_id", *extents, *(ATTRIBUTE + name for name in ATTRIBUTES))

    def row(self, fields: list[str]) -> None:
        if len(fields) < len(self.header) or any(map(str.strip, fields[len(self.header) :])):
            raise self.damaged(fields)
        if not self.table.ids and self.of(fields, "ID") is None and self.of(fields, "Kernel Name") is None:
            self.units = [unit.strip() for unit in fields]
            return
        self.launch(fields)
        if self.numbers.decimal is None:
            for index, name in self.measured:
                if not fields[index].isdecimal():
                    whole = _whole(name, self.units[index])
                    self.numbers.note(cell_values.bare(fields[index]), self.lines.number, whole)
        for index, column in self.wanted:
            self.take(column, self.units[index], False, fields[index])

    def extent(self, fields: list[str], which: str) -> Extent | None:
        sizes = (cell_values.count(self.of(fields, f"launch__{which.lower()}_dim_{axis}")) for axis in "xyz")
        return super().extent(fields, which) or extent(sizes)  # old headers have no column of the extent

    def device(self, fields: list[str]) -> str | None:
        return super().device(fields) or self.of(fields, "launch__device_id")

    def capability(self, fields: list[str]) -> str | None:
        major, minor = (self.of(fields, f"{ATTRIBUTE}compute_capability_{part}") for part in ("major", "minor"))
        return super().capability(fields) or metric_names.capability(f"{major}.{minor}")

    def kind(self, fields: list[str]) -> Kind:
        """As for any table; and what the device's attributes say of it is evidence."""
        attributes = {name: self.of(fields, ATTRIBUTE + name) or "" for name in ATTRIBUTES}
        seen = evidence(attributes, self.attribute_unit)
        if seen != Evidence() and seen not in self.table.evidence:
            self.table.evidence.append(seen)
        return super().kind(fields)

    def attribute_unit(self, name: str) -> str:
        index = self.at.get(ATTRIBUTE + name)
        return self.units[index] if self.units and index is not None else ""


def _whole(name: str, unit: str) -> bool:
    """Whether a metric's value is a whole number: a sum of things that are counted, in an unscaled unit."""
    return name.endswith(".sum") and unit in (
        "",
        "byte",
        "inst",
        "sector",
        "request",
        "thread",
        "warp",
        "ns",
        "nsecond",
    )
