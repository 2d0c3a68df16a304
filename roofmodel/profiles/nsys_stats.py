"""Read kernel traces and summaries of `nsys stats`: its CSV, and the text that it and `nsys profile --stats` print.

A file may contain several reports, each after lines such as `Processing […]`. Units are in the column headers, such as
`Total Time (ns)`. In text, the line of dashes under the header has the widths of the columns. Reports with kernels, the
most detailed first:

    cuda_gpu_trace        a row per kernel, memory copy or memset, with grid, block, device and stream
    cuda_kern_exec_trace  a row per kernel, with its process and launch
    cuda_gpu_kern_gb_sum  a row per kernel name, grid and block (up to 2022.4: gpukernsum)
    cuda_gpu_kern_sum     a row per kernel name: instances and total time
    cuda_gpu_sum          the same, with copies and memsets

Only the most detailed report of a file is read, because all contain the same kernels. Copies and memsets are not
kernels; a warning gives their number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.numbers import units
from roofmodel.profiles import cell_values
from roofmodel.profiles.kernel import (
    KERNEL,
    Evidence,
    Extent,
    KernelTable,
    ReaderWarning,
    activity_kind,
    copy_direction,
    extent,
    host_memory,
    times,
)
from roofmodel.profiles.signatures import NSYS_REPORTS, nsys_heading, nsys_report, without_unit
from roofmodel.profiles.streams import NO_LAST_NEWLINE, Lines, limited_name, split
from roofmodel.profiles.timelines.timeline import Timeline

_HOW_TO_COLLECT = "collect with `nsys stats --report cuda_gpu_trace --format csv report.nsys-rep`"
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}  # nsys uses decimal prefixes
_RULE = re.compile(r"\s*-{2,}(?: +-{2,})+\s*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_BETWEEN = re.compile(r"\s*(Processing|Generating|NOTICE|SKIPPED|WARNING|\[\d+/\d+\]|\*\* )")


@dataclass
class _StatsContent:
    """The content of a file: kernels of each report, devices, and what warnings need."""

    kernels: dict[str, KernelTable] = field(default_factory=dict)
    devices: dict[Evidence, None] = field(default_factory=dict)
    skipped_lines: int = 0
    missing_unit: bool = False


def read(file: BinaryIO, name: str) -> Timeline:
    """The kernels and copies of the most detailed report in the file; seconds are totals over the instances of a row.

    Raises ProfileError, with the line, for a damaged row, and for a file without a report with kernels.
    """
    with Lines(file, name) as lines:
        content = _reports(lines)
    best = next((report for report in NSYS_REPORTS if len(content.kernels.get(report, ()))), None)
    if best is None:
        reports = ", ".join(filter(None, content.kernels)) or "none"
        raise ProfileError(f"{name}: no report with kernels (reports found: {reports}); {_HOW_TO_COLLECT}")
    texts = [
        f"the report {other} is ignored: the file has the same kernels in {best}"
        for other in NSYS_REPORTS
        if other != best and len(content.kernels.get(other, ()))
    ]
    work = content.kernels[best]
    work.fill(file=name)
    work.set("number", range(len(work)))
    if not lines.ended:
        texts.append(f"{name}: {NO_LAST_NEWLINE}")
    if content.skipped_lines:
        texts.append(f"skipped between the rows: {units.count(content.skipped_lines, 'line')} outside of tables")
    if content.missing_unit:
        texts.append("the header has no time unit: nanoseconds (the nsys default) are assumed")
    return Timeline("nsys", name, work, evidence=tuple(content.devices), warnings=tuple(map(ReaderWarning, texts)),
        how_to_collect="collect with `nsys stats --report cuda_gpu_trace --format csv`",
    )  # fmt: skip


def _reports(lines: Lines) -> _StatsContent:
    content, report, columns = _StatsContent(), "", [""]
    above = ""
    widths: list[slice] = []  # of the columns of a text table
    for line in lines.text_lines():
        heading = nsys_heading(line)
        if _RULE.fullmatch(line):
            ruled = [slice(*match.span()) for match in re.finditer("-+", line)]
            ruled[-1] = slice(ruled[-1].start, None)  # names may be longer
            if heading := nsys_report([above[width].strip() for width in ruled]):  # else a line of the program
                widths = ruled
        elif heading:
            widths = []
        if heading:
            report, columns = heading
            content.kernels.setdefault(report, KernelTable())
            content.missing_unit |= report in NSYS_REPORTS and not any("(" in column for column in columns)
        elif not line.strip() or _BETWEEN.match(line):
            report = ""
        elif report in NSYS_REPORTS:
            row = _split_at(widths, line) if widths else split(line)
            if row is None or len(row) != len(columns):
                if not re.match(r' *[\d"]', line):
                    content.skipped_lines += 1  # output of nsys or the program
                    continue
                cells = "open quotes" if row is None else f"{len(row)} cells"
                problem = "cells that are not below the header"
                if not widths:
                    problem = f"{cells} but the header {len(columns)} columns"
                raise ProfileError(f"{lines.where}: the row has {problem}; the file is damaged: {_HOW_TO_COLLECT}")
            values, kernels = _Row(columns, row), content.kernels[report]
            try:
                kernels.add(**_kernel(report, values))
            except ValueError as error:
                raise ProfileError(f"{lines.where}: {error}") from None
            if device := values.get("device"):
                content.devices[Evidence(name=cell_values.split_device(device)[0])] = None
        elif not report and content.kernels and line.count(",") >= len(columns) - 1:
            content.skipped_lines += 1  # a row after an empty line, without a header
        above = line
    return content


def _split_at(widths: list[slice], line: str) -> list[str] | None:
    """The cells of a row of a text table, numbers without thousands separators; None if it is not below the header."""
    if not re.match(r" *\d", line) or any(line[width.start - 1 : width.start].strip() for width in widths[1:]):
        return None
    *values, name = [line[width].strip() for width in widths]
    return [*(_THOUSANDS.sub("", value) for value in values), name]


class _Row:
    """The cells of a row by column name without unit, and the units."""

    def __init__(self, columns: Sequence[str], row: Sequence[str]) -> None:
        self._cells = {without_unit(column): cell for column, cell in zip(columns, row, strict=True)}
        self._units = {without_unit(column): re.search(r"\((\w+)\)$", column) for column in columns}

    def get(self, column: str) -> str:
        return self._cells.get(column, "")

    def seconds(self, column: str) -> float:
        """A time; raises ValueError if it is missing."""
        match = self._units[column]
        value = cell_values.parse_seconds(self._cells[column], match[1].lower() if match else "ns")
        if value is None:
            raise ValueError(f"the row has no {column}")
        return value

    def copied(self, name: str) -> dict[str, object]:
        """What a copy or memset moves."""
        number = cell_values.parse_number(self.get("bytes"))
        unit = self._units.get("bytes")
        scale = _BYTES.get(unit[1] if unit else "B")
        size = None if number is None or scale is None else round(number * scale)
        memory = host_memory(self.get("srcmemkd"), self.get("dstmemkd"))
        return {"bytes": size, "direction": copy_direction(name), "memory": memory}


def _kernel(report: str, row: _Row) -> dict[str, object]:
    time = {"cuda_gpu_trace": "duration", "cuda_kern_exec_trace": "kernel dur"}.get(report, "total time")
    begin = {"cuda_gpu_trace": "start", "cuda_kern_exec_trace": "kernel start"}.get(report)
    name = row.get("kernel name") or row.get("name") or row.get("operation")
    if not name:
        raise ValueError("the row has no name")
    instances = 1 if begin else cell_values.parse_count(row.get("instances"))
    if not instances:
        raise ValueError(f"{shorten(name)} has no number of instances")
    kind = activity_kind(name)
    return {
        "name": limited_name(name), "process": row.get("pid") or None,
        "device": cell_values.split_device(row.get("device"))[1] or row.get("devid") or None,
        "stream": row.get("strm") or None, "grid": _sizes(row, "grd", "gridxyz"),
        "block": _sizes(row, "blk", "blockxyz"), "invocations": instances,
        "registers": cell_values.parse_count(row.get("reg/trd")), "kind": kind,
        **times(row.seconds(begin) if begin else None, row.seconds(time)),
        **({} if kind == KERNEL else row.copied(name)),
    }  # fmt: skip


def _sizes(row: _Row, axes: str, together: str) -> Extent | None:
    """A size from `GrdX`, `GrdY`, `GrdZ`, or from `148    1    1` in one cell; None if missing."""
    if row.get(together):
        return cell_values.parse_extent(row.get(together))
    return extent(cell_values.parse_count(row.get(f"{axes}{axis}")) for axis in "xyz")
