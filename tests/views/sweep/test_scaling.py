"""The terminal table of a scaling sweep."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import roofmodel
from roofmodel.errors import WorkloadError


def test_the_table_has_model_measurement_and_serial_fractions(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("gpus,seconds\n1,0.1\n2,0.11\n4,0.12\n")
    report = roofmodel.sweep(
        "gpt2", "a100", phase="train", batch=8, scaling="weak", gpus=[1, 2, 4], measured=tmp_path / "runs.csv"
    )
    console = Console(width=110, record=True, file=StringIO())
    console.print(report)
    lines = console.export_text().splitlines()
    assert lines[0] == "openai-community/gpt2 · a100-sxm-80gb · train · weak scaling over dp"
    assert lines[1].split()[:4] == ["GPUs", "batch", "time", "speed-up"]
    assert lines[2].split()[0] == "1"
    assert "100.0%" in lines[2]
    assert lines[4].endswith("120 ms, 83.3%")  # 4 x 0.1 / 0.12 / 4
    assert any(line.startswith("model: Gustafson's law: serial fraction") for line in lines)
    assert any(line.startswith("measured: Amdahl's law: serial fraction") for line in lines)


def test_a_picture_of_scaling_needs_scaling(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match='needs scaling="strong"'):
        roofmodel.sweep("gpt2", "a100").save(tmp_path / "x.png", "scaling")
