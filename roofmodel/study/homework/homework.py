"""`roof homework`: sheets of problems with parameters of each student's own, and answers checked with hints.

What is drawn follows from the lecturer's seed, the sheet and the student by a hash, so that the same sheet comes again
wherever and whenever it is made; no answer need be kept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from roofmodel import text_files
from roofmodel.errors import AnswerError, WorkloadError, choices, shorten
from roofmodel.study.homework import kernel_problems as kernels
from roofmodel.study.homework import model_problems as models
from roofmodel.study.homework import scaling_problems as scaling
from roofmodel.study.homework.problem import ROOFS, SYMBOLS, UNITS, Draw, Problem, Question
from roofmodel.text_files import YamlValue, expand, read_text

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
}
SHEETS = {
    "lectures": ("stream", "matmul", "stencil", "block", "phases", "kv", "decode", "counters", "achieved"),
    "rooflines": ("stream", "matmul", "stencil", "achieved"),
    "transformers": ("block", "phases", "kv", "decode"),
    "measuring": ("stream", "counters", "achieved"),
    "scaling": ("convolution", "loader", "shared", "replicas", "experts"),
}
"""Which problems a sheet has, by its name."""
LONGEST_ID = 100
THOUSANDS = (-4, -3, -2, -1, 1, 2, 3, 4)


class Sheet(NamedTuple):
    """A student's problems."""

    name: str
    student: str
    problems: tuple[Problem, ...]
    seeded: bool = False  # by a word of the lecturer's, without which nobody can check it

    @property
    def made(self) -> str:
        """A mark by which a sheet is told from one of another seed; of what it shows, so that it tells no answer."""
        shown = [[problem.given, [question.text for question in problem.questions]] for problem in self.problems]
        return blake2b(json.dumps(shown).encode(), digest_size=4).hexdigest()


class Graded(NamedTuple):
    """A question and what was answered: in base units, or a word; None where the blank is empty. What is no answer of
    its kind, a number or a roof, is not `understood`, and stands as it was written."""

    question: Question
    answer: float | str | None
    right: bool
    hint: str | None = None
    understood: bool = True


class Report(NamedTuple):
    """All answers of a sheet, by problem."""

    sheet: Sheet
    problems: tuple[tuple[Problem, tuple[Graded, ...]], ...]

    @property
    def graded(self) -> list[Graded]:
        return [graded for _, found in self.problems for graded in found]

    @property
    def score(self) -> float:
        """The part of the questions that is answered rightly."""
        return sum(graded.right for graded in self.graded) / len(self.graded)


def sheet(student: str, name: str = "lectures", seed: str = "") -> Sheet:
    """A student's sheet. Raises WorkloadError for a sheet or a student that cannot be."""
    if name not in SHEETS:
        raise WorkloadError(f"--sheet: unknown sheet {shorten(name)}{choices(name, SHEETS)}")
    student = student.strip()
    if not (student.isprintable() and 0 < len(student) <= LONGEST_ID):
        raise WorkloadError(
            f"--student is {shorten(student)}; it must be a name or a number of 1 to {LONGEST_ID} letters"
        )
    problems = tuple(PROBLEMS[each](draws(seed, name, student, each)) for each in SHEETS[name])
    return Sheet(name, student, problems, bool(seed))


def draws(*key: str) -> Draw:
    """Draws by a hash: what is drawn by a name depends on the key and that name, and on nothing drawn before."""

    def draw(what: str, options: Sequence[Any]) -> Any:
        digest = blake2b(json.dumps([*key, what]).encode(), digest_size=8).digest()
        return options[int.from_bytes(digest, "big") % len(options)]

    return draw


# --- Answers ----------------------------------------------------------------------------------------


def check(path: str, student: str, name: str | None = None, seed: str = "") -> Report:
    """Grade a file of answers: YAML, or the sheet itself (Markdown, LaTeX, JSON) with its blanks filled in.

    Raises AnswerError, with file and line, for what cannot be read as answers to this sheet; an answer that makes no
    sense is one that is not right.
    """
    entries = _entries(path)
    if name is None and "sheet" in entries and entries["sheet"].text() not in SHEETS:
        written = entries["sheet"].text()
        raise entries["sheet"].error(f"unknown sheet {shorten(written)}{choices(written, SHEETS)}")
    asked = sheet(student, name or (entries["sheet"].text() if "sheet" in entries else "lectures"), seed)
    _same(entries, asked)
    ids = [problem.id for problem in asked.problems]
    given = entries["answers"].mapping(ids)
    return Report(asked, tuple((problem, _graded(problem, given.get(problem.id))) for problem in asked.problems))


