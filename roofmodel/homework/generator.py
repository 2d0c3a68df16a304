"""Problems from YAML: draws, quantities computed from them, questions whose answers and mistakes are formulas.

The packaged problems are in problems/; a lecturer's file has the same form. docs/howto/homework.md describes it.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from roofmodel.errors import AnswerError, RoofError, choices, shorten
from roofmodel.files.text_files import YamlValue, parse_yaml, read_text, read_yaml
from roofmodel.homework import facts, formulas
from roofmodel.homework.formulas import Value
from roofmodel.homework.problem import CEILING, CEILINGS, Draw, Mistake, Problem, Question, unit_of
from roofmodel.numbers import units

FOLDER = Path(__file__).parent / "problems"
MAX_OPTIONS = 10**6
ONE = Fraction(1)
PROBLEM = ("title", "given", "draws", "quantities", "questions", "symbols", "tool")
QUESTION = ("text", "unit", "answer", "tolerance", "points", "mistakes", "synonyms")


class ProblemSet(NamedTuple):
    """The problems of YAML files, by id, with the meanings of their symbols and the mistakes that they share."""

    problems: Mapping[str, YamlValue]
    symbols: Mapping[str, Mapping[str, str]]  # of each problem
    mistakes: Mapping[str, YamlValue]
    order: tuple[str, ...]  # of the problems of a sheet

    def problem(self, id: str, draw: Draw) -> Problem:
        """The problem with the quantities of a draw. Raises AnswerError, with file and line, for invalid YAML."""
        return _Generator(self, id, draw).problem()


@cache
def packaged() -> ProblemSet:
    """The problems that come with roofmodel."""
    problem_set = ProblemSet({}, {}, {}, ())
    for path in sorted(FOLDER.glob("*.yaml")):
        problem_set = _extended(problem_set, read_yaml(path, AnswerError, "homework problems"))
    return problem_set


def read_problems(path: Path) -> tuple[ProblemSet, str]:
    """The problems of a lecturer's file, besides the packaged ones, and the text of the file.

    Raises FileNotFoundError, or AnswerError with file and line.
    """
    root = read_yaml(path, AnswerError, "homework problems")
    return _extended(packaged(), root), read_text(path)


def parsed_problems(text: str, name: str) -> ProblemSet:
    """The problems of the text of a lecturer's file, besides the packaged ones."""
    return _extended(packaged(), parse_yaml(text, name, AnswerError, "homework problems"))


def _extended(problem_set: ProblemSet, root: YamlValue) -> ProblemSet:
    entries = root.mapping(("problems", "symbols", "mistakes", "sheet"), required=("problems",))
    own = entries["problems"].mapping()
    shared = {name: entry.text() for name, entry in _entries(entries, "symbols").items()}
    symbols = {}
    for id, problem in own.items():
        parts = problem.mapping(PROBLEM, required=("title", "given", "questions"))
        symbols[id] = {**shared, **{name: entry.text() for name, entry in _entries(parts, "symbols").items()}}
    every = {**problem_set.problems, **own}
    order = tuple(own)
    if "sheet" in entries:
        chosen = entries["sheet"].items()
        for each in chosen:
            if each.text() not in every:
                raise each.error(f"unknown problem {shorten(each.text())}{choices(each.text(), every)}")
        order = tuple(dict.fromkeys(each.text() for each in chosen))
    mistakes = {**problem_set.mistakes, **_entries(entries, "mistakes")}
    return ProblemSet(every, {**problem_set.symbols, **symbols}, mistakes, order)


def _entries(parts: Mapping[str, YamlValue], key: str) -> dict[str, YamlValue]:
    return {} if key not in parts or parts[key].is_null else parts[key].mapping()


