"""A run of `roof measure`: the CSV file, written row by row, progress on stderr, and the summary."""

from __future__ import annotations

import csv
import io
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel import output_files
from roofmodel.errors import Message, Option, OutputError, WorkloadError
from roofmodel.errors import Text as Remark
from roofmodel.models.architecture import Architecture
from roofmodel.study.benchmark import cases, stopwatch
from roofmodel.study.benchmark.measure import COLUMNS, Done, Failed, Plan, chosen, identity_of_row, measure, row, types
from roofmodel.study.benchmark.stopwatch import Machine
from roofmodel.study.profile.device import UnknownDevice, identify
from roofmodel.units import seconds, si
from roofmodel.views.kit.columns import bare

PROGRESS_INTERVAL = 10.0  # seconds between two progress lines if stderr is not a terminal


class CsvWriter:
    """Writes a CSV file row by row as FILE.part and renames it to FILE when it is closed.

    `resume` keeps the rows of FILE.part (left by a killed run) or of FILE; `force` discards both. Raises OutputError if
    the file cannot be written, if it would overwrite rows without `force`, or if the rows to resume have other columns
    or come from another machine.
    """

    def __init__(self, path: str, machine: Machine, resume: bool = False, force: bool = False) -> None:
        self.target = output_files.check(path, ("csv",))
        self.part_file = output_files.check(f"{path}.part", ("part",))
        ways = Message(Option("resume"), " continues it, ", Option("force"), " replaces it")
        if not (resume or force):
            if self.part_file.exists():
                raise OutputError(f"{path}: a killed run left {self.part_file.name!r}; ", ways)
            if self.target.exists() and self.target.stat().st_size:
                raise OutputError(f"{path}: the file exists; ", ways, ", or give another name")
        source = self.part_file if self.part_file.exists() else self.target
        old = _rows(source, machine) if resume and source.exists() else []
        self.known = {identity_of_row(cells) for cells in old}
        self.count = 0  # rows of this run
        self._complete = True  # False after a row could not be written
        output_files.replace(self.part_file, lambda file: _write(file, old))
        self._file: IO[str] = self.part_file.open("a", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, COLUMNS)

    def add(self, row: Mapping[str, object]) -> None:
        """Write a row to disk."""
        try:
            self._writer.writerow(row)
            self._file.flush()
        except OSError as error:
            self._complete = False
            raise OutputError(
                Option("output", self.target),
                f": cannot be written ({error.strerror}); ",
                Option("resume"),
                f" continues from {self.part_file.name!r}",
            ) from None
        self.count += 1

    def close(self) -> None:
        """Rename FILE.part to FILE; delete it if it has no row; leave it if its last row is incomplete."""
        with suppress(OSError):  # closing tries to write the incomplete row again
            self._file.close()
        if not self._complete:
            return
        if self.count or self.known:
            output_files.replace(self.target, lambda file: shutil.copyfile(self.part_file, file))
        self.part_file.unlink()


