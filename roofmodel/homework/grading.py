"""The grades of a class: whose each file is, its points, what could not be read, and the rulings of the lecturer."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from roofmodel.errors import AnswerError, Option, RoofError, WorkloadError, shorten
from roofmodel.files.text_files import expand, read_text
from roofmodel.homework.classroom import KEY, SCHEMA, WrittenSheet
from roofmodel.homework.homework import Graded, GradedSheet, SheetSource, graded, same_name, source_of
from roofmodel.homework.roster import Ruling, read_rulings
from roofmodel.homework.submission import Submission, read
from roofmodel.options.values import PathLike


class UnreadAnswer(NamedTuple):
    """An answer that the lecturer has to judge, in the words of the student."""

    student: str
    question: str | None  # None for a line that belongs to no question
    answer: str
    file: str
    line: int | None


class StudentGrade(NamedTuple):
    """The answers of a student; None without a file, or with one that cannot be graded."""

    row: Mapping[str, str]
    file: str | None
    answers: GradedSheet | None
    questions: Mapping[str, float | None]  # points; None for a blank answer and for an unread one
    unread: frozenset[str]  # questions
    unread_answers: tuple[UnreadAnswer, ...] = ()

    @property
    def points(self) -> float | None:
        """The sum of the points; None if nothing was read."""
        if len(self.unread) == len(self.questions):
            return None
        return sum(points for points in self.questions.values() if points is not None)


class QuestionGrade(NamedTuple):
    """How a class answered a question: right answers, all answers, and the most common hint with its number."""

    question: str
    points: float
    right: int
    answered: int
    unread: int
    hint: str | None
    hinted: int


class ClassGrades(NamedTuple):
    """The points of a class."""

    name: str
    columns: tuple[str, ...]
    most: float  # points
    students: tuple[StudentGrade, ...]
    questions: tuple[QuestionGrade, ...]
    rulings: tuple[Ruling, ...]
    warnings: tuple[str, ...]


class _Key(NamedTuple):
    """What grading needs of a key."""

    source: SheetSource
    columns: tuple[str, ...]
    sheets: tuple[WrittenSheet, ...]

    @property
    def points(self) -> dict[str, float]:
        """The points of a right answer to each question."""
        return {f"{p.id}.{each.id}": each.points for p in self.sheets[0].sheet.problems for each in p.questions}


def grade_class(folder: PathLike, key: PathLike, partial: float = 0, override: PathLike | None = None) -> ClassGrades:
    """The points of all answers in a folder and its subfolders.

    Raises WorkloadError for a fraction outside 0 to 1, AnswerError for a folder without files, an invalid key and
    invalid rulings. A file that cannot be graded is a warning.
    """
    if not isinstance(partial, int | float) or not 0 <= partial <= 1:
        raise WorkloadError(Option("partial"), f" is {shorten(partial)}; it must be a fraction from 0 to 1")
    class_key = _read_key(os.fspath(key))
    names = [each.sheet.student for each in class_key.sheets]
    rulings = () if override is None else read_rulings(override, names, class_key.points)
    root = expand(folder)
    if not root.is_dir():
        raise AnswerError(f"{os.fspath(folder)}: no such folder; give the folder with the answers")
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not _is_ignored(path, os.fspath(key))]
    if not files:
        raise AnswerError(f"{os.fspath(folder)}: has no files with answers")
    warnings: list[str] = []
    claims: dict[str, list[_Claim]] = {}
    for path in files:
        claim = _claim(path, class_key)
        if claim.warning:
            warnings.append(claim.warning)
        if claim.student is not None:
            claims.setdefault(claim.student, []).append(claim)
    students = []
    for each in class_key.sheets:
        chosen, warning = _chosen(claims.get(each.sheet.student, []), each.sheet.student, root)
        if warning:
            warnings.append(warning)
        students.append(_student_grade(each, chosen, root, partial))
    if missing := [each.row["student"] for each in students if each.file is None]:
        warnings.append(f"{len(missing)} of {len(students)} students without a file: {', '.join(missing)}")
    blank = [each.row["student"] for each in students if each.answers and not _has_entries(each.answers)]
    if blank:
        warnings.append(f"all answers are blank in the files of: {', '.join(blank)}")
    ruled = tuple(_ruled(each, rulings) for each in students)
    questions = tuple(_question_grades(class_key.points, ruled))
    most = sum(class_key.points.values())
    return ClassGrades(class_key.source.name, class_key.columns, most, ruled, questions, rulings, tuple(warnings))


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


# --- Whose a file is --------------------------------------------------------------------------------


class _Claim(NamedTuple):
    """A file, whose it is, and its graded answers."""

    path: Path
    student: str | None
    answers: GradedSheet | None = None
    warning: str = ""
    evidence: int = 0
    """How many of the file's name, header and numbers are those of this student, less those of others."""


def _is_ignored(path: Path, key: str) -> bool:
    """A key, a hidden file, a copy that an editor keeps."""
    is_copy = path.name.startswith((".", "~$")) or path.name.endswith("~")
    return is_copy or path.name == KEY or path.samefile(expand(key))


def _claim(path: Path, key: _Key) -> _Claim:
    by_file = _matching(path.stem, key, lambda each: Path(each.file).stem)
    try:
        submission = read(path)
    except RoofError as error:
        return _Claim(path, by_file, warning=f"not graded: {error}")
    student, warning, evidence = _owner(submission, by_file, path, key)
    if student is None:
        return _Claim(path, None, warning=warning)
    sheet = next(each.sheet for each in key.sheets if each.sheet.student == student)
    try:
        return _Claim(path, student, graded(submission, sheet), warning, evidence)
    except RoofError as error:
        return _Claim(path, student, None, f"not graded: {error}", evidence)


