"""Output of the commands: results on stdout; notes, warnings and progress on stderr; files."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from roofmodel import errors
from roofmodel.errors import Command, Option, Text, WorkloadError, as_text, choices
from roofmodel.files.text_files import printable
from roofmodel.numbers import units
from roofmodel.options.values import OutputFormat

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


result_check: ContextVar[Callable[[Any], None] | None] = ContextVar("result_check", default=None)
"""What is done with a result before it is presented: the conditions of `--fail-if` judge it."""
DEFAULT_WIDTH, MINIMUM_WIDTH = 80, 40  # columns; the default is for output without a terminal


def flag(option: Option | Command) -> str:
    """An option or a command as it is written on the command line: `--ep 8`, `-o FILE`, `roof models list`."""
    if isinstance(option, Command):
        return option.line
    other_names = {"output": "-o", "profile": "--from"}
    name = other_names.get(option.name, f"--{option.name.replace('_', '-')}")
    value = ", ".join(map(as_text, option.value)) if isinstance(option.value, tuple) else option.value
    return name if value is None else f"{name} {as_text(value)}"


def check_format(form: str, known_formats: Sequence[str]) -> None:
    """Raises WorkloadError for an unknown --format."""
    if form not in known_formats:
        raise WorkloadError(f"--format: unknown format {form!r}{choices(form, known_formats)}")


def check_outputs(report: Any, paths: Iterable[str] | None, inputs: Iterable[str | None]) -> None:
    """Raises OutputError for a file that this class of report cannot write, and for one that is also an input.

    Called before any work is done.
    """
    for path in paths or ():
        from roofmodel.files.output_files import check_not_input

        report.check_output(path)
        check_not_input(path, filter(None, inputs))


def present(
    report: Any,
    form: OutputFormat,
    paths: Iterable[str] | None = None,
    table: Any = None,
    warn_first: bool = False,
    notes: Iterable[Text] = (),
) -> None:
    """Write a report to files and to stdout (as `table` if it is given); its notes and warnings, with further `notes`
    on how it is shown, to stderr.

    Notes and warnings follow the report. With `warn_first` they precede it, because they question all of it.
    """
    if (judge := result_check.get()) is not None:
        judge(report)
    if warn_first:
        remark(report, notes)
    save(report, paths)
    if form == "table":
        print_rich(table or report)
    else:
        print_text(report.text(form))
    if not warn_first:
        remark(report, notes)


def save(report: Any, paths: Iterable[str] | None) -> None:
    """Write a report to each of the files."""
    for path in paths or ():
        print_line(f"wrote {report.save(path)}")


def remark(report: Any, notes: Iterable[Text] = ()) -> None:
    """A report's warnings, and the most important of its notes and of further ones."""
    for line in report.remarks(*notes):
        print_line(line)


def ignored(options: Iterable[str], why: str) -> list[Text]:
    """A note for each option that was given and does not apply."""
    return [errors.ignored(name, why) for name in options]


def print_text(text: str) -> None:
    """A result on stdout."""
    sys.stdout.write(text + "\n")


def print_rich(renderable: Any) -> None:
    """A result on stdout, as wide as the terminal; without trailing blanks in a file or a pipe."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.width or DEFAULT_WIDTH, MINIMUM_WIDTH)
    if console.is_terminal:
        console.print(_Printable(renderable))
        return
    with console.capture() as printed:
        console.print(_Printable(renderable))
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()))
    sys.stdout.flush()  # before the notes, if both go to one file


class _Printable:
    """A renderable whose texts have no control characters: cells of a user's table may contain some."""

    def __init__(self, renderable: Any) -> None:
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield segment._replace(text="\n".join(map(printable, segment.text.split("\n"))))


def note(message: Text) -> None:
    """A line on stderr, marked as a note."""
    print_line(f"note: {message}")


def print_line(text: str) -> None:
    """A line on stderr, without control characters; on a terminal wrapped between words."""
    text = printable(text)
    if sys.stderr.isatty():
        import shutil
        import textwrap

        width = max(MINIMUM_WIDTH, shutil.get_terminal_size((DEFAULT_WIDTH, 0)).columns)
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    sys.stderr.write(f"{text}\n")


BAR_AFTER = 1.0  # seconds before the bar on a terminal
REFRESH_EVERY = 0.1  # seconds between two refreshes of the bar
LINES_EVERY = 10.0  # seconds before the first line of other output, and between two lines
LINE_WIDTH = 100  # columns of a line that is overwritten

Callback = Callable[[str, int, int | None], None]
"""Called with the current part of the work, the amount that is complete, and the whole amount."""


@contextmanager
def reading_progress() -> Iterator[Callback]:
    """A callback that shows how much of the profiler files was read, if that takes long."""
    from rich.console import Console

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
    from rich.console import Console
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
