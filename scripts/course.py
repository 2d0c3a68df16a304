#!/usr/bin/env python3
"""Write the lectures as students or lecturers get them.

    python scripts/course.py student|lecturer FOLDER [--first-line TEXT]

FOLDER becomes a copy of examples/, so that the notebooks find their files. Both versions come from the notebooks in
examples/lectures:

- student: no outputs and no solutions; answers (code and text) are folded.
- lecturer: with outputs and solutions, and divided into slides for `jupyter nbconvert --to slides`.

An answer is what follows a question, up to the next heading or question. A solution is a cell with the tag `solution`.
TEXT becomes the first cell, for a machine without roofmodel (Colab): --first-line '%pip install -q ADDRESS', where
ADDRESS is that of your copy.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FOLDED = {
    "jupyter": {"source_hidden": True},  # JupyterLab and Notebook 7
    "cellView": "form",  # Colab
}
QUESTION = "**Question.**"
NEXT_PART = re.compile(r"^(?=## |\*\*Question\.\*\*)", re.MULTILINE)


def parts(notebook: NotebookNode) -> Iterator[tuple[str, NotebookNode]]:
    """Yield each cell with its role: text, code, answer or solution. Text is divided at headings and questions."""
    answers = False
    for cell in notebook.cells:
        if is_solution(cell):
            yield "solution", cell
        elif cell.cell_type == "code":
            yield "answer" if answers else "code", cell
        else:
            for number, text in enumerate(filter(None, map(str.strip, NEXT_PART.split(cell.source)))):
                answers &= not text.startswith(("#", QUESTION))
                yield "answer" if answers else "text", copy_of(cell, text, number)
                answers |= QUESTION in text


def is_solution(cell: NotebookNode) -> bool:
    """Whether a cell solves exercises."""
    return "solution" in cell.metadata.get("tags", ())


def copy_of(cell: NotebookNode, source: str, number: int) -> NotebookNode:
    """Return a part of a text cell, with an id of its own."""
    return NotebookNode(cell | {"source": source, "id": f"{cell.id}-{number}" if number else cell.id})


def for_students(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """Yield the cells without outputs and solutions, with folded answers."""
    for role, cell in parts(notebook):
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if role == "answer" and cell.cell_type == "code":
            cell.metadata.update(FOLDED)
        elif role == "answer":
            cell.source = f"<details><summary>Answer</summary>\n\n{cell.source}\n\n</details>"
        if role != "solution":
            yield cell


def for_lecturers(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """Yield all cells. Headings and questions start a slide, answers appear one by one, solutions are skipped."""
    for role, cell in parts(notebook):
        kind = {"answer": "fragment", "solution": "skip"}.get(role, "-")
        if role == "text" and cell.source.startswith(("#", QUESTION)):
            kind = "slide"
        cell.metadata.slideshow = {"slide_type": kind}
        yield cell


VERSIONS = {"student": for_students, "lecturer": for_lecturers}


def version(name: str, notebook: NotebookNode, first_line: str | None = None) -> NotebookNode:
    """Return a version of a notebook. Changes its cells."""
    cells = list(VERSIONS[name](notebook))
    if first_line:
        cells.insert(0, new_code_cell(first_line, id="first-line"))
    notebook.cells = cells
    return notebook


def main() -> int:
    """Write a copy of examples/ with one version of each lecture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", choices=VERSIONS)
    parser.add_argument("folder", type=Path, help="is created")
    parser.add_argument("--first-line", metavar="TEXT", help="first cell of each notebook")
    arguments = parser.parse_args()
    if arguments.folder.exists():
        parser.error(f"{arguments.folder} exists already")
    shutil.copytree(EXAMPLES, arguments.folder, ignore=shutil.ignore_patterns("__pycache__", ".*", "ruff.toml"))
    paths = sorted((arguments.folder / "lectures").glob("*.ipynb"))
    for path in paths:
        nbformat.write(version(arguments.version, nbformat.read(path, 4), arguments.first_line), path)
    print(f"{len(paths)} lectures in {arguments.folder / 'lectures'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