def _owner(submission: Submission, by_file: str | None, path: Path, key: _Key) -> tuple[str | None, str, int]:
    """The student of a file, a warning, and the evidence for this student.

    The given numbers (`made`) say whose sheet it is where they are those of one student only; a mistyped student in the
    header then changes nothing for either of the two.
    """
    header = submission.header
    made, stated = header.get("made"), header.get("student")
    drawn = [each.sheet.student for each in key.sheets if made and each.sheet.fingerprint == made.text.lower()]
    by_name = _matching(stated.text, key, lambda each: each.sheet.student) if stated else None
    candidates = [each for each in (by_file, by_name) if each and (each in drawn or not drawn)]
    if len(drawn) == 1:
        candidates = drawn
    elif stated and by_name is None and made and not drawn:
        candidates = []  # name and numbers of another class
    student = candidates[0] if candidates else by_name
    if student is None:
        where = f"{path}:{stated.line}: student {shorten(stated.text)} is not in the roster" if stated else ""
        return None, f"not graded: {where or f'{path}: states no student'}", 0
    evidence = (student in drawn) + sum(
        1 if name == student else -1 for name in (by_file, by_name if stated else student) if name
    )
    if stated is None or student == by_name:
        return student, "", evidence
    reason = "its numbers are those" if student in drawn else "its name is that"
    problem = f"states student {shorten(stated.text)}, but {reason} of {student!r}"
    return student, f"{path}:{stated.line}: {problem}; graded as {student!r}", evidence


def _matching(name: str, key: _Key, named: Callable[[WrittenSheet], str]) -> str | None:
    """The student with this name, or the only one with it in another case."""
    for same in (lambda a, b: a == b, same_name):
        found = [each.sheet.student for each in key.sheets if same(name, named(each))]
        if len(found) == 1:
            return found[0]
    return None


def _chosen(claims: Sequence[_Claim], student: str, root: Path) -> tuple[_Claim | None, str]:
    """The file of a student that is graded, the one with most evidence, and a warning."""
    readable = [each for each in claims if each.answers]
    best = [each for each in readable if each.evidence == max(other.evidence for other in readable)]
    names = ", ".join(str(each.path.relative_to(root)) for each in claims)
    if len(best) > 1 and len({repr(each.answers.answers_given) for each in best if each.answers}) > 1:
        found = _Claim(best[0].path, student)
        return found, f"not graded: {len(best)} files have answers of student {student!r}: {names}"
    if not claims:
        return None, ""
    found = (best or claims)[0]
    others = [str(each.path.relative_to(root)) for each in readable if each.path != found.path]
    if not others:
        return found, ""
    return found, f"student {student!r}: {found.path.relative_to(root)} is graded, not {', '.join(others)}"


# --- Points -----------------------------------------------------------------------------------------


def _student_grade(each: WrittenSheet, claim: _Claim | None, root: Path, partial: float) -> StudentGrade:
    ids = [f"{p.id}.{question.id}" for p in each.sheet.problems for question in p.questions]
    if claim is None or claim.answers is None:
        file = None if claim is None else str(claim.path.relative_to(root))
        return StudentGrade(each.row, file, None, dict.fromkeys(ids), frozenset(ids))
    file, answers = str(claim.path.relative_to(root)), claim.answers
    unread = [
        UnreadAnswer(each.sheet.student, id, str(grade.answer), file, grade.entry and grade.entry.line)
        for id, grade in zip(ids, answers.graded, strict=True)
        if not grade.understood
    ]
    lines = [UnreadAnswer(each.sheet.student, None, line.text, file, line.line) for line in answers.unknown]
    points = {
        id: None if grade.answer is None or not grade.understood else grade.points(partial)
        for id, grade in zip(ids, answers.graded, strict=True)
    }
    questions = frozenset(answer.question for answer in unread if answer.question)
    return StudentGrade(each.row, file, answers, points, questions, (*unread, *lines))


def _has_entries(answers: GradedSheet) -> bool:
    return any(each.answer is not None for each in answers.graded) or bool(answers.unknown)


def _ruled(student: StudentGrade, rulings: Sequence[Ruling]) -> StudentGrade:
    """The grade with the lecturer's points in place of those of the answers."""
    own = {each.question: each.points for each in rulings if each.student == student.row["student"]}
    return student._replace(
        questions={**student.questions, **own},
        unread=student.unread - own.keys(),
        unread_answers=tuple(each for each in student.unread_answers if each.question not in own),
    )


def _question_grades(most: Mapping[str, float], students: Sequence[StudentGrade]) -> Iterator[QuestionGrade]:
    answers: dict[str, list[Graded]] = {question: [] for question in most}
    for student in students:
        for question, each in zip(most, student.answers.graded if student.answers else (), strict=False):
            answers[question].append(each)
    for question, grades in answers.items():
        hints = Counter(each.hint for each in grades if each.hint and each.explained)
        hint, count = hints.most_common(1)[0] if hints else (None, 0)
        answered = sum(each.answer is not None for each in grades)
        unread = sum(question in each.unread for each in students if each.answers)
        right = sum(each.right for each in grades)
        yield QuestionGrade(question, most[question], right, answered, unread, hint, count)
