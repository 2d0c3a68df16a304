"""A class: all sheets from a roster with one key, and the points of all answers in a folder."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from roofmodel.errors import AnswerError, Option, OutputError, RoofError, WorkloadError, choices, shorten
from roofmodel.files.text_files import expand, read_text
from roofmodel.homework.answer import answers_in_unit, document
from roofmodel.homework.homework import (
    Graded,
    GradedSheet,
    Sheet,
    SheetSource,
    graded,
    has_answers,
    read_entries,
    same_name,
    source_of,
)
from roofmodel.options.values import PathLike
from roofmodel.report.base import Derivation
from roofmodel.report.latex import check_pdflatex

KEY = "key.json"
SCHEMA = "roofmodel.homework-key/1"
SUFFIXES = ("md", "tex", "json", "yaml", "yml", "txt")
"""Of files with answers."""
SEED_BYTES = 16


class Roster(NamedTuple):
    """The students of a class: the columns of the file, and a row for each student."""

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]


class WrittenSheet(NamedTuple):
    """The sheet of a student, and the name of its file."""

    sheet: Sheet
    row: Mapping[str, str]
    file: str


class WrittenClass(NamedTuple):
    """The sheets of a class."""

    name: str
    folder: Path
    key: Path
    sheets: tuple[WrittenSheet, ...]


class StudentGrade(NamedTuple):
    """The answers of a student; None without a file, or with one that cannot be graded."""

    row: Mapping[str, str]
    file: str | None
    answers: GradedSheet | None
    questions: Mapping[str, float | None]  # points
    points: float | None  # their sum; None if the file cannot be graded


class QuestionGrade(NamedTuple):
    """How a class answered a question: right answers, all answers, and the most common hint with its number."""

    question: str
    points: float
    right: int
    answered: int
    hint: str | None
    hinted: int


class ClassGrades(NamedTuple):
    """The points of a class."""

    name: str
    columns: tuple[str, ...]
    most: float  # points
    students: tuple[StudentGrade, ...]
    questions: tuple[QuestionGrade, ...]
    warnings: tuple[str, ...]


# --- All sheets -------------------------------------------------------------------------------------


def read_roster(path: PathLike) -> Roster:
    """The students in a CSV file with a column `student`. Raises AnswerError, with file and line."""
    name = os.fspath(path)
    try:
        text = read_text(expand(name))
    except (FileNotFoundError, NotADirectoryError):
        raise AnswerError(f"{name}: no such file; give a CSV file with a column 'student'") from None
    except (OSError, ValueError) as error:
        raise AnswerError(f"{name}: cannot be read ({error})") from None
    header = text.split("\n", 1)[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=header.count))
    columns = tuple(column.strip() for column in reader.fieldnames or ())
    if not any(columns):
        raise AnswerError(f"{name}: is empty; its first line is a header with a column 'student'")
    if "student" not in columns:
        raise AnswerError(f"{name}:1: the header has no column 'student'{choices('student', filter(None, columns))}")
    for column in columns:
        if not column or column == "points" or columns.count(column) > 1:
            raise AnswerError(f"{name}:1: column {column!r}: give each column a name of its own, other than 'points'")
    reader.fieldnames = columns
    rows: list[Mapping[str, str]] = []
    lines: dict[str, int] = {}
    try:
        for row in reader:
            if None in row:
                raise AnswerError(f"{name}:{reader.line_num}: more fields than the header has")
            entry = {column: (value or "").strip() for column, value in row.items()}
            student = entry["student"]
            if not any(entry.values()):
                continue
            if student in lines:
                raise AnswerError(f"{name}:{reader.line_num}: student {student!r} is also in line {lines[student]}")
            if not student:
                raise AnswerError(f"{name}:{reader.line_num}: the field 'student' is empty")
            lines[student] = reader.line_num
            rows.append(entry)
    except csv.Error as error:
        raise AnswerError(f"{name}:{reader.line_num}: {error}") from None
    if not rows:
        raise AnswerError(f"{name}: lists no students")
    return Roster(columns, tuple(rows))


def write_class(roster: PathLike, folder: PathLike, sheet: PathLike, seed: str, form: str, force: bool) -> WrittenClass:
    """Write the sheets of all students into a folder, and the key beside it.

    Raises AnswerError for the roster, WorkloadError for the sheet, and OutputError for files that exist: a sheet with
    answers, and the key of another seed or sheet, unless `force` is given.
    """
    students, source = read_roster(roster), source_of(sheet)
    target = expand(folder)
    target = target.resolve() if target.name in ("", "..") else target
    key = target.parent / KEY
    if not target.parent.is_dir():
        raise OutputError(f"{os.fspath(folder)}: folder {str(target.parent)!r} does not exist; create it first")
    if target.exists() and not target.is_dir():
        raise OutputError(f"{os.fspath(folder)}: is a file; name a folder")
    if not force:
        _check_key_replaced(key, source.name, seed)
    secret = seed or secrets.token_hex(SEED_BYTES)
    files: dict[str, str] = {}
    sheets = []
    for row in students.rows:
        file = _file_name(row["student"], files)
        files[file.casefold()] = file
        sheets.append(WrittenSheet(source.sheet(row["student"], secret), row, f"{file}.{form}"))
    for each in () if force else sheets:
        if has_answers(str(target / each.file)):
            raise OutputError(
                f"{target / each.file}: is a sheet with answers; give another folder, or ", Option("force"),
                " to replace it",
            )  # fmt: skip
    written_class = WrittenClass(source.name, target, key, tuple(sheets))
    if form == "pdf":
        check_pdflatex()
    try:
        target.mkdir(exist_ok=True)
        _write_private(key, _key(written_class, source, students.columns, secret))
        for each in sheets:
            Derivation(document(each.sheet)).save(target / each.file)
    except OSError as error:
        raise OutputError(f"{error.filename or target}: cannot be written ({error.strerror})") from None
    return written_class


def _check_key_replaced(key: Path, name: str, seed: str) -> None:
    """Raises OutputError if this would replace the key of another class."""
    if not key.exists():
        return
    try:
        before = json.loads(read_text(key))
        same = bool(seed) and (before["seed"], before["sheet"]) == (seed, name)
    except (OSError, ValueError, TypeError, KeyError):
        same = False
    if not same:
        raise OutputError(
            f"{key} is the key of sheets that exist. To add students, give its seed: ", Option("seed", "SEED"),
            ". For another sheet, give a folder in another directory, such as week2/sheets. ", Option("force"),
            " replaces the key; the old sheets can then no longer be graded",
        )  # fmt: skip


def _file_name(student: str, file_names: Mapping[str, str]) -> str:
    """A name that any file system accepts, and that no other student has, also where case does not count."""
    stem = re.sub(r"[^\w.@+-]+", "_", student).strip("._") or "student"
    stem = f"{stem}_" if stem.casefold() == "key" else stem
    name, number = stem, 2
    while name.casefold() in file_names:
        name, number = f"{stem}-{number}", number + 1
    return name


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _key(written_class: WrittenClass, source: SheetSource, columns: Sequence[str], seed: str) -> str:
    students = [
        {"row": dict(row), "file": file, "made": sheet.fingerprint, "answers": answers_in_unit(sheet)}
        for sheet, row, file in written_class.sheets
    ]
    own = {"problems": source.text} if source.text else {}
    data = {
        "schema": SCHEMA,
        "sheet": written_class.name,
        "seed": seed,
        "columns": list(columns),
        **own,
        "students": students,
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


# --- All answers ------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """What grading needs of a key."""

    source: SheetSource
    columns: tuple[str, ...]
    sheets: tuple[WrittenSheet, ...]


def grade_class(folder: PathLike, key: PathLike, partial: float = 0) -> ClassGrades:
    """The points of all answers in a folder and its subfolders.

    Raises WorkloadError for a fraction outside 0 to 1, AnswerError for a folder without files and an invalid key. A
    file that cannot be graded is a warning.
    """
    if not isinstance(partial, int | float) or not 0 <= partial <= 1:
        raise WorkloadError(Option("partial"), f" is {shorten(partial)}; it must be a fraction from 0 to 1")
    class_key = _read_key(os.fspath(key))
    root = expand(folder)
    if not root.is_dir():
        raise AnswerError(f"{os.fspath(folder)}: no such folder; give the folder with the answers")
    files = sorted(path for path in root.rglob("*") if path.suffix[1:].lower() in SUFFIXES and path.is_file())
    files = [path for path in files if not path.name.startswith(".") and not _is_key(path, os.fspath(key))]
    if not files:
        raise AnswerError(f"{os.fspath(folder)}: has no files with answers ({', '.join(f'.{s}' for s in SUFFIXES)})")
    warnings: list[str] = []
    answers: dict[str, list[tuple[Path, GradedSheet | None]]] = {}
    for path in files:
        student, result, problem = _graded_file(path, class_key)
        if problem:
            warnings.append(f"{problem}; not graded")
        if student is not None:
            answers.setdefault(student, []).append((path, result))
    students = []
    for each in class_key.sheets:
        submissions = answers.get(each.sheet.student, [])
        if len(submissions) > 1:
            names = ", ".join(str(path.relative_to(root)) for path, _ in submissions)
            warnings.append(
                f"{len(submissions)} files have answers of student {each.sheet.student!r}: {names}; not graded"
            )
        students.append(_student_grade(each, submissions, root, partial))
        warnings.extend(_unreadable(students[-1]))
    if missing := [each.row["student"] for each in students if each.file is None]:
        warnings.append(f"{len(missing)} of {len(students)} students without a file: {', '.join(missing)}")
    problems = class_key.sheets[0].sheet.problems
    most = {f"{p.id}.{question.id}": question.points for p in problems for question in p.questions}
    questions = tuple(_question_grades(most, students))
    return ClassGrades(
        class_key.source.name, class_key.columns, sum(most.values()), tuple(students), questions, tuple(warnings)
    )


def _read_key(path: str) -> _Key:
    expected = f"give the {KEY} that `roof homework class` wrote"
    try:
        data = json.loads(read_text(expand(path)))
    except (FileNotFoundError, NotADirectoryError):
        raise AnswerError(f"{path}: no such file; {expected}") from None
    except (OSError, ValueError, RecursionError):
        raise AnswerError(f"{path}: not a JSON file; {expected}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise AnswerError(f"{path}: not the key of a class; {expected}")
    try:
        source = source_of(data["sheet"], data.get("problems", ""))
        sheets = []
        for each in data["students"]:
            sheet = source.sheet(each["row"]["student"], data["seed"])
            if sheet.fingerprint != each["made"]:
                raise AnswerError(f"{path}: was written by another version of roofmodel, whose problems differ")
            sheets.append(WrittenSheet(sheet, each["row"], each["file"]))
        return _Key(source, tuple(data["columns"]), tuple(sheets))
    except (KeyError, TypeError, AttributeError, IndexError):
        raise AnswerError(f"{path}: the key is incomplete; {expected}") from None


def _is_key(path: Path, key: str) -> bool:
    return path.name == KEY or path.samefile(expand(key))


def _graded_file(path: Path, key: _Key) -> tuple[str | None, GradedSheet | None, str]:
    """The student of a file, the graded answers, and what prevents grading."""
    by_file = [each.sheet.student for each in key.sheets if Path(each.file).stem == path.stem]
    student = by_file[0] if by_file else None
    try:
        entries = read_entries(path)
        if "student" in entries:
            written = entries["student"].text()
            names = [each.sheet.student for each in key.sheets if each.sheet.student == written]
            names = names or [each.sheet.student for each in key.sheets if same_name(written, each.sheet.student)]
            if len(names) != 1:
                return None, None, f"{path}:{entries['student'].line}: student {shorten(written)} is not in the roster"
            student = names[0]
        if student is None:
            return None, None, f"{path}: states no student"
        sheet = next(each.sheet for each in key.sheets if each.sheet.student == student)
        return student, graded(entries, sheet), ""
    except RoofError as error:
        if student is None:  # an invalid file may still tell whose it is
            text = path.read_text(encoding="utf-8", errors="replace")
            student = next((each.sheet.student for each in key.sheets if _states(text, each.sheet.student)), None)
        return student, None, str(error)


def _states(text: str, student: str) -> bool:
    return f"\nstudent: {json.dumps(student, ensure_ascii=False)}\n" in text


def _student_grade(
    each: WrittenSheet, submissions: Sequence[tuple[Path, GradedSheet | None]], root: Path, partial: float
) -> StudentGrade:
    blank = {f"{p.id}.{question.id}": None for p in each.sheet.problems for question in p.questions}
    if not submissions:
        return StudentGrade(each.row, None, None, blank, 0)
    path, answers = submissions[0]
    file = str(path.relative_to(root))
    if len(submissions) > 1 or answers is None:
        return StudentGrade(each.row, file, None, blank, None)
    points = answers.points(partial)
    return StudentGrade(each.row, file, answers, points, sum(points.values()))


def _unreadable(student: StudentGrade) -> Iterator[str]:
    """A warning for each answer that is neither a number nor a ceiling: its student may have meant the right one."""
    for problem, graded_answers in student.answers.problems if student.answers else ():
        for each in graded_answers:
            if not each.understood:
                written = shorten(each.answer) if each.answer else "an answer that is not one value"
                yield (
                    f"student {student.row['student']!r}, {problem.id}.{each.question.id}: {written} cannot be read; "
                    f"it counts as wrong ({student.file})"
                )


def _question_grades(most: Mapping[str, float], students: Sequence[StudentGrade]) -> Iterator[QuestionGrade]:
    answers: dict[str, list[Graded]] = {question: [] for question in most}
    for student in students:
        for problem, graded_answers in student.answers.problems if student.answers else ():
            for each in graded_answers:
                answers[f"{problem.id}.{each.question.id}"].append(each)
    for question, grades in answers.items():
        hints = Counter(each.hint for each in grades if each.hint and each.explained)
        hint, count = hints.most_common(1)[0] if hints else (None, 0)
        answered = sum(each.answer is not None for each in grades)
        yield QuestionGrade(question, most[question], sum(each.right for each in grades), answered, hint, count)
