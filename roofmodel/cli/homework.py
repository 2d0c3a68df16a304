"""`roof homework`: problem sheets with different numbers for each student, and their answers checked."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.options import DocumentFiles, DocumentFormat, examples
from roofmodel.cli.output import DOCUMENT_FORMATS, check_format, check_outputs, note, present

app = typer.Typer(
    add_completion=False,
    help="Problem sheets with different numbers for each student, and their answers checked.",
    no_args_is_help=True,
    epilog=examples(
        "roof homework new --student 1001 -o sheet.md",
        "roof homework new --student 1001 --seed fall --key -o key.md",
        "roof homework check sheet.md --student 1001",
    ),
)

Student = Annotated[str, typer.Option("--student", help="The student's name or number, which selects the numbers.")]
Seed = Annotated[
    str,
    typer.Option(
        "--seed", envvar="ROOF_HOMEWORK_SEED", help="The lecturer's secret; without it, students can print the key."
    ),
]


@app.command("new")
def homework_new(
    student: Student,
    sheet: Annotated[str, typer.Option(help="lectures, rooflines, transformers, measuring or scaling.")] = "lectures",
    seed: Seed = "",
    key: Annotated[bool, typer.Option("--key", help="For the lecturer: the answers with their derivations.")] = False,
    form: DocumentFormat = "table",
    output: DocumentFiles = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a sheet that has answers.")] = False,
) -> None:
    """A student's sheet with blanks, or its key."""
    check_format(form, DOCUMENT_FORMATS)
    from roofmodel import api

    for path in output or ():
        api.HomeworkSheet.check_output(path, force)
    present(api.homework(student, sheet, seed=seed, key=key), form, output)
    if key and not seed:
        note("without --seed, students can print this key, too")


@app.command("check")
def homework_check(
    answers: Annotated[str, typer.Argument(help="The completed sheet, or the YAML of its answers.")],
    student: Student,
    sheet: Annotated[str | None, typer.Option(help="The sheet, if the answers do not name it.")] = None,
    seed: Seed = "",
    form: DocumentFormat = "table",
    output: DocumentFiles = None,
) -> None:
    """The right and wrong answers, with the likely mistake in each wrong one."""
    check_format(form, DOCUMENT_FORMATS)
    from roofmodel import api

    check_outputs(api.Derivation, output)
    present(api.check_homework(answers, student, sheet, seed=seed), form, output)
