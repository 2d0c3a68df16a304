"""Read Nsight Compute files: CSV in all layouts, reports (`report.py`), text (`printed_text.py`).

A table is a header and the rows under it. Its columns, found by name, determine the layout:

* long: a row per launch and metric (`--csv`, also `--page details`, with labels instead of names);
* wide: a row per launch, and a row of units under the header (`--page raw`);
* summary: a row per kernel name and metric, with means over the invocations (`--print-summary per-kernel`).

Output of the program and of ncu may precede, follow and interrupt the rows. A file is read row by row, and only a few
numbers per launch are stored. Host names are never read.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.profiles.cell_values import LocaleNumbers
from roofmodel.profiles.kernel import COLUMNS, Evidence, KernelTable, ReaderWarning
from roofmodel.profiles.ncu import metric_names, metrics
from roofmodel.profiles.ncu.launch_tables import LaunchTable, join
from roofmodel.profiles.ncu.layouts import row_reader
from roofmodel.profiles.ncu.rows import RERUN, RowReader
from roofmodel.profiles.signatures import NCU_HEADER, NCU_LAUNCH, NCU_OTHER_SUMMARY, NCU_REPORT
from roofmodel.profiles.streams import Lines
from roofmodel.profiles.timelines.timeline import Timeline

MANY = 500  # launches: from here on, their metrics are arrays
_COLLISION = re.compile(r'"\d+",(?:"[^"]*",){3,}')  # a row in the middle of a line


def read_all(sources: Iterable[tuple[BinaryIO, str]], generation: str | None = None) -> Timeline:
    """Read several files and join those with the same launches. Raises ProfileError with file and line."""
    names: list[str] = []
    tables: list[LaunchTable] = []
    for stream, name in sources:
        names.append(name)
        tables.extend(parse(stream, name))
    return timeline(tables, names, generation)


def timeline(tables: Iterable[LaunchTable], files: Sequence[str], generation: str | None = None) -> Timeline:
    """Join the tables, and interpret the metrics of all launches. Their starts are unknown; the order is the file's."""
    joined, warnings = join(tables)
    stated_capability = metric_names.capability(generation)
    evidence: list[Evidence] = []
    notes: Counter[ReaderWarning] = Counter()
    kernels = joined[0].launches if len(joined) == 1 else KernelTable()
    for table in joined:
        warnings.extend(table.warnings)
        evidence.extend(replace(e, file=table.file) for e in table.evidence if e not in evidence)
        capabilities = {e.compute_capability for e in table.evidence if e.compute_capability}
        for (in_row, averaged), rows in _rows_alike(table.launches).items():
            capability = in_row or (next(iter(capabilities)) if len(capabilities) == 1 else None)
            if (
                capability
                and not capabilities
                and (device_evidence := _evidence(table, rows, capability)) not in evidence
            ):
                evidence.append(device_evidence)
            notes.update(_interpret(table.launches, rows, capability or stated_capability, averaged))
        if table.launches is not kernels:
            kernels.append(table.launches)
    counted = (
        ReaderWarning(f"{note} ({n} of {len(kernels)} kernels)", note.category) if n < len(kernels) else note
        for note, n in notes.items()
    )
    texts = dict.fromkeys([*warnings, *counted])
    return Timeline("ncu", files[0], kernels, evidence=tuple(evidence), warnings=tuple(texts), files=tuple(files))


def _rows_alike(launches: KernelTable) -> dict[tuple[str | None, bool], array[int]]:
    """The launches by compute capability, and whether their metrics are means over several launches."""
    alike: dict[tuple[str | None, bool], array[int]] = defaultdict(lambda: array("q"))
    every = zip(launches.cells("capability"), launches.launches(), strict=True)
    for row, (capability, invocations) in enumerate(every):
        alike[capability, invocations > 1].append(row)
    return alike


