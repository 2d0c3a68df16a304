"""Generate the parts of README.md and docs/ that come from the program or from other pages.

The cog blocks of the pages call these functions; scripts/docs runs cog.
"""

from __future__ import annotations

import atexit
import functools
import html
import importlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import get_args

import cog

from roofmodel.devices import library
from roofmodel.devices.device import Device
from roofmodel.measure.operations import OPERATIONS
from roofmodel.models import fields, yaml_description
from roofmodel.numbers import units
from roofmodel.options.values import declared_options
from roofmodel.report.table import Table
from roofmodel.steps.notes import KERNEL_KINDS

ROOT = Path(__file__).resolve().parents[1]
README_ACCURACY = {  # rows of docs/accuracy.md -> their names in the README
    "| a100 | GEMM, 16-bit and quantized": "GEMM on A100, 16-bit and quantized",
    "| h100 | GEMM, 16-bit and 8-bit": "GEMM on H100, 16-bit and 8-bit",
    "| h100 | attention, decode": "attention in decode on H100",
    "| h100 | MoE, fused": "MoE layers on H100",
    "| served on one GPU: TPOT": "LLMs served on one GPU: TPOT",
    "| served on 2 to 8 GPUs: TPOT": "LLMs served on 2 to 8 GPUs: TPOT",
}

LARGE_ERROR = 0.12  # of a parameter set on rows that its fit did not use


def run(*commands: str, start: str = "", until: str = "", columns: int = 100) -> None:
    """Print commands with their terminal output. All commands of a page share one folder.

    `start`: replace the output before the first line that starts with this text by "…"; `until`: replace the output
    from the first line that starts with this text by "…".
    """
    shown = []
    for command in commands:
        lines = [part.rstrip() for line in _output(command, columns).splitlines() for part in _wrapped(line, columns)]
        if until:
            lines[_position(lines, until) :] = ["…"]
        if start:
            lines[: _position(lines, start)] = ["…"]
        shown += [f"$ {command}", *lines]
    cog.out("\n```console\n" + "\n".join(shown) + "\n```\n\n")


def _position(lines: Sequence[str], beginning: str) -> int:
    for number, line in enumerate(lines):
        if line.startswith(beginning):
            return number
    raise SystemExit(f"{cog.inFile}: no line of the output starts with {beginning!r}")


def prose(text: str, *options: str, command: str) -> None:
    """Print a paragraph with the expected time of a command, `{0}`, `{1}` …, with each of these further options."""
    times = []
    for more in options:
        (phase,) = json.loads(_output(f"{command} {more} --format json 2>/dev/null"))["phases"]
        times.append(units.seconds(phase["totals"]["expected_seconds"]))
    cog.out("\n" + textwrap.fill(text.format(*times), 120, break_long_words=False) + "\n\n")


def markdown(command: str) -> None:
    """Print the Markdown that a command prints."""
    cog.out(f"\n{_output(command).rstrip()}\n\n")


def source(path: str) -> None:
    """Print a file of the repository as a block of code."""
    language = {".py": "python", ".yaml": "yaml"}[Path(path).suffix]
    text = (ROOT / path).read_text(encoding="utf-8")
    cog.out(f"\n```{language}\n{text}```\n\n")


def commands() -> None:
    """Print every command with its arguments and options, from the source of `--help`."""
    text = html.unescape(_output("typer roofmodel.cli utils docs --name roof"))
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text)  # typer truncates the help texts in this list
    text = re.sub(r"^Examples:\n\n(?:roof .*\n+)+", _as_console, text, flags=re.MULTILINE)
    text = re.sub(r"^(\* `.*?`)(.*)$", lambda line: line[1] + line[2].replace("*", r"\*"), text, flags=re.MULTILINE)
    cog.out("\n" + text.partition("\n\n")[2].rstrip() + "\n\n")


def _as_console(examples: re.Match[str]) -> str:
    """A block of code with the example commands, whose `*` would be emphasis outside of it."""
    lines = examples[0].replace("\\[", "[").split("\n\n")[1:]  # \[ for rich
    return "\n".join(["Examples:\n", "```console", *(f"$ {line}" for line in map(str.strip, lines) if line), "```\n\n"])


def yaml_keys() -> None:
    """Print the keys of a model description in YAML as a table."""
    row = yaml_description.ROW
    keys = row.switches | {name: (fields.FIELDS[name][0], key) for name, key in row.fields.items()}
    _table(
        ("key", "value", "default", "meaning"),
        [
            (f"`{key.names[0]}`", kind.expected, _default(key), key.about)
            for kind, key in keys.values()
            if isinstance(key, fields.Key)
        ],
    )


