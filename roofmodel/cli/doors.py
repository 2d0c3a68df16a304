"""What the commands share: options that several take, and the ways out: stdout for results, stderr for remarks."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from roofmodel.errors import Option, Text, WorkloadError, choices

USUAL, NARROWEST = 80, 40  # columns, where none or next to none are told

Files = Annotated[list[str], typer.Argument(help="Profiler files, patterns, - for stdin; FILE@HW names a device.")]
Times = Annotated[list[str] | None, typer.Option("--times", help="A file with better times: nsys, nvprof, PyTorch.")]
Listing = Annotated[str, typer.Option("--format", help="table or json.")]


def known_format(form: str, known: tuple[str, ...]) -> None:
    """Raises WorkloadError, with what would work, for another --format."""
    if form not in known:
        raise WorkloadError(f"--format: unknown format {form!r}{choices(form, known)}")


def devices(hw: list[str]) -> list[Any]:
    """The devices that `--hw a100,h100`, or `--hw` once for each, names."""
    from roofmodel.devices import library

    return [library.load(name.strip()) for names in hw for name in names.split(",")]


def show(view: Any, form: str) -> None:
    """A listing, as its table or as its data."""
    known_format(form, ("table", "json"))
    if form == "table":
        print_rich(view.table)
    else:
        from roofmodel.views.kit.encoding import as_json

        print_text(as_json(view.data))


WRITTEN = ("table", "json", "markdown", "latex")
Saved = Annotated[list[str] | None, typer.Option("-o", "--output", help="Also write FILE: .md .tex .json")]
Written = Annotated[str, typer.Option("--format", help="table, json, markdown or latex, on stdout.")]


def write(document: Any, form: str, paths: list[str] | None) -> None:
    """A document in the form asked for, and into files; its notes."""
    for path in paths or ():
        note(f"wrote {document.save(path)}")
    if form == "table":
        from roofmodel.views.kit.document import rich

        print_rich(rich(document.blocks))
    else:
        print_text(document.written(form))
    for remark in document.notes:
        note(remark)


def flag(option: Option) -> str:
    """An option as it is written on the command line: `--ep 8`, `-o FILE`."""
    name = "-o" if option.name == "output" else f"--{option.name.replace('_', '-')}"
    return name if option.value is None else f"{name} {option.value}"


def ignored(options: Iterable[str], why: str) -> None:
    """A note for each option that was given and does not apply."""
    for option in options:
        note(f"--{option} is ignored: {why}")


def print_text(text: str) -> None:
    """A result on stdout."""
    sys.stdout.write(text + "\n")


def print_rich(renderable: Any) -> None:
    """A result on stdout, as wide as the terminal; into a file or a pipe without the blanks that fill its lines."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.width or USUAL, NARROWEST)
    if console.is_terminal:
        console.print(renderable)
        return
    with console.capture() as printed:
        console.print(renderable)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()))
    sys.stdout.flush()  # ahead of remarks, where both go to one file


def note(message: Text) -> None:
    """A remark on stderr: a note, unless it begins by saying what else it is."""
    text = str(message)
    say(text if text.startswith(("warning: ", "wrote ")) else f"note: {text}")


def say(text: str) -> None:
    """A line on stderr; on a terminal several, none of which ends within a word."""
    if sys.stderr.isatty():
        import shutil
        import textwrap

        width = max(NARROWEST, shutil.get_terminal_size((USUAL, 0)).columns)
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    sys.stderr.write(f"{text}\n")
