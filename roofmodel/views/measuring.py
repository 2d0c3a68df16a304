"""A table of measurements as it grows, how far it is on stderr, and what it holds in the end."""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roofmodel.errors import OutputError
from roofmodel.study.measure import COLUMNS, Done, identity_of_row
from roofmodel.units import seconds, si
from roofmodel.views import files

EVERY = 10.0  # seconds between two lines of progress, where nothing can be overwritten


class Growing:
    """A CSV that is written row by row beside its place, as FILE.part, and takes it when it is closed.

    With `resume` it begins with the rows of FILE.part, which a killed run left, or of FILE. Raises OutputError where
    it cannot be written, where such rows are of another table, or where they would be lost.
    """

    def __init__(self, path: str, resume: bool = False) -> None:
        self.target = files.check(path, ("csv",))
        self.beside = self.target.with_name(f"{self.target.name}.part")
        if self.beside.exists() and not resume:
            raise OutputError(
                f"-o {path}: a run that was killed left {self.beside.name!r}; --resume goes on with it, or remove it"
            )
        source = self.beside if self.beside.exists() else self.target
        old = _rows(source) if resume and source.exists() else []
        self.known = {identity_of_row(row) for row in old}
        self.count = 0  # rows of this run
        self._file: IO[str] = self._opened()
        self._writer = csv.DictWriter(self._file, COLUMNS)
        self._writer.writeheader()
        self._writer.writerows(old)
        self._file.flush()

    def _opened(self) -> IO[str]:
        try:
            return self.beside.open("w", newline="", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"-o {self.target}: cannot be written ({error.strerror})") from None

    def add(self, row: Mapping[str, object]) -> None:
        """A row, on disk when this returns."""
        try:
            self._writer.writerow(row)
            self._file.flush()
        except OSError as error:
            raise OutputError(f"-o {self.target}: cannot be written ({error.strerror})") from None
        self.count += 1

    def close(self) -> None:
        """Put the table in its place; a table without a row is removed."""
        self._file.close()
        if self.count or self.known:
            os.replace(self.beside, self.target)
        else:
            self.beside.unlink()


def _rows(path: Path) -> list[dict[str, str]]:
    """The rows of an earlier run; a last one that was cut off is left out."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise OutputError(f"{path}: is no table of roof measure in its present columns; --resume cannot go on")
        return [row for row in reader if None not in row.values() and row["framework"]]


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
    found = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
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
