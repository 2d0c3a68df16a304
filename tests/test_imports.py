"""Imports between the modules of roofmodel."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import grimp
import pytest


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("roofmodel", cache_dir=None)
    circles = {
        frozenset(chain): " -> ".join((module, *chain))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
        if (chain := graph.find_shortest_chain(importer=imported, imported=module))
    }
    assert not circles, "\n".join(circles.values())


def test_each_class_name_is_used_once() -> None:
    places = defaultdict(list)
    for path in sorted((Path(__file__).parents[1] / "roofmodel").rglob("*.py")):
        for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            places[name].append(path.name)
    assert not {name: files for name, files in places.items() if len(files) > 1}


PRINT_LOADED_MODULES = """
import atexit, sys
from roofmodel.__main__ import main
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv = ["roof", *sys.argv[1:]]
main()
"""
EXAMPLES = Path(__file__).parents[1] / "examples"
ESTIMATOR = ("roofmodel.counting", "roofmodel.engines", "roofmodel.models", "roofmodel.steps", "roofmodel.timing")


def loaded(*arguments: str) -> list[str]:
    """The modules that a command imports."""
    command = [sys.executable, "-c", PRINT_LOADED_MODULES, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1].split()


# The aim for the estimate and for kernels is 70, so that their code is read in one sitting.
@pytest.mark.parametrize(
    ("arguments", "needed", "most"),
    [
        (["estimate", "gpt2-xl", "--hw", "a100"], "roofmodel.steps.estimate", 70),
        (["kernels", str(EXAMPLES / "ncu_by_hand.csv")], "roofmodel.profiles.ncu.rows", 70),
        (["plot", str(EXAMPLES / "ncu_by_hand.csv"), "--format", "json"], "roofmodel.roofline.points", 77),
        (["trace", str(EXAMPLES / "four_ranks_by_hand.csv")], "roofmodel.trace.idle", 73),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_imports_few_modules(
    arguments: Sequence[str], needed: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # `roof plot` writes its picture there
    names = [name for name in loaded(*arguments) if name.startswith("roofmodel")]
    assert needed in names
    assert len(names) <= most, names
    if arguments[0] != "estimate":
        assert not [name for name in names if name.startswith(ESTIMATOR)]


@pytest.mark.parametrize(
    ("command", "file", "absent"),
    [
        ("kernels", "ncu_by_hand.csv", {"numpy", "pandas"}),
        ("kernels", "training_by_hand.json", {"pandas"}),
        ("trace", "training_by_hand.json", {"pandas", "roofmodel.engines", "roofmodel.timing"}),
    ],
)
def test_a_short_file_needs_neither_a_library_of_tables_nor_the_estimator(
    command: str, file: str, absent: set[str]
) -> None:
    assert not absent & {*loaded(command, str(EXAMPLES / file))}
