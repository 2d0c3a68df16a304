"""Homework sheets with individual numbers for each student, and grading of answers with hints.

A hash of the lecturer's seed, the sheet, the student and the problem selects the numbers. The same sheet can therefore
be made again at any time, and answers are not stored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from roofmodel.errors import AnswerError, Option, WorkloadError, choices, shorten
from roofmodel.files import text_files
from roofmodel.files.text_files import YamlValue, expand, read_text
from roofmodel.homework import kernel_problems as kernels
from roofmodel.homework import model_problems as models
from roofmodel.homework import run_problems as runs
from roofmodel.homework import scaling_problems as scaling
from roofmodel.homework.problem import CEILINGS, SYMBOLS, UNITS, Draw, Problem, Question

PROBLEMS: Mapping[str, Callable[[Draw], Problem]] = {
    "stream": kernels.stream,
    "matmul": kernels.matmul,
    "stencil": kernels.stencil,
    "block": models.block,
    "phases": models.phase_bounds,
    "kv": models.kv_cache,
    "decode": models.decode,
    "counters": kernels.counters,
    "achieved": kernels.achieved,
    "convolution": scaling.convolution,
    "loader": scaling.loader,
    "shared": scaling.shared,
    "replicas": scaling.replicas,
    "experts": scaling.experts,
    "timeline": runs.timeline,
    "stall": runs.stall,
    "late": runs.late_rank,
    "gaps": runs.late_launch,
}
SHEETS = {
    "lectures": ("stream", "matmul", "stencil", "block", "phases", "kv", "decode", "counters", "achieved"),
    "rooflines": ("stream", "matmul", "stencil", "achieved"),
    "transformers": ("block", "phases", "kv", "decode"),
    "measuring": ("stream", "counters", "achieved"),
    "scaling": ("convolution", "loader", "shared", "replicas", "experts"),
    "runs": ("timeline", "stall", "late", "gaps"),
}
"""The problems of each sheet, by its name."""
MAX_STUDENT_LENGTH = 100
POWERS_OF_1000 = (-4, -3, -2, -1, 1, 2, 3, 4)


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
        return blake2b(json.dumps(numbers).encode(), digest_size=4).hexdigest()


class Graded(NamedTuple):
    """A question with its graded answer: in base units, or the name of a ceiling, or None if it is blank.

    If an answer is neither a number nor a ceiling, `understood` is False and `answer` is the text of the file.
    """

    question: Question
    answer: float | str | None
    right: bool
    hint: str | None = None
    understood: bool = True


class GradedSheet(NamedTuple):
    """The graded answers of a sheet, by problem."""

    sheet: Sheet
    problems: tuple[tuple[Problem, tuple[Graded, ...]], ...]

    @property
    def graded(self) -> list[Graded]:
        return [graded for _, found in self.problems for graded in found]

    @property
    def score(self) -> float:
        """The fraction of the questions with a right answer."""
        return sum(graded.right for graded in self.graded) / len(self.graded)


def sheet(student: str, name: str = "lectures", seed: str = "") -> Sheet:
    """The sheet of a student. Raises WorkloadError for an unusable student name."""
    student = student.strip()
    if not (student.isprintable() and 0 < len(student) <= MAX_STUDENT_LENGTH):
        raise WorkloadError(
            Option("student"),
            f" is {shorten(student)}; it must be a name or number of 1 to {MAX_STUDENT_LENGTH} characters",
        )
    problems = tuple(PROBLEMS[each](hashed_draw(seed, name, student, each)) for each in SHEETS[name])
    return Sheet(name, student, problems, bool(seed))


def hashed_draw(*key: str) -> Draw:
    """A Draw that selects options by a hash of the key and the drawn quantity's name, independent of other draws."""

    def draw(name: str, options: Sequence[Any]) -> Any:
        digest = blake2b(json.dumps([*key, name]).encode(), digest_size=8).digest()
        return options[int.from_bytes(digest, "big") % len(options)]

    return draw


# --- Answers ----------------------------------------------------------------------------------------


def check(path: str, student: str, name: str | None = None, seed: str = "") -> GradedSheet:
    """Grade a file of answers: YAML, or the filled-in sheet (Markdown, LaTeX, JSON).

    An answer that cannot be interpreted counts as wrong. Raises AnswerError, with file and line, for a file that does
    not contain answers to this sheet.
    """
    entries = _read_entries(path)
    if name is None and "sheet" in entries and entries["sheet"].text() not in SHEETS:
        written = entries["sheet"].text()
        raise entries["sheet"].error(f"unknown sheet {shorten(written)}{choices(written, SHEETS)}")
    asked = sheet(student, name or (entries["sheet"].text() if "sheet" in entries else "lectures"), seed)
    _check_same_sheet(entries, asked)
    ids = [problem.id for problem in asked.problems]
    given = entries["answers"].mapping(ids)
    return GradedSheet(asked, tuple((problem, _graded(problem, given.get(problem.id))) for problem in asked.problems))


