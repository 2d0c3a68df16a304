"""The README's commands run as they stand."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from roofmodel.models import hub
from tests.study.compare import traces

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(
    r"## (?:A short tour|For lectures|What was measured|Predicted beside measured|Grids)\n\n```console\n(.*?)```",
    README,
    re.DOTALL,
)
COMMANDS = [line.partition("#")[0].strip() for block in BLOCKS for line in block.splitlines()]
TOY = "name: Toy\npipes:\n  fp16: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwidth: 10 GB/s}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_tour_runs(command: str, tmp_path: Path) -> None:
    (tmp_path / "my-gpu.yaml").write_text(TOY)
    shutil.copy(ROOT / "examples" / "models" / "gpt2-xl.yaml", tmp_path / "my-model.yaml")
    (tmp_path / "table.csv").write_text("op,dtype,m,n,k,latency_us\ngemm,fp16,1024,1024,1024,10\n")
    if "check" in command:
        (tmp_path / "sheet.md").write_text("# Sheet\n\n```\nanswers:\n  stream:\n    time: 1\n```\n")
    for name in ("profile.csv", "one.csv", "other.csv"):
        shutil.copy(ROOT / "examples" / "ncu_by_hand.csv", tmp_path / name)
    traces.write(tmp_path / "trace.json", traces.gpt2_eager(12))
    program, *arguments = shlex.split(command)
    assert program == "roof"
    done = subprocess.run(
        [sys.executable, "-m", "roofmodel", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout or "-o" in arguments


def test_the_python_example_runs() -> None:
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert example
    exec(compile(example.group(1), "README.md", "exec"), {})


def test_the_yaml_example_is_a_model(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert example
    (tmp_path / "my.yaml").write_text(example.group(1))
    stack = hub.load(str(tmp_path / "my.yaml")).stack
    assert (len(stack.layers), stack.hidden, len(stack.parts)) == (32, 4096, 64)


def test_the_files_that_the_readme_points_to_exist() -> None:
    for path in re.findall(r"`((?:roofmodel|hardware)/[^`]+?)`", README):
        assert list(ROOT.glob(path)), path
    for path in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / path).exists(), path


def test_the_page_of_families_shows_the_cases_that_are_tested() -> None:
    pytest.importorskip("transformers", reason="the classes' passes are read off them: pip install 'roofmodel[dev]'")
    from tests import guarantee

    page = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    assert "\n".join((f"{guarantee.summary()}:\n", *guarantee.table())) in page, "stale: scripts/docs writes it anew"
