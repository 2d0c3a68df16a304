#!/usr/bin/env python3
"""Run the lectures' notebooks by this interpreter and keep what they print: all of them, or those named.

    python scripts/notebooks.py [--check] [NOTEBOOK …]

A notebook is written back with its outputs, and without what tells one machine or run from another. With --check the
files stay as they are, and it fails where a cell fails, or prints something else than its file holds; pictures and
HTML, which say the same again, are not compared.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from traitlets import default

ROOT = Path(__file__).resolve().parents[1]
LECTURES = ROOT / "examples" / "lectures"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
TEXTS = ("text/plain", "text/markdown")  # what is compared
SECONDS = 120  # for a cell


class ThisPython(AsyncKernelManager):
    """Kernels run in the interpreter that runs this, whatever kernels a user has installed."""

    @default("kernel_spec_manager")
    def _without_others(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])


def run(path: Path) -> NotebookNode:
    """The notebook with its outputs, new. Raises CellExecutionError."""
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as profile:  # no start-up files and no history of the user's
        client = NotebookClient(
            notebook, kernel_name="python3", kernel_manager_class=ThisPython, extra_arguments=["--log-level=ERROR"],
            timeout=SECONDS, record_timing=False, coalesce_streams=True,
            resources={"metadata": {"path": str(path.parent)}},
        )  # fmt: skip
        client.execute(env=environment(profile))
    notebook.metadata = NotebookNode(METADATA)
    for cell in notebook.cells:
        cell.metadata = NotebookNode()
    return notebook


def environment(profile: str) -> dict[str, str]:
    """Of the kernel: this checkout's roofmodel, its `roof`, and outputs of one width and no colour."""
    kept = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    return kept | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "IPYTHONDIR": profile,
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # which would warn of its own interpreter
    }


def stale(path: Path) -> str:
    """How what the cells print now differs from what the file holds; empty where it does not."""
    held, now = printed(nbformat.read(path, as_version=4)), printed(run(path))
    return "\n".join(difflib.unified_diff(list(held), list(now), "in the file", "printed now", lineterm=""))


def printed(notebook: NotebookNode) -> Iterator[str]:
    """What the cells print, line by line, each cell under its number."""
    for number, cell in enumerate(notebook.cells, 1):
        for output in cell.get("outputs", ()):
            texts = [output.text] if output.output_type == "stream" else map(output.get("data", {}).get, TEXTS)
            yield f"cell {number}, {output.get('name', output.output_type)}:"
            yield from (line.rstrip() for text in texts if text for line in text.splitlines())


def main() -> int:
    """What was done with each notebook, a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("notebooks", nargs="*", type=Path, help="all lectures, if none is named")
    asked = parser.parse_args()
    failed = False
    for path in asked.notebooks or sorted(LECTURES.glob("*.ipynb")):
        try:
            if not asked.check:
                nbformat.write(run(path), path)
            difference = stale(path) if asked.check else ""
        except CellExecutionError as error:
            difference = str(error)
        print(f"{path.name}: {'failed, or stale' if difference else 'fresh' if asked.check else 'written'}")
        print(difference, end="\n" if difference else "")
        failed |= bool(difference)
    return failed


if __name__ == "__main__":
    sys.exit(main())