def has_answers(path: str) -> bool:
    """Whether a file is a student's sheet with answers. A sheet that cannot be read counts as one with answers."""
    try:
        text = read_text(expand(path))
        given = [problem for problem in _read_entries(path)["answers"].mapping().values() if not problem.is_null]
        return not re.search(_KEY_TITLE, text, re.MULTILINE) and any(
            not answer.is_null for problem in given for answer in problem.mapping().values()
        )
    except AnswerError:
        return _ANSWERS in text
    except (OSError, ValueError):  # no such file, or not a text file
        return False


_ANSWERS, _KEY_TITLE = "\nanswers:", r"^(# |\\section\*\{)Key: "
_FENCES = {"```": "```", r"\begin{verbatim}": r"\end{verbatim}"}  # start and end of the answers in Markdown and LaTeX


def _read_entries(path: str) -> dict[str, YamlValue]:
    try:
        root = text_files.read_yaml(expand(path), AnswerError, "a homework sheet with answers", extract=_answer_block)
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


def _check_same_sheet(entries: Mapping[str, YamlValue], asked: Sheet) -> None:
    """Raises AnswerError if the answers belong to another sheet."""
    for key, value in (("student", asked.student), ("sheet", asked.name)):
        if key in entries and not _same_name(entries[key].text(), value):
            raise entries[key].error(
                f"these are answers of {key} {shorten(entries[key].text())}, not of {value!r}; check ", Option(key)
            )
    if "made" in entries and entries["made"].text() != asked.fingerprint:
        raise entries["made"].error(
            f"made is {shorten(entries['made'].text())}, but this student and seed give {asked.fingerprint!r}; the "
            "sheet was made with another ",
            Option("seed"),
            " or another version of roofmodel",
        )


def _same_name(written: str, name: str) -> bool:
    """Whether a name equals another one, apart from non-ASCII letters, which LaTeX's verbatim may replace."""
    return len(written) == len(name) and all(a == b or not b.isascii() for a, b in zip(written, name, strict=True))


def _graded(problem: Problem, answers: YamlValue | None) -> tuple[Graded, ...]:
    given = (
        {} if answers is None or answers.is_null else answers.mapping([question.id for question in problem.questions])
    )
    return tuple(_grade(question, given.get(question.id)) for question in problem.questions)


def _grade(question: Question, entry: YamlValue | None) -> Graded:
    if entry is None or entry.is_null:
        return Graded(question, None, False)
    try:
        text = entry.text().strip()
    except AnswerError:  # for example a list
        return Graded(question, "", False, "give one value", understood=False)
    if isinstance(question.value, str):
        word = text.lower()
        if word not in CEILINGS:
            return Graded(question, text, False, f"it must be one of {', '.join(CEILINGS)}", understood=False)
        hint = "compare the arithmetic intensity with the ridge point"
        return Graded(question, word, word == question.value, None if word == question.value else hint)
    answer = _number(question, text)
    if answer is None:
        hint = f"give a number in {question.unit}, such as 1237.5 or 1/6, without commas or another unit"
        return Graded(question, text, False, hint, understood=False)
    right = is_within_tolerance(answer, question.value, question.tolerance)
    return Graded(question, answer, right, None if right else hint_for(question, answer))


def _number(question: Question, text: str) -> float | None:
    """A number or a fraction in base units, with or without its unit; None for other texts, such as the ambiguous
    `1,237`."""
    numerator, slash, denominator = re.sub(rf"\s*{re.escape(question.unit)}\Z", "", text).partition("/")
    try:
        value = float(numerator) / (float(denominator) if slash else 1) * UNITS[question.unit]
    except (ValueError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) else None


def is_within_tolerance(answer: float, value: float, tolerance: float) -> bool:
    """Whether an answer is within a relative tolerance of a value; at least 1e-9 is tolerated."""
    return abs(answer - value) <= max(tolerance, 1e-9) * abs(value)


def hint_for(question: Question, answer: float) -> str:
    """The common mistake that explains a wrong number, or the quantities that the answer depends on."""
    assert not isinstance(question.value, str)
    value, tolerance = question.value, question.tolerance
    mistakes = [
        each for each in question.mistakes if each.factor and not is_within_tolerance(each.factor, 1, tolerance)
    ]
    found = [each.hint for each in mistakes if is_within_tolerance(answer, each.factor * value, tolerance)]
    if not found and any(is_within_tolerance(answer, value * 1000.0**power, tolerance) for power in POWERS_OF_1000):
        found = [f"wrong by a power of 1000; give the answer in {question.unit}"]
    quantities = ", ".join(SYMBOLS[name] for name in question.symbols)
    return "; or: ".join(dict.fromkeys(found)) or f"not a common mistake; the answer depends on: {quantities}"
