"""Progress: nothing for what is quick, on stderr alone for what is not."""

import gzip
import sys

import pytest

from roofmodel.profiles import reading
from roofmodel.views import progress
from tests.profiles.ncu_samples import HEADER, row

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
