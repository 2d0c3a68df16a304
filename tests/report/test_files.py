"""`-o FILE` of every command: each writes a page, JSON, Markdown and CSV, and a picture where it draws one."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len

from roofmodel.cli import COMMANDS
from roofmodel.errors import OutputError
from roofmodel.report.base import Result
from roofmodel.report.document import Document, Rows
from roofmodel.report.table import Column, Table
from tests.command_line import run

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXTS, PICTURES = ("html", "json", "md", "csv"), ("png", "svg", "pdf")
OTHERS = {"measure", "validate", "calibrate", "homework"}
"""Commands with files of their own."""
NCU, TRACE = EXAMPLES / "ncu_by_hand.csv", EXAMPLES / "gpt2_trace_by_hand.json.gz"
LINES = {
    "estimate": "estimate gpt2 --hw a100",
    "sweep": "sweep gpt2 --hw a100 --batch 1,2 --phase decode",
    "op": "op gemm --m 128 --n 128 --k 128 --hw a100",
    "count": "count torch.nn:Tanh --input 2x3",
    "plan": "plan gpt2 --hw a100 --gpus 1 --isl 128 --osl 32 --top 2",
    "plan --train": "plan gpt2 --hw a100 --gpus 2 --train --batch 8 --seq 512 --tokens 1B --top 2",
    "crossover": "crossover gpt2 --hw a100 --phase decode",
    "explain": "explain gpt2 --hw a100 --op attention.qkv --phase decode",
    "explain --conventions": "explain --conventions",
    "explore": "explore resnet-18 --hw v100",
    "kernels": f"kernels {NCU} --hw a100",
    "plot": f"plot {NCU} --hw a100",
    "compare": f"compare gpt2 {TRACE} --phase prefill --batch 1 --seq 512",
    "trace": f"trace {TRACE}",
    "jitter": f"jitter {EXAMPLES / 'four_ranks_by_hand.csv'}",
    "ncu-command": "ncu-command FILES -- python train.py",
    "nsys-command": "nsys-command FILES -- python train.py",
    "models": "models list gpt2",
    "models show": "models show gpt2",
    "hw": "hw list a100",
    "hw show": "hw show a100",
}
DRAW = {"estimate", "sweep", "plan", "crossover", "plot", "compare", "trace", "jitter"}


def arguments(name: str, *files: Path) -> list[str]:
    outputs = [word for file in files for word in ("-o", str(file))]
    words = LINES[name].split()
    place = words.index("FILES") if "FILES" in words else len(words)
    return [*words[:place], *outputs, *words[place + 1 :]]


def test_every_command_is_tested() -> None:
    assert {line.split()[0] for line in LINES.values()} == COMMANDS.keys() - OTHERS


@pytest.mark.parametrize("name", LINES)
def test_a_command_writes_a_page_texts_and_its_picture(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "plot":
        pytest.importorskip("plotly")
    files = {suffix: tmp_path / f"out.{suffix}" for suffix in (*TEXTS, *(PICTURES if name in DRAW else ()))}
    done = run(arguments(name, *files.values()), monkeypatch, capsys)
    assert done.status == 0, done.err
    page = files["html"].read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "<title>" in page
    assert "<h1" in page
    assert json.loads(files["json"].read_text(encoding="utf-8"))
    assert files["md"].read_text(encoding="utf-8").startswith("# ")
    with files["csv"].open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert rows
    assert all(None not in (*row, *row.values()) for row in rows)  # as many fields as the header
    if name in DRAW:
        assert files["png"].read_bytes().startswith(b"\x89PNG")
        assert files["pdf"].read_bytes().startswith(b"%PDF-")
        root = ElementTree.parse(files["svg"]).getroot()
        title = root.find("{http://www.w3.org/2000/svg}title")
        assert root.get("role") == "img"
        assert title is not None
        assert title.text
        assert root.get("aria-label")
    if name in DRAW - {"plot"}:  # whose page draws in the browser
        assert '<figure role="img" aria-label="' in page


@pytest.mark.parametrize("name", sorted({*DRAW, "kernels", "hw", "explain"}))
def test_a_page_has_no_horizontal_scrolling_on_a_phone(
    name: str, chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wide tables and pictures scroll in themselves."""
    if name == "plot":
        pytest.importorskip("plotly")
    page = tmp_path / "out.html"
    assert run(arguments(name, page), monkeypatch, capsys).status == 0
    size = {"width": 500, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        chromium.get(page.as_uri())
        assert chromium.execute_script("return document.documentElement.scrollWidth") <= 500
    finally:
        chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("name", [name for name in LINES if name not in DRAW])
def test_a_command_without_a_picture_refuses_one_and_says_what_it_writes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(arguments(name, tmp_path / "out.png"), monkeypatch, capsys)
    assert (done.status, done.out) == (2, "")
    assert "unknown suffix '.png'; known: " in done.err
    assert all(f".{suffix}" in done.err for suffix in TEXTS)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", [name for name in LINES if name not in ("explore", "ncu-command", "nsys-command")])
def test_the_answer_fits_a_narrow_terminal(
    name: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(tmp_path)  # in which plot writes its picture
    done = run(arguments(name), monkeypatch, capsys)
    assert [line for line in done.out.splitlines() if cell_len(line) > width] == []


class Counted(Result):
    """A result of one row that counts its documents."""

    FILES = ("png", *Result.FILES)

    def __init__(self) -> None:
        self.documents = 0

    def answer(self, *, most: int | None = None) -> Document:
        self.documents += 1
        rows = Rows(Table("rows", [Column("a", "a")]), [{"a": most}])
        return Document("title", [rows], lambda: {"rows": rows.table.records(rows.rows)}, lambda: rows)


def test_texts_files_and_the_terminal_share_one_document(tmp_path: Path) -> None:
    result = Counted()
    for suffix in TEXTS:
        result.save(tmp_path / f"out.{suffix}")
    assert (result.text("json"), result.table().document.title) == (
        '{\n "rows": [\n  {\n   "a": null\n  }\n ]\n}',
        "title",
    )
    assert result.documents == 1
    assert [block.rows for block in result.table(most=3).document.blocks] == [[{"a": 3}]]


def test_results_without_a_picture_say_what_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"no picture, so no \.png; write \.html or \.json or \.csv or \.md"):
        Counted().save(tmp_path / "out.png")
    assert not [*tmp_path.iterdir()]
