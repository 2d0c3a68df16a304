"""Ranges of values, and blocks of a grid."""

from __future__ import annotations

import re
from itertools import product
from math import prod

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.errors import WorkloadError
from roofmodel.options.workload import DECLARED
from roofmodel.sweep import grid


def numbers(asked: object, low: int = 1) -> list[int]:
    return grid.numbers("batch", asked, low, 10**9)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8", [8]),
        ("1,8,64", [1, 8, 64]),
        (" 1 , 8 ", [1, 8]),
        ("1:4", [1, 2, 3, 4]),
        ("4:4", [4]),
        ("1:10:4", [1, 5, 9]),
        ("1:9:4", [1, 5, 9]),
        ("1:256:*2", [1, 2, 4, 8, 16, 32, 64, 128, 256]),
        ("1:255:*2", [1, 2, 4, 8, 16, 32, 64, 128]),
        ("1:10:*1.5", [1, 2, 3, 5, 8]),  # 1, 1.5, 2.25, 3.375, 5.0625, 7.59375: rounded, without repeats
        ("3:4096:*10", [3, 30, 300, 3000]),
        ("1,2,1:4", [1, 2, 3, 4]),
        ("5,1:2", [5, 1, 2]),
    ],
)
def test_ranges_and_lists(text: str, values: list[int]) -> None:
    assert numbers(text) == values


@pytest.mark.parametrize("asked", [[1, 8], (1, 8), range(1, 9, 7), numpy.array([1, 8]), "1,8"])
def test_sequences_of_values_equal_their_text_form(asked: object) -> None:
    assert numbers(asked) == [1, 8]
    assert all(type(value) is int for value in numbers(asked))


def test_a_single_number_is_an_axis_with_one_value() -> None:
    assert numbers(7) == numbers(numpy.int64(7)) == [7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1:x", "'x' is not a whole number"),
        ("8,,9", "'' is not a whole number"),
        ("", "'' is not a whole number"),
        ("1.5", "'1.5' is not a whole number"),
        ("8:1", "'8:1' ends before it starts; use 1:8"),
        ("1:8:0", "'0' is not a valid step"),
        ("1:8:-1", "'-1' is not a valid step"),
        ("1:8:*1", "'\\*1' is not a valid factor: it must be more than 1"),
        ("1:8:*x", "'\\*x' is not a valid factor"),
        ("1:8:*nan", "is not a valid factor"),
        ("1:8:*inf", "is not a valid factor"),
        ("1:2:3:4", "has more parts than start:end:step"),
        ("1:999999999", "has more than 10000000 values"),
        ("1:5:*1.0000000001", "has more than 10000000 values"),
        ("0", "it must be a whole number from 1"),
        ("0:8:*2", "'0' is below 1; a range with a factor"),
        ("1:20000000000:*10", "to 1000000000"),
    ],
)
def test_an_invalid_range_is_quoted_with_what_would_work(text: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        numbers(text)
    assert "batch" in str(caught.value)


@pytest.mark.parametrize("text", ["x", "1:x", "x:1", "0:1:x", "1:4:*x", "1:2:3:4", "", "9:8", "4096:1"])
@pytest.mark.parametrize(
    ("option", "low", "high"),
    [
        ("tp", 1, 4096),
        *((name, option.minimum, option.maximum) for name, option in DECLARED.items() if option.kind == "count"),
    ],
)
def test_each_suggestion_is_a_valid_value_of_its_option(option: str, low: int, high: int, text: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        grid.numbers(option, text, low, high)
    suggested = re.split("(?:try|use) ", str(caught.value))[1:]
    assert len(suggested) == 1, caught.value
    for example in re.split(" or |, ", suggested[0]):
        assert grid.numbers(option, example.removeprefix(f"{option}=").strip('"'), low, high)


def test_an_option_of_few_values_suggests_these() -> None:
    with pytest.raises(WorkloadError, match='try zero=0 or zero="0,1"'):
        grid.numbers("zero", "x", 0, 1)


@pytest.mark.parametrize("asked", [1.5, [1.5], None, [None], True, [[1]], [], object()])
def test_text_instead_of_a_number_is_refused(asked: object) -> None:
    with pytest.raises(WorkloadError, match="batch"):
        numbers(asked)


def test_modules_of_selective_recomputation_are_one_name() -> None:
    assert grid.names("none,selective:norm,mlp,selective:attention") == [
        "none", "selective:norm+mlp", "selective:attention",
    ]  # fmt: skip
    assert grid.names("norm,mlp") == ["norm", "mlp"]


def test_repeated_names_are_removed() -> None:
    assert grid.names("fp16, fp8,fp16") == ["fp16", "fp8"]
    assert grid.names(["fp16", "fp8"]) == ["fp16", "fp8"]
    assert grid.names("fp16") == ["fp16"]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 40))
def test_blocks_have_each_point_once_in_order_within_their_size_limit(lengths: list[int], most: int) -> None:
    cut = list(grid.blocks(lengths, most))
    points = [
        point
        for block in cut
        for point in product(*(range(length)[piece] for length, piece in zip(lengths, block, strict=True)))
    ]
    assert points == list(product(*map(range, lengths)))
    assert max(prod(piece.stop - piece.start for piece in block) for block in cut) <= most
