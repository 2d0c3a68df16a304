"""Nsight Compute's CSV, in all its layouts, and its reports (`ncu_report.py`) -> a profile.

One table is a header and the rows under it. Three kinds, told apart by their columns, which are found by name:

* long: a row for each launch and metric (`--csv`, also `--page details`, with labels instead of names);
* wide: a row for each launch, and a row of units under the header (`--page raw`);
* summary: a row for each name and metric, with means over the invocations (`--print-summary per-kernel`).

Around and between the rows stands what the program and ncu itself print. A file is read row by row; what is kept
is a few numbers for each launch. Names of machines are never read. A file without a table may hold what ncu prints for
people (`ncu_text.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import BinaryIO

from roofmodel.errors import ProfileError
from roofmodel.profiles.cell_values import Numbers
from roofmodel.profiles.kernel import Evidence, Profile
from roofmodel.profiles.ncu import metric_names, printed_text, report
from roofmodel.profiles.ncu.launch_tables import Table, join
from roofmodel.profiles.ncu.layouts import reader
from roofmodel.profiles.ncu.rows import AGAIN, HEADER, Reader
from roofmodel.profiles.streams import Lines, decode

_OTHER_SUMMARY = re.compile(r'^\ufeff?"(?:Process ID|Device|NVTX[^"]*)",.*"Invocations",', re.MULTILINE)
_COLLISION = re.compile(r'"\d+",(?:"[^"]*",){3,}')  # a row that does not begin its line


def recognise(head: bytes) -> bool:
    """Whether a file that begins so comes from Nsight Compute, be it a table or what it prints instead of one."""
    if head.startswith(report.MAGIC):
        return True
    text = decode(head)
    if "NVPROF is profiling" in text:
        return False
    return bool(
        HEADER.search(text)
        or re.search(r"^\ufeff?==(PROF|ERROR)==", text, re.MULTILINE)
        or "ERR_NVGPUCTRPERM" in text
        or printed_text.PRINTED.search(text)
        or _OTHER_SUMMARY.search(text)
    )


def holds_table(head: bytes) -> bool:
    """Whether a header of Nsight Compute's stands among these bytes."""
    return HEADER.search(decode(head)) is not None


def read(stream: BinaryIO, name: str, generation: str | None = None) -> Profile:
    """Read one file. `generation` is the compute capability, as `7.0`, where the file does not say it."""
    return read_all([(stream, name)], generation)


def read_all(sources: Iterable[tuple[BinaryIO, str]], generation: str | None = None) -> Profile:
    """Read several files of Nsight Compute and join those of one run. Raises ProfileError with file and line."""
    names: list[str] = []
    tables: list[Table] = []
    for stream, name in sources:
        names.append(name)
        tables.extend(parse(stream, name))
    return profile(tables, names, generation)


def profile(tables: Iterable[Table], files: Iterable[str], generation: str | None = None) -> Profile:
    """Read the metrics of all launches, once tables of one run were joined."""
    from roofmodel.profiles.ncu.kernel_arrays import Kernels, Part, meanings, places

    joined, warnings = join(tables)
    given = metric_names.capability(generation)
    parts: list[Part] = []
    evidence: list[Evidence] = []
    notes: Counter[str] = Counter()
    for table in joined:
        warnings.extend(table.warnings)
        evidence.extend(replace(e, file=table.file) for e in table.evidence if e not in evidence)
        told = {e.compute_capability for e in table.evidence if e.compute_capability}
        parts.append(part := Part(table))
        for (said, averaged), launches in places(table, lambda kind: (kind.capability, kind.invocations > 1)):
            own = said or (next(iter(told)) if len(told) == 1 else None)
            if own and not told and (seen := Evidence(compute_capability=own, file=table.file)) not in evidence:
                evidence.append(seen)
            for alike, meaning in meanings(table, launches, own or given, averaged):
                notes.update(dict.fromkeys(meaning.notes, len(alike)))
                part.fill(alike, meaning)
    kernels = Kernels(parts)
    counted = (f"{text} ({n} of {len(kernels)} kernels)" if n < len(kernels) else text for text, n in notes.items())
    return Profile(
        tool="ncu",
        files=tuple(files),
        kernels=kernels,
        evidence=tuple(evidence),
        warnings=tuple(dict.fromkeys([*warnings, *counted])),
    )


def parse(stream: BinaryIO, file: str) -> list[Table]:
    """All tables of a file. Raises ProfileError, with what to run instead, where there is none."""
    if stream.read(len(report.MAGIC)) == report.MAGIC:
        return [report.parse(stream, file)]
    stream.seek(0)
    numbers, outside = Numbers(file), _Outside()
    readers: list[Reader] = []
    with Lines(stream, file) as lines:
        while line := readers[-1].skim() if readers else lines.next():
            if readers and readers[-1].starts_row(line):
                readers[-1].read_row(line)
            elif HEADER.match(line):
                readers.append(reader(line, lines, numbers))
            elif readers and _COLLISION.search(line):
                raise ProfileError(
                    f"{lines.where}: other output runs into a row of the table; "
                    "run ncu again with --log-file FILE, which keeps them apart"
                )
            else:
                outside.see(line)
    found = [table for number, each in enumerate(readers) if (table := each.finish(number)).ids]
    if not readers and outside.printed and (printed := printed_text.parse(stream, file)).ids:
        found = [printed]
    if not found:
        raise ProfileError(f"{file}: {outside.explain(bool(readers))}")
    if outside.errors:
        found[0].warnings.append(f"{file}: ncu reported errors (==ERROR==) while profiling; kernels may be missing")
    return found


@dataclass
class _Outside:
    """What was seen outside of tables; it explains why there is none. None of it is ever repeated."""

    denied: bool = False
    errors: bool = False
    profiler: bool = False
    nothing: bool = False
    printed: bool = False  # launches as they are printed for people
    unnamed: bool = False  # a summary without names

    def see(self, line: str) -> None:
        self.denied |= "ERR_NVGPUCTRPERM" in line
        self.errors |= line.startswith("==ERROR==")
        self.profiler |= line.startswith("==PROF==")
        self.nothing |= "No kernels were profiled" in line
        self.printed |= printed_text.PRINTED.match(line) is not None
        self.unnamed |= _OTHER_SUMMARY.match(line) is not None

    def explain(self, header: bool) -> str:
        if self.denied:
            return (
                "Nsight Compute was not allowed to read the GPU's counters (ERR_NVGPUCTRPERM), so there is no table; "
                "let an administrator set NVreg_RestrictProfilingToAdminUsers=0 or give the container CAP_SYS_ADMIN, "
                f"then {AGAIN}"
            )
        if self.printed:
            return f"Nsight Compute's text for people, with labels (the details page) instead of names; {AGAIN}"
        if self.unnamed:
            return f"a summary that names no kernels; {AGAIN}, or use --print-summary per-kernel"
        if header or self.nothing:
            return f"no kernels were profiled: there is no row under the header; check ncu's filters, then {AGAIN}"
        if self.profiler or self.errors:
            return f"a log of Nsight Compute without a table; {AGAIN}"
        return f"no table of Nsight Compute; {AGAIN}"
