"""`roof compare` on the command line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import roofmodel
from roofmodel.compare.command import CompareReport
from roofmodel.compare.comparison import UnmatchedKernels
from tests.compare import traces
from tests.printing import printed
from tests.test_cli_measured import roof

KEYS = {
    "group", "predicted_flops", "measured_flops", "predicted_bytes", "measured_bytes", "bound_seconds",
    "expected_seconds", "measured_seconds", "kernels",
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    traces.write(tmp_path / "trace.json", 2 * list(traces.gpt2_eager(12)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    return tmp_path


def test_json_is_one_document_of_the_machine_interface(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = roof(
        "compare gpt2 trace.json --hw a100 --phase prefill --batch 1 --format json", monkeypatch, capsys
    )
    document = json.loads(out)
    assert not status
    assert {"schema", "rows", "unmatched", "totals", "findings"} <= set(document)
    assert all(set(row) >= KEYS for row in document["rows"])
    assert set(document["unmatched"]) == {"kernels", "ops"}
    assert sum(row["kernels"] for row in document["rows"]) == 125
    assert 1 <= len(document["findings"]) <= 3


def test_the_table_lists_the_largest_excess_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = roof("compare gpt2 trace.json --phase prefill --batch 1", monkeypatch, capsys)
    assert not status
    assert "a100-sxm-80gb, by the file's attributes" in out
    assert "prefill: 1 × 1024 tokens: mean of 2 passes" in out
    assert "attention: Q, K, V projection" in out
    assert "\n1. " in out


def test_files_are_written_by_their_suffix(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "compare gpt2 trace.json --hw a100 --phase prefill --batch 1 -o a.png -o a.csv -o a.json --format csv"
    status, out, err = roof(command, monkeypatch, capsys)
    assert not status
    assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "a.json").read_text())["schema"] == "roofmodel.compare/1"
    rows = list(csv.DictReader(io.StringIO(out)))
    assert rows == list(csv.DictReader(io.StringIO((folder / "a.csv").read_text())))
    assert "wrote a.png" in err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("compare gpt2 nothing.json --hw a100", "'nothing.json': no such file"),
        ("compare gtp2 trace.json --hw a100", "did you mean"),
        ("compare gpt2 trace.json --hw a100 -o a.tex", "unknown suffix '.tex'"),
        ("compare gpt2 trace.json --hw a100 --format xml", "unknown format 'xml'"),
    ],
)
def test_errors_have_exit_status_2(
    command: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = roof(command, monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert message in err


def test_files_list_all_kernels_without_an_operator() -> None:
    """Ten, of which a terminal lists eight."""
    comparison = roofmodel.compare("gpt2", "trace.json", hw="a100", phase="prefill", batch=1).comparison
    kernels = tuple(UnmatchedKernels("prefill", f"kernel_{i}", "other", 1, 1e-6) for i in range(10))
    report = CompareReport(comparison._replace(unmatched_kernels=kernels))
    text = " ".join(printed(report).split())
    assert "kernel_7" in text
    assert "2 more in" in text
    assert "kernel_8" not in text
    assert "kernel_9" in report.text("markdown")
    assert " more in" not in report.text("markdown")