def _interpret(
    launches: KernelTable, rows: Sequence[int], generation: str | None, averaged: bool
) -> Counter[ReaderWarning]:
    """Add what the metrics of launches tell, as totals over their invocations; returns how often each note applies."""
    if len(rows) >= MANY:
        from roofmodel.profiles.ncu import kernel_arrays

        return kernel_arrays.interpret(launches, rows, generation, averaged)
    notes: Counter[ReaderWarning] = Counter()
    names = [name for name in launches.metrics if metric_names.is_interpreted(name)]
    times = launches.launches()
    for row in rows:
        values = {name: value for name in names if (value := launches.cell(name, row)) is not None}
        found = metrics.interpret(values, generation, averaged)
        notes.update(found.notes)
        for name, value in found.quantities():
            scale = times[row] if COLUMNS[name].total == "sum" else 1
            launches.update(name, (row,), (value * scale,))
    return notes


def _evidence(table: LaunchTable, rows: Iterable[int], capability: str) -> Evidence:
    """The device of launches whose table has no attributes of devices."""
    name = "launch__sm_count"
    counts = {table.launches.cell(name, row) for row in rows} - {None} if name in table.launches.metrics else set()
    return Evidence(
        compute_capability=capability,
        multiprocessors=round(counts.pop()) if len(counts) == 1 else None,
        file=table.file,
    )


def parse(stream: BinaryIO, file: str) -> list[LaunchTable]:
    """All tables of a file. Raises ProfileError, with the command to run instead, if there is none."""
    if stream.read(len(NCU_REPORT)) == NCU_REPORT:
        from roofmodel.profiles.ncu import report

        return [report.parse(stream, file)]
    stream.seek(0)
    numbers, outside = LocaleNumbers(file), _NonTableLines()
    readers: list[RowReader] = []
    with Lines(stream, file) as lines:
        while line := readers[-1].read_known_rows() if readers else lines.next():
            if readers and readers[-1].starts_row(line):
                readers[-1].read_row(line)
            elif NCU_HEADER.match(line):
                readers.append(row_reader(line, lines, numbers))
            elif readers and _COLLISION.search(line):
                raise ProfileError(
                    f"{lines.where}: other output is on the same line as a table row; "
                    "run ncu again with --log-file FILE, which separates them"
                )
            else:
                outside.add(line)
    tables = [table for number, each in enumerate(readers) if len((table := each.finish(number)).launches)]
    if not readers and outside.printed:
        from roofmodel.profiles.ncu import printed_text

        tables = printed_text.parse(stream, file)
    if not tables:
        raise ProfileError(f"{file}: {outside.explain(bool(readers))}")
    if outside.errors:
        text = f"{file}: ncu reported errors (==ERROR==) during profiling; kernels may be missing"
        tables[0].warnings.append(ReaderWarning(text))
    return tables


@dataclass
class _NonTableLines:
    """What the lines outside tables show, to explain why a file has no table. Messages never quote these lines."""

    denied: bool = False
    errors: bool = False
    profiler: bool = False
    nothing: bool = False
    printed: bool = False  # launches printed as text
    unnamed: bool = False  # a summary without kernel names

    def add(self, line: str) -> None:
        self.denied |= "ERR_NVGPUCTRPERM" in line
        self.errors |= line.startswith("==ERROR==")
        self.profiler |= line.startswith("==PROF==")
        self.nothing |= "No kernels were profiled" in line
        self.printed |= NCU_LAUNCH.match(line) is not None
        self.unnamed |= NCU_OTHER_SUMMARY.match(line) is not None

    def explain(self, header: bool) -> str:
        if self.denied:
            return (
                "no table: Nsight Compute had no permission to read the GPU's counters (ERR_NVGPUCTRPERM); "
                "an administrator can set NVreg_RestrictProfilingToAdminUsers=0, or give the container CAP_SYS_ADMIN; "
                f"then {RERUN}"
            )
        if self.printed:
            return f"printed text of Nsight Compute without metrics that are read; {RERUN}"
        if self.unnamed:
            return f"a summary without kernel names; {RERUN}, or use --print-summary per-kernel"
        if header or self.nothing:
            return f"no kernels were profiled; check the filter options of ncu, then {RERUN}"
        if self.profiler or self.errors:
            return f"an Nsight Compute log without a table; {RERUN}"
        return f"no Nsight Compute table; {RERUN}"
