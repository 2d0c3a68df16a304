"""The CSV of `nsys stats --format csv`: kernel traces and summaries -> a Profile.

Several reports may follow one another in a file, each below lines such as `Processing […]`; units stand in
the headings, `Total Time (ns)`. The reports that hold kernels, the most telling first:

    cuda_gpu_trace        a row a kernel, copy or set of memory, with grid, block, device and stream
    cuda_kern_exec_trace  a row a kernel, with its process and launch
    cuda_gpu_kern_gb_sum  a row a name, grid and block (so did gpukernsum up to 2022.4)
    cuda_gpu_kern_sum     a row a name: instances and total time
    cuda_gpu_sum          the same with copies and sets

Only the first of these that a file holds is read: the others tell of the same kernels. Copies and sets are no kernels;
they are counted in a warning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.profiles import cell_values
from roofmodel.profiles.kernel import Evidence, Extent, Kernel, Profile, extent, unlisted, without_copies
from roofmodel.profiles.streams import UNENDED, Lines, decode, split

_HOW = "collect with `nsys stats --report cuda_gpu_trace --format csv report.nsys-rep`"
_REPORTS = ("cuda_gpu_trace", "cuda_kern_exec_trace", "cuda_gpu_kern_gb_sum", "cuda_gpu_kern_sum", "cuda_gpu_sum")
_TABLE = re.compile(r"^\s*(Time ?\(%\)\s{2,}Total Time|Start \(\w+\)\s{2,}Duration \(\w+\))", re.MULTILINE)

_HEADER = re.compile(r'\s*"?(Time ?\(%\)"?,|Start ?\(|API Start|PID"?,|NVTX Range"?,|Name"?,)')
_BETWEEN = re.compile(r"\s*(Processing|Generating|NOTICE|SKIPPED|WARNING|\[\d+/\d+\]|\*\* )")


def recognise(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a print of `nsys stats`."""
    text = decode(head)
    return bool(_TABLE.search(text)) or any(_heading(line) for line in text.splitlines())


def holds_table(head: bytes) -> bool:
    """Whether a header of a report on kernels stands among these bytes."""
    return any((heading := _heading(line)) and heading[0] in _REPORTS for line in decode(head).splitlines())


@dataclass
class _Found:
    """What a file holds: the kernels of each report, the devices, and what a person should be told."""

    kernels: dict[str, list[Kernel]] = field(default_factory=dict)
    devices: dict[Evidence, None] = field(default_factory=dict)
    strays: int = 0
    unitless: bool = False
    for_people: bool = False


def read(file: BinaryIO, name: str) -> Profile:
    """The kernels of the most telling report in the file; seconds are totals over the instances of a row.

    Raises ProfileError, with the line, for a damaged row, and for a file without a report on kernels.
    """
    with Lines(file, name) as lines:
        found = _reports(lines)
    best = next((report for report in _REPORTS if found.kernels.get(report)), None)
    if best is None:
        if found.for_people:
            raise ProfileError(f"{name}: is the text that `nsys stats` prints for people; {_HOW}")
        held = ", ".join(filter(None, found.kernels)) or "none"
        raise ProfileError(f"{name}: holds no report on kernels (reports with rows or headers: {held}); {_HOW}")
    warnings = [
        f"the file also holds {other}, which tells of the same kernels: it is left out"
        for other in _REPORTS
        if other != best and found.kernels.get(other)
    ]
    kernels, copies = without_copies(found.kernels[best])
    warnings += unlisted(copies)
    if not lines.ended:
        warnings.append(f"{name}: {UNENDED}")
    if found.strays:
        warnings.append(f"{found.strays} lines between the rows belong to no table and were skipped")
    if found.unitless:
        warnings.append("the header names no unit of time: nanoseconds, the default of nsys, are assumed")
    return Profile("nsys", (name,), tuple(kernels), tuple(found.devices), tuple(warnings))


