"""The Python functions of `roof homework`: problem sheets and their check."""

from __future__ import annotations

from roofmodel.homework.report import HomeworkSheet
from roofmodel.options import arguments
from roofmodel.options.arguments import PathLike
from roofmodel.options.values import SheetName
from roofmodel.report.derivation import Derivation


def homework(student: str, sheet: SheetName = "lectures", *, seed: str = "", key: bool = False) -> HomeworkSheet:
    """A student's sheet of problems with blanks; with `key` the answers and their derivations.

    `sheet` is lectures, rooflines, transformers, measuring, scaling or runs. The numbers depend on `student` and on
    `seed`; without a secret `seed`, students can print the key. Raises WorkloadError.

    Examples:
        >>> homework("1001", "rooflines").to_dict()["sheet"]
        'rooflines'
    """
    from roofmodel.homework.document import document
    from roofmodel.homework.homework import sheet as study

    arguments.check_required_texts(student=student, sheet=sheet, seed=seed)
    return HomeworkSheet(document(study(student, sheet, seed), key))


def check_homework(answers: PathLike, student: str, sheet: SheetName | None = None, *, seed: str = "") -> Derivation:
    """The right and wrong answers of a completed sheet, with the likely mistake in each wrong one.

    Raises AnswerError for a file without answers.

    Examples:
        >>> check_homework("answers.yaml", "Ada")  # doctest: +SKIP
    """
    from roofmodel.homework.document import report
    from roofmodel.homework.homework import check

    arguments.check_texts(sheet=sheet)
    arguments.check_required_texts(student=student, seed=seed)
    return Derivation(report(check(arguments.path("answers", answers), student, sheet, seed)))
