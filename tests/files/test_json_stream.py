"""A document read value by value equals the one that Python's parser reads at once."""

from __future__ import annotations

import io
import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.files import json_stream
from roofmodel.files.json_stream import JSONDamage, JSONText

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def read(text: str) -> list[object]:
    document = JSONText(io.BytesIO(text.encode()), lambda head: "utf-8")
    document.peek()
    found = list(document.items())
    assert document.peek() == ""
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(VALUES, max_size=6), st.sampled_from([None, 1, "\t"]), st.integers(1, 40), st.booleans())
def test_values_are_the_same_wherever_blocks_cut_them(
    values: list[object], indent: int | str | None, block: int, ascii_only: bool
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "BLOCK", block)
        assert read(text) == json.loads(text, parse_float=Decimal)


@pytest.mark.parametrize(
    ("text", "where", "truncated"),
    [
        ("[1,\n 2,\n x, 3, 4, 5, 6, 7, 8, 9]", "line 3, column 2, character 9", False),
        ('[1,\n {"a": 1', "line 2, column 9, character 12", True),
        ('[1, "abc', "line 1, column 5, character 4", True),
        ("[1, 2", "line 1, column 6, character 5", True),
        ("[1 2]", "line 1, column 4, character 3", False),
    ],
)
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_damage_is_reported_with_its_place(
    text: str, where: str, truncated: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_stream, "BLOCK", block)
    with pytest.raises(JSONDamage, match=where) as caught:
        read(text)
    assert caught.value.truncated == truncated


def test_a_value_without_an_end_is_refused_before_the_file_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_VALUE", 1 << 21)

    class Endless(io.BytesIO):
        given = 0

        def read(self, most: int | None = -1, /) -> bytes:
            self.given += most or 0
            return b'["' + b"x" * ((most or 0) - 2)

    stream = Endless()
    document = JSONText(stream, lambda head: "utf-8")
    document.take("[")
    stream.read = lambda most=-1: b"x" * most  # type: ignore[method-assign]
    with pytest.raises(JSONDamage, match="a value of more than 2 MiB"):
        document.value()


@pytest.mark.parametrize("block", [1, 2, 3, 5, 7, 40, 1 << 20])
def test_paths_with_single_backslashes_are_read(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As PyTorch on Windows writes them: JSON has no escape `\\U`, and after it `\\n` and `\\t` are parts of paths."""
    monkeypatch.setattr(json_stream, "BLOCK", block)
    text = r'["a\nb", "C:\Users\new\train.py", "say \"yes\"", "\\server\share", "\u0041", "\utils", 7]'
    names = ["a\nb", r"C:\Users\new\train.py", 'say "yes"', r"\server\share", "A", r"\utils", 7]
    assert read(text) == names
