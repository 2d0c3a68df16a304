"""Progress of reading large files, on stderr: a bar on a terminal, otherwise occasional lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from roofmodel import units
from roofmodel.file_names import printable
from roofmodel.profiles.reading import watching

AFTER, EVERY = 1.0, 10.0  # seconds before the first output, and between two lines


@contextmanager
def shown() -> Iterator[None]:
    """Within this context, show how much of the profiler files was read, if that takes longer than a second."""
    progress = _Bar(Console(stderr=True)) if sys.stderr.isatty() else _Lines()
    token = watching.set(progress.update)
    try:
        yield
    finally:
        watching.reset(token)
        progress.end()


class _Lines:
    """Progress as separate lines, for output that is not a terminal."""

    def __init__(self) -> None:
        self.next = time.monotonic() + AFTER

    def update(self, name: str, done: int, total: int) -> None:
        if time.monotonic() >= self.next:
            sys.stderr.write(f"reading {printable(name)}: {units.si(done, 'B')} of {units.si(total, 'B')}\n")
            self.next = time.monotonic() + EVERY

    def end(self) -> None:
        pass


class _Bar:
    """Progress bar on a terminal; it is erased at the end."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn("reading {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
        self.begin = time.monotonic() + AFTER
        self.bar = Progress(*columns, console=console, transient=True)
        self.task = self.bar.add_task("", total=None)

    def update(self, name: str, done: int, total: int) -> None:
        if time.monotonic() >= self.begin:
            self.bar.start()
            self.bar.update(self.task, description=printable(name).replace("[", r"\["), completed=done, total=total)

    def end(self) -> None:
        self.bar.stop()
