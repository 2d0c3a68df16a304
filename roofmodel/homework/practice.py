"""Practice in a terminal: one question at a time, with the formula of each answer, and with new numbers each time."""

from __future__ import annotations

import secrets
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator

from roofmodel.errors import WorkloadError
from roofmodel.homework.answer import Attempt, derivation, tolerance
from roofmodel.homework.homework import Graded, SheetSource, grade, hashed_draw, mistakes_of
from roofmodel.homework.problem import Question
from roofmodel.homework.submission import Entry

WIDTH = 80
QUIT = frozenset(("q", "quit", "exit"))
HELP = "Enter without an answer shows the answer; q ends."


class _Ended(Exception):
    """The student ends the practice."""


def in_terminal(source: SheetSource) -> list[Attempt]:
    """Ask the questions of a sheet in the terminal. Raises WorkloadError without one."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise WorkloadError(
            "practice asks its questions in a terminal; without one, write a sheet with `roof homework new`"
        )
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 0)).columns)

    def say(text: str) -> None:
        indent = " " * (2 * (len(text) - len(text.lstrip())))
        sys.stdout.write(f"{textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False)}\n")

    return practice(source, input, say)


def practice(source: SheetSource, ask: Callable[[str], str], say: Callable[[str], None]) -> list[Attempt]:
    """Ask all questions of a sheet, and those with a wrong answer again with new numbers, until all are right.

    The student can end it before. Returns the first attempts.
    """
    attempts: dict[str, Attempt] = {}
    waiting = [(id, "") for id in source.ids]  # a problem, or one of its questions
    say(f"{source.name}: {len(source.ids)} problems. {HELP}")
    try:
        while waiting:
            id, only = waiting.pop(0)
            problem = source.problems.problem(id, hashed_draw(secrets.token_hex()))
            say("")
            say(problem.title)
            say(problem.given)
            for question in problem.questions:
                if only in ("", question.id):
                    graded = _asked(question, ask, say)
                    attempts.setdefault(f"{id}.{question.id}", Attempt(f"{id}.{question.id}", graded))
                    waiting += [] if graded.right else [(id, question.id)]
    except _Ended:
        say("")
    return [*attempts.values()]


def _asked(question: Question, ask: Callable[[str], str], say: Callable[[str], None]) -> Graded:
    """Ask until the answer can be read, and tell what it should be."""
    within = f" within {tolerance(question)}" if question.tolerance else ""
    say("")
    say(f"{question.text} ({question.unit}{within})")
    while True:
        try:
            text = ask("> ").strip()
        except (EOFError, KeyboardInterrupt):
            raise _Ended from None
        if text.lower() in QUIT:
            raise _Ended
        graded = grade(question, Entry(text, "terminal", 1) if text else None)
        if graded.understood:
            break
        say(f"not clear: {graded.hint}")
    if graded.right:
        say("right")
    elif graded.answer is None:
        say("the answer:")
    elif isinstance(graded.answer, float) and (mistakes := mistakes_of(question, graded.answer)):
        say(f"wrong: {'; or: '.join(mistakes)}")
    else:
        say("wrong")
    for line in _formula(question):
        say(line)
    return graded


def _formula(question: Question) -> Iterator[str]:
    """The formula of the answer, with numbers, its value, and the meanings of its letters."""
    forms = dict.fromkeys(form.text for form in derivation(question).forms)
    for number, form in enumerate(forms):
        yield f"  {question.id if number == 0 else ' ' * len(question.id)} = {form}"
    yield "  " + "; ".join(f"{name}: {meaning}" for name, meaning in question.used.items())
