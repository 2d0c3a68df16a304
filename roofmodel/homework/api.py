"""The Python functions of `roof homework`: problem sheets and their check."""

from __future__ import annotations

from roofmodel.homework.report import HomeworkSheet
from roofmodel.options import arguments
from roofmodel.options.arguments import PathLike
from roofmodel.options.signature import checked
from roofmodel.options.values import SheetName
from roofmodel.report.derivation import Derivation


@checked
def homework(student: str, sheet: SheetName = "lectures", *, seed: str = "", key: bool = False) -> HomeworkSheet:
    """Write the problem sheet of a student, or its answers.

    Raises WorkloadError.

    Args:
        student: Name or number of the student; it determines the numbers in the problems.
        sheet: Sheet: lectures, rooflines, transformers, measuring, scaling or runs.
        seed: The lecturer's secret; without it, students can print the key.
        key: Write the answers with their derivations, for the lecturer.

    Examples:
        >>> homework("1001", "rooflines").to_dict()["sheet"]
        'rooflines'
    """
    from roofmodel.homework.document import document
    from roofmodel.homework.homework import sheet as study

    return HomeworkSheet(document(study(student, sheet, seed), key))


@checked
def check_homework(answers: PathLike, student: str, sheet: SheetName | None = None, *, seed: str = "") -> Derivation:
    """Check the answers of a student, and name the likely mistake in each wrong answer.

    Raises AnswerError for a file without answers.

    Args:
        answers: The completed sheet, or a YAML file with the answers.
        student: Name or number of the student; it determines the numbers in the problems.
        sheet: Name of the sheet, if the answers do not state it.
        seed: The lecturer's secret; without it, students can print the key.

    Examples:
        >>> check_homework("answers.yaml", "Ada")  # doctest: +SKIP
    """
    from roofmodel.homework.document import report
    from roofmodel.homework.homework import check

    return Derivation(report(check(arguments.path("answers", answers), student, sheet, seed)))
