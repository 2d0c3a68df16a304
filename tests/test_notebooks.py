"""The lecture notebooks run with the interpreter of the tests and contain the outputs that they print."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from tests.profiles.samples import MEASURED, needs_measured

ROOT = Path(__file__).parents[1]
LECTURES = sorted((ROOT / "examples" / "lectures").glob("*.ipynb"))
MAX_BYTES = 300_000
MACHINE_DETAILS = re.compile(r"/home/|/root|/tmp/|/Users/|C:\\\\|site-packages|\bon \d{4}-\d\d-\d\d")


def check(*paths: Path) -> subprocess.CompletedProcess[str]:
    """Run the check in a subprocess: kernels leave sockets and event loops open, for which pytest would warn."""
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "notebooks.py", "--check", *paths],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize("path", LECTURES, ids=lambda path: path.stem)
def test_a_lecture_contains_the_outputs_that_it_prints(path: Path) -> None:
    done = check(path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", LECTURES, ids=lambda path: path.stem)
def test_a_lecture_is_small_and_contains_no_machine_details(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.encode()) < MAX_BYTES
    document = json.loads(text)
    assert set(document["metadata"]) == {"kernelspec", "language_info"}
    assert document["metadata"]["language_info"] == {"name": "python"}
    for cell in document["cells"]:
        assert cell["metadata"] in ({}, {"tags": ["solution"]})
        shown = json.dumps([{**output, "data": _texts(output)} for output in cell.get("outputs", [])])
        assert not MACHINE_DETAILS.search(shown + "".join(cell["source"])), cell["source"]


def _texts(output: dict[str, dict[str, object]]) -> dict[str, object]:
    return {kind: value for kind, value in output.get("data", {}).items() if kind.startswith("text/")}


@pytest.mark.parametrize("path", LECTURES, ids=lambda path: path.stem)
def test_a_lecture_has_questions_exercises_and_homework(path: Path) -> None:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    given = [cell for cell in cells if cell["metadata"] == {}]
    texts = ["".join(cell["source"]) for cell in given if cell["cell_type"] == "markdown"]
    assert texts[0].startswith(f"# {int(path.name[:2])}. ")
    assert "You will learn" in texts[0]
    assert sum("**Question.**" in text for text in texts) >= 3
    assert "## Exercises" in texts[-1] or "## Exercises" in texts[-2]
    assert "roof homework" in "".join(texts[-2:])
    assert path.name in (ROOT / "examples" / "README.md").read_text("utf-8")
    solutions = cells[len(given) :]
    assert "".join(solutions[0]["source"]).startswith("## Solutions")
    numbers = [re.findall(r"^(\d)\. ", "".join(text), re.MULTILINE) for text in (texts[-1], solutions[0]["source"])]
    assert numbers[0] == numbers[1]


def test_no_lecture_needs_a_download() -> None:
    assert not [path.stem for path in LECTURES if re.search("ROOF_MEASURED|curl ", path.read_text("utf-8"))]


@needs_measured
def test_the_reduced_files_of_lectures_give_what_the_whole_files_give(tmp_path: Path) -> None:
    workload: dict[str, Any] = dict(batch=4, dtype="bf16")
    whole, reduced = (
        roofmodel.compare("vit-base-patch16-224", file, **workload)
        for file in (
            MEASURED / "traces" / "torch" / "Falconsai_nsfw_image_detection__1016002.json.gz",
            ROOT / "examples" / "vit_h100.json.gz",
        )
    )
    assert whole.totals == reduced.totals
    (tmp_path / "two_ranks.sqlite").write_bytes(
        gzip.decompress((ROOT / "examples" / "two_ranks_h100.sqlite.gz").read_bytes())
    )
    found = roofmodel.jitter(MEASURED / "traces" / "nsys" / "two_ranks_training_h100.sqlite")
    assert roofmodel.jitter(tmp_path / "two_ranks.sqlite").findings == found.findings


def notebook(folder: Path, source: str, printed: str) -> Path:
    """Write a notebook with one cell and this stored output."""
    output = {"output_type": "stream", "name": "stdout", "text": printed}
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "source": source, "execution_count": 1, "outputs": [output]}
    path = folder / "made.ipynb"
    path.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}), "utf-8")
    return path


def test_notebooks_run_with_this_interpreter_and_this_checkout(tmp_path: Path) -> None:
    code = "import sys, roofmodel\nprint(sys.executable)\nprint(roofmodel.__file__)"
    done = check(notebook(tmp_path, code, f"{sys.executable}\n{ROOT / 'roofmodel' / '__init__.py'}\n"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("code", "reported"), [("print(2)", "+2"), ("assert False, 'an error'", "an error")])
def test_an_outdated_output_or_a_failing_cell_is_reported(tmp_path: Path, code: str, reported: str) -> None:
    path = notebook(tmp_path, code, "1\n")
    before = path.read_bytes()
    done = check(path)
    assert (done.returncode, path.read_bytes()) == (1, before)
    assert reported in done.stdout


def write_course(folder: Path, version: str, *options: str) -> dict[str, list[dict[str, object]]]:
    """Write a version of all lectures; return the cells of each."""
    command = [sys.executable, ROOT / "scripts" / "course.py", version, folder, *options]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    paths = sorted((folder / "lectures").glob("*.ipynb"))
    assert [path.name for path in paths] == [path.name for path in LECTURES]
    return {path.stem: json.loads(path.read_text("utf-8"))["cells"] for path in paths}


def test_a_students_version_has_no_solution_and_folds_answers(tmp_path: Path) -> None:
    for name, cells in write_course(tmp_path / "course", "student").items():
        source = "".join("".join(cell["source"]) for cell in cells)
        assert "## Exercises" in source
        assert "Solutions" not in source
        assert all(cell.get("outputs", []) == [] and "tags" not in cell["metadata"] for cell in cells)
        after_questions = [
            after for cell, after in itertools.pairwise(cells) if "**Question.**" in "".join(cell["source"])
        ]
        for cell in after_questions:
            folded = cell["metadata"].get("jupyter") == {"source_hidden": True}
            assert folded or "".join(cell["source"]).startswith("<details>"), (name, cell["source"])


def test_a_students_version_runs_in_its_folder(tmp_path: Path) -> None:
    write_course(tmp_path / "course", "student", "--first-line", "import roofmodel")
    path = tmp_path / "course" / "lectures" / "09-where-a-step-goes.ipynb"
    assert json.loads(path.read_text("utf-8"))["cells"][0]["source"] == ["import roofmodel"]
    run = [sys.executable, ROOT / "scripts" / "notebooks.py", path]
    assert subprocess.run(run, check=False, capture_output=True, timeout=100).returncode == 0


def test_a_lecturers_version_has_solutions_and_slides(tmp_path: Path) -> None:
    for cells in write_course(tmp_path / "course", "lecturer").values():
        kinds = [cell["metadata"]["slideshow"]["slide_type"] for cell in cells]
        assert (kinds[0], kinds[-1]) == ("slide", "skip")
        assert kinds.count("slide") > kinds.count("skip") > 0
        assert any(cell.get("outputs") for cell in cells)
