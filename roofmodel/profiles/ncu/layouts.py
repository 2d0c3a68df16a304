"""Readers for the two layouts of Nsight Compute tables: long (a row per metric) and wide (a row per launch)."""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.errors import ProfileError
from roofmodel.profiles import cell_values
from roofmodel.profiles.kernel import Evidence, Extent, extent
from roofmodel.profiles.ncu import metric_names
from roofmodel.profiles.ncu.device_attributes import ATTRIBUTE, ATTRIBUTES, evidence
from roofmodel.profiles.ncu.rows import RERUN, Key, MetricColumn, RowReader, starts_new_row
from roofmodel.profiles.streams import Lines


def row_reader(line: str, lines: Lines, numbers: cell_values.LocaleNumbers) -> RowReader:
    """The row reader for the table with this header line. Raises ProfileError if a required column is missing."""
    columns = [column.strip() for column in lines.row(line, starts_new_row)]
    summary = "Invocations" in columns
    kind: type[RowReader] = LongReader if "Metric Name" in columns else WideReader
    needed = ["Kernel Name", *(["Invocations", "Average", "Metric Name"] if summary else ["ID"])]
    if kind is LongReader:
        needed += ["Metric Unit", "Average" if summary else "Metric Value"]
    if absent := [name for name in dict.fromkeys(needed) if name not in columns]:
        raise ProfileError(f"{lines.where}: the table header has no column {' and '.join(absent)}; {RERUN}")
    return kind(columns, line.lstrip().startswith('"'), lines, numbers)


class _Metric(NamedTuple):
    """How to read a metric, cached by its name, unit and labels in the table."""

    column: MetricColumn | None  # None if the metric is not read
    unit: str
    integer: bool  # whether its values are integers


class LongReader(RowReader):
    """A row is one metric of one launch or, in a summary, its mean over the launches of a kernel."""

    def __init__(self, columns: list[str], quoted: bool, lines: Lines, numbers: cell_values.LocaleNumbers) -> None:
        super().__init__(columns, quoted, lines, numbers)
        naming = ("Metric Name", "Metric Unit", "Section Name", "Body Item Label")
        self.naming = [self.at.get(name) for name in naming]
        self.metric_of: dict[Key, _Metric | None] = {}  # None: the row of a rule, not of a metric
        self.value = self.at["Average" if self.table.summary else "Metric Value"]
        indices = [index for index in self.naming if index is not None]
        self.least = 1 + max(self.value, *indices, *self.identity_columns)
        # Fast path, for tables whose columns are in this order: launch, metric name, value.
        self.first = min(indices) if max(self.identity_columns) < min(indices) and max(indices) < self.value else 0
        self.lead = "\n"  # the text at the start of all rows of the current launch
        self.heads: dict[str, _Metric] = {}  # the text between `lead` and the value -> how to read the metric

    def read_known_rows(self) -> str:
        """Read lines of the current launch whose text before the value is known; returns the first other line.

        The text before the value was parsed in an earlier row and contains no quotes except around cells, so this
        line has the same cells.
        """
        lead, heads, take, numbers = self.lead, self.heads, self.add_value, self.numbers
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
        # Rows of rules have additional cells at the end.
        if len(fields) < self.least or any(map(str.strip, fields[len(self.header) :])):
            raise self.damaged(fields)
        before = self.open
        self.launch(fields)
        written = tuple(fields[i] if i is not None else "" for i in self.naming)
        if written not in self.metric_of:
            self.metric_of[written] = metric = self.metric(*map(str.strip, written))
            head = '","'.join(fields[self.first : self.value])
            if metric is not None and head.count('"') == 2 * (self.value - self.first - 1):  # no cell contains a quote
                self.heads[head] = metric
        if (metric := self.metric_of[written]) is not None:
            self.add_value(*metric, fields[self.value])
        elif kind := self.cell(fields, "Rule Type"):
            speedup, scope = (self.cell(fields, name) or "" for name in ("Estimated Speedup", "Estimated Speedup Type"))
            self.add_rule(kind, self.cell(fields, "Rule Description") or "", speedup, scope)
        if self.first and self.open != before:
            lead = '","'.join(fields[: self.first])
            self.lead = f'"{lead}","' if lead.count('"') == 2 * (self.first - 1) else "\n"

    def metric(self, label: str, unit: str, section: str, item: str) -> _Metric | None:
        measured = cell_values.parse_unit(unit)
        name = metric_names.canonical(label, measured[1] if measured else unit, section, item) if label else ""
        if not name:
            return None
        self.table.metrics.add(name)
        integer = not self.table.summary and _is_integer(name, unit)
        return _Metric(self.column(name) if metric_names.is_read(name) else None, unit, integer)


