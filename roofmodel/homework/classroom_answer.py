"""The answers of `roof homework class` and `grade`: the sheets of a class, and its points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roofmodel.homework.classroom import WrittenClass
from roofmodel.homework.grading import ClassGrades, StudentGrade
from roofmodel.numbers import units
from roofmodel.report.document import Block, Document, Heading, Rows
from roofmodel.report.table import NAME, NUMBER, Column, Table

SHEET_FILES = Table(
    "students",
    [
        Column("student", "student", value=lambda each: each.sheet.student, meaning="the student"),
        Column("file", "file", meaning="the file of the sheet, in the folder"),
        Column("made", value=lambda each: each.sheet.fingerprint, meaning="the version of the sheet"),
    ],
)
QUESTION_POINTS = Table(
    "questions",
    [
        Column("question", "question", meaning="the question, as `problem.question`"),
        Column("points", "points", NUMBER, meaning="the points of a right answer"),
        Column("right", "right", NUMBER, meaning="right answers"),
        Column("answered", "of", NUMBER, meaning="answers that are not blank"),
        Column("unread", "unread", NUMBER, text=lambda each: str(each.unread or ""), meaning="unread answers"),
        Column("hint", "most common mistake", wrap=True, meaning="the most common mistake; null without one"),
        Column("hinted", "times", NUMBER, text=lambda each: str(each.hinted or ""), meaning="how often"),
    ],
)
UNREAD = Table(
    "unread",
    [
        Column("student", "student", meaning="the student"),
        Column("question", "question", unknown="none", meaning="the question; null for a line that belongs to none"),
        Column("answer", "the student's words", wrap=True, meaning="the answer as it is written"),
        Column("file", "file", NAME, meaning="the file, in the folder"),
        Column("line", "line", NUMBER, meaning="its line"),
    ],
)
RULINGS = Table(
    "rulings",
    [
        Column("student", "student", meaning="the student"),
        Column("question", "question", meaning="the question, as `problem.question`"),
        Column("points", "points", NUMBER, meaning="the points that the lecturer gives"),
    ],
)


def class_document(written: WrittenClass) -> Document:
    """The files of the sheets. The seed and the answers are in the key only."""
    sheets = Rows(SHEET_FILES, written.sheets)

    def data() -> dict[str, Any]:
        return {
            "schema": "roofmodel.homework-class/1",
            "sheet": written.name,
            "folder": str(written.folder),
            "key": str(written.key),
            "students": SHEET_FILES.records(written.sheets),
        }

    return Document(f"{written.name}: sheets in {written.folder}", [sheets], data, lambda: sheets)


def grades_document(grades: ClassGrades) -> Document:
    """The points of each student, and what was wrong most often in each question."""
    students = Table(
        "students",
        [
            Column(None, "student", value=lambda each: each.row["student"]),
            Column(None, f"points of {grades.most:g}", NUMBER, value="points", unknown="not graded"),
            Column(None, "right", NUMBER, value=_right),
            Column(None, "unread", NUMBER, value=_unread),
            Column(None, "file", NAME, value="file"),
        ],
    )
    with_file = [each for each in grades.students if each.file is not None]  # a warning lists the others
    blocks: list[Block] = [Rows(students, with_file), Heading("by question"), Rows(QUESTION_POINTS, grades.questions)]
    unread = [answer for each in grades.students for answer in each.unread_answers]
    if unread:
        blocks += [Heading("unread: give points with --override"), Rows(UNREAD, unread)]
    if grades.rulings:
        blocks += [Heading("points given by the lecturer"), Rows(RULINGS, grades.rulings)]

    def data() -> dict[str, Any]:
        return {
            "schema": "roofmodel.homework-grades/1",
            "sheet": grades.name,
            "points": grades.most,
            "students": [
                {
                    "student": each.row["student"],
                    "columns": dict(each.row),
                    "file": each.file,
                    "points": each.points,
                    "questions": dict(each.questions),
                    "unread": sorted(each.unread),
                }
                for each in grades.students
            ],
            "questions": QUESTION_POINTS.records(grades.questions),
            "unread": UNREAD.records(unread),
            "rulings": RULINGS.records(grades.rulings),
            "warnings": list(grades.warnings),
        }

    title = f"{grades.name}: {units.count(len(with_file), 'student')}"
    return Document(title, blocks, data, lambda: Rows(_students(grades), grades.students))


def _students(grades: ClassGrades) -> Table:
    """The CSV: the columns of the roster, the questions, the sum, and the number of unread answers."""
    roster = [Column(name, value=_field(name), meaning="of the roster") for name in grades.columns]
    questions = [
        Column(each.question, value=_cell(each.question), meaning="the points; `-` for a blank, `?` if not read")
        for each in grades.questions
    ]
    sums = [
        Column("points", value=lambda each: UNKNOWN if each.points is None else each.points, meaning="their sum"),
        Column("unread", value=_unread, meaning="the number of `?`"),
    ]
    return Table("students", [*roster, *questions, *sums])


BLANK, UNKNOWN = "-", "?"


def _field(name: str) -> Callable[[StudentGrade], str]:
    return lambda each: each.row[name]


def _cell(question: str) -> Callable[[StudentGrade], float | str]:
    def cell(each: StudentGrade) -> float | str:
        points = each.questions[question]
        return UNKNOWN if question in each.unread else BLANK if points is None else points

    return cell


def _unread(each: StudentGrade) -> int:
    return len(each.unread)


def _right(each: StudentGrade) -> int | None:
    return None if each.answers is None else sum(answer.right for answer in each.answers.graded)
