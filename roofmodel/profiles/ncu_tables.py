"""The rows under a header of Nsight Compute's CSV -> launches. Columns are found by name, units read for each cell.

The number in a cell stays text until the file has shown which locale wrote it (`cells.Numbers`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import NamedTuple

from roofmodel.errors import ProfileError, shorten
from roofmodel.profiles import cells, metrics
from roofmodel.profiles.kernel import Evidence, Extent, extent
from roofmodel.profiles.lines import Lines
from roofmodel.profiles.tables import Launch, Table

AGAIN = "run `ncu --csv --page raw …`, or `ncu --import REPORT --csv --page raw`"
HEADER = re.compile(r'^\ufeff?(?:"?ID"?|"?Process ID"?),.*\bKernel Name\b', re.MULTILINE)
_QUOTED_ROW, _BARE_ROW = re.compile(r'"\d*",'), re.compile(r"\d*,")
ATTRIBUTE = "device__attribute_"
ATTRIBUTES = (
    "display_name",
    "compute_capability_major",
    "compute_capability_minor",
    "multiprocessor_count",
    "l2_cache_size",
    "total_memory",
    "global_memory_bus_width",
    "max_mem_frequency_khz",
    "max_gpu_frequency_khz",
)

_Cell = tuple[str, float, int]  # a number as written, the factor of its unit, its line
_Key = tuple[str, ...]


def reader(line: str, lines: Lines, numbers: cells.Numbers) -> Reader:
    """The reader of the table whose header is `line`. Raises ProfileError for a header that lacks a column."""
    columns = lines.row(line, _is_new)
    summary = "Invocations" in columns
    kind: type[Reader] = Long if "Metric Name" in columns else Wide
    needed = ["Invocations", "Average", "Metric Name"] if summary else ["ID"]
    if kind is Long:
        needed += ["Metric Unit", "Average" if summary else "Metric Value"]
    if absent := [name for name in dict.fromkeys(needed) if name not in columns]:
        raise ProfileError(f"{lines.where}: a header without {' and '.join(absent)}; {AGAIN}")
    return kind(columns, line.lstrip().startswith('"'), lines, numbers)


def _is_new(line: str) -> bool:
    """Whether a line begins a row or a header, or is the profiler's own: no continuation of a text in quotes."""
    return bool(_QUOTED_ROW.match(line) or HEADER.match(line) or line.startswith("=="))


def scale(name: str, unit: str) -> float | None:
    """What turns a number of this metric, in this unit, into base units; None where the two do not go together."""
    known, wanted = cells.unit(unit), metrics.dimension(name)
    if wanted == "%" and not unit:
        return 0.01
    return known[0] if known is not None and (known[1] == wanted or (not known[1] and wanted == "/s")) else None


def in_base_units(value: float, factor: float) -> float:
    """A division by 10^9 is exact to the last digit, a product with 1e-9 is not."""
    return value * factor if factor >= 1 else value / round(1 / factor)


