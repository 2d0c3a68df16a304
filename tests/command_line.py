"""Runs the command line in the process of the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from roofmodel import cli


class Done(NamedTuple):
    """Exit status and printed text of a command."""

    status: int
    out: str
    err: str


Roof = Callable[..., Done]


def exit_status(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of `roof` with these arguments."""
    monkeypatch.setattr("sys.argv", ["roof", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def run(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Done:
    """Run `roof` with these arguments; it must not print a traceback."""
    status = exit_status(arguments, monkeypatch)
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return Done(status, out, err)