class _Generator:
    """One problem with one draw."""

    def __init__(self, source: ProblemSet, id: str, draw: Draw) -> None:
        self.source, self.id, self.draw = source, id, draw
        self.parts = source.problems[id].mapping(PROBLEM)
        self.symbols = source.symbols[id]
        self.values: dict[str, Value] = {}
        for name, entry in _entries(self.parts, "draws").items():
            self._draw(name, entry)
        self.template = _Template(self.values)
        for name, entry in _entries(self.parts, "quantities").items():
            self.values[name] = self._evaluated(entry.text(), entry, facts.FUNCTIONS)

    def problem(self) -> Problem:
        title, given = (self._text(self.parts[key]) for key in ("title", "given"))
        questions = self.parts["questions"].mapping()
        tool = self._text(self.parts["tool"]) if "tool" in self.parts else ""
        return Problem(self.id, title, given, tuple(self._question(id, each) for id, each in questions.items()), tool)

    def _draw(self, name: str, entry: YamlValue) -> None:
        """One of a list, or of a range such as `256:1024:64`; an entry with several quantities gives each of them."""
        options: Sequence[Any]
        options = [_option(each) for each in entry.items()] if entry.is_list else _range(entry)
        if not options:
            raise entry.error(f"{entry.path} has no values")
        chosen = self.draw(name, options)
        self.values |= chosen if isinstance(chosen, dict) else {name: chosen}

    def _evaluated(self, formula: str, entry: YamlValue, functions: formulas.Functions = formulas.SYMPY) -> Value:
        try:
            value = formulas.evaluate(self.template.filled(formula), self.values, functions)
        except (ValueError, RoofError) as error:
            raise entry.error(f"{entry.path}: {error}") from None
        if not isinstance(value, str) and not _is_finite(value):
            raise entry.error(f"{entry.path}: {shorten(formula)} has no value: the number is too large")
        return value

    def _number(self, formula: str, entry: YamlValue) -> int | float | Fraction:
        value = self._evaluated(formula, entry)
        if isinstance(value, str):
            raise entry.error(f"{entry.path}: {formula!r} is text, not a number")
        return value

    def _text(self, entry: YamlValue) -> str:
        try:
            return self.template.filled(entry.text())
        except ValueError as error:
            raise entry.error(f"{entry.path}: {error}") from None

    def _question(self, id: str, entry: YamlValue) -> Question:
        parts = entry.mapping(QUESTION, required=("text", "unit", "answer"))
        unit = parts["unit"].text()
        answer = self._number(parts["answer"].text(), parts["answer"])
        if not _is_finite(answer, Fraction(unit_of(unit).factor)):
            raise parts["answer"].error(f"{parts['answer'].path} has no value in {unit}: the number is too large")
        value = float(answer) if unit != CEILING else CEILINGS[0] if answer > 0 else CEILINGS[1]
        formula = self._text(parts["answer"])
        used = formulas.names(formula)
        for name in used - self.symbols.keys():
            raise parts["answer"].error(f"{name!r} has no meaning; state it under 'symbols'")
        values = {name: number for name, number in self.values.items() if name in used}
        self.values["answer"] = answer
        mistakes = tuple(self._mistakes(parts["mistakes"])) if "mistakes" in parts else ()
        del self.values["answer"]
        tolerance = _tolerance(parts["tolerance"]) if "tolerance" in parts else 0.02
        points = parts["points"].number() if "points" in parts else 1
        return Question(
            id, self._text(parts["text"]), unit, value, formula, values, self.symbols, mistakes,
            0 if unit == CEILING else tolerance, points, _synonyms(parts["synonyms"]) if "synonyms" in parts else {},
        )  # fmt: skip

    def _mistakes(self, entry: YamlValue) -> Iterator[Mistake]:
        """Each is a formula and its hint, or the name of mistakes that problems share."""
        for each in entry.items():
            hints = each
            if not each.is_mapping:
                if each.text() not in self.source.mistakes:
                    known_mistakes = choices(each.text(), self.source.mistakes)
                    raise each.error(f"unknown mistake {shorten(each.text())}{known_mistakes}; or give 'FORMULA: HINT'")
                hints = self.source.mistakes[each.text()]
            for formula, hint in hints.mapping().items():
                yield Mistake(float(self._number(formula, hint)), self._text(hint))


def _is_finite(value: float | Fraction, unit: Fraction = ONE) -> bool:
    """Whether a float holds a number of base units, in another unit."""
    try:
        return math.isfinite(float(value) / float(unit))
    except OverflowError:
        return False


def _option(entry: YamlValue) -> Any:
    """A text or a whole number, or several quantities at once."""
    if entry.is_mapping:
        return {name: _plain(each) for name, each in entry.mapping().items()}
    return _plain(entry)


def _plain(entry: YamlValue) -> int | str:
    text = entry.text()
    return int(text) if text.isdecimal() and len(text) < 16 else text


def _range(entry: YamlValue) -> Sequence[int]:
    """`1:8` or `0:100:25`, as the values of a sweep."""
    text = entry.text()
    try:
        first, last, step = map(int, (text if text.count(":") == 2 else f"{text}:1").split(":"))
        values = range(first, last + 1, step)
    except ValueError:
        raise entry.error(f"{entry.path} is {shorten(text)}; give a list, or a range such as 256:1024:64") from None
    if not 0 < len(values) <= MAX_OPTIONS:
        raise entry.error(f"{entry.path} is {shorten(text)}; a range has 1 to {MAX_OPTIONS} values")
    return values


def _synonyms(entry: YamlValue) -> dict[str, tuple[str, ...]]:
    """`{memory: [L2, cache]}`: further names of the ceilings."""
    return {name: tuple(each.text() for each in words.items()) for name, words in entry.mapping(CEILINGS).items()}


def _tolerance(entry: YamlValue) -> float:
    """`0.5 %` or `0`, for an exact answer."""
    text = entry.text()
    try:
        value = float(text.removesuffix("%")) / 100 if text.endswith("%") else -float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise entry.error(f"{entry.path} is {shorten(text)}; give it as in '2 %', or 0 for an exact answer")
    return abs(value)


class _Template(string.Formatter):
    """Texts with quantities in braces: `{n}`, `{n:,}` (grouped), `{P_peak:FLOP/s}` (with a prefix), `{t:us}`."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values

    def filled(self, text: str) -> str:
        """The text with values. Raises ValueError for an unknown name or unit."""
        return self.vformat(text, (), {}) if "{" in text or "}" in text else text

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:  # no attributes, no indices
        drawn = field_name.removesuffix("_id")
        if drawn != field_name and drawn in facts.FULL_NAMES and drawn in self.values:
            return self.values[drawn], drawn
        if field_name not in self.values:
            raise ValueError(f"unknown name {field_name!r} in braces{choices(field_name, self.values)}")
        value = self.values[field_name]
        if field_name in facts.FULL_NAMES and isinstance(value, str):
            try:
                return facts.FULL_NAMES[field_name](value), field_name
            except RoofError as error:
                raise ValueError(str(error)) from None
        return value, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if not format_spec or isinstance(value, str):
            return units.significant(float(value)) if isinstance(value, Fraction) else str(value)
        if format_spec == ",":
            return units.grouped(round(value))
        if format_spec == "GiB":
            return units.binary(value)
        base, factor = unit_of(format_spec)
        if factor == 1:
            return units.si(float(value), base, 4)
        return units.significant(float(value / factor), 7)