class WideReader(RowReader):
    """A row is a launch; the row under the header contains the units."""

    def __init__(self, columns: list[str], quoted: bool, lines: Lines, numbers: cell_values.LocaleNumbers) -> None:
        super().__init__(columns, quoted, lines, numbers)
        self.units: list[str] = [""] * len(columns)
        measured = [(index, name) for index, name in enumerate(columns) if "__" in name]
        self.table.metrics = {name for _, name in measured}
        self.is_read = [(index, self.column(name)) for index, name in measured if metric_names.is_read(name)]
        self.measured = [(i, name) for i, name in measured if not name.startswith((ATTRIBUTE, "nvlink__"))]

    def extra_identity_columns(self) -> tuple[str, ...]:
        extents = (f"launch__{shape}_dim_{axis}" for shape in ("block", "grid") for axis in "xyz")
        return ("launch__device_id", *extents, *(ATTRIBUTE + name for name in ATTRIBUTES))

    def row(self, fields: list[str]) -> None:
        if len(fields) < len(self.header) or any(map(str.strip, fields[len(self.header) :])):
            raise self.damaged(fields)
        if not self.ids and self.cell(fields, "ID") is None and self.cell(fields, "Kernel Name") is None:
            self.units = [unit.strip() for unit in fields]
            return
        self.launch(fields)
        if self.numbers.decimal is None:
            for index, name in self.measured:
                if not fields[index].isdecimal():
                    integer = _is_integer(name, self.units[index])
                    self.numbers.detect_locale(cell_values.without_instances(fields[index]), self.lines.number, integer)
        for index, column in self.is_read:
            self.add_value(column, self.units[index], False, fields[index])

    def extent(self, fields: list[str], which: str) -> Extent | None:
        sizes = (
            cell_values.parse_count_any_locale(self.cell(fields, f"launch__{which.lower()}_dim_{axis}"))
            for axis in "xyz"
        )
        return super().extent(fields, which) or extent(sizes)  # old tables have no columns Grid Size and Block Size

    def device(self, fields: list[str]) -> str | None:
        return super().device(fields) or self.cell(fields, "launch__device_id")

    def capability(self, fields: list[str]) -> str | None:
        major, minor = (self.cell(fields, f"{ATTRIBUTE}compute_capability_{part}") for part in ("major", "minor"))
        return super().capability(fields) or metric_names.capability(f"{major}.{minor}")

    def launch_attributes(self, fields: list[str]) -> dict[str, object]:
        """As in the base class; also records the device attributes as evidence."""
        attributes = {name: self.cell(fields, ATTRIBUTE + name) or "" for name in ATTRIBUTES}
        device_evidence = evidence(attributes, self.attribute_unit)
        if device_evidence != Evidence() and device_evidence not in self.table.evidence:
            self.table.evidence.append(device_evidence)
        return super().launch_attributes(fields)

    def attribute_unit(self, name: str) -> str:
        index = self.at.get(ATTRIBUTE + name)
        return self.units[index] if self.units and index is not None else ""


def _is_integer(name: str, unit: str) -> bool:
    """Whether a metric's values are integers: a sum of counts in an unscaled unit."""
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
