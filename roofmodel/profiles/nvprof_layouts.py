"""Parse the table layouts of nvprof output into rows with column names and units.

CSV tables have a quoted header and, for traces and summaries, a row of units below it. Text tables are aligned: cells
are separated by at least two blanks, the kernel name is last, and units are suffixes.
Lines `==PID== …` (`======== …` on import) are titles of tables, and may also interrupt the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from roofmodel.errors import ProfileError
from roofmodel.profiles.signatures import nvprof_kind, nvprof_layout
from roofmodel.profiles.streams import Lines, split

Row = dict[str, str]

NOTE = re.compile(r"==+(?:(\d+)==+)?\s+(.*)")


class TableEntry(NamedTuple):
    """A table row, or a line between rows.

    `kind` is "launch", "summary", "metric", "wide" (a launch with metrics as columns), "other" (a row of a table
    without GPU work), "note" (its text is the value of key ""), "stray" (not a row) or "cut" (a truncated last row).
    """

    kind: str
    row: Row
    units: Row
    process: str | None
    where: str


def entries(lines: Lines) -> Iterator[TableEntry]:
    """Every row and note of nvprof output, in order. Raises ProfileError, with the line, for a damaged row.

    Messages do not quote other lines, because a program may print private data.
    """
    table: _Table | None = None
    process, section, ended = None, "", False  # ended: a blank line may have ended the table
    for line in lines.text_lines():
        where = lines.where
        if note := NOTE.match(line):
            process = note[1] or process
            if re.search(r"(result|calls):\s*$", note[2]):
                section, table = note[2], None
            yield TableEntry("note", {"": note[2]}, {}, process, where)
        elif layout := nvprof_layout(line):
            table, ended = _LAYOUTS[layout](line), False
            if table.kind == "summary" and "Type" not in table.columns and section.startswith("API calls"):
                table.kind = "other"  # before CUDA 9, API and GPU summaries had the same columns
        elif table is None or not line.strip():
            ended |= not line.strip()
            if line.strip() == "No kernels were profiled.":
                yield TableEntry("note", {"": line.strip()}, {}, process, where)
        else:
            try:
                row = table.row(line)
            except ValueError as error:
                if not lines.ended and isinstance(table, _Csv) and table.lacks_cells(line):
                    yield TableEntry("cut", {}, {}, process, where)
                    continue
                if not ended or not isinstance(table, _Text):
                    raise ProfileError(f"{where}: {error}") from None
                table = None  # output of the program
                continue
            if row is not None:
                yield TableEntry(table.kind if row else "stray", row, table.units, process, where)


class _Table:
    """A table below a header; `row` parses a line of it.

    `row` returns {} for a line that does not belong to the table, and None for a line to ignore.
    """

    def __init__(self, line: str) -> None:
        self.columns = self.split_header(line)
        self.kind = nvprof_kind(self.columns)
        self.units: Row = {}

    def split_header(self, line: str) -> list[str]:
        raise NotImplementedError

    def row(self, line: str) -> Row | None:
        raise NotImplementedError


class _Csv(_Table):
    """A CSV table."""

    def split_header(self, line: str) -> list[str]:
        return split(line) or []

    def lacks_cells(self, line: str) -> bool:
        """Whether a line is only the beginning of a row."""
        cells = split(line)
        return cells is None or len(cells) < len(self.columns)

    def row(self, line: str) -> Row | None:
        cells = self.with_whole_name(line, split(line))
        if cells is None or len(cells) != len(self.columns):
            if line[0] not in '"0123456789+-,' and line.count(",") < len(self.columns) - 1:
                return {}  # output of the program
            problem = "an unclosed quote" if cells is None else f"{len(cells)} cells"
            raise ValueError(
                f"the row has {problem} but the header {len(self.columns)} columns; the file is damaged, "
                "has decimal commas (export with LC_ALL=C), or has names with commas but without quotes"
            )
        row = dict(zip(self.columns, cells, strict=True))
        if all(re.fullmatch(r"[A-Za-z%/]{0,8}", cell) for cell in cells):
            self.units = row
            return None
        # files saved by other programs may have the unit in each cell
        timed = row.get("Duration", row.get("Time", ""))
        if not self.units and self.kind in ("launch", "summary") and not re.fullmatch(r"[\d.]+[num]?s", timed):
            raise ValueError("the row of units below the header is missing, so times are ambiguous")
        return row

    def with_whole_name(self, line: str, cells: list[str] | None) -> list[str] | None:
        """The cells, with the commas in a name that has no quotes: nvprof quotes it, but other programs may not.

        Commas before the name are those of columns, unless the name then starts with a digit: decimal commas.
        """
        more = len(cells or ()) - len(self.columns)
        if cells is None or more <= 0 or '"' in line or "Name" not in self.columns:
            return cells
        at = self.columns.index("Name")
        name = ",".join(line.rstrip("\r\n").split(",")[at : at + more + 1])
        return cells if name[:1].isdigit() else [*cells[:at], name, *cells[at + more + 1 :]]


class _Text(_Table):
    """Aligned text whose last column is the kernel name."""

    def split_header(self, line: str) -> list[str]:
        self.type = ""
        return re.split(r"\s{2,}", line.strip())

    def row(self, line: str) -> Row | None:
        if "Type" in self.columns and (typed := re.match(r"\s*([A-Za-z][A-Za-z ]*):\s+(?=[\d.])", line)):
            self.type = typed[1]
            line = line[typed.end() :]
        if not re.match(r"\s*[\d-]", line):
            # The legend of the columns, below the table: `Regs: Number of registers used …`
            return None if re.match(r"(Regs|SSMem|DSMem|SrcMemType|DstMemType): ", line) else {}
        columns = [column for column in self.columns if column != "Type"]
        cells = re.split(r"\s{2,}", line.strip(), maxsplit=len(columns) - 1)
        if len(cells) != len(columns):
            raise ValueError(f"the row has {len(cells)} cells but the header {len(columns)}: the file is damaged")
        return {"Type": self.type or "GPU activities", **dict(zip(columns, cells, strict=True))}


class _Metrics(_Table):
    """The text of `nvprof -m`: a line for the device, a line for the kernel, then a line per metric."""

    def split_header(self, line: str) -> list[str]:
        self.context: Row = {}
        return re.split(r"\s{2,}", line.strip())

    def row(self, line: str) -> Row | None:
        self.kind = "metric"
        if device := re.match(r'Device "(.*)"\s*$', line):
            self.context = {"Device": device[1]}
        elif kernel := re.match(r"\s+Kernel: (.*\S)", line):
            self.context = {**self.context, "Kernel": kernel[1]}
        elif re.match(r"\s+\d+\s", line):
            cells = re.split(r"\s{2,}", line.strip())
            if len(cells) != len(self.columns) or len(self.context) != 2:
                raise ValueError("not a row of the metric table above: the file is damaged")
            return {**dict(zip(self.columns, cells, strict=True)), **self.context}
        else:
            return {}
        return None


_LAYOUTS: Mapping[str, type[_Table]] = {"csv": _Csv, "text": _Text, "metrics": _Metrics}
