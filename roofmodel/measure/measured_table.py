"""A table of measured operations, written row by row, and the run that fills it (`roof measure`)."""

from __future__ import annotations

import csv
import io
import math
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from roofmodel.errors import Command, Message, Option, OutputError, Text, WorkloadError, shorten
from roofmodel.files import output_files
from roofmodel.measure import cases, stopwatch
from roofmodel.measure.measure import (
    COLUMNS,
    Done,
    Failed,
    MeasurementPlan,
    chosen,
    identity_of_row,
    measure,
    row,
    types,
)
from roofmodel.measure.stopwatch import Machine
from roofmodel.models.architecture import Architecture
from roofmodel.roofline.device import UnknownDevice, identify
from roofmodel.version import __version__


class CsvWriter:
    """Writes a CSV file row by row as FILE.part and renames it to FILE when it is closed.

    `resume` keeps the rows of FILE.part (left by a killed run) or of FILE; `force` discards both. Raises OutputError if
    the file cannot be written, if it would overwrite rows without `force`, or if the rows to resume have other columns
    or come from another machine.
    """

    def __init__(self, path: str, machine: Machine, resume: bool = False, force: bool = False) -> None:
        self.target, self.part_file = _checked(path, resume, force)
        source = self.part_file if self.part_file.exists() else self.target
        old = _rows(source, machine) if resume and source.exists() else []
        self.identities = {identity_of_row(cells) for cells in old}
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
        if self.count or self.identities:
            output_files.replace(self.target, lambda file: shutil.copyfile(self.part_file, file))
        self.part_file.unlink()


def _checked(path: str, resume: bool, force: bool) -> tuple[Path, Path]:
    """FILE and FILE.part. Raises OutputError if one cannot be written, or exists and is not continued or replaced."""
    ways = Message(Option("resume"), " continues it, ", Option("force"), " replaces it")
    target, part_file = output_files.check(path, ("csv",)), output_files.check(f"{path}.part", ("part",))
    if not (resume or force):
        if part_file.exists():
            raise OutputError(f"{path}: a killed run left {part_file.name!r}; ", ways)
        if target.exists() and target.stat().st_size:
            raise OutputError(f"{path}: the file exists; ", ways, ", or give another name")
    return target, part_file


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


class Measurement(NamedTuple):
    """The measured cases of a run, and the table with their rows and those of earlier runs."""

    path: Path
    plan: MeasurementPlan
    done: tuple[Done, ...]
    rows: int  # of the table
    notes: tuple[Text, ...]
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
    progress: Callable[[str, int, int | None], None],
) -> Measurement:
    """Measure the operators of a model under `workload`, or a sweep of shapes, into a CSV table at `output`.

    `l2` is cold or warm, `budget` in seconds. After each case, `progress` is called with the case, the number of
    finished cases and the number of all cases. An interrupt ends the run; its rows are kept. Raises OutputError for a
    table that cannot be written or continued, WorkloadError for an unknown operation, format or device, and if nothing
    was measured.
    """
    output_files.check(output, ("csv",))
    wanted = chosen("ops", ops, cases.KERNELS, cases.KERNELS)
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget < math.inf:
        raise WorkloadError(Option("budget"), f" is {shorten(budget)}; give a number of seconds greater than 0")
    _checked(output, resume, force)
    notes: list[Text] = []
    machine = stopwatch.machine(device)
    try:
        dtypes = types(machine, wanted, dtype)
        if architecture is None:
            planned = cases.sweep(wanted, dtypes, cases.Limits(*machine.largest), seed)
        else:
            planned, others = cases.model_cases(architecture, dtypes, **workload)
            planned = [case for case in planned if case.op in wanted]
            if others:
                notes.append(f"not measured, since torch has no single kernel for them: {', '.join(others)}")
        plan = MeasurementPlan(machine, planned, l2, budget, f"roof measure, roofmodel {__version__}")
        if machine.device == "cpu":
            notes.append(f"measured the CPU, {machine.evidence.name}{'' if device else ': torch finds no GPU'}")
        return _record(plan, CsvWriter(output, machine, resume, force), notes, progress)
    finally:
        machine.close()


def _record(
    plan: MeasurementPlan, table: CsvWriter, remarks: Iterable[Text], progress: Callable[[str, int, int | None], None]
) -> Measurement:
    """Measure until the plan or its budget ends, or an interrupt; the table keeps the rows measured until then."""
    done, failed, interrupted = [], dict[str, dict[str, None]](), False
    try:
        for number, outcome in enumerate(measure(plan, table.identities), 1):
            progress(str(outcome.case), number, len(plan.cases))
            if isinstance(outcome, Failed):
                failed.setdefault(outcome.reason, {})[" ".join(outcome.case.kind)] = None
            else:
                table.add(row(outcome, plan))
                done.append(outcome)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        table.close()
    notes: list[Text] = [
        f"failed in all or some cases: {', '.join(kinds)}: {reason[:160]}" for reason, kinds in failed.items()
    ]
    if not done and not table.identities:
        raise WorkloadError(
            *notes, "; " * bool(notes), f"{table.target}",
            f" is not written: none of {len(plan.cases)} cases was measured",
        )  # fmt: skip
    if interrupted:
        notes.append(Message("interrupted; ", Option("resume"), " continues"))
    else:
        file, hw = str(table.target), _hardware(plan.machine)
        validate = Command(f"roof validate {shlex.quote(file)} --hw {hw}", f"roofmodel.validate({file!r}, {hw!r})")
        notes.append(Message("next: ", validate))
    rows = len(table.identities) + len(done)
    return Measurement(table.target, plan, tuple(done), rows, (*remarks, *notes), interrupted)


def _hardware(machine: Machine) -> str:
    """The device's name if its attributes identify it, else a placeholder."""
    try:
        return identify([machine.evidence], None, []).device.id
    except UnknownDevice:
        return "DEVICE.yaml"
