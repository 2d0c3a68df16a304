"""The terminal table of a scaling sweep."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import roofmodel
from roofmodel.errors import WorkloadError
from roofmodel.sweep.answer import describe_fit
from roofmodel.sweep.scaling_laws import LawFit
from roofmodel.sweep.titles import subtitle


def test_the_table_has_model_measurement_and_serial_fractions(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("gpus,seconds\n1,0.1\n2,0.11\n4,0.12\n")
    report = roofmodel.sweep(
        "gpt2",
        "a100",
        phase="train",
        batch=8,
        engine="torch",
        scaling="weak",
        gpus=[1, 2, 4],
        measured=tmp_path / "runs.csv",
    )
    console = Console(width=110, record=True, file=StringIO())
    console.print(report)
    lines = console.export_text().splitlines()
    assert lines[0] == "openai-community/gpt2 · a100-sxm-80gb · train · weak scaling over dp"
    titles = "GPUs batch time speed-up efficiency exposed share hidden replicas memory bound by measured"
    assert " ".join(lines[1].split()) == titles
    assert lines[2].split()[0] == "1"
    assert "100.0%" in lines[2]
    assert any(line.startswith("replicas: copies of gradients into buckets") for line in lines)
    assert lines[4].endswith("120 ms, 83.3%")  # 4 x 0.1 / 0.12 / 4
    assert any(line.startswith("model: Gustafson's law: serial fraction") for line in lines)
    assert any(line.startswith("measured: Amdahl's law (for strong scaling): serial fraction") for line in lines)

    laws = [line for line in lines if line.startswith("measured: ")]
    assert laws[0].startswith("measured: Gustafson's law")  # the law of weak scaling
    assert laws[1].startswith("measured: Amdahl's law (for strong scaling)")


@pytest.mark.parametrize(
    ("fraction", "low", "high", "end"),
    [
        (0.1, 0.05, 0.15, "points)"), (1.109, 1.0, 1.2, "above 100 %: slower than one GPU"),
        (-0.02, -0.03, -0.01, "below 0 %: faster than ideal"), (0.9, None, None, "no interval)"),
        (0.0159, -0.0144, 0.0463, "only 0 % to 100 % of the interval is possible"),
    ],
)  # fmt: skip
def test_fits_outside_0_to_100_percent_are_marked(
    fraction: float, low: float | None, high: float | None, end: str
) -> None:
    assert describe_fit(LawFit("gustafson", fraction, low, high, 4), "weak").endswith(end)


@pytest.mark.parametrize(("low", "high", "points"), [(-2.2, 2.95, 3), (0.1, 0.2, 2)])
def test_no_interval_is_stated_of_too_few_points(low: float, high: float, points: int) -> None:
    text = describe_fit(LawFit("amdahl", 0.375, low, high, points), "strong")
    assert text == f"Amdahl's law: serial fraction 37.50% ({points} points: too few for an interval)"


def test_the_subtitle_of_a_picture_does_not_repeat_its_title() -> None:
    found = [
        {"model": "gpt2", "hardware": "a100", "phase": "train"},
        {"model": "gpt2", "hardware": "h100", "phase": "train"},
    ]
    assert subtitle(found) == "gpt2 · train"
    assert subtitle([]) == ""


def test_replicas_that_store_the_whole_optimizer_are_stated() -> None:
    note = "memory: each of the --dp replicas stores all gradients and all of the optimizer state"
    for phase, is_stated in (("train", True), ("prefill", False)):
        report = roofmodel.sweep("gpt2", "a100", phase=phase, batch=8, scaling="weak", gpus=[1, 2])
        console = Console(width=110, record=True, file=StringIO())
        console.print(report)
        assert (note in console.export_text()) == is_stated


def test_replicas_that_shard_the_optimizer_state_are_stated() -> None:
    texts = []
    for zero in (1, [0, 1]):
        report = roofmodel.sweep("gpt2", "a100", phase="train", batch=8, scaling="weak", gpus=[1, 2], zero=zero)
        console = Console(width=130, record=True, file=StringIO())
        console.print(report)
        texts.append(console.export_text())
    assert "memory: each of the --dp replicas stores all gradients; they shard the optimizer state" in texts[0]
    assert "all of the optimizer state" not in texts[0]
    assert "memory without zero=1: each of the --dp replicas stores all gradients and all of the" in texts[1]
    assert "memory with zero=1: each of the --dp replicas stores all gradients; they shard" in texts[1]


def test_a_picture_of_scaling_needs_scaling(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match='needs scaling="strong"'):
        roofmodel.sweep("gpt2", "a100").save(tmp_path / "x.png", "scaling")
