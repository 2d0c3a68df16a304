"""The README: its commands run after the base installation, its example runs, its links exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from roofmodel import __version__

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"## Eleven commands worth knowing\n\n```console\n(.*?)```", README, re.DOTALL)
COMMANDS = [line.partition("#")[0].strip() for line in BLOCK.splitlines()]
OPTIONAL = (
    "atheris", "dask", "distributed", "fvcore", "huggingface_hub", "ncu_report", "plotly", "pyarrow", "scipy", "torch",
    "transformers",
)  # fmt: skip
BASE_INSTALLATION = f"""
import sys
sys.modules.update(dict.fromkeys({OPTIONAL}))  # importing one of them raises ModuleNotFoundError
from roofmodel.__main__ import main
main()
"""


def test_the_readme_names_eleven_commands() -> None:
    assert len(COMMANDS) == 11


@pytest.mark.parametrize("command", COMMANDS)
def test_a_readme_command_runs_after_the_base_installation(command: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    program, *arguments = shlex.split(command)
    assert program == "roof"
    done = subprocess.run(
        [sys.executable, "-c", BASE_INSTALLATION, *arguments],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout or "-o" in arguments
    if "-o" in arguments:
        assert (tmp_path / arguments[arguments.index("-o") + 1]).stat().st_size


def test_the_python_example_runs() -> None:
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert example
    exec(compile(example.group(1), "README.md", "exec"), {})


def test_the_numbers_of_packaged_checkpoints_and_devices_are_right() -> None:
    checkpoints = [path for path in (ROOT / "roofmodel" / "models" / "configs").iterdir() if path.suffix == ".json"]
    devices = list((ROOT / "hardware").glob("*.yaml"))
    assert f"the {len(checkpoints)} checkpoints and {len(devices)} devices" in " ".join(README.split())


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_the_page_is_short_and_its_links_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    for path in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (ROOT / path).exists(), path


def test_the_citation_names_the_current_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (citation["version"], citation["license"]) == (__version__, project["license"])
