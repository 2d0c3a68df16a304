"""Homework sheets with individual numbers for each student, and grading of answers with hints.

A hash of the lecturer's seed, the sheet, the student and the problem selects the numbers. The same sheet can therefore
be made again at any time, and answers are not stored.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from roofmodel.errors import AnswerError, Option, WorkloadError, choices, shorten
from roofmodel.files.text_files import expand
from roofmodel.homework import answers as written_answers
from roofmodel.homework.generator import ProblemSet, packaged, parsed_problems, read_problems
from roofmodel.homework.problem import CEILINGS, Draw, Problem, Question
from roofmodel.homework.submission import Answers, Entry, Submission, read, read_any_text
from roofmodel.options.values import PathLike

SHEETS = {
    "lectures": ("stream", "matmul", "stencil", "block", "phases", "kv", "decode", "counters", "achieved"),
    "rooflines": ("stream", "matmul", "stencil", "achieved"),
    "transformers": ("block", "phases", "kv", "decode"),
    "measuring": ("stream", "counters", "achieved"),
    "scaling": ("convolution", "loader", "shared", "replicas", "experts"),
    "training": ("training_memory", "padding"),
    "runs": ("timeline", "stall", "late", "gaps"),
    "slides": ("slide_crossover", "slide_stencil", "slide_parameters", "slide_means"),
}
"""The problems of each sheet, by its name."""
MAX_STUDENT_LENGTH = 100
POWERS_OF_1000 = (-4, -3, -2, -1, 1, 2, 3, 4)
SHORT_SEED = 16
"""Characters; a seed with fewer can be found by trying words."""
HARDNESS = 2**16  # of scrypt: each try of a seed takes 64 MiB and some tenths of a second


class Sheet(NamedTuple):
    """The problems of one student."""

    name: str
    student: str
    problems: tuple[Problem, ...]
    seeded: bool = False  # with a secret seed, students cannot check their own answers

    @property
    def fingerprint(self) -> str:
        """A hash of the given numbers, which differs between seeds. It does not depend on the wording or on answers."""
        numbers = [
            [question.id, *map(str, question.values.values())] for p in self.problems for question in p.questions
        ]
        return hashlib.blake2b(json.dumps(numbers).encode(), digest_size=4).hexdigest()


class Graded(NamedTuple):
    """A question with its graded answer: in base units, or the name of a ceiling, or None if it is blank.

    If the meaning of an answer is not clear, `understood` is False and `answer` is the text of the file.
    """

    question: Question
    answer: float | str | None
    right: bool
    hint: str | None = None
    understood: bool = True
    explained: bool = False  # whether a common mistake explains a wrong number
    entry: Entry | None = None  # the answer as it is written

    def points(self, partial: float = 0) -> float:
        """The points of the question, of which a wrong answer that a common mistake explains gets a fraction."""
        return self.question.points * (1 if self.right else partial if self.explained else 0)


class GradedSheet(NamedTuple):
    """The graded answers of a sheet, by problem."""

    sheet: Sheet
    problems: tuple[tuple[Problem, tuple[Graded, ...]], ...]
    unknown: tuple[Entry, ...] = ()  # lines that belong to no question

    @property
    def graded(self) -> list[Graded]:
        return [graded for _, answers in self.problems for graded in answers]

    @property
    def answers_given(self) -> list[float | str | None]:
        """The answers without their grades."""
        return [each.answer for each in self.graded]

    @property
    def score(self) -> float:
        """The fraction of the questions with a right answer."""
        return sum(graded.right for graded in self.graded) / len(self.graded)

    def points(self, partial: float = 0) -> dict[str, float]:
        """The points of each question, as `problem.question`."""
        return {f"{p.id}.{each.question.id}": each.points(partial) for p, answers in self.problems for each in answers}


class SheetSource(NamedTuple):
    """The problems of a sheet, before numbers are drawn."""

    name: str
    problems: ProblemSet
    ids: tuple[str, ...]
    text: str = ""  # of a lecturer's file

    def sheet(self, student: str, seed: str = "") -> Sheet:
        """The sheet of a student. Raises WorkloadError for an unusable student name."""
        student = student.strip()
        if not (student.isprintable() and 0 < len(student) <= MAX_STUDENT_LENGTH):
            raise WorkloadError(
                Option("student"),
                f" is {shorten(student)}; it must be a name or number of 1 to {MAX_STUDENT_LENGTH} characters",
            )
        secret = _secret(seed) if seed else ""
        drawn = (self.problems.problem(id, hashed_draw(secret, self.name, student, id)) for id in self.ids)
        return Sheet(self.name, student, tuple(drawn), bool(seed))


def source_of(sheet: PathLike, text: str = "") -> SheetSource:
    """The problems of a packaged sheet, of a lecturer's YAML file, or of its `text`.

    Raises WorkloadError for an unknown name, AnswerError for an invalid file.
    """
    name = os.fspath(sheet)
    if name in SHEETS and not text:
        return SheetSource(name, packaged(), SHEETS[name])
    if text:
        problems = parsed_problems(text, name)
    elif name.endswith((".yaml", ".yml")):
        try:
            problems, text = read_problems(expand(name))
        except FileNotFoundError:
            raise WorkloadError(Option("sheet"), f": {name}: no such file") from None
    else:
        known_sheets = choices(name, SHEETS)
        raise WorkloadError(
            Option("sheet"), f": unknown value {shorten(name)}{known_sheets}; or a YAML file of problems"
        )
    return SheetSource(expand(name).stem, problems, problems.order, text)


def sheet(student: str, name: PathLike = "lectures", seed: str = "") -> Sheet:
    """The sheet of a student. Raises WorkloadError for an unknown sheet or an unusable student name."""
    return source_of(name).sheet(student, seed)


@cache
def _secret(seed: str) -> str:
    """A key that is slow to compute, so that a sheet does not confirm a guess of its seed cheaply."""
    key = hashlib.scrypt(seed.encode(), salt=b"roofmodel homework", n=HARDNESS, r=8, p=1, maxmem=2**27)
    return key.hex()


def hashed_draw(*key: str) -> Draw:
    """A Draw that selects options by a hash of the key and the drawn quantity's name, independent of other draws."""

    def draw(name: str, options: Sequence[Any]) -> Any:
        digest = hashlib.blake2b(json.dumps([*key, name]).encode(), digest_size=8).digest()
        return options[int.from_bytes(digest, "big") % len(options)]

    return draw