def _default(key: fields.Key) -> str:
    section, _, name = key.names[0].rpartition(".")
    if key.default is fields.REQUIRED or name in yaml_description.NEEDED.get(section, ()):
        return f"**required** in `{section}`" if section else "**required**"
    return "derived from other keys" if callable(key.default) else f"{key.default}".lower()


def options(record: str = "roofmodel.options.workload.Options") -> None:
    """Print the options that a record declares as a table."""
    module, _, name = record.rpartition(".")
    declaring = getattr(importlib.import_module(module), name)
    rows = []
    for name, option in declared_options(declaring).items():
        values = {
            "count": "int",
            "name": "float, str or dict" if float in get_args(option.type) else "str",
            "time": "float or str",
            "power": "float or str",
            "share": "float",
            "settings": "str, list or dict",
        }[option.kind]
        if option.choices:
            values = ", ".join(f'`"{choice}"`' for choice in option.choices)
        text = re.sub(r"--([a-z-]+)", lambda flag: f"`{flag[1].replace('-', '_')}`", option.help)
        default = f"`{declaring._field_defaults[name]!r}`" if name in declaring._field_defaults else "**required**"
        rows.append((f"`{name}`", values, default.replace("'", '"'), text))
    _table(("option", "values", "default", "meaning"), rows)


def table_columns() -> None:
    """Print the columns of a table of measured operations."""
    rows = []
    for op, operation in OPERATIONS.items():
        groups = operation.columns, operation.optional + operation.text_columns
        rows.append((f"`{op}`", *(" ".join(f"`{column}`" for column in group) for group in groups)))
    _table(("`op`", "shape columns", "optional columns"), rows)


def columns(table: str, rows: str) -> None:
    """Print the keys of the rows of a JSON document, with their meaning.

    `table` is the path of their Table, or of a function that returns it, such as `roofmodel.estimate.tables.OPERATORS`;
    `rows` their place in the document. Neighbors of one meaning share a line.
    """
    module, _, name = table.rpartition(".")
    declaration = getattr(importlib.import_module(module), name)
    declared = (declaration if isinstance(declaration, Table) else declaration()).columns
    lines = []
    for meaning, group in groupby((c for c in declared if c.shown("json")), key=lambda column: column.meaning):
        keys = " ".join(f"`{column.key}`" for column in group)
        if not meaning:
            raise SystemExit(f"{table}: {keys} has no meaning")
        lines.append((keys, meaning))
    _table((f"keys of `{rows}`", "meaning"), lines)


def accuracy() -> None:
    """Print the README's accuracy table: selected rows and columns of docs/accuracy.md."""
    lines = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8").splitlines()
    rows: list[tuple[str, ...]] = []
    titles: list[str] = []
    for line in lines:
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if "error of bound" in cells:
            titles = cells
        elif line.startswith(tuple(f"{start} |" for start in README_ACCURACY)):
            values = dict(zip(titles, cells, strict=True))
            expected = values.get("on unseen rows", values["error of expected time"])
            name = next(name for start, name in README_ACCURACY.items() if line.startswith(f"{start} |"))
            rows.append((name, values["rows"], values["error of bound"], expected, values["within the interval"]))
    if len(rows) != len(README_ACCURACY):
        raise SystemExit("README_ACCURACY in scripts/shown.py names rows that docs/accuracy.md does not have")
    titles = ["", "rows", "error of bound", "error of expected time", "within the interval"]
    _table(titles, rows, ["---", *["---:"] * 4])


def large_errors() -> None:
    """Print the parameter sets of all devices whose error on unseen rows is above LARGE_ERROR."""
    errors_by_kernel: dict[tuple[str, str], dict[str, float]] = {}
    for device in map(Device.load, sorted(library.names())):
        for kind, kernel, key, (_, fit) in device.calibration.sets() if device.calibration else ():
            if fit.error > LARGE_ERROR:
                errors_by_kernel.setdefault((KERNEL_KINDS[kind], kernel), {})[f"{device.id} {key}"] = fit.error
    rows = [
        (kind, f"`{kernel}`", ", ".join(f"{name}: {error:.1%}" for name, error in errors.items()))
        for (kind, kernel), errors in sorted(
            errors_by_kernel.items(), key=lambda item: [*KERNEL_KINDS.values()].index(item[0][0])
        )
    ]
    _table(("kernels", "implementation", "error on unseen rows"), rows)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], rule: Sequence[str] = ()) -> None:
    lines = (titles, rule or ["---"] * len(titles), *rows)
    cog.out("\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n")


def _wrapped(line: str, columns: int) -> list[str]:
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
    """The working folder of a page's commands, with links to examples/ and tests/. Deleted at exit."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    for name in ("examples", "tests"):
        (folder / name).symlink_to(ROOT / name)
    return folder
