"""Output of the commands: results on stdout, notes and warnings on stderr, files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from roofmodel import errors
from roofmodel.errors import Command, Option, Text, WorkloadError, choices
from roofmodel.files.output_files import check_not_input
from roofmodel.files.text_files import printable
from roofmodel.options.values import OutputFormat
from roofmodel.report.checks import check

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

DEFAULT_WIDTH, MINIMUM_WIDTH = 80, 40  # columns; the default is for output without a terminal


def flag(option: Option | Command) -> str:
    """An option or a command as it is written on the command line: `--ep 8`, `-o FILE`, `roof models list`."""
    if isinstance(option, Command):
        return option.line
    other_names = {"output": "-o", "profile": "--from"}
    name = other_names.get(option.name, f"--{option.name.replace('_', '-')}")
    value = ", ".join(map(str, option.value)) if isinstance(option.value, tuple) else option.value
    return name if value is None else f"{name} {value}"


def check_format(form: str, known_formats: Sequence[str]) -> None:
    """Raises WorkloadError for an unknown --format."""
    if form not in known_formats:
        raise WorkloadError(f"--format: unknown format {form!r}{choices(form, known_formats)}")


def check_outputs(report: Any, paths: Iterable[str] | None, inputs: Iterable[str | None]) -> None:
    """Raises OutputError for a file that this class of report cannot write, and for one that is also an input.

    Called before any work is done.
    """
    for path in paths or ():
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
    check(report)
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
