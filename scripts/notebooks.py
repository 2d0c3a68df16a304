#!/usr/bin/env python3
"""Run the lecture notebooks with this interpreter and store their outputs.

    python scripts/notebooks.py [--check] [NOTEBOOK …]

The notebooks are written without metadata that depends on the machine or the run; tags are kept, such as `solution`
(scripts/course.py). With --check no file is written; the check fails if a cell fails or prints something else than its
file contains. Pictures and HTML repeat the printed text and are not compared.
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
COMPARED = ("text/plain", "text/markdown")
SECONDS_PER_CELL = 120


class ThisPython(AsyncKernelManager):
    """A kernel manager that uses the interpreter of this script and ignores installed kernels."""

    @default("kernel_spec_manager")
    def _no_installed_kernels(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])


def run(path: Path) -> NotebookNode:
    """Return the notebook with new outputs. Raises CellExecutionError."""
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as profile:  # without the user's start-up files and history
        client = NotebookClient(
            notebook, kernel_name="python3", kernel_manager_class=ThisPython, extra_arguments=["--log-level=ERROR"],
            timeout=SECONDS_PER_CELL, record_timing=False, coalesce_streams=True,
            resources={"metadata": {"path": str(path.parent)}},
        )  # fmt: skip
        client.execute(env=environment(profile))
    notebook.metadata = NotebookNode(METADATA)
    for cell in notebook.cells:
        cell.metadata = NotebookNode({key: value for key, value in cell.metadata.items() if key == "tags"})
    return notebook


def environment(profile: str) -> dict[str, str]:
    """The environment of the kernel: this checkout's roofmodel and `roof`, a fixed width and no color."""
    variables = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    return variables | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "IPYTHONDIR": profile,
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # else the debugger prints a warning
    }


def difference_of(path: Path) -> str:
    """Return the difference between the outputs in the file and the outputs of a new run; empty if they are equal."""
    stored, new = printed(nbformat.read(path, as_version=4)), printed(run(path))
    return "\n".join(difflib.unified_diff(list(stored), list(new), "in the file", "printed now", lineterm=""))


def printed(notebook: NotebookNode) -> Iterator[str]:
    """Yield the printed lines of all cells, each cell under its number."""
    for number, cell in enumerate(notebook.cells, 1):
        for output in cell.get("outputs", ()):
            texts = [output.text] if output.output_type == "stream" else map(output.get("data", {}).get, COMPARED)
            yield f"cell {number}, {output.get('name', output.output_type)}:"
            yield from (line.rstrip() for text in texts if text for line in text.splitlines())


def main() -> int:
    """Run or check the notebooks and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare outputs and write nothing")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all lectures")
    arguments = parser.parse_args()
    failed = False
    for path in arguments.notebooks or sorted(LECTURES.glob("*.ipynb")):
        try:
            if not arguments.check:
                nbformat.write(run(path), path)
            difference = difference_of(path) if arguments.check else ""
        except CellExecutionError as error:
            difference = str(error)
        print(f"{path.name}: {'failed or outdated' if difference else 'up to date' if arguments.check else 'written'}")
        print(difference, end="\n" if difference else "")
        failed |= bool(difference)
    return failed


if __name__ == "__main__":
    sys.exit(main())