class Reader:
    """Reads the rows under one header into a table."""

    def __init__(self, columns: list[str], quoted: bool, lines: Lines, numbers: cells.Numbers) -> None:
        self.columns, self.lines, self.numbers = columns, lines, numbers
        self.pattern = _QUOTED_ROW if quoted else _BARE_ROW
        self.at = {name: index for index, name in reversed(list(enumerate(columns)))}
        self.table = Table(lines.file, summary="Invocations" in self.at)
        self.launches: dict[_Key, tuple[Launch, dict[str, _Cell], _Key]] = {}
        self.factors: dict[tuple[str, str], float] = {}
        self.last: _Key = ()
        self.returned = False  # to a launch, after rows of others
        self.identifying = [self.at.get(name) for name in ("Kernel Name", "Grid Size", "Block Size", "Device")]
        # Ranges that start and stop anywhere in the process stand outside of those that a thread pushes and pops.
        kinds = ("Start/Stop_Range", "Push/Pop_Range")
        self.ranges = [index for kind in kinds for index, name in enumerate(columns) if kind in name]

    def starts_row(self, line: str) -> bool:
        """Whether a line begins a row of this table; what does not is output of the program or of ncu."""
        return self.pattern.match(line) is not None

    def read_row(self, line: str) -> None:
        """Read the row that begins in `line`. Raises ProfileError, with file and line, for one that is damaged."""
        fields = self.lines.row(line, _is_new)
        if self.pattern is _BARE_ROW and not line.endswith("\n"):
            self.table.warnings.append(f"{self.lines.file}: the last line does not end: its last number may be cut")
        self.row(fields)

    def row(self, fields: list[str]) -> None:
        raise NotImplementedError

    def finish(self, number: int) -> Table:
        """The table, its numbers read. Launches of a file's second table, the next `number`, get ids of their own."""
        for launch, cell, _ in self.launches.values():
            if number:
                launch.id = f"{number + 1}/{launch.id}"
            for name, (text, factor, line) in cell.items():
                value = self.numbers.value(text, line, name)
                launch.values[name] = in_base_units(value, factor)
            cell.clear()
            self.table.launches.append(launch)
        self.launches = {}
        return self.table

    def fail(self, what: str) -> ProfileError:
        return ProfileError(f"{self.lines.where}: {what}")

    def damaged(self, fields: list[str]) -> ProfileError:
        return self.fail(f"a row of {len(fields)} cells under a header of {len(self.columns)}: the file is damaged")

    def of(self, fields: list[str], column: str) -> str | None:
        """A cell by its column's name; None where the table lacks the column or the cell is empty."""
        index = self.at.get(column)
        return fields[index] or None if index is not None and index < len(fields) else None

    def launch(self, fields: list[str]) -> tuple[Launch, dict[str, _Cell]]:
        """The launch that a row belongs to, new or known, and its cells. Equal ids must mean equal launches."""
        name, *_ = identity = tuple(fields[i] if i is not None else "" for i in self.identifying)
        process, number = fields[self.at["Process ID"]] if "Process ID" in self.at else "", self.of(fields, "ID") or ""
        key = (process, *identity) if self.table.summary else (process, number)
        self.returned, self.last = key in self.launches and key != self.last, key
        if known := self.launches.get(key):
            if known[2] != identity:
                raise self.fail(
                    f"launch {number} of this process was another kernel before; where files were put together, "
                    "keep the header of each, or give them one by one"
                )
            return known[:2]
        if not name:
            raise self.fail("a row without the name of a kernel")
        if not self.table.summary and not number.isdecimal():
            raise self.fail(f"{shorten(number)} is not the ID of a launch")
        launch = Launch(
            id=number or str(len(self.launches)),
            name=sys.intern(name),
            process=_process(self.of(fields, "Process Name"), process),
            device=self.device(fields),
            stream=self.of(fields, "Stream"),
            grid=self.extent(fields, "Grid"),
            block=self.extent(fields, "Block"),
            capability=self.capability(fields),
            nvtx=tuple(sys.intern(name) for index in self.ranges for name in nvtx_names(fields[index])),
            invocations=self.invocations(fields),
        )
        self.launches[key] = launch, {}, identity
        return launch, self.launches[key][1]

    def extent(self, fields: list[str], which: str) -> Extent | None:
        return cells.triple(self.of(fields, f"{which} Size") or "")

    def device(self, fields: list[str]) -> str | None:
        return self.of(fields, "Device")

    def capability(self, fields: list[str]) -> str | None:
        return metrics.capability(self.of(fields, "CC"))

    def invocations(self, fields: list[str]) -> int:
        if not self.table.summary:
            return 1
        number = cells.count(self.of(fields, "Invocations"))
        if not number:
            raise self.fail(f"{shorten(self.of(fields, 'Invocations'))} is not a number of invocations")
        return number

    def put(self, cell: dict[str, _Cell], name: str, text: str, unit: str) -> None:
        """Keep a number of a launch. Equal duplicates collapse; unequal ones, and unknown units, are errors."""
        entry = (text, self.factor(name, unit), self.lines.number)
        before = cell.setdefault(name, entry)
        if before[:2] != entry[:2]:
            raise self.fail(
                f"{name} is {shorten(text)} here and {shorten(before[0])} in line {before[2]}, for the same launch"
            )
        if before is not entry and self.returned and not self.table.warnings:
            self.table.warnings.append(
                f"{self.lines.where}: repeats a launch of line {before[2]}, number for number: "
                "such repetitions are counted once"
            )

    def factor(self, name: str, unit: str) -> float:
        """What turns a cell of this metric into base units; looked up once for each unit."""
        if (known := self.factors.get((name, unit))) is None:
            known = self.factors[name, unit] = self.scale(name, unit)
        return known

    def scale(self, name: str, unit: str) -> float:
        factor = scale(name, unit)
        if factor is not None:
            return factor
        if not unit:
            raise self.fail(f"{name} has no unit, and its numbers mean nothing without one; {AGAIN}")
        raise self.fail(f"{name} is in {shorten(unit)}, which is not read here; add --print-units base to ncu's line")


