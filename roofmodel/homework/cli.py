"""`roof homework`: problem sheets with different numbers for each student, and their answers checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from roofmodel.homework.api import check_homework, homework
from roofmodel.homework.report import HomeworkSheet
from roofmodel.options.command_line import Settings
from roofmodel.report.command import DOCUMENT_FILES, DOCUMENT_FORMATS, CommandCall, command, command_group
from roofmodel.report.printing import present

app = command_group(
    "Write problem sheets with different numbers for each student, and check the answers.",
    examples=(
        "roof homework new --student 1001 -o sheet.md",
        "roof homework new --student 1001 --seed fall --key -o key.md",
        "roof homework check sheet.md --student 1001",
    ),
)
SETTINGS: Settings = {"student": {"flags": ("--student",)}, "seed": {"envvar": "ROOF_HOMEWORK_SEED"}}


def _new(
    call: CommandCall,
    form: Any,
    output: Sequence[str],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing sheet, even if it has answers.")] = False,
) -> None:
    """Present a sheet or its key; it does not replace a sheet with answers without `--force`."""
    for path in () if force else output:
        HomeworkSheet.check_replaced(path)
    public = "key" in call.given and not call.given.get("seed")
    present(call(), form, output, notes=["without --seed, students can print this key, too"] if public else [])


command(homework, group=app, name="new", formats=DOCUMENT_FORMATS, files=DOCUMENT_FILES, settings=SETTINGS, run=_new)
command(check_homework, group=app, name="check", formats=DOCUMENT_FORMATS, files=DOCUMENT_FILES, settings=SETTINGS)
