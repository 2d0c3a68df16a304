"""Read the table that PyTorch's `key_averages().table()` prints: the device time of each kernel or operator.

    -------  ------------  ------------  ------------
       Name     Self CUDA   Self CUDA %    # of Calls
    -------  ------------  ------------  ------------
       gemm     580.224ms       100.00%            80

Two blanks or more separate the cells. The device is `CUDA`, `XPU`, `Device` …; its own time (`Self`) is that of the
kernels of a row. A table lists kernels in rows of their own, which take no CPU time, and repeats their times in the
rows of their operators; a table without rows of kernels has only the operators.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.numbers import units
from roofmodel.profiles import cell_values
from roofmodel.profiles.kernel import KERNEL, Evidence, KernelTable, ReaderWarning, copy_direction
from roofmodel.profiles.signatures import KEY_AVERAGES
from roofmodel.profiles.streams import Lines, limited_name
from roofmodel.profiles.timelines.timeline import Timeline

_DEVICE_TIME = re.compile(r"Self (?!CPU)(\w+)$")
HOW_TO_COLLECT = "to see each launch, export the trace: prof.export_chrome_trace('trace.json')"


def read(file: BinaryIO, name: str) -> Timeline:
    """The kernels of a printed table, a row for each name; without such rows the operators.

    Raises ProfileError, with the line, for a table without device time, and for a time or number that is none.
    """
    rows: list[tuple[str, dict[str, str]]] = []
    with Lines(file, name) as lines:
        columns: list[str] = []
        for line in lines.text_lines():
            cells = re.split(r"\s{2,}", line.strip())
            if KEY_AVERAGES.search(line):
                columns = cells
            elif columns and len(cells) == len(columns) and not line.lstrip().startswith("---"):
                rows.append((lines.where, dict(zip(columns, cells, strict=True))))
    device = next((column for _, row in rows[:1] for column in row if _DEVICE_TIME.match(column)), None)
    if device is None:
        raise ProfileError(f"{name}: the table of key_averages has no time of a GPU; {HOW_TO_COLLECT}")
    timed = [(where, row, _seconds(row[device], where)) for where, row in rows]
    ran = [(where, row, seconds) for where, row, seconds in timed if seconds]
    kernels = [each for each in ran if not _seconds(each[1].get("CPU total", ""), each[0])]
    table = KernelTable()
    for where, row, seconds in kernels or ran:
        number = cell_values.parse_count(row.get("# of Calls", ""))
        if not number:
            raise ProfileError(f"{where}: {shorten(row.get('# of Calls', ''))} is not a number of calls")
        kind = "memset" if "Memset" in row["Name"] else "copy" if (way := copy_direction(row["Name"])) else KERNEL
        more = {"direction": way} if kind == "copy" else {}
        table.add(name=limited_name(row["Name"]), invocations=number, seconds=seconds, kind=kind, **more)
    cut = sum(row["Name"].endswith("...") for _, row, _ in kernels or ran)
    warnings = [ReaderWarning(f"a printed table of key_averages has no launches, grids and shapes; {HOW_TO_COLLECT}")]
    if not kernels:
        warnings.append(ReaderWarning("the table has no rows of kernels: its operators are listed in their place"))
    if cut:
        warnings.append(
            ReaderWarning(f"{units.count(cut, 'name')} cut: print the table with max_name_column_width=None")
        )
    is_amd = any(row["Name"].startswith(("hip", "Cijk_")) for _, row in rows)
    evidence = (Evidence(amd=True, file=name),) if is_amd else ()
    return Timeline("torch", name, table, evidence=evidence, warnings=tuple(warnings), how_to_collect=HOW_TO_COLLECT)


def _seconds(cell: str, where: str) -> float:
    """`580.224ms` in seconds; 0 for an empty cell."""
    if not cell or cell == "--":
        return 0.0
    match = re.fullmatch(r"([\d.]+)(us|ms|s)", cell)
    number = cell_values.parse_seconds(match[1], match[2]) if match else None
    if number is None:
        raise ProfileError(f"{where}: {shorten(cell)} is not a time")
    return number