# --- Answers ----------------------------------------------------------------------------------------


def check(answers: Answers, student: str, name: PathLike | None = None, seed: str = "") -> GradedSheet:
    """Grade answers: a YAML file, a completed sheet (Markdown, LaTeX, JSON), or a dictionary.

    An answer whose meaning is not clear is unread, neither right nor wrong. Raises AnswerError, with file and line, for
    a file that does not contain answers to this sheet.
    """
    submission = read(answers)
    header = submission.header
    if name is None and "sheet" in header and header["sheet"].text not in SHEETS:
        written = header["sheet"].text
        raise header["sheet"].error(
            f"unknown sheet {shorten(written)}{choices(written, SHEETS)}; for problems of your own, give their file: ",
            Option("sheet", f"{written}.yaml"),
        )
    student_sheet = sheet(student, name or (header["sheet"].text if "sheet" in header else "lectures"), seed)
    if "student" in header and not same_name(header["student"].text, student_sheet.student):
        raise header["student"].error(
            f"these are answers of student {shorten(header['student'].text)}, not of {student_sheet.student!r}; check ",
            Option("student"),
        )
    result = graded(submission, student_sheet)
    if result.unknown:
        line, ids = result.unknown[0], [p.id for p in student_sheet.problems]
        word = line.text.partition(":")[0]
        known = dict.fromkeys([*ids, *(question.id for p in student_sheet.problems for question in p.questions)])
        raise line.error(f"unknown key {word!r}{choices(word, known)}")
    return result


def graded(submission: Submission, student_sheet: Sheet) -> GradedSheet:
    """Grade the answers to a sheet. Raises AnswerError for the answers to another sheet."""
    _check_same_sheet(submission, student_sheet)
    answers, unknown = submission.answers({p.id: [each.id for each in p.questions] for p in student_sheet.problems})
    problems = (
        (p, tuple(grade(question, answers.get((p.id, question.id))) for question in p.questions))
        for p in student_sheet.problems
    )
    return GradedSheet(student_sheet, tuple(problems), tuple(unknown))


def has_answers(path: str) -> bool:
    """Whether a file is a student's sheet with answers. A sheet that cannot be read counts as one with answers."""
    try:
        text = read_any_text(path)
    except AnswerError:  # no such file, or not a text file
        return False
    try:
        return not re.search(_KEY_TITLE, text, re.MULTILINE) and read(path).has_answers
    except AnswerError:
        return _ANSWERS in text