def _reports(lines: Lines) -> _Found:
    found, report, columns = _Found(), "", [""]
    for line in lines.printed():
        found.for_people |= _TABLE.match(line) is not None
        if heading := _heading(line):
            report, columns = heading
            found.kernels.setdefault(report, [])
            found.unitless |= report in _REPORTS and not any("(" in column for column in columns)
        elif not line.strip() or _BETWEEN.match(line):
            report = ""
        elif report in _REPORTS:
            row = split(line)
            if row is None or len(row) != len(columns):
                if not re.match(r'[\d"]', line):
                    found.strays += 1  # what nsys or a program said in between
                    continue
                raise ProfileError(
                    f"{lines.where}: the row has {'open quotes' if row is None else f'{len(row)} cells'}, its header "
                    f"{len(columns)} columns; the file is damaged: {_HOW}"
                )
            values, kernels = _Row(columns, row), found.kernels[report]
            try:
                kernels.append(_kernel(report, values, len(kernels), lines.file))
            except ValueError as error:
                raise ProfileError(f"{lines.where}: {error}") from None
            if device := values.get("device"):
                found.devices[Evidence(name=cell_values.device(device)[0])] = None
        elif not report and found.kernels and line.count(",") >= len(columns) - 1:
            found.strays += 1  # a row below an empty line, and no header above it
    return found


def _heading(line: str) -> tuple[str, list[str]] | None:
    """The report that this line heads ("other" for one without kernels) and its columns; None for no header."""
    if not _HEADER.match(line):
        return None
    columns = split(line) or []
    has = {_plain(column) for column in columns}
    if {"kernel start", "kernel dur", "kernel name"} <= has:
        return "cuda_kern_exec_trace", columns
    if {"start", "duration", "name"} <= has and has & {"grdx", "strm", "device"}:
        return "cuda_gpu_trace", columns
    if {"total time", "instances", "name"} <= has and not has & {"source", "style", "range", "category", "pid"}:
        return "cuda_gpu_kern_gb_sum" if "gridxyz" in has else "cuda_gpu_kern_sum", columns
    if {"total time", "instances", "category", "operation"} <= has:
        return "cuda_gpu_sum", columns
    return ("other", columns) if len(columns) > 4 and re.search(r"\((%|[num]?s)\)", line) else None


def _plain(column: str) -> str:
    """`Total Time (ns)` and `Total Time` -> `total time`."""
    return re.sub(r"\s*\([^)]*\)$", "", column).lower()


class _Row:
    """The cells of a row by their plain headings, with the units of these."""

    def __init__(self, columns: Sequence[str], row: Sequence[str]) -> None:
        self._cells = {_plain(column): cell for column, cell in zip(columns, row, strict=True)}
        self._units = {_plain(column): re.search(r"\((\w+)\)$", column) for column in columns}

    def get(self, column: str) -> str:
        return self._cells.get(column, "")

    def seconds(self, column: str) -> float:
        """A time; ValueError where there is none."""
        match = self._units[column]
        value = cell_values.seconds(self._cells[column], match[1].lower() if match else "ns")
        if value is None:
            raise ValueError(f"the row has no {column}")
        return value


def _kernel(report: str, row: _Row, index: int, file: str) -> Kernel:
    time = {"cuda_gpu_trace": "duration", "cuda_kern_exec_trace": "kernel dur"}.get(report, "total time")
    begin = {"cuda_gpu_trace": "start", "cuda_kern_exec_trace": "kernel start"}.get(report)
    name = row.get("kernel name") or row.get("name") or row.get("operation")
    if not name:
        raise ValueError("the row has no name")
    instances = 1 if begin else cell_values.whole(row.get("instances"))
    if not instances:
        raise ValueError(f"{shorten(name)} has no number of instances")
    return Kernel(
        id=str(index),
        file=file,
        name=name,
        process=row.get("pid") or None,
        device=cell_values.device(row.get("device"))[1] or row.get("devid") or None,
        stream=row.get("strm") or None,
        grid=_sizes(row, "grd", "gridxyz"),
        block=_sizes(row, "blk", "blockxyz"),
        invocations=instances,
        seconds=row.seconds(time),
        start=row.seconds(begin) if begin else None,
        registers=cell_values.whole(row.get("reg/trd")),
    )


def _sizes(row: _Row, axes: str, together: str) -> Extent | None:
    """`GrdX`, `GrdY`, `GrdZ`, or `148    1    1` in one cell; None where they are not given."""
    if row.get(together):
        return cell_values.triple(row.get(together))
    return extent(cell_values.whole(row.get(f"{axes}{axis}")) for axis in "xyz")
