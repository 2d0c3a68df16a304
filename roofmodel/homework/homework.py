"""Homework sheets with individual numbers for each student, and grading of answers with hints.

A hash of the lecturer's seed, the sheet, the student and the problem selects the numbers. The same sheet can therefore
be made again at any time, and answers are not stored.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from roofmodel.errors import AnswerError, Option, WorkloadError, choices, shorten
from roofmodel.files import text_files
from roofmodel.files.text_files import YamlValue, expand, parse_yaml, read_text
from roofmodel.homework import answers as written_answers
from roofmodel.homework.generator import ProblemSet, packaged, parsed_problems, read_problems
from roofmodel.homework.problem import CEILINGS, Draw, Problem, Question
from roofmodel.options.values import PathLike

SHEETS = {
    "lectures": ("stream", "matmul", "stencil", "block", "phases", "kv", "decode", "counters", "achieved"),
    "rooflines": ("stream", "matmul", "stencil", "achieved"),
    "transformers": ("block", "phases", "kv", "decode"),
    "measuring": ("stream", "counters", "achieved"),
    "scaling": ("convolution", "loader", "shared", "replicas", "experts"),
    "training": ("training_memory", "padding"),
    "runs": ("timeline", "stall", "late", "gaps"),
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

    If an answer is neither a number nor a ceiling, `understood` is False and `answer` is the text of the file.
    """

    question: Question
    answer: float | str | None
    right: bool
    hint: str | None = None
    understood: bool = True
    explained: bool = False  # whether a common mistake explains a wrong number

    def points(self, partial: float = 0) -> float:
        """The points of the question, of which a wrong answer that a common mistake explains gets a fraction."""
        return self.question.points * (1 if self.right else partial if self.explained else 0)


class GradedSheet(NamedTuple):
    """The graded answers of a sheet, by problem."""

    sheet: Sheet
    problems: tuple[tuple[Problem, tuple[Graded, ...]], ...]

    @property
    def graded(self) -> list[Graded]:
        return [graded for _, answers in self.problems for graded in answers]

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
    return SheetSource(text_files.expand(name).stem, problems, problems.order, text)


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


Answers = PathLike | Mapping[str, Any]
"""A file of answers, or a dictionary: answers by problem and question, alone or in the dictionary of a sheet."""


def check(answers: Answers, student: str, name: PathLike | None = None, seed: str = "") -> GradedSheet:
    """Grade answers: a YAML file, a completed sheet (Markdown, LaTeX, JSON), or a dictionary.

    An answer that cannot be interpreted counts as wrong. Raises AnswerError, with file and line, for a file that does
    not contain answers to this sheet.
    """
    entries = read_entries(answers)
    if name is None and "sheet" in entries and entries["sheet"].text() not in SHEETS:
        written = entries["sheet"].text()
        raise entries["sheet"].error(
            f"unknown sheet {shorten(written)}{choices(written, SHEETS)}; for problems of your own, give their file: ",
            Option("sheet", f"{written}.yaml"),
        )
    student_sheet = sheet(student, name or (entries["sheet"].text() if "sheet" in entries else "lectures"), seed)
    return graded(entries, student_sheet)


def graded(entries: Mapping[str, YamlValue], student_sheet: Sheet) -> GradedSheet:
    """Grade the answers to a sheet. Raises AnswerError for the answers to another sheet."""
    _check_same_sheet(entries, student_sheet)
    ids = [problem.id for problem in student_sheet.problems]
    answers = entries["answers"].mapping(ids)
    return GradedSheet(
        student_sheet, tuple((problem, _graded(problem, answers.get(problem.id))) for problem in student_sheet.problems)
    )


def has_answers(path: str) -> bool:
    """Whether a file is a student's sheet with answers. A sheet that cannot be read counts as one with answers."""
    try:
        text = read_text(expand(path))
        problems = [problem for problem in read_entries(path)["answers"].mapping().values() if not problem.is_null]
        return not re.search(_KEY_TITLE, text, re.MULTILINE) and any(
            not answer.is_null for problem in problems for answer in problem.mapping().values()
        )
    except AnswerError:
        return _ANSWERS in text
    except (OSError, ValueError):  # no such file, or not a text file
        return False


_ANSWERS, _KEY_TITLE = "\nanswers:", r"^(# |\\section\*\{)Key: "
_FENCES = {"```": "```", r"\begin{verbatim}": r"\end{verbatim}"}  # start and end of the answers in Markdown and LaTeX


