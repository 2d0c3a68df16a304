"""`roof homework` and its functions: problem sheets and their check, for one student and for a class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from roofmodel.errors import Option
from roofmodel.options import values
from roofmodel.options.signature import Settings, checked
from roofmodel.options.values import PathLike
from roofmodel.report.base import Derivation, Result
from roofmodel.report.command import CommandCall, CommandGroup, CommandLine
from roofmodel.report.printing import present, print_line

if TYPE_CHECKING:
    from roofmodel.homework.classroom import WrittenClass
    from roofmodel.homework.grading import ClassGrades
    from roofmodel.report.document import Document


class HomeworkSheet(Derivation):
    """Result of `homework`: a sheet of problems, or its key. Notes for the lecturer are not part of it."""

    def complete(self) -> Document:
        """The sheet."""
        return self.document

    @classmethod
    def check_replaced(cls, path: PathLike) -> None:
        """Raises OutputError if the file is a sheet with answers."""
        from roofmodel.errors import Option, OutputError
        from roofmodel.homework.homework import has_answers

        file = values.path("path", path)
        if has_answers(file):
            raise OutputError(
                f"{file}: is a sheet with answers; give another name, or ", Option("force"),
                " to replace it",
            )  # fmt: skip


class HomeworkClass(Result):
    """Result of `homework_class`: the sheets of a class, which are written."""

    FILES: ClassVar[Sequence[str]] = ()

    def __init__(self, written: WrittenClass, notes: Sequence[str] = ()) -> None:
        self.written = written
        self._notes = tuple(notes)

    def answer(self) -> Document:
        """The files of the sheets. The seed and the answers are in the key only."""
        from roofmodel.homework.classroom_answer import class_document

        return class_document(self.written)

    def _messages(self) -> Sequence[str]:
        return self._notes

    def __repr__(self) -> str:
        return f"<HomeworkClass: {len(self.written.sheets)} sheets in {self.written.folder}>"


class HomeworkGrades(Result):
    """Result of `grade_homework`: the points of each student and question."""

    def __init__(self, grades: ClassGrades) -> None:
        self.grades = grades

    def answer(self) -> Document:
        """The points of each student, and what was wrong most often in each question."""
        from roofmodel.homework.classroom_answer import grades_document

        return grades_document(self.grades)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Files that cannot be graded, mistakes in headers, blank sheets, and students without a file."""
        return self.grades.warnings

    def __repr__(self) -> str:
        return f"<HomeworkGrades: {self.grades.name}, {len(self.grades.students)} students>"


@checked
def homework(student: str, sheet: PathLike = "lectures", *, seed: str = "", key: bool = False) -> HomeworkSheet:
    """Write the problem sheet of a student, or its answers.

    Raises WorkloadError, or AnswerError for a YAML file of problems that is not valid.

    Args:
        student: Name or number of the student; it determines the numbers in the problems.
        sheet: lectures, rooflines, transformers, measuring, scaling, training, runs or slides; or a YAML file.
        seed: The lecturer's secret; without it, students can print the key.
        key: Write the answers with their derivations, for the lecturer.

    Examples:
        >>> homework("1001", "rooflines").to_dict()["sheet"]
        'rooflines'
    """
    from roofmodel.homework.answer import document
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
    from roofmodel.homework.answer import report
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
        sheet: lectures, rooflines, transformers, measuring, scaling, training, runs or slides; or a YAML file.
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
def grade_homework(
    folder: PathLike, key: PathLike, *, partial: float = 0, override: PathLike | None = None
) -> HomeworkGrades:
    """Grade the answers of a class: a row for each student, a column for each question, and the sum of the points.

    Raises AnswerError for a folder without files, for an invalid key and for invalid rulings.

    Args:
        folder: Folder with the answers, also in subfolders.
        key: The key.json that was written with the sheets.
        partial: Fraction of the points for a wrong answer that a common mistake explains, such as 0.5.
        override: CSV file with the columns student, question and points: rulings that replace points.

    Examples:
        >>> grade_homework("answers", "key.json")  # doctest: +SKIP
    """
    from roofmodel.homework.grading import grade_class

    rulings = None if override is None else values.path("override", override)
    return HomeworkGrades(grade_class(values.path("folder", folder), values.path("key", key), partial, rulings))


@checked
def homework_practice(sheet: PathLike = "lectures") -> Derivation:
    """Practice in a terminal: one question at a time, each answer with its formula, and new numbers each time.

    Wrong answers are asked again. Raises WorkloadError without a terminal and for an unknown sheet.

    Args:
        sheet: lectures, rooflines, transformers, measuring, scaling, training, runs or slides; or a YAML file.

    Examples:
        >>> homework_practice("rooflines")  # doctest: +SKIP
    """
    from roofmodel.homework.answer import practice_report
    from roofmodel.homework.homework import source_of
    from roofmodel.homework.practice import in_terminal

    source = source_of(values.path("sheet", sheet))
    return Derivation(practice_report(source.name, in_terminal(source)))


def _notes(seed: str) -> list[Any]:
    """A note on a seed that students can find."""
    from roofmodel.errors import Message
    from roofmodel.homework.homework import SHORT_SEED

    if not 0 < len(seed) < SHORT_SEED:
        return []
    why = f" has {len(seed)} characters and can be guessed, which reveals all keys; use {SHORT_SEED} or more"
    return [Message(Option("seed"), why)]


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
GRADE_SETTINGS: Settings = {
    "folder": {"metavar": "FOLDER"},
    "key": {"metavar": "FILE"},
    "override": {"metavar": "ANSWERS.csv"},
}


def _new(call: CommandCall, form: Any, output: Sequence[str], force: bool = False) -> None:
    """Present a sheet or its key; it does not replace a sheet with answers without `force`.

    Args:
        force: Replace an existing sheet, even if it has answers.
    """
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


def _practice(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    """Ask, and print how many answers were right."""
    present(call(), "table")


COMMAND = CommandGroup(
    "Write problem sheets with different numbers for each student, and check the answers.",
    (
        CommandLine(homework, name="new", settings=SETTINGS, run=_new),
        CommandLine(check_homework, name="check", settings=SETTINGS),
        CommandLine(
            homework_practice,
            name="practice",
            settings={"sheet": {"metavar": "[SHEET]"}},
            run=_practice,
            formats=(),
            files="",
        ),
        CommandLine(homework_class, name="class", settings=CLASS_SETTINGS, run=_class),
        CommandLine(grade_homework, name="grade", settings=GRADE_SETTINGS),
    ),
    examples=(
        "roof homework new --student 1001 -o sheet.md",
        "roof homework check sheet.md --student 1001",
        "roof homework practice rooflines",
        "roof homework class roster.csv -o sheets",
        "roof homework grade answers --key key.json -o grades.csv",
    ),
)
