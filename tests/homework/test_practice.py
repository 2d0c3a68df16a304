"""Practice: right answers go on, wrong ones come back with new numbers, unread ones are asked again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import roofmodel
from roofmodel.homework import practice as module
from roofmodel.homework.homework import hashed_draw, source_of
from roofmodel.homework.practice import practice
from tests.command_line import run


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The keys of the draws, 0, 1, 2 …, instead of random ones."""
    used: list[str] = []
    monkeypatch.setattr(module.secrets, "token_hex", lambda: used.append(str(len(used))) or used[-1])
    return used


def answers(name: str, key: str) -> list[str]:
    """The right answers to a problem with the numbers of a key."""
    problem = source_of("training").problems.problem(name, hashed_draw(key))
    return [f"{question.in_unit(question.value)!r} {question.unit}" for question in problem.questions]  # type: ignore[arg-type]


def asked(texts: list[str]) -> tuple[list[module.Attempt], str]:
    """The attempts of a practice of the sheet `training`, whose problems have 4 and 3 questions, and what it says."""
    said: list[str] = []
    typed = iter(texts)

    def ask(prompt: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    return practice(source_of("training"), ask, said.append), "\n".join(said)


def test_right_answers_end_after_the_last_question(keys: list[str]) -> None:
    attempts, said = asked([*answers("training_memory", "0"), *answers("padding", "1"), "never asked"])
    assert [each.graded.right for each in attempts] == [True] * 7
    assert keys == ["0", "1"]
    assert "wrong" not in said


def test_a_wrong_answer_is_explained_and_asked_again_with_new_numbers(keys: list[str]) -> None:
    first, second, again = answers("training_memory", "0"), answers("padding", "1"), answers("training_memory", "2")
    states = float(first[0].split()[0])
    attempts, said = asked([f"{states / 4} GB", *first[1:], *second, again[0], "never asked"])
    assert [each.question for each in attempts if not each.graded.right] == ["training_memory.states"]
    assert "wrong: these are weights and gradients; the optimizer keeps three fp32 numbers per parameter" in said
    assert "states = 16N" in said
    assert keys == ["0", "1", "2"]
    assert first[0] != again[0]


def test_an_unclear_answer_is_asked_again_and_an_empty_one_shows_the_answer(keys: list[str]) -> None:
    attempts, said = asked(["3 or 4", "", "q"])
    assert "not clear: give a number in GB" in said
    assert "the answer:\n  states = 16N" in said
    assert [each.graded.answer for each in attempts] == [None]


def test_practice_needs_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = run(("homework", "practice", "rooflines"), monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert err.startswith("error: practice asks its questions in a terminal")
    with pytest.raises(roofmodel.WorkloadError, match="unknown value 'roofline'; did you mean 'rooflines'"):
        roofmodel.homework_practice("roofline")