def read_entries(answers: Answers) -> dict[str, YamlValue]:
    """What a file or a dictionary of answers states. Raises AnswerError."""
    expected = "a homework sheet with answers"
    if isinstance(answers, Mapping):
        document = answers if "answers" in answers else {"answers": answers}
        text = json.dumps(document, default=str)  # NumPy's numbers have no JSON
        root = parse_yaml(text, "answers", AnswerError, expected)
    else:
        path = os.fspath(answers)
        if path.lower().endswith(".pdf") and os.path.exists(expand(path)):
            raise AnswerError(
                f"{path}: a PDF cannot be checked; copy its list of answers into a text file such as 1001.yaml"
            )
        try:
            root = text_files.read_yaml(expand(path), AnswerError, expected, extract=_answer_block)
        except FileNotFoundError:
            raise AnswerError(f"{path}: no such file; give a homework sheet with answers") from None
    json_only = ("schema", "problems")
    return root.mapping(("student", "sheet", "made", "answers", *json_only), required=("answers",))


def _answer_block(text: str) -> str:
    """The block of answers of a Markdown or LaTeX sheet, at the same line numbers; other texts unchanged.

    Raises ValueError for a sheet without that block.
    """
    lines, fence, closing, blocks = text.split("\n"), -1, "", []
    for i, line in enumerate(lines):
        if fence >= 0 and line.startswith(closing):
            if any(each.startswith("answers:") for each in lines[fence + 1 : i]):
                blocks.append((fence, i))
            fence = -1
        elif fence < 0 and (opened := next((mark for mark in _FENCES if line.startswith(mark)), "")):
            fence, closing = i, _FENCES[opened]
    if not blocks and re.search(r"^(# Problems: |\|---|\\section\*\{Problems: )", text, re.MULTILINE):
        raise ValueError(
            "the block of answers is missing; it belongs under 'Your answers', between ``` lines (LaTeX: in a verbatim "
            "environment)"
        )
    if not blocks:
        return text
    start, end = blocks[-1]
    return "\n" * (start + 1) + "\n".join(lines[start + 1 : end])


def _check_same_sheet(entries: Mapping[str, YamlValue], student_sheet: Sheet) -> None:
    """Raises AnswerError if the answers belong to another sheet."""
    for key, value in (("student", student_sheet.student), ("sheet", student_sheet.name)):
        if key in entries and not same_name(entries[key].text(), value):
            raise entries[key].error(
                f"these are answers of {key} {shorten(entries[key].text())}, not of {value!r}; check ", Option(key)
            )
    if "made" in entries and entries["made"].text() != student_sheet.fingerprint:
        raise entries["made"].error(
            f"made is {shorten(entries['made'].text())}, but this student and seed give {student_sheet.fingerprint!r}; "
            "the sheet was made with another ",
            Option("seed"),
            " or another version of roofmodel",
        )


def same_name(written: str, name: str) -> bool:
    """Whether a name equals another one, apart from non-ASCII letters, which LaTeX's verbatim may replace."""
    return len(written) == len(name) and all(a == b or not b.isascii() for a, b in zip(written, name, strict=True))


def _graded(problem: Problem, answers: YamlValue | None) -> tuple[Graded, ...]:
    entries = (
        {} if answers is None or answers.is_null else answers.mapping([question.id for question in problem.questions])
    )
    return tuple(_grade(question, entries.get(question.id)) for question in problem.questions)


def _grade(question: Question, entry: YamlValue | None) -> Graded:
    if entry is None or entry.is_null:
        return Graded(question, None, False)
    try:
        text = entry.text().strip()
    except AnswerError:  # for example a list
        return Graded(question, "", False, "give one value", understood=False)
    if isinstance(question.value, str):
        word = written_answers.ceiling(text)
        if word is None:
            return Graded(question, text, False, f"it must be one of {', '.join(CEILINGS)}", understood=False)
        hint = "compare the arithmetic intensity with the ridge point"
        return Graded(question, word, word == question.value, None if word == question.value else hint)
    meanings = [float(meaning) for meaning in written_answers.readings(text, question.unit)]
    if not meanings:
        hint = f"give a number in {question.unit}, such as 1237.5 or 1/6, or one with another unit of the same kind"
        return Graded(question, text, False, hint, understood=False)
    right = next((answer for answer in meanings if is_right(question, answer)), None)
    if right is not None:
        return Graded(question, right, True)
    mistakes = mistakes_of(question, meanings[0])
    return Graded(question, meanings[0], False, hint_for(question, meanings[0]), explained=bool(mistakes))


def is_right(question: Question, answer: float) -> bool:
    """Whether an answer is within the tolerance, and not closer to the result of a common mistake."""
    assert not isinstance(question.value, str)
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
