"""Signals that end a command: no temporary file is left, no traceback is printed, and the exit status names them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="not applicable: Windows has no such signals")


def interrupted(at: str, number: int, folder: Path, *, handler: str = "SIG_DFL") -> subprocess.CompletedProcess[str]:
    """A `roof estimate … -o out.json` that receives a signal when it reaches `at`: a module's import, or `write`."""
    program = textwrap.dedent(
        f"""
        import os, pathlib, runpy, signal, sys

        signal.signal({number}, signal.{handler} if {number} != signal.SIGINT else signal.default_int_handler)

        class SignalAtImport:
            def find_spec(self, name, path=None, target=None):
                if name == {at!r}:
                    os.kill(os.getpid(), {number})

        def write_text(path, *arguments, **options):
            path.write_bytes(b"half of it")
            os.kill(os.getpid(), {number})
            path.write_bytes(b"all of it")

        sys.meta_path.insert(0, SignalAtImport())
        if {at!r} == "write":
            pathlib.Path.write_text = write_text
        sys.argv = ["roof", "estimate", "gpt2", "--hw", "a100", "--seq", "128", "-o", "out.json"]
        runpy.run_module("roofmodel", run_name="__main__", alter_sys=True)
        """
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_deletes_the_temporary_file_and_selects_the_exit_status(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "out.json").write_text("old")
    done = interrupted("write", number, tmp_path)
    assert done.returncode == 128 + number
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    assert (tmp_path / "out.json").read_text() == "old"


@pytest.mark.parametrize(
    "module", ["roofmodel.cli", "typer", "yaml", "roofmodel.estimate.command", "roofmodel.models.hub"]
)
def test_an_interrupt_while_modules_are_imported_prints_no_traceback(module: str, tmp_path: Path) -> None:
    done = interrupted(module, signal.SIGINT, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert [*tmp_path.iterdir()] == []


def test_a_signal_that_the_caller_ignores_stays_ignored(tmp_path: Path) -> None:
    """`nohup roof …` goes on after the terminal is closed."""
    done = interrupted("write", signal.SIGHUP, tmp_path, handler="SIG_IGN")
    assert done.returncode == 0
    assert (tmp_path / "out.json").read_text() == "all of it"
