"""Progress on stderr: one line or bar that is overwritten on a terminal, otherwise occasional lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from roofmodel.files.text_files import printable
from roofmodel.numbers import units

BAR_AFTER = 1.0  # seconds before the bar on a terminal
REFRESH_EVERY = 0.1  # seconds between two refreshes of the bar
LINES_EVERY = 10.0  # seconds before the first line of other output, and between two lines
LINE_WIDTH = 100  # columns of a line that is overwritten

Callback = Callable[[str, int, int | None], None]
"""Called with the current part of the work, the amount that is complete, and the whole amount."""


@contextmanager
def reading_progress() -> Iterator[Callback]:
    """A callback that shows how much of the profiler files was read, if that takes long."""
    progress = _Bar(Console(stderr=True)) if sys.stderr.isatty() else _Lines(_bytes_read)
    try:
        yield progress.update
    finally:
        progress.end()


@contextmanager
def measuring_progress(budget: float) -> Iterator[Callback]:
    """A callback that shows the number of measured cases and the time; `budget` in seconds."""
    begin = time.monotonic()

    def cases(case: str, done: int, total: int | None) -> str:
        return f"{done} of {total} cases, {time.monotonic() - begin:.0f} of at most {budget:.0f} s: {case}"

    progress = _Line(cases) if sys.stderr.isatty() else _Lines(cases)
    try:
        yield progress.update
    finally:
        progress.end()


@contextmanager
def search_progress() -> Iterator[Callback]:
    """A callback that shows on a terminal how many layouts `roof plan` has evaluated."""
    if not sys.stderr.isatty():
        yield lambda subject, done, total: None
        return
    progress = _Line(lambda subject, done, total: f"evaluated {done} of {total} {subject}")
    try:
        yield progress.update
    finally:
        progress.end()


def _bytes_read(name: str, done: int, total: int | None) -> str:
    return f"reading {printable(name)}: {units.si(done, 'B')} of {units.si(total or 0, 'B')}"


@contextmanager
def derivation_progress() -> Iterator[Callback]:
    """A callback that shows on a terminal which model `roof explore` derives, and how much of it."""
    if not sys.stderr.isatty():
        yield lambda model, done, total: None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from roofmodel.errors import shorten

    columns = TextColumn("deriving formulas: {task.description}"), BarColumn(20), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(model: str, done: int, total: int | None) -> None:
            name = escape(shorten(model.rpartition("/")[2]))
            bar.update(task, description=name, completed=done, total=total, refresh=True)

        yield show


class _Lines:
    """Progress as separate lines, for output that is not a terminal."""

    def __init__(self, text: Callable[[str, int, int | None], str]) -> None:
        self.text, self.next = text, time.monotonic() + LINES_EVERY

    def update(self, name: str, done: int, total: int | None) -> None:
        if time.monotonic() >= self.next:
            sys.stderr.write(f"{self.text(name, done, total)}\n")
            self.next = time.monotonic() + LINES_EVERY

    def end(self) -> None:
        pass


class _Line:
    """Progress as one line of a terminal, which is overwritten, and erased at the end."""

    def __init__(self, text: Callable[[str, int, int | None], str]) -> None:
        self.text = text

    def update(self, name: str, done: int, total: int | None) -> None:
        sys.stderr.write(f"\r\x1b[K{self.text(name, done, total)[:LINE_WIDTH]}")
        sys.stderr.flush()

    def end(self) -> None:
        sys.stderr.write("\r\x1b[K")


class _Bar:
    """Progress bar on a terminal; it is erased at the end."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn("reading {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
        self.next = time.monotonic() + BAR_AFTER
        # Without the thread that refreshes the bar: `sweep/processes.py` forks only where no other thread runs.
        self.bar = Progress(*columns, console=console, transient=True, auto_refresh=False)
        self.task = self.bar.add_task("", total=None)
        self.done = 0

    def update(self, name: str, done: int, total: int | None) -> None:
        again, self.done = done < self.done, done
        if again:  # another pass over the file, or another file: the speed of the last pass says nothing about it
            self.bar.reset(self.task, start=True)
        self.bar.update(self.task, description=printable(name).replace("[", r"\["), completed=done, total=total)
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + REFRESH_EVERY
            self.bar.start()
            self.bar.refresh()

    def end(self) -> None:
        self.bar.stop()