def filled(path: str) -> bool:
    """Whether a file is a student's sheet in which something is answered, or may be: one that cannot be read."""
    try:
        text = read_text(expand(path))
        given = [problem for problem in _entries(path)["answers"].mapping().values() if not problem.is_null]
        return not re.search(_KEY, text, re.MULTILINE) and any(
            not answer.is_null for problem in given for answer in problem.mapping().values()
        )
    except AnswerError:
        return _ANSWERS in text
    except (OSError, ValueError):  # no file, or no text
        return False


_ANSWERS, _KEY = "\nanswers:", r"^(# |\\section\*\{)Key: "
_FENCES = {"```": "```", r"\begin{verbatim}": r"\end{verbatim}"}  # around the answers, in Markdown and LaTeX


def _entries(path: str) -> dict[str, YamlValue]:
    try:
        root = text_files.read_yaml(expand(path), AnswerError, "a sheet with its answers", extract=_answers_alone)
    except FileNotFoundError:
        raise AnswerError(f"{path}: no such file; it should be the sheet with its answers") from None
    own = ("schema", "problems")  # of a sheet in JSON
    return root.mapping(("student", "sheet", "made", "answers", *own), required=("answers",))


def _answers_alone(text: str) -> str:
    """Of a sheet in Markdown or LaTeX the block of answers, each line where it was; any other text as it is.

    Raises ValueError for a sheet that has lost it.
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
            "the block of answers is gone, which stands between lines of ``` (in LaTeX: of verbatim) under 'Your "
            "answers'"
        )
    if not blocks:
        return text
    start, end = blocks[-1]
    return "\n" * (start + 1) + "\n".join(lines[start + 1 : end])


def _same(entries: Mapping[str, YamlValue], asked: Sheet) -> None:
    """Raises AnswerError where the answers are to another sheet."""
    for key, value, option in (("student", asked.student, "student"), ("sheet", asked.name, "sheet")):
        if key in entries and not _alike(entries[key].text(), value):
            raise entries[key].error(
                f"these are answers of {key} {shorten(entries[key].text())}, not of {value!r}; see --{option}"
            )
    if "made" in entries and entries["made"].text() != asked.made:
        raise entries["made"].error(
            f"the sheet was made as {shorten(entries['made'].text())}, which would be {asked.made!r} here: by another "
            "--seed, or another version of roof"
        )


def _alike(written: str, name: str) -> bool:
    """Whether it is this name, for which LaTeX's verbatim may have had no letters."""
    return len(written) == len(name) and all(a == b or not b.isascii() for a, b in zip(written, name, strict=True))


def _graded(problem: Problem, answers: YamlValue | None) -> tuple[Graded, ...]:
    given = (
        {} if answers is None or answers.is_null else answers.mapping([question.id for question in problem.questions])
    )
    return tuple(_grade(question, given.get(question.id)) for question in problem.questions)


def _grade(question: Question, place: YamlValue | None) -> Graded:
    if place is None or place.is_null:
        return Graded(question, None, False)
    try:
        text = place.text().strip()
    except AnswerError:  # a list, say
        return Graded(question, "", False, "give one value", understood=False)
    if isinstance(question.value, str):
        word = text.lower()
        if word not in ROOFS:
            return Graded(question, text, False, f"it must be one of {', '.join(ROOFS)}", understood=False)
        hint = "compare the intensity with that at which the roofs meet"
        return Graded(question, word, word == question.value, None if word == question.value else hint)
    answer = _number(question, text)
    if answer is None:
        hint = f"give a number in {question.unit}, as 1237.5 or 1/6: a point for decimals, no commas, no other unit"
        return Graded(question, text, False, hint, understood=False)
    right = near(answer, question.value, question.tolerance)
    return Graded(question, answer, right, None if right else hint_for(question, answer))


def _number(question: Question, text: str) -> float | None:
    """A number or a fraction in base units; its unit may stand behind it. None for anything else: `1,237` may be read
    in two ways."""
    above, line, below = re.sub(rf"\s*{re.escape(question.unit)}\Z", "", text).partition("/")
    try:
        value = float(above) / (float(below) if line else 1) * UNITS[question.unit]
    except (ValueError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) else None


def near(answer: float, value: float, tolerance: float) -> bool:
    """Whether an answer is within a relative tolerance of a value."""
    return abs(answer - value) <= max(tolerance, 1e-9) * abs(value)


def hint_for(question: Question, answer: float) -> str:
    """What a wrong number looks like; else where to begin."""
    assert not isinstance(question.value, str)
    value, tolerance = question.value, question.tolerance
    slips = [slip for slip in question.slips if slip.factor and not near(slip.factor, 1, tolerance)]
    found = [slip.hint for slip in slips if near(answer, slip.factor * value, tolerance)]
    if not found and any(near(answer, value * 1000.0**power, tolerance) for power in THOUSANDS):
        found = [f"a power of a thousand off: it is asked in {question.unit}"]
    parts = ", ".join(SYMBOLS[name] for name in question.values)
    return "; or: ".join(dict.fromkeys(found)) or f"no slip that is known here; it is made of {parts}"