class _Metric(NamedTuple):
    """What a table calls a metric, understood once: its name, its unit, whether it counts and whether it is read."""

    name: str
    unit: str
    whole: bool
    wanted: bool


class Long(Reader):
    """A row is one metric of one launch or, in a summary, its mean over the launches of one kernel."""

    def __init__(self, columns: list[str], quoted: bool, lines: Lines, numbers: cells.Numbers) -> None:
        super().__init__(columns, quoted, lines, numbers)
        naming = ("Metric Name", "Metric Unit", "Section Name", "Body Item Label")
        self.naming = [self.at.get(name) for name in naming]
        self.known: dict[_Key, _Metric] = {}
        self.column = self.at["Average" if self.table.summary else "Metric Value"]
        needed = [self.column, *self.naming, *self.identifying, *self.ranges, self.at.get("Process ID")]
        self.least = 1 + max(index for index in needed if index is not None)

    def row(self, fields: list[str]) -> None:
        # Rows of rules have cells at the end that the others lack.
        if not self.least <= len(fields) <= len(self.columns) + 1:
            raise self.damaged(fields)
        launch, cell = self.launch(fields)
        written = tuple(fields[i] if i is not None else "" for i in self.naming)
        metric = self.known.get(written) or self.known.setdefault(written, self.metric(*written))
        if not metric.name:
            return  # a rule's advice
        if launch.invocations != self.invocations(fields):
            raise self.fail(f"{metric.name} has {self.invocations(fields)} invocations, others {launch.invocations}")
        text = cells.bare(fields[self.column])
        if not cells.missing(text):
            self.numbers.note(text, self.lines.number, metric.whole)
            if metric.wanted:
                self.put(cell, metric.name, text, metric.unit)

    def metric(self, label: str, unit: str, section: str, item: str) -> _Metric:
        measured = cells.unit(unit)
        name = metrics.canonical(label, measured[1] if measured else unit, section, item) if label else ""
        if name:
            self.table.metrics.add(name)
        whole = not self.table.summary and _whole(name, unit)
        return _Metric(name, unit, whole, metrics.wanted(name))


