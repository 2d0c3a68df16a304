"""Evaluation of pieces in several processes: results equal those of one process, also after failures."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from roofmodel.sweep import processes
from roofmodel.sweep.processes import in_processes, usable_processes


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use two processes, even if another test left a thread."""
    monkeypatch.setattr(processes, "usable_processes", lambda wanted: 2)


def test_processes_give_the_results_in_order() -> None:
    assert list(in_processes(abs, range(-40, 0))) == list(range(40, 0, -1))


@pytest.mark.usefixtures("two_processes")
def test_pieces_run_in_other_processes_and_leave_no_thread() -> None:
    before = threading.active_count()
    found = set(in_processes(lambda piece: os.getpid(), range(16)))
    assert 1 <= len(found) <= 2
    assert os.getpid() not in found
    assert threading.active_count() == before


@pytest.mark.usefixtures("two_processes")
@pytest.mark.parametrize("place", [0, 7, 15])
def test_pieces_of_a_process_that_dies_are_computed_once(place: int) -> None:
    def square(piece: int) -> int:
        if piece == place and multiprocessing.parent_process() is not None:
            os._exit(9)
        return piece * piece

    assert list(in_processes(square, range(16))) == [piece * piece for piece in range(16)]


@pytest.mark.usefixtures("two_processes")
def test_an_error_of_a_piece_ends_the_evaluation() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_processes(lambda piece: 1 / (piece - 3), range(16)))


@pytest.mark.usefixtures("two_processes")
def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    """The child process of this test is killed while its two child processes work."""

    def work(piece: int) -> None:
        (tmp_path / str(os.getpid())).touch()
        time.sleep(60)

    parent = os.fork()
    if not parent:
        list(in_processes(work, range(16)))
        os._exit(0)
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.01)
    os.kill(parent, 9)
    os.waitpid(parent, 0)
    deadline = time.monotonic() + 10
    while any(_is_running(int(path.name)) for path in tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.usefixtures("two_processes")
def test_interruption_ends_the_running_pieces_after_their_cleanup(tmp_path: Path) -> None:
    """For Ctrl-C, a terminal sends SIGINT to all processes of a group: here to this test's child and its children."""

    def work(piece: int) -> None:
        try:
            (tmp_path / f"begun-{piece}").touch()
            time.sleep(60)
        finally:
            (tmp_path / f"cleaned-{piece}").touch()

    parent = os.fork()
    if not parent:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in background jobs
        try:
            list(in_processes(work, range(16)))
        except KeyboardInterrupt:
            os._exit(130)
        os._exit(0)
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.01)
    os.killpg(parent, signal.SIGINT)
    deadline = time.monotonic() + 20
    while not (ended := os.waitpid(parent, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.killpg(parent, signal.SIGKILL)
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun-0", "begun-1", "cleaned-0", "cleaned-1"]


def _is_running(process: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_no_process_is_forked_while_another_thread_runs() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert usable_processes(2) == 1
    finally:
        end.set()
        thread.join()
