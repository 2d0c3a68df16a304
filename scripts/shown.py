"""What README.md and the pages of docs/ show of the program: their cog blocks call this, by way of scripts/docs."""

from __future__ import annotations

import atexit
import functools
import html
import os
import re
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

import cog

from roofmodel.models import fields, yaml_description
from roofmodel.study.benchmark.operations import OPERATIONS

ROOT = Path(__file__).resolve().parents[1]


def run(*commands: str, until: str = "", columns: int = 100) -> None:
    """Commands and what a terminal shows, in the page's own folder; `until` a line that begins so, where it is long."""
    shown = []
    for command in commands:
        lines = [part.rstrip() for line in _output(command, columns).splitlines() for part in _folded(line, columns)]
        if until:
            end = next(i for i, line in enumerate(lines) if line.startswith(until))
            lines[end:] = ["…"]
        shown += [f"$ {command}", *lines]
    cog.out("\n```console\n" + "\n".join(shown) + "\n```\n\n")


def text(command: str) -> None:
    """What a command prints, as it is: Markdown."""
    cog.out(f"\n{_output(command).rstrip()}\n\n")


def commands() -> None:
    """Every command with its arguments and options, from `--help`'s own source."""
    found = html.unescape(_output("typer roofmodel.cli.app utils docs --name roof"))
    found = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", found)  # cut short there; in full below
    cog.out("\n" + found.partition("\n\n")[2].rstrip() + "\n\n")


def described() -> None:
    """The keys of an architecture in YAML."""
    row = yaml_description.ROW
    all_of_them = row.switches | {name: (fields.FIELDS[name][0], key) for name, key in row.fields.items()}
    _table(
        ("key", "a value is", "if it is absent", ""),
        [
            (f"`{key.names[0]}`", kind.wanted, _absent(key), key.about)
            for kind, key in all_of_them.values()
            if isinstance(key, fields.Key)
        ],
    )


def _absent(key: fields.Key) -> str:
    section, _, name = key.names[0].rpartition(".")
    if key.default is fields.REQUIRED or name in yaml_description.NEEDED.get(section, ()):
        return f"**required** in `{section}`" if section else "**required**"
    return "follows from others" if callable(key.default) else f"{key.default}".lower()


def columns() -> None:
    """The columns of a table of measured operations."""
    rows = []
    for op, found in OPERATIONS.items():
        parts = found.columns, found.optional + found.words
        rows.append((f"`{op}`", *(" ".join(f"`{column}`" for column in part) for part in parts)))
    _table(("`op`", "columns of its shape", "and if there are"), rows)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = (titles, ["---"] * len(titles), *rows)
    cog.out("\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n")


def _folded(line: str, columns: int) -> list[str]:
    return [line] if len(line) <= columns else textwrap.wrap(line, columns, break_on_hyphens=False)


def _output(command: str, columns: int = 100) -> str:
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    done = subprocess.run(
        command, shell=True, cwd=_folder(cog.inFile), env=environment, text=True, check=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout


@functools.cache
def _folder(page: str) -> Path:
    """Where a page's commands find the examples, and each other's files."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder
