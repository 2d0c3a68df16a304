from __future__ import annotations

import pickle
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofmodel
from roofmodel import errors
from roofmodel.errors import (
    Message,
    Option,
    RoofError,
    WarningNote,
    WorkloadError,
    joined,
    option_spelling,
    warnings_in,
)  # fmt: skip

ROOT = Path(__file__).parents[1]
KEYS = ("peak", "per_multiprocessor", "clock", "bandwidth", "capacity", "source")


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("bandwith", KEYS, "; did you mean 'bandwidth'?"),
        ("capcity", KEYS, "; did you mean 'capacity'?"),
        ("CLOCK", KEYS, "; did you mean 'clock'?"),
        ("GPT2XL", ("gpt2-xl", "bert"), "; did you mean 'gpt2-xl'?"),
        ("llama", ("LLaMA", "bloom"), "; did you mean 'LLaMA'?"),  # written as the known word is
        ("zzzzzz", KEYS, ""),
        ("", KEYS, ""),
        ("clock", (), ""),
        ("x", ("mixed", "xla"), "; did you mean 'xla'?"),  # one letter is part of most words
    ],
)
def test_the_nearest_known_word_is_suggested(word: str, known: tuple[str, ...], hint: str) -> None:
    assert errors.suggest(word, known) == hint


def test_several_near_words_are_offered_nearest_first() -> None:
    hint = errors.suggest("tensor_fp1", ("tensor_fp16", "tensor_fp8", "tensor_int8", "name"))
    assert hint.startswith("; did you mean 'tensor_fp16' or ")
    assert hint.count("'") <= 6  # three words at the most
    assert "'name'" not in hint


def test_known_words_may_come_from_any_iterable() -> None:
    assert errors.suggest("bandwith", iter(KEYS)) == "; did you mean 'bandwidth'?"
    assert errors.suggest("bandwith", dict.fromkeys(KEYS)) == "; did you mean 'bandwidth'?"


@pytest.mark.parametrize(("value", "text"), [(5, "5"), ("gpt3", "'gpt3'"), (None, "None"), ([1, 2], "[1, 2]")])
def test_a_short_value_is_unchanged(value: object, text: str) -> None:
    assert errors.shorten(value) == text


def test_a_long_value_is_shortened_with_a_mark() -> None:
    assert errors.shorten("x" * 1000) == "'" + "x" * 58 + "…"  # 60 characters with quote and ellipsis
    assert errors.shorten("x" * 1000, limit=10) == "'" + "x" * 8 + "…"
    assert errors.shorten("x" * 58) == "'" + "x" * 58 + "'"  # 60 exactly: not cut


@pytest.mark.parametrize(
    "wrap", [lambda v: v, lambda v: [v], lambda v: {"hidden_size": v}], ids=["bare", "list", "dict"]
)
def test_an_int_of_ten_thousand_digits_is_described(wrap: Any) -> None:
    """Python refuses to print such an int."""
    text = errors.shorten(wrap(10**9_999))
    assert "thousands of digits" in text
    assert len(text) <= 60


def test_a_value_nested_beyond_printing_is_described() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    try:
        assert len(errors.shorten(nested)) <= 60
    finally:
        while nested:  # freed from the outermost list: the interpreter frees nested lists recursively
            nested = nested[0]


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.integers(5, 80),
)
def test_no_value_fills_the_screen(value: object, limit: int) -> None:
    assert len(errors.shorten(value, limit)) <= limit


@pytest.mark.parametrize("name", ["ModelError", "DeviceError", "WorkloadError", "OutputError"])
def test_user_errors_are_roof_errors(name: str) -> None:
    assert issubclass(getattr(errors, name), errors.RoofError)
    assert getattr(roofmodel, name) is getattr(errors, name)


def as_flag(option: Option) -> str:
    return f"--{option.name} {option.value}"


def test_a_message_writes_its_options_as_the_current_interface_does() -> None:
    message = Message(Option("ep", 8), " needs 8 GPUs; use ", Option("tp", 8))
    assert str(message) == "ep=8 needs 8 GPUs; use tp=8"
    with option_spelling(as_flag):
        assert str(message) == f"{message}" == "--ep 8 needs 8 GPUs; use --tp 8"
    assert str(message) == "ep=8 needs 8 GPUs; use tp=8"


def test_an_error_states_the_first_option_that_its_message_names() -> None:
    error = WorkloadError("warning: ", Message(Option("ep", 8), " or ", Option("tp", 8)))
    assert error.option == "ep"
    assert str(error) == "warning: ep=8 or tp=8"
    assert RoofError("no option").option is None
    copied = pickle.loads(pickle.dumps(error))  # as from a worker of a cluster
    assert type(copied) is WorkloadError
    assert copied.message == error.message


def test_messages_join_as_texts_do() -> None:
    either = joined(" or ", [Option("tp", 2), "nothing", Message("a ", Option("dp"))])
    assert str("try " + either + "!") == "try tp=2 or nothing or a dp!"
    assert either == Message(Option("tp", 2), " or ", "nothing", " or ", "a ", Option("dp"))
    assert len({either, joined(" or ", [Option("tp", 2), "nothing", Message("a ", Option("dp"))])}) == 1


@pytest.mark.parametrize(
    ("option", "text"),
    [
        (Option("ep", 8), "ep=8"),
        (Option("dtype", "fp16"), 'dtype="fp16"'),
        (Option("context", "N"), "context=N"),
        (Option("micro_batch"), "micro_batch"),
        (Option("format", "json"), ".to_dict()"),
        (Option("format", "csv"), ".to_frame()"),
    ],
)
def test_python_writes_options_as_arguments(option: Option, text: str) -> None:
    assert str(option) == text


def test_a_roof_error_is_not_a_builtin_error() -> None:
    assert errors.RoofError.__bases__ == (Exception,)


def test_extras_named_in_messages_exist() -> None:
    """Messages name packages, not extras of roofmodel, so that they work for an index, a wheel and a checkout."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    known = {re.split(r"[<>=; ]", package)[0] for name in extras if name != "dev" for package in extras[name]}
    named = [
        name
        for file in (ROOT / "roofmodel").rglob("*.py")
        for name in re.findall(r"pip install (?:-U )?'?([\w\[\]-]+)", file.read_text(encoding="utf-8"))
    ]
    assert len(named) > 5
    assert set(named) <= known


def test_a_warning_is_known_by_its_class_and_begins_with_the_word() -> None:
    warning, note = WarningNote("see ", Option("tp", 8)), Message("warning: of a text")
    assert str(warning) == "warning: see tp=8"
    assert warnings_in([note, warning, "warning: of a text"]) == [Message("see ", Option("tp", 8))]