_ANSWERS, _KEY_TITLE = "\nanswers:", r"^(# |\\section\*\{)Key: "


def _check_same_sheet(submission: Submission, student_sheet: Sheet) -> None:
    """Raises AnswerError if the answers belong to another sheet."""
    header = submission.header
    if "sheet" in header and header["sheet"].text.lower() != student_sheet.name.lower():
        written = header["sheet"].text
        raise header["sheet"].error(
            f"these are answers of sheet {shorten(written)}, not of {student_sheet.name!r}; check ", Option("sheet")
        )
    if "made" in header and header["made"].text.lower() != student_sheet.fingerprint:
        raise header["made"].error(
            f"made is {shorten(header['made'].text)}, but this student and seed give {student_sheet.fingerprint!r}; "
            "the sheet was made with another ",
            Option("seed"),
            " or another version of roofmodel",
        )


def same_name(written: str, name: str) -> bool:
    """Whether a student's name equals another one in any case, apart from non-ASCII letters, which LaTeX's verbatim
    may replace, and from zeros that a spreadsheet removes from the start of a number."""
    if written.strip().lstrip("0").casefold() == name.lstrip("0").casefold():
        return True
    pairs = zip(written, name, strict=False)
    return len(written) == len(name) and all(a.lower() == b.lower() or not b.isascii() for a, b in pairs)


def grade(question: Question, entry: Entry | None) -> Graded:
    """Grade one answer. One whose meaning is not clear is unread, unless a meaning is right."""
    if entry is None:
        return Graded(question, None, False)
    text, right = entry.text, question.value
    if isinstance(right, str):
        reading = written_answers.ceiling(text, question.synonyms)
    else:
        reading = written_answers.number(text, question.unit)
    meanings = [each if isinstance(each, str) else float(each) for each in reading.meanings]
    answer = next((each for each in meanings if is_right(question, each)), None)
    if answer is not None:
        return Graded(question, answer, True, entry=entry)
    doubtful = (each if isinstance(each, str) else float(each) for each in reading.doubtful)
    if not reading.certain or any(is_right(question, each) for each in doubtful):
        hint = f"give a number in {question.unit}, such as 1237.5 or 1/6, or one with another unit of the same kind"
        hint = f"it must be one of {', '.join(CEILINGS)}" if isinstance(right, str) else hint
        return Graded(question, text, False, hint, understood=False, entry=entry)
    if isinstance(right, str):
        hint = "compare the arithmetic intensity with the ridge point"
        return Graded(question, meanings[0] if meanings else text, False, hint, entry=entry)
    number = meanings[0]
    assert not isinstance(number, str)
    explained = bool(mistakes_of(question, number))
    return Graded(question, number, False, hint_for(question, number), explained=explained, entry=entry)


def is_right(question: Question, answer: float | str) -> bool:
    """Whether an answer is the ceiling, or within the tolerance and not closer to the result of a common mistake."""
    if isinstance(question.value, str) or isinstance(answer, str):
        return answer == question.value
    error = abs(answer - question.value)
    return is_within_tolerance(answer, question.value, question.tolerance) and all(
        error <= abs(answer - mistake.result) or is_within_tolerance(mistake.result, question.value, 0)
        for mistake in question.mistakes
    )


def is_within_tolerance(answer: float, value: float, tolerance: float) -> bool:
    """Whether an answer is within a relative tolerance of a value; at least 1e-9 is tolerated."""
    return abs(answer - value) <= max(tolerance, 1e-9) * abs(value)


def mistakes_of(question: Question, answer: float) -> list[str]:
    """The hints of the common mistakes that explain a wrong number."""
    assert not isinstance(question.value, str)
    value, tolerance = question.value, question.tolerance
    hints = [
        each.hint
        for each in question.mistakes
        if each.result
        and is_within_tolerance(answer, each.result, tolerance)
        and not is_within_tolerance(each.result, value, 0)
    ]
    if not hints and any(is_within_tolerance(answer, value * 1000.0**power, tolerance) for power in POWERS_OF_1000):
        hints = [f"wrong by a power of 1000; give the answer in {question.unit}"]
    return list(dict.fromkeys(hints))


def hint_for(question: Question, answer: float) -> str:
    """The common mistake that explains a wrong number, or the quantities that the answer depends on."""
    hints = mistakes_of(question, answer)
    return "; or: ".join(hints) or f"not a common mistake; the answer depends on: {'; '.join(question.used.values())}"
