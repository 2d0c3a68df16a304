"""The results of the homework functions: a sheet, the sheets of a class, the points of a class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import FileResult, TextResult
from roofmodel.report.derivation import Derivation
from roofmodel.report.table import NAME, NUMBER, Column, Table

if TYPE_CHECKING:
    import pandas

    from roofmodel.homework.classroom import ClassGrades, StudentGrade, WrittenClass
    from roofmodel.report.document import Document

SHEETS = Table(
    "students",
    [
        Column("student", "student", value=lambda each: each.sheet.student, meaning="the student"),
        Column("file", "file", meaning="the file of the sheet, in the folder"),
        Column("made", value=lambda each: each.sheet.fingerprint, meaning="the version of the sheet"),
    ],
)
QUESTIONS = Table(
    "questions",
    [
        Column("question", "question", meaning="the question, as `problem.question`"),
        Column("points", "points", NUMBER, meaning="the points of a right answer"),
        Column("right", "right", NUMBER, meaning="right answers"),
        Column("answered", "of", NUMBER, meaning="answers that are not blank"),
        Column("hint", "most common mistake", wrap=True, meaning="the most common mistake; null without one"),
        Column("hinted", "times", NUMBER, text=lambda each: str(each.hinted or ""), meaning="how often"),
    ],
)


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


class HomeworkClass(TextResult):
    """Result of `homework_class`: the sheets of a class, which are written."""

    def __init__(self, written: WrittenClass, notes: Sequence[str] = ()) -> None:
        self.written = written
        self._notes = tuple(notes)

    def _messages(self) -> Sequence[str]:
        return self._notes

    def to_dict(self) -> dict[str, Any]:
        """The document that `--format json` prints. The seed and the answers are in the key only."""
        return {
            "schema": "roofmodel.homework-class/1",
            "sheet": self.written.name,
            "folder": str(self.written.folder),
            "key": str(self.written.key),
            "students": SHEETS.records(self.written.sheets),
        }

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.report.encoding import as_json

        return {"json": lambda: as_json(self.to_dict())}

    def __rich__(self) -> Any:
        return SHEETS.terminal(self.written.sheets)

    def __repr__(self) -> str:
        return f"<HomeworkClass: {len(self.written.sheets)} sheets in {self.written.folder}>"


class HomeworkGrades(TextResult, FileResult):
    """Result of `grade_homework`: the points of each student and question."""

    def __init__(self, grades: ClassGrades) -> None:
        self.grades = grades

    @property
    def warnings(self) -> tuple[str, ...]:
        """Files that cannot be graded, answers that cannot be read, and students without a file."""
        return self.grades.warnings

    def to_dict(self) -> dict[str, Any]:
        """The document that `--format json` prints."""
        return {
            "schema": "roofmodel.homework-grades/1",
            "sheet": self.grades.name,
            "points": self.grades.most,
            "students": [
                {
                    "student": each.row["student"],
                    "columns": dict(each.row),
                    "file": each.file,
                    "points": each.points,
                    "questions": dict(each.questions),
                }
                for each in self.grades.students
            ],
            "questions": QUESTIONS.records(self.grades.questions),
            "warnings": list(self.warnings),
        }

    def to_frame(self) -> pandas.DataFrame:
        """A row for each student, with the columns of the CSV."""
        return self._table.frame(self.grades.students)

    @property
    def _table(self) -> Table:
        """The CSV: the columns of the roster, the questions, the sum."""
        roster = [Column(name, value=_field(name), meaning="of the roster") for name in self.grades.columns]
        questions = [
            Column(each.question, value=_points(each.question), meaning="the points of this question")
            for each in self.grades.questions
        ]
        return Table("students", [*roster, *questions, Column("points", meaning="their sum")])

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return ("csv", "json")

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.report.encoding import as_json

        return {"json": lambda: as_json(self.to_dict()), "csv": lambda: self._table.csv(self.grades.students)}

    def save(self, path: PathLike) -> Path:
        """Write csv or json, by the suffix."""
        from roofmodel.files import output_files

        return output_files.write(values.path("path", path), None, self._texts())

    def __rich__(self) -> Any:
        from rich.console import Group

        students = Table(
            "students",
            [
                Column(None, "student", value=lambda each: each.row["student"]),
                Column(None, f"points of {self.grades.most:g}", NUMBER, value="points", unknown="not graded"),
                Column(None, "right", NUMBER, value=_right),
                Column(None, "file", NAME, value="file"),
            ],
        )
        with_file = [each for each in self.grades.students if each.file is not None]  # a warning lists the others
        return Group(students.terminal(with_file), "", QUESTIONS.terminal(self.grades.questions))

    def __repr__(self) -> str:
        return f"<HomeworkGrades: {self.grades.name}, {len(self.grades.students)} students>"


def _field(name: str) -> Callable[[StudentGrade], str]:
    return lambda each: each.row[name]


def _points(question: str) -> Callable[[StudentGrade], float | None]:
    return lambda each: each.questions[question]


def _right(each: StudentGrade) -> int | None:
    return None if each.answers is None else sum(answer.right for answer in each.answers.graded)
