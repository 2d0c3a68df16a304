"""`roof homework`: problem sheets with numbers of each student's own, and answers checked."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.doors import WRITTEN, Saved, Written, known_format, note, write
from roofmodel.errors import OutputError

app = typer.Typer(
    add_completion=False, help="Problem sheets with numbers of each student's own, and checks.", no_args_is_help=True
)

Student = Annotated[str, typer.Option("--student", help="The student's name or number, as it decides the numbers.")]
Seed = Annotated[
    str,
    typer.Option(
        "--seed", envvar="ROOF_HOMEWORK_SEED", help="The lecturer's word; without one, everybody can print the key."
    ),
]


@app.command("new")
def homework_new(
    student: Student,
    sheet: Annotated[str, typer.Option(help="lectures, rooflines, transformers, measuring or scaling.")] = "lectures",
    seed: Seed = "",
    key: Annotated[bool, typer.Option("--key", help="For the lecturer: the answers, and how they are found.")] = False,
    form: Written = "table",
    output: Saved = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a sheet that has answers.")] = False,
) -> None:
    """A student's sheet, with blanks to fill in; or its key."""
    known_format(form, WRITTEN)
    from roofmodel.study.homework import homework as study
    from roofmodel.views import homework as views

    for path in output or ():
        if not force and study.has_answers(path):
            raise OutputError(f"-o {path}: is a sheet with answers; give another name, or --force to replace it")
    write(views.document(study.sheet(student, sheet, seed), key), form, output)
    if key and not seed:
        note("without --seed, students can print this key, too")


@app.command("check")
def homework_check(
    answers: Annotated[str, typer.Argument(help="The sheet with its blanks filled in, or the answers' YAML alone.")],
    student: Student,
    sheet: Annotated[str | None, typer.Option(help="Where the answers do not say: which sheet; lectures.")] = None,
    seed: Seed = "",
    form: Written = "table",
    output: Saved = None,
) -> None:
    """Which answers are right, and what the wrong ones look like."""
    known_format(form, WRITTEN)
    from roofmodel.study.homework import homework as study
    from roofmodel.views import homework as views

    write(views.report(study.check(answers, student, sheet, seed)), form, output)
