"""`roof homework`: problem sheets with different numbers for each student, and their answers checked."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.options.command_line import DocumentFiles, DocumentFormat, examples, name_option
from roofmodel.options.values import SheetName
from roofmodel.report.printing import DOCUMENT_FORMATS, check_format, check_outputs, present

app = typer.Typer(
    add_completion=False,
    help="Write problem sheets with different numbers for each student, and check the answers.",
    no_args_is_help=True,
    epilog=examples(
        "roof homework new --student 1001 -o sheet.md",
        "roof homework new --student 1001 --seed fall --key -o key.md",
        "roof homework check sheet.md --student 1001",
    ),
)

Student = Annotated[
    str, typer.Option("--student", help="Name or number of the student; it determines the numbers in the problems.")
]
Seed = Annotated[
    str,
    typer.Option(
        "--seed", envvar="ROOF_HOMEWORK_SEED", help="The lecturer's secret; without it, students can print the key."
    ),
]


@app.command("new")
def homework_new(
    student: Student,
    sheet: Annotated[
        SheetName, name_option("Sheet: lectures, rooflines, transformers, measuring, scaling or runs.")
    ] = "lectures",
    seed: Seed = "",
    key: Annotated[
        bool, typer.Option("--key", help="Write the answers with their derivations, for the lecturer.")
    ] = False,
    form: DocumentFormat = "table",
    output: DocumentFiles = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing sheet, even if it has answers.")] = False,
) -> None:
    """Write the problem sheet of a student, or its answers."""
    check_format(form, DOCUMENT_FORMATS)
    from roofmodel.homework import api
    from roofmodel.homework.report import HomeworkSheet

    for path in output or ():
        HomeworkSheet.check_output(path, force)
    notes = ["without --seed, students can print this key, too"] if key and not seed else []
    present(api.homework(student, sheet, seed=seed, key=key), form, output, notes=notes)


@app.command("check")
def homework_check(
    answers: Annotated[str, typer.Argument(help="The completed sheet, or a YAML file with the answers.")],
    student: Student,
    sheet: Annotated[SheetName | None, name_option("Name of the sheet, if the answers do not state it.")] = None,
    seed: Seed = "",
    form: DocumentFormat = "table",
    output: DocumentFiles = None,
) -> None:
    """Check the answers of a student, and name the likely mistake in each wrong answer."""
    check_format(form, DOCUMENT_FORMATS)
    from roofmodel.homework import api
    from roofmodel.report.derivation import Derivation

    check_outputs(Derivation, output, [answers])
    present(api.check_homework(answers, student, sheet, seed=seed), form, output)
