"""The Python functions of `roof homework`: problem sheets and their check, for one student and for a class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from roofmodel.errors import Option
from roofmodel.homework.report import HomeworkClass, HomeworkGrades, HomeworkSheet
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import PathLike
from roofmodel.report.derivation import Derivation


@checked
def homework(student: str, sheet: PathLike = "lectures", *, seed: str = "", key: bool = False) -> HomeworkSheet:
    """Write the problem sheet of a student, or its answers.

    Raises WorkloadError, or AnswerError for a YAML file of problems that is not valid.

    Args:
        student: Name or number of the student; it determines the numbers in the problems.
        sheet: Sheet: lectures, rooflines, transformers, measuring, scaling or runs; or a YAML file of own problems.
        seed: The lecturer's secret; without it, students can print the key.
        key: Write the answers with their derivations, for the lecturer.

    Examples:
        >>> homework("1001", "rooflines").to_dict()["sheet"]
        'rooflines'
    """
    from roofmodel.homework.document import document
    from roofmodel.homework.homework import sheet as sheet_of

    made = document(sheet_of(student, values.path("sheet", sheet), seed), key)
    return HomeworkSheet(made._replace(notes=_notes(seed)))


@checked
def check_homework(
    answers: PathLike | Mapping[str, Any], student: str, sheet: PathLike | None = None, *, seed: str = ""
) -> Derivation:
    """Check the answers of a student, and name the likely mistake in each wrong answer.

    Raises AnswerError for a file without answers.

    Args:
        answers: The completed sheet, or a YAML file with the answers; in Python also a dictionary.
        student: Name or number of the student; it determines the numbers in the problems.
        sheet: Name of the sheet, if the answers do not state it; or the YAML file of its problems.
        seed: The lecturer's secret; without it, students can print the key.

    Examples:
        >>> report = check_homework({"matmul": {"ridge": "139 FLOP/B"}}, "Ada", "rooflines")
        >>> report.to_dict()["asked"]
        12
    """
    from roofmodel.homework.document import report
    from roofmodel.homework.homework import check

    answer_source = answers if isinstance(answers, Mapping) else values.path("answers", answers)
    return Derivation(
        report(check(answer_source, student, None if sheet is None else values.path("sheet", sheet), seed))
    )


@checked
def homework_class(
    roster: PathLike,
    folder: PathLike,
    sheet: PathLike = "lectures",
    *,
    suffix: Literal["md", "tex", "json", "pdf"] = "md",
    seed: str = "",
    force: bool = False,
) -> HomeworkClass:
    """Write the sheets of a class into a folder, and key.json, which has the seed and all answers, beside it.

    Raises AnswerError for the roster, WorkloadError for the sheet, OutputError for files that must not be replaced.

    Args:
        roster: CSV file with a column `student`; other columns are carried into the grades.
        folder: Folder of the sheets; key.json is written beside it.
        sheet: Sheet: lectures, rooflines, transformers, measuring, scaling or runs; or a YAML file of own problems.
        suffix: Format of the sheets: md, tex, json or pdf (with pdflatex).
        seed: The lecturer's secret; without it, a random one of 128 bits is made.
        force: Replace sheets with answers, and the key of another class.

    Examples:
        >>> homework_class("roster.csv", "sheets")  # doctest: +SKIP
    """
    from roofmodel.homework.classroom import write_class

    paths = (values.path("roster", roster), values.path("folder", folder), values.path("sheet", sheet))
    return HomeworkClass(write_class(*paths, seed, suffix, force), _notes(seed))


@checked
def grade_homework(folder: PathLike, key: PathLike, *, partial: float = 0) -> HomeworkGrades:
    """Grade the answers of a class: a row for each student, a column for each question, and the sum of the points.

    Raises AnswerError for a folder without answers and for an invalid key.

    Args:
        folder: Folder with the answers, also in subfolders.
        key: The key.json that was written with the sheets.
        partial: Fraction of the points for a wrong answer that a common mistake explains, such as 0.5.

    Examples:
        >>> grade_homework("answers", "key.json")  # doctest: +SKIP
    """
    from roofmodel.homework.classroom import grade_class

    return HomeworkGrades(grade_class(values.path("folder", folder), values.path("key", key), partial))


def _notes(seed: str) -> list[Any]:
    """A note on a seed that students can find."""
    from roofmodel.errors import Message
    from roofmodel.homework.homework import SHORT_SEED

    if not 0 < len(seed) < SHORT_SEED:
        return []
    why = f" has {len(seed)} characters and can be guessed, which reveals all keys; use {SHORT_SEED} or more"
    return [Message(Option("seed"), why)]
