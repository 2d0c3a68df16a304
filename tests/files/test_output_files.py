"""Output files: paths that are refused before any work is done, and permissions of replaced files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from roofmodel.errors import OutputError
from roofmodel.files import output_files


@pytest.fixture(autouse=True)
def _working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def link_to_link(source: str, target: str) -> None:
    os.symlink(source, "between")
    os.symlink("between", target)


@pytest.mark.parametrize("given", ["in.csv", "./in.csv", "folder/../in.csv", "in.csv@a100", "*.csv", "i?.csv@a100"])
def test_an_output_that_is_an_input_by_any_path_is_refused(given: str) -> None:
    Path("folder").mkdir()
    Path("in.csv").touch()
    with pytest.raises(OutputError, match=r"^in\.csv: is also an input"):
        output_files.check_not_input("in.csv", ["gpt2", "a100", given])


@pytest.mark.parametrize("link", [os.symlink, os.link, link_to_link], ids=["symbolic", "hard", "chain"])
def test_an_output_that_is_a_link_to_an_input_is_refused(link: Callable[[str, str], None]) -> None:
    Path("in.csv").touch()
    link("in.csv", "out.csv")
    with pytest.raises(OutputError, match=r"^out\.csv: is also an input \(in\.csv\)"):
        output_files.check_not_input("out.csv", ["in.csv"])
    with pytest.raises(OutputError, match=r"^in\.csv: is also an input \(out\.csv\)"):
        output_files.check_not_input("in.csv", ["out.csv"])


def test_the_config_in_a_folder_is_an_input() -> None:
    Path("model").mkdir()
    Path("model/config.json").touch()
    with pytest.raises(OutputError, match=r"^model/config\.json: is also an input \(model\)"):
        output_files.check_not_input("model/config.json", ["model"])


def test_a_file_with_the_same_content_is_not_an_input() -> None:
    for name in ("in.csv", "out.csv"):
        Path(name).write_text("same")
    output_files.check_not_input("out.csv", ["in.csv", "new.csv", "", "\0", "a" * 5000])
    output_files.check_not_input("new.csv", ["in.csv", "new.csv"])


@pytest.mark.skipif(sys.platform == "win32", reason="not applicable: permissions are Unix's")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_a_replaced_file_keeps_its_permissions(mode: int) -> None:
    Path("out.csv").write_text("old")
    Path("out.csv").chmod(mode)
    during: list[int] = []

    def write(file: Path) -> None:
        during.append(file.stat().st_mode & 0o077)
        file.write_text("new")

    output_files.replace(Path("out.csv"), write)
    assert Path("out.csv").read_text() == "new"
    assert stat.S_IMODE(Path("out.csv").stat().st_mode) == mode
    assert during == [0]  # the unfinished file is not more readable than the old one


@pytest.mark.skipif(sys.platform == "win32", reason="not applicable: permissions are Unix's")
def test_a_read_only_file_is_refused_for_the_superuser_too() -> None:
    Path("out.csv").write_text("old")
    Path("out.csv").chmod(0o444)
    os.symlink("out.csv", "link.csv")
    for path in ("out.csv", "link.csv"):
        with pytest.raises(OutputError, match=rf"^{path}: the file is read-only"):
            output_files.check(path, ("csv",))


@pytest.mark.parametrize("length", [253, 255])
def test_a_file_may_have_the_longest_name_that_the_system_permits(length: int) -> None:
    name = "a" * (length - 4) + ".csv"
    output_files.replace(Path(name), lambda file: file.write_text("text"))
    assert [path.name for path in Path.cwd().iterdir()] == [name]


WRITE_SLOWLY = """
import sys, time
from pathlib import Path
from roofmodel.files import output_files

def write(file):
    file.write_text("half")
    print("begun", flush=True)
    time.sleep(60)

output_files.replace(Path("other.csv"), write)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="not applicable: locks are Unix's")
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "alive"])
def test_only_temporary_files_that_no_process_owns_are_removed(killed: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITE_SLOWLY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        if killed:
            process.kill()
            process.wait()
        output_files.replace(Path("out.csv"), lambda file: file.write_text("whole"))
        left = [path.name for path in Path.cwd().iterdir() if path.name != "out.csv"]
        process.kill()
    assert Path("out.csv").read_text() == "whole"
    assert len(left) == (0 if killed else 1), left
