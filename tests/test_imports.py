"""Imports between the modules of roofmodel."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import grimp


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


MODULES_OF_ESTIMATE = 76
"""Modules that `roof estimate gpt2-xl --hw a100` may import; 70 is the aim, so that the walk is read in one sitting."""
PRINT_LOADED_MODULES = """
import atexit, sys
from roofmodel.__main__ import main
atexit.register(lambda: print(*(name for name in sys.modules if name.startswith("roofmodel")), file=sys.stderr))
sys.argv = ["roof", "estimate", "gpt2-xl", "--hw", "a100"]
main()
"""


def test_an_estimate_imports_few_modules() -> None:
    done = subprocess.run([sys.executable, "-c", PRINT_LOADED_MODULES], capture_output=True, text=True, check=True)
    names = done.stderr.splitlines()[-1].split()
    assert "roofmodel.steps.estimate" in names
    assert len(names) <= MODULES_OF_ESTIMATE, names
