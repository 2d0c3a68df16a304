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
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isnan
from typing import BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.profiles.cell_values import LocaleNumbers
from roofmodel.profiles.kernel import Evidence, Profile, ReaderWarning, impossible_value_warnings
from roofmodel.profiles.ncu import metric_names
from roofmodel.profiles.ncu.launch_tables import LaunchTable, join
from roofmodel.profiles.ncu.layouts import row_reader
from roofmodel.profiles.ncu.rows import RERUN, RowReader
from roofmodel.profiles.signatures import NCU_HEADER, NCU_LAUNCH, NCU_OTHER_SUMMARY, NCU_REPORT
from roofmodel.profiles.streams import Lines

_COLLISION = re.compile(r'"\d+",(?:"[^"]*",){3,}')  # a row in the middle of a line


def read_all(sources: Iterable[tuple[BinaryIO, str]], generation: str | None = None) -> Profile:
    """Read several files and join those with the same launches. Raises ProfileError with file and line."""
    names: list[str] = []
    tables: list[LaunchTable] = []
    for stream, name in sources:
        names.append(name)
        tables.extend(parse(stream, name))
    return profile(tables, names, generation)


def profile(tables: Iterable[LaunchTable], files: Iterable[str], generation: str | None = None) -> Profile:
    """Join the tables, interpret the metrics of all launches, and return the profile."""
    from roofmodel.profiles.ncu.kernel_arrays import ArrayKernels, TableKernels, interpret_launches, launches_by

    joined, warnings = join(tables)
    stated_capability = metric_names.capability(generation)
    parts: list[TableKernels] = []
    evidence: list[Evidence] = []
    notes: Counter[ReaderWarning] = Counter()
    impossible: Counter[str] = Counter()
    for table in joined:
        warnings.extend(table.warnings)
        evidence.extend(replace(e, file=table.file) for e in table.evidence if e not in evidence)
        capabilities = {e.compute_capability for e in table.evidence if e.compute_capability}
        parts.append(part := TableKernels(table))
        for (in_row, averaged), launches in launches_by(table, lambda kind: (kind.capability, kind.invocations > 1)):
            capability = in_row or (next(iter(capabilities)) if len(capabilities) == 1 else None)
            if (
                capability
                and not capabilities
                and (device_evidence := _evidence(table, launches, capability)) not in evidence
            ):
                evidence.append(device_evidence)
            for places, meaning in interpret_launches(table, launches, capability or stated_capability, averaged):
                notes.update(dict.fromkeys(meaning.notes, len(places)))
                part.fill(places, meaning)
        impossible.update(part.drop_impossible_values())
    kernels = ArrayKernels(parts)
    counted = (
        ReaderWarning(f"{note} ({n} of {len(kernels)} kernels)", note.category) if n < len(kernels) else note
        for note, n in notes.items()
    )
    return Profile(
        tool="ncu",
        files=tuple(files),
        kernels=kernels,
        evidence=tuple(evidence),
        warnings=tuple(dict.fromkeys([*warnings, *counted, *impossible_value_warnings(impossible)])),
    )


def _evidence(table: LaunchTable, launches: Iterable[int], capability: str) -> Evidence:
    """The device of launches whose table has no attributes of devices."""
    column = table.values.get("launch__sm_count")
    counts = {column[place] for place in launches if not isnan(column[place])} if column else set()
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
    tables = [table for number, each in enumerate(readers) if (table := each.finish(number)).ids]
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
