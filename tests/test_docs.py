"""The pages of docs/ say what the program does; scripts/docs writes their outputs, scripts/site checks their links."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import roofmodel
from roofmodel.cli.app import app
from roofmodel.study.sweep import case
from tests.study.compare import traces

ROOT = Path(__file__).parents[1]
PAGES = sorted(set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs" / "reference" / "commands.md"})
JSON = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
DOCUMENTS = re.findall(r"^\$ roof (.*)\n```\n\n\| keys \| hold \|\n\|---\|---\|\n((?:\|.*\n)*)", JSON, re.MULTILINE)
SHOWN = sorted(
    {line for page in PAGES for line in re.findall(r"^\$ (roof .*)$", page.read_text(encoding="utf-8"), re.MULTILINE)}
)


def keys(value: Any, path: str = "") -> Iterator[str]:
    """`rows[].name` of every leaf; a list of plain values, or of none, is a leaf."""
    if isinstance(value, dict):
        for name, inside in value.items():
            yield from keys(inside, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(inside, dict) for inside in value):
        for inside in value:
            yield from keys(inside, f"{path}[]")
    else:
        yield path


@pytest.mark.parametrize(("command", "table"), DOCUMENTS, ids=[command.split()[0] for command, _ in DOCUMENTS])
def test_the_page_on_json_has_the_keys_that_are_printed(command: str, table: str, tmp_path: Path) -> None:
    if command.startswith("count "):
        pytest.importorskip("torch", reason="roof count needs torch: pip install 'roofmodel[torch]'")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "table.csv").write_text("op,dtype,m,n,k,latency_us\ngemm,fp16,64,64,64,10\ngemm,odd,64,64,64,10\n")
    (tmp_path / "answers.yaml").write_text("answers:\n  stream:\n    intensity: 0.08\n")
    run = [sys.executable, "-m", "roofmodel", *shlex.split(command)]
    printed = set(keys(json.loads(subprocess.run(run, cwd=tmp_path, capture_output=True, check=True).stdout)))
    patterns = {
        told: re.compile(re.escape(told).replace(r"\*", ".+"))
        for row in table.splitlines()
        for told in re.findall(r"`(.+?)`", row.split(" | ")[0])
    }
    assert not {key for key in printed if not any(p.fullmatch(key) for p in patterns.values())}, "not on the page"
    assert not {told for told, p in patterns.items() if not any(map(p.fullmatch, printed))}, "not printed"


@pytest.mark.parametrize("line", SHOWN)
def test_a_command_that_a_page_shows_is_one_that_the_program_takes(line: str) -> None:
    words = shlex.split(re.split(r" [|#] | 2>", line)[0])
    command: Any = typer.main.get_command(app)
    context = command.make_context(words.pop(0), words[:1], resilient_parsing=True)
    while hasattr(command, "get_command"):
        command = command.get_command(context, words.pop(0))
    command.make_context(command.name, words)  # raises UsageError


def test_the_page_on_python_has_every_public_name() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert not [name for name in roofmodel.__all__ if not re.search(rf"\b{name}\b", page)]


def test_the_trace_of_the_tutorial_is_the_one_that_tests_compare(tmp_path: Path) -> None:
    trace = gzip.decompress((ROOT / "examples" / "gpt2_trace_by_hand.json.gz").read_bytes())
    written = traces.write(tmp_path / "trace.json", traces.gpt2_eager(12))
    assert json.loads(trace) == json.loads(Path(written).read_text(encoding="utf-8"))


def test_every_roof_of_a_sweep_is_told() -> None:
    told = next(line for line in JSON.splitlines() if "`rows[].memory_share`" in line)
    assert all(f"`{roof}`" in told for roof in case.ROOFS)