def _write(file: Path, rows: Iterable[Mapping[str, object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def _rows(path: Path, machine: Machine) -> list[dict[str, str]]:
    """The rows of an earlier run on this machine, without a last row that is incomplete."""
    try:
        text = path.read_bytes().decode()
        complete = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(io.StringIO(complete, newline=""), strict=True)
        rows = [cells for cells in reader if None not in cells and None not in cells.values()]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"{path}: not a readable table ({reason}); ", Option("resume"), " cannot continue") from None
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise OutputError(
            f"{path}: not a table of roof measure with its current columns; ", Option("resume"), " cannot continue"
        )
    this = (str(machine.evidence.name), machine.framework)
    for old in rows:
        if (other := (old["gpu"], old["framework"])) != this:
            raise OutputError(
                f"{path}: measured on {' with '.join(other)}, not on {' with '.join(this)}; ",
                Option("resume"),
                " needs the same machine: give another file",
            )
    return rows


class Progress:
    """Prints the progress of a run: one line that is overwritten on a terminal, else a line every 10 seconds."""

    def __init__(self, cases: int, budget: float) -> None:
        self.begin = self.last = time.monotonic()
        self.cases, self.budget = cases, budget
        self.done = 0

    def advance(self, case: object) -> None:
        """Count a case as finished, and print it."""
        self.done += 1
        now = time.monotonic()
        text = f"{self.done} of {self.cases} cases, {now - self.begin:.0f} of at most {self.budget:.0f} s: {case}"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text[:100]}")
            sys.stderr.flush()
        elif now - self.last > PROGRESS_INTERVAL:
            sys.stderr.write(f"{text}\n")
            self.last = now

    def end(self) -> None:
        """Clear the progress line."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


class Measurement(NamedTuple):
    """The measured cases of a run, and the table with their rows and those of earlier runs."""

    path: Path
    plan: Plan
    done: tuple[Done, ...]
    rows: int  # of the table
    notes: tuple[Remark, ...]
    interrupted: bool

    @property
    def cases(self) -> int:
        return len(self.plan.cases)


def run(
    output: str,
    *,
    ops: str | None,
    dtype: str | None,
    architecture: Architecture | None,
    workload: Mapping[str, Any],
    l2: str,
    budget: float,
    device: str | None,
    seed: int,
    resume: bool,
    force: bool,
    remark: Callable[[str], None],
) -> Measurement:
    """Measure the operators of a model under `workload`, or a sweep of shapes, into a CSV table at `output`.

    Raises OutputError for a table that cannot be written or continued, WorkloadError for an unknown operation, format
    or device, and if nothing was measured.
    """
    output_files.check(output, ("csv",))
    wanted = chosen("ops", ops, cases.KERNELS, cases.KERNELS)
    machine = stopwatch.machine(device)
    try:
        dtypes = types(machine, wanted, dtype)
        if architecture is None:
            planned = cases.sweep(wanted, dtypes, cases.Limits(*machine.largest), seed)
        else:
            planned, others = cases.of_model(architecture, dtypes, **workload)
            planned = [case for case in planned if case.op in wanted]
            if others:
                remark(f"not measured, since torch has no single kernel for them: {', '.join(others)}")
        plan = Plan(machine, planned, l2, budget, f"roof measure, roofmodel {version('roofmodel')}")
        if machine.device == "cpu":
            remark(f"measuring the CPU, {machine.evidence.name}{'' if device else ': torch finds no GPU'}")
        return _record(plan, CsvWriter(output, machine, resume, force))
    finally:
        machine.close()


def _record(plan: Plan, table: CsvWriter) -> Measurement:
    """Measure until the plan or its budget ends, or an interrupt; the table keeps the rows measured until then."""
    done, failed, interrupted = [], dict[str, dict[str, None]](), False
    progress = Progress(len(plan.cases), plan.budget)
    try:
        for found in measure(plan, table.known):
            progress.advance(found.case)
            if isinstance(found, Failed):
                failed.setdefault(found.reason, {})[" ".join(found.case.kind)] = None
            else:
                table.add(row(found, plan))
                done.append(found)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.end()
        table.close()
    notes: list[Remark] = [
        f"failed in all or some cases: {', '.join(kinds)}: {reason[:160]}" for reason, kinds in failed.items()
    ]
    if not done and not table.known:
        raise WorkloadError(
            *notes, "; " * bool(notes), f"{table.target}",
            f" is not written: none of {len(plan.cases)} cases was measured",
        )  # fmt: skip
    if interrupted:
        notes.append(Message("interrupted; ", Option("resume"), " continues"))
    else:
        notes.append(f"next: roof validate {table.target} --hw {_hardware(plan.machine)}")
    return Measurement(table.target, plan, tuple(done), len(table.known) + len(done), tuple(notes), interrupted)


def _hardware(machine: Machine) -> str:
    """The device's name if its attributes identify it, else a placeholder."""
    try:
        return identify([machine.evidence], None, []).device.id
    except UnknownDevice:
        return "DEVICE.yaml"


def summary(measurement: Measurement) -> RenderableType:
    """By operation, format and kernel: rows, shortest time, and highest achieved FLOP/s and bandwidth."""
    measured, name, l2 = measurement.done, str(measurement.plan.machine.evidence.name), measurement.plan.l2
    found = bare()
    for column in ("operation", "format", "kernel"):
        found.add_column(column)
    for column in ("rows", "shortest", "highest FLOP/s", "highest B/s"):
        found.add_column(column, justify="right")
    parts: dict[tuple[str, str, str], list[Done]] = {}
    for done in measured:
        parts.setdefault(done.case.kind, []).append(done)
    for kind, some in sorted(parts.items()):
        found.add_row(*kind, str(len(some)), *_best(some))
    return Group(
        Text.assemble((name, "bold"), f", L2 {l2}"),
        found,
        Text("FLOP/s and B/s: counted FLOPs and bytes (each tensor moves once) / measured time", style="dim"),
    )


def _best(measured: Sequence[Done]) -> tuple[str, str, str]:
    costs: list[tuple[Any, float]] = [(done.case.operator.cost, done.timing.seconds) for done in measured]
    flops, moved = max(cost.flops / taken for cost, taken in costs), max(cost.bytes / taken for cost, taken in costs)
    return seconds(min(taken for _, taken in costs)), si(flops, "FLOP/s") if flops else "", si(moved, "B/s")