class Wide(Reader):
    """A row is a launch; the row under the header holds the units."""

    def __init__(self, columns: list[str], quoted: bool, lines: Lines, numbers: cells.Numbers) -> None:
        super().__init__(columns, quoted, lines, numbers)
        self.units: list[str] | None = None
        self.devices: dict[tuple[str, ...], None] = {}
        measured = [(index, name) for index, name in enumerate(columns) if "__" in name]
        self.table.metrics = {name for _, name in measured}
        self.wanted = [(index, name) for index, name in measured if metrics.wanted(name)]
        self.telling = [(i, name) for i, name in measured if not name.startswith((ATTRIBUTE, "nvlink__"))]

    def row(self, fields: list[str]) -> None:
        if not len(self.columns) <= len(fields) <= len(self.columns) + 1:
            raise self.damaged(fields)
        if self.of(fields, "ID") is None and self.of(fields, "Kernel Name") is None and not self.launches:
            self.units = fields
            return
        _, cell = self.launch(fields)
        units = self.units or [""] * len(fields)
        for index, name in self.telling if self.numbers.decimal is None else ():
            self.numbers.note(cells.bare(fields[index]), self.lines.number, whole=_whole(name, units[index]))
        for index, name in self.wanted:
            text = cells.bare(fields[index])
            if not cells.missing(text):
                self.put(cell, name, text, units[index])
        self.devices[tuple(self.of(fields, ATTRIBUTE + name) or "" for name in ATTRIBUTES)] = None

    def extent(self, fields: list[str], which: str) -> Extent | None:
        sizes = (cells.count(self.of(fields, f"launch__{which.lower()}_dim_{axis}")) for axis in "xyz")
        return super().extent(fields, which) or extent(sizes)  # old headers have no column of the extent

    def device(self, fields: list[str]) -> str | None:
        return super().device(fields) or self.of(fields, "launch__device_id")

    def capability(self, fields: list[str]) -> str | None:
        major, minor = (self.of(fields, f"{ATTRIBUTE}compute_capability_{part}") for part in ("major", "minor"))
        return super().capability(fields) or metrics.capability(f"{major}.{minor}")

    def finish(self, number: int) -> Table:
        """As for any table; and what the device's attributes say of it."""
        for device in self.devices:
            seen = evidence(dict(zip(ATTRIBUTES, device, strict=True)), self.attribute_unit)
            if seen != Evidence():
                self.table.evidence.append(seen)
        return super().finish(number)

    def attribute_unit(self, name: str) -> str:
        index = self.at.get(ATTRIBUTE + name)
        return self.units[index] if self.units and index is not None else ""


def evidence(attributes: dict[str, str], unit: Callable[[str], str]) -> Evidence:
    """A device by its `ATTRIBUTES`, as they are written, and their units.

    DRAM moves data on both edges: bandwidth = 2 × clock × bus width / 8.
    """

    def base(name: str) -> int | None:
        number, scale = cells.count(attributes[name]), cells.unit(unit(name))
        return number if scale and scale[0] == 1 else None  # a scaled one has lost its last digits

    def kilohertz(name: str) -> int | None:
        number = cells.count(attributes[name])
        return number * 1000 if number is not None and unit(name).lower() in ("", "khz", "kilohertz") else None

    width, clock = cells.count(attributes["global_memory_bus_width"]), kilohertz("max_mem_frequency_khz")
    return Evidence(
        name=attributes["display_name"] or None,
        compute_capability=metrics.capability(
            f"{attributes['compute_capability_major']}.{attributes['compute_capability_minor']}"
        ),
        multiprocessors=cells.count(attributes["multiprocessor_count"]),
        l2_bytes=base("l2_cache_size"),
        dram_bandwidth=2 * clock * width / 8 if clock and width else None,
        dram_bytes=base("total_memory"),
        clock=kilohertz("max_gpu_frequency_khz"),
    )


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


def _process(name: str | None, number: str) -> str | None:
    """`python3 (11)`; without the folder that a path would tell."""
    short = re.split(r"[/\\]", name)[-1] if name else ""
    return " ".join(part for part in (short, f"({number})" if number else "") if part) or None


_RANGE = re.compile(r'"(?P<domain>[^":]*):(?P<name>.*?)(?P<rest>(?::[^:"]*){6})"(?=\s|\Z)', re.DOTALL)


def nvtx_names(cell: str) -> list[str]:
    """The ranges in a cell `11  "<default domain>:step:none:none:none:none:none:none"  "…"`, outermost first.

    Each is domain, name (which may hold colons) and six fields of colour and payload.
    """
    return [match["name"] for match in _RANGE.finditer(cell) if match["name"]]
