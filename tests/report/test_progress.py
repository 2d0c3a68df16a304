"""Progress on stderr while large files are read."""

import gzip
import io
import sys

import pytest

from roofmodel.profiles import reading
from roofmodel.report import printing
from tests.browser import run
from tests.profiles.ncu.samples import HEADER, row

TEXT = HEADER + row("dram__bytes.sum", "byte", "7")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "big.csv.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    return path


def test_reading_within_a_second_shows_nothing(file, capsys):
    with printing.reading_progress() as callback, reading.report_progress(callback):
        reading.read([file])
    assert capsys.readouterr() == ("", "")


def test_longer_reading_shows_progress_on_stderr(file, capsys, monkeypatch):
    monkeypatch.setattr(printing, "LINES_EVERY", 0)
    with printing.reading_progress() as callback, reading.report_progress(callback):
        reading.read([file])
    out, err = capsys.readouterr()
    assert out == ""
    size = file.stat().st_size
    assert set(err.splitlines()) == {f"reading {file}: {size} B of {size} B"}


def test_the_bar_on_a_terminal_is_erased_at_the_end(file, capsys, monkeypatch):
    monkeypatch.setattr(printing, "BAR_AFTER", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with printing.reading_progress() as callback, reading.report_progress(callback):
        reading.read([file])
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading" in err
    assert err.rstrip().endswith("\x1b[2K")  # the line is erased


def test_the_bar_starts_again_with_another_pass_over_the_file(monkeypatch):
    from rich.console import Console

    monkeypatch.setattr(printing, "BAR_AFTER", 0)
    bar = printing._Bar(Console(file=io.StringIO(), force_terminal=True))
    for done in (50, 100):
        bar.update("trace.json", done, 100)
    bar.update("trace.json", 10, 100)  # the remaining time must not follow from the speed of the first pass
    (task,) = bar.bar.tasks
    bar.end()
    assert task.completed == 10
    assert task.finished_speed is None
    assert not task.finished


def test_progress_reaches_the_end_of_the_file(file):
    steps = []
    with reading.report_progress(lambda *step: steps.append(step)):
        reading.read([file])
    size = file.stat().st_size
    assert steps[-1] == (str(file), size, size)


def test_writing_a_page_shows_progress_only_on_a_terminal(capsys, monkeypatch, tmp_path):
    def explore() -> str:
        assert run("explore", "resnet-18", "--hw", "v100", "-o", str(tmp_path / "x.html"), monkeypatch=monkeypatch) == 0
        return capsys.readouterr().err

    assert explore() == f"wrote {tmp_path / 'x.html'}\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert "deriving formulas: 'resnet-18'" in explore()
