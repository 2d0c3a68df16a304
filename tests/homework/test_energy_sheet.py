"""The sheet of the lecture on energy: its answers by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import roofmodel

SHEET = Path(__file__).parents[2] / "examples" / "homework" / "energy.yaml"
NUMBER = r"(\d[\d ]*)"


def numbers(pattern: str, text: str) -> list[int]:
    """The whole numbers in a text, at the places of `#` in the pattern."""
    found = re.search(pattern.replace("#", NUMBER), text)
    assert found, pattern
    return [int(re.sub(r"\s", "", each)) for each in found.groups()]


@pytest.mark.parametrize("student", ["1001", "1002", "1003"])
def test_the_answers_follow_from_the_numbers_of_the_sheet(student: str) -> None:
    sheet = roofmodel.homework(student, sheet=SHEET, seed="a seed of sixteen", key=True).text("markdown")
    given = " ".join(sheet.split())
    answers = {name: float(value) for name, value in re.findall(r"^ +(\w+): ([\d.e+-]+)", sheet, re.MULTILINE)}
    limit, idle = numbers("limit of # W and draws # W", given)
    tenths, byte, n = numbers("costs # tenths .*? DRAM # pJ.*? matrices of # rows", given)
    joules = 2 * n**3 * tenths * 1e-13 + 3 * n**2 * 2 * byte * 1e-12
    assert answers["joules"] == pytest.approx(joules, rel=1e-3)
    assert answers["rate"] == pytest.approx(2 * n**3 * (limit - idle) / joules / 1e12, rel=1e-3)
    pattern = "takes # s at # W, or # s .*? limit of # W.*? draws # W .*? every # s"
    fast, high, slow, low, sleep, period = numbers(pattern, given)
    assert answers["race"] == pytest.approx(fast * high + (period - fast) * sleep, rel=1e-3)
    assert answers["lower"] == pytest.approx(slow * low + (period - slow) * sleep, rel=1e-3)
