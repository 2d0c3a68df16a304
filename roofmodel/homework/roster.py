"""CSV files that a lecturer writes: the roster of a class, and rulings on answers."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from roofmodel.errors import AnswerError, choices, shorten
from roofmodel.homework.submission import read_any_text
from roofmodel.options.values import PathLike

RESERVED = ("points", "unread")
"""Columns of the grades, which a roster therefore cannot have."""


class Roster(NamedTuple):
    """The students of a class: the columns of the file, and a row for each student."""

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]


class Ruling(NamedTuple):
    """The points that a lecturer gives for an answer."""

    student: str
    question: str  # as `problem.question`
    points: float


def read_roster(path: PathLike) -> Roster:
    """The students in a CSV file with a column `student`. Raises AnswerError, with file and line."""
    name = os.fspath(path)
    columns, rows = _table(name, ("student",))
    for column in columns:
        if not column or column in RESERVED or columns.count(column) > 1:
            reserved = " and ".join(map(repr, RESERVED))
            raise AnswerError(f"{name}:1: column {column!r}: give each column a name of its own, other than {reserved}")
    lines: dict[str, int] = {}
    for line, row in rows:
        student = row["student"]
        if student in lines:
            raise AnswerError(f"{name}:{line}: student {student!r} is also in line {lines[student]}")
        if not student:
            raise AnswerError(f"{name}:{line}: the field 'student' is empty")
        lines[student] = line
    if not rows:
        raise AnswerError(f"{name}: lists no students")
    return Roster(columns, tuple(row for _, row in rows))


def read_rulings(path: PathLike, students: Sequence[str], points: Mapping[str, float]) -> tuple[Ruling, ...]:
    """The rulings in a CSV file; `points` are those of a right answer to each question. Raises AnswerError, with line.

    The columns are student, question and points; others are ignored.
    """
    name = os.fspath(path)
    rulings: dict[tuple[str, str], Ruling] = {}
    for line, row in _table(name, ("student", "question", "points"))[1]:
        student, question, given = row["student"], row["question"], row["points"]
        if student not in students:
            raise AnswerError(f"{name}:{line}: student {shorten(student)} is not in the roster")
        if question not in points:
            raise AnswerError(f"{name}:{line}: unknown question {shorten(question)}{choices(question, points)}")
        try:
            value = float(given.replace(",", "."))
        except ValueError:
            value = -1.0
        if not 0 <= value <= points[question]:
            raise AnswerError(
                f"{name}:{line}: points is {shorten(given)}; it must be a number from 0 to {points[question]:g}"
            )
        if (student, question) in rulings:
            raise AnswerError(f"{name}:{line}: student {student!r} has another ruling on {question}")
        rulings[student, question] = Ruling(student, question, value)
    return tuple(rulings.values())


def _table(name: str, required: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[int, Mapping[str, str]]]]:
    """The columns and the rows, each with its line. Raises AnswerError."""
    wanted = f"a CSV file with {'a column' if len(required) == 1 else 'the columns'} {', '.join(map(repr, required))}"
    text = read_any_text(name, wanted)
    header = text.split("\n", 1)[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=header.count))
    columns = tuple(column.strip() for column in reader.fieldnames or ())
    if not any(columns):
        raise AnswerError(f"{name}: is empty; its first line is a header; give {wanted}")
    for column in required:
        if column not in columns:
            known = choices(column, filter(None, columns))
            raise AnswerError(f"{name}:1: the header has no column {column!r}{known}")
    reader.fieldnames = columns
    rows: list[tuple[int, Mapping[str, str]]] = []
    try:
        for row in reader:
            if None in row:
                raise AnswerError(f"{name}:{reader.line_num}: more fields than the header has")
            entry = {column: (value or "").strip() for column, value in row.items()}
            if any(entry.values()):
                rows.append((reader.line_num, entry))
    except csv.Error as error:
        raise AnswerError(f"{name}:{reader.line_num}: {error}") from None
    return columns, rows
