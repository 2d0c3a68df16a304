"""The fuzzers of configs and device files: they find planted bugs, and their first inputs pass."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

from roofmodel.errors import ModelError

if sys.platform == "win32":
    pytest.skip("not applicable: limits of a process are Unix's", allow_module_level=True)

from tests import fuzz


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_the_first_inputs_are_rejected_or_estimated(target: str, tmp_path: Path) -> None:
    assert fuzz.fuzz(target, 2, seed=0, keep=tmp_path) == 0


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_the_same_seed_gives_the_same_inputs(target: str) -> None:
    draw, _ = fuzz.TARGETS[target]
    assert [draw(random.Random(n)) for n in range(5)] == [draw(random.Random(n)) for n in range(5)]
    assert len({draw(random.Random(n)) for n in range(20)}) == 20


def test_exceptions_and_long_or_divided_messages_are_problems(tmp_path: Path) -> None:
    def fail(error: Exception) -> str:
        def check(path: Path) -> None:
            raise error

        return fuzz.problem(check, tmp_path)

    assert "KeyError: 'x'" in fail(KeyError("x"))
    assert "2 lines" in fail(ModelError("a\nb"))
    assert "message of 3000" in fail(ModelError("word " * 600))
    assert fail(ModelError("config.json: a reason")) == ""


def test_an_endless_check_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "CPU_SECONDS", 0.2)

    def check(path: Path) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            pass

    assert "more than 0.2 s of CPU time" in fuzz.problem(check, tmp_path)


def test_a_failing_input_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(path: Path) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(fuzz.TARGETS, "configs", (fuzz.configs, check))
    assert fuzz.fuzz("configs", 0, seed=0, keep=tmp_path) == 1
    (kept,) = tmp_path.iterdir()
    assert kept.read_bytes() == fuzz.configs(random.Random("configs 0 1"))[1]
