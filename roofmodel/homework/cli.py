"""`roof homework`: problem sheets with different numbers for each student, and their answers checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from roofmodel.homework.api import check_homework, grade_homework, homework, homework_class
from roofmodel.homework.report import HomeworkSheet
from roofmodel.options.signature import Settings
from roofmodel.report.command import DOCUMENT_FILES, DOCUMENT_FORMATS, CommandCall, command, command_group
from roofmodel.report.printing import present, print_line

app = command_group(
    "Write problem sheets with different numbers for each student, and check the answers.",
    examples=(
        "roof homework new --student 1001 -o sheet.md",
        "roof homework check sheet.md --student 1001",
        "roof homework class roster.csv -o sheets",
        "roof homework grade answers --key key.json -o grades.csv",
    ),
)
SETTINGS: Settings = {
    "student": {"flags": ("--student",)},
    "seed": {"envvar": "ROOF_HOMEWORK_SEED"},
    "sheet": {"metavar": "<name>|FILE"},
}
CLASS_SETTINGS: Settings = {
    **SETTINGS,
    "roster": {"metavar": "ROSTER.csv"},
    "folder": {"flags": ("-o", "--output"), "metavar": "FOLDER"},
}
GRADE_SETTINGS: Settings = {"folder": {"metavar": "FOLDER"}, "key": {"metavar": "FILE"}}


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


def _class(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    """Write the sheets and the key, and present the list of the sheets."""
    result = call()
    written = result.written
    print_line(f"wrote {len(written.sheets)} sheets to {written.folder}")
    print_line(f"wrote {written.key}: the seed and all answers; keep it secret")
    present(result, form)


command(homework, group=app, name="new", formats=DOCUMENT_FORMATS, files=DOCUMENT_FILES, settings=SETTINGS, run=_new)
command(check_homework, group=app, name="check", formats=DOCUMENT_FORMATS, files=DOCUMENT_FILES, settings=SETTINGS)
command(homework_class, group=app, name="class", formats=("table", "json"), settings=CLASS_SETTINGS, run=_class)
command(
    grade_homework, group=app, name="grade", formats=("table", "json", "csv"), files=".csv .json",
    settings=GRADE_SETTINGS,
)  # fmt: skip
