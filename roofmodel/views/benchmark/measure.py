"""A table of measurements as it grows, how far it is on stderr, and what it holds in the end."""

from __future__ import annotations

import csv
import io
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.errors import OutputError
from roofmodel.study.benchmark.measure import COLUMNS, Done, identity_of_row
from roofmodel.study.benchmark.stopwatch import Machine
from roofmodel.units import seconds, si
from roofmodel.views.kit import files
from roofmodel.views.kit.columns import bare

EVERY = 10.0  # seconds between two lines of progress, where nothing can be overwritten


class Growing:
    """A CSV that is written row by row beside its place, as FILE.part, and takes it when it is closed.

    With `resume` it begins with the rows of FILE.part, which a killed run left, or of FILE; with `force` both are
    given up. Raises OutputError where it cannot be written, where rows of this or another machine would be lost, and
    where rows to go on with are of another table, or of another machine than this.
    """

    def __init__(self, path: str, machine: Machine, resume: bool = False, force: bool = False) -> None:
        self.target = files.check(path, ("csv",))
        self.beside = self.target.with_name(f"{self.target.name}.part")
        ways = "--resume goes on with it, --force gives it up"
        if not (resume or force):
            if self.beside.exists():
                raise OutputError(f"-o {path}: a run that was killed left {self.beside.name!r}; {ways}")
            if self.target.exists() and self.target.stat().st_size:
                raise OutputError(f"-o {path}: is there already; {ways}, or give another name")
        source = self.beside if self.beside.exists() else self.target
        old = _rows(source, machine) if resume and source.exists() else []
        self.known = {identity_of_row(row) for row in old}
        self.count = 0  # rows of this run
        self._whole = True  # as far as is known, whether every row is on disk
        files.replace(self.beside, lambda file: _write(file, old))
        self._file: IO[str] = self.beside.open("a", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, COLUMNS)

    def add(self, row: Mapping[str, object]) -> None:
        """A row, on disk when this returns."""
        try:
            self._writer.writerow(row)
            self._file.flush()
        except OSError as error:
            self._whole = False
            raise OutputError(
                f"-o {self.target}: cannot be written ({error.strerror}); --resume goes on with {self.beside.name!r}"
            ) from None
        self.count += 1

    def close(self) -> None:
        """Put the table in its place; a table without a row is removed, one with half a row stays beside."""
        with suppress(OSError):  # what could not be written before
            self._file.close()
        if not self._whole:
            return
        if self.count or self.known:
            files.replace(self.target, lambda file: shutil.copyfile(self.beside, file))
        self.beside.unlink()


def _write(file: Path, rows: Iterable[Mapping[str, object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def _rows(path: Path, machine: Machine) -> list[dict[str, str]]:
    """The rows of an earlier run on this machine; a last one that was cut off is left out."""
    try:
        text = path.read_bytes().decode()
        whole = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(io.StringIO(whole, newline=""), strict=True)
        rows = [row for row in reader if None not in row and None not in row.values()]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"{path}: cannot be read as a table ({reason}); --resume cannot go on") from None
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise OutputError(f"{path}: is no table of roof measure in its present columns; --resume cannot go on")
    this = (str(machine.evidence.name), machine.framework)
    for row in rows:
        if (other := (row["gpu"], row["framework"])) != this:
            raise OutputError(
                f"{path}: measured on {' with '.join(other)}, and this is {' with '.join(this)}; --resume mixes no "
                "machines: give another file"
            )
    return rows


class Progress:
    """How far a run is: a line that is overwritten on a terminal, a line now and then elsewhere."""

    def __init__(self, cases: int, budget: float) -> None:
        self.begin = self.last = time.monotonic()
        self.cases, self.budget = cases, budget
        self.done = 0

    def see(self, what: object) -> None:
        """A case more is through."""
        self.done += 1
        now = time.monotonic()
        text = f"{self.done} of {self.cases} cases, {now - self.begin:.0f} of at most {self.budget:.0f} s: {what}"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text[:100]}")
            sys.stderr.flush()
        elif now - self.last > EVERY:
            sys.stderr.write(f"{text}\n")
            self.last = now

    def end(self) -> None:
        """Clear the line."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


def summary(measured: Sequence[Done], name: str, l2: str) -> RenderableType:
    """By operation, type and kernel: how many rows, and the most that they reached."""
    found = bare()
    for column in ("operation", "type", "kernel"):
        found.add_column(column)
    for column in ("rows", "shortest", "at most", ""):
        found.add_column(column, justify="right")
    parts: dict[tuple[str, str, str], list[Done]] = {}
    for done in measured:
        parts.setdefault(done.case.kind, []).append(done)
    for kind, some in sorted(parts.items()):
        found.add_row(*kind, str(len(some)), *_reached(some))
    return Group(
        Text.assemble((name, "bold"), f", L2 {l2}"),
        found,
        Text("FLOPs and bytes as counted, each tensor once; kernels of torch", style="dim"),
    )


def _reached(measured: Sequence[Done]) -> tuple[str, str, str]:
    costs: list[tuple[Any, float]] = [(done.case.operator.cost, done.timing.seconds) for done in measured]
    flops, moved = max(cost.flops / taken for cost, taken in costs), max(cost.bytes / taken for cost, taken in costs)
    return seconds(min(taken for _, taken in costs)), si(flops, "FLOP/s") if flops else "", si(moved, "B/s")
