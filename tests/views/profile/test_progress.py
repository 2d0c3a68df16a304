"""Progress: nothing for what is quick, on stderr alone for what is not."""

import gzip
import sys

import pytest

from roofmodel.profiles import reading
from roofmodel.views.profile import progress
from tests.profiles.ncu.samples import HEADER, row
from tests.views.conftest import run

TEXT = HEADER + row("dram__bytes.sum", "byte", "7")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "big.csv.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    return path


def test_what_is_read_within_a_second_shows_nothing(file, capsys):
    with progress.shown():
        reading.read([file])
    assert capsys.readouterr() == ("", "")


def test_what_takes_longer_says_on_stderr_how_far_it_is(file, capsys, monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 0)
    with progress.shown():
        reading.read([file])
    out, err = capsys.readouterr()
    assert out == ""
    # a line now and then: this one is due at once, the next in 10 s
    size = file.stat().st_size
    assert err == f"reading {file}: {size} B of {size} B\n"


def test_a_terminal_has_a_bar_that_leaves_nothing_behind(file, capsys, monkeypatch):
    monkeypatch.setattr(progress, "AFTER", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress.shown():
        reading.read([file])
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading" in err
    assert err.rstrip().endswith("\x1b[2K")  # the line is erased


def test_files_are_told_to_their_end(file):
    told = []
    token = reading.watching.set(lambda *step: told.append(step))
    try:
        reading.read([file])
    finally:
        reading.watching.reset(token)
    size = file.stat().st_size
    assert told[-1] == (str(file), size, size)


def test_a_page_that_is_being_made_says_so_on_a_terminal_alone(capsys, monkeypatch, tmp_path):
    def explore() -> str:
        assert run("explore", "resnet-18", "--hw", "v100", "-o", str(tmp_path / "x.html"), monkeypatch=monkeypatch) == 0
        return capsys.readouterr().err

    assert explore() == f"wrote {tmp_path / 'x.html'}\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert "writing formulas down" in explore()
