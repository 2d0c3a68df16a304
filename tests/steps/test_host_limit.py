"""What limits a step whose host takes longer than the kernels that it overlaps with."""

from __future__ import annotations

from pathlib import Path

import pytest

import roofmodel
from roofmodel.estimate.answer import summary


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """An engine whose host takes 50 ms a step, while the kernels of a decode of GPT-2 take about 1 ms."""
    file = tmp_path / "mine.yaml"
    file.write_text("like: vllm\nhost: {step: 50 ms, overlapped: true}\n")
    return file


def test_an_estimate_and_a_sweep_name_the_host(engine: Path) -> None:
    report = roofmodel.estimate("gpt2", "a100", phase="decode", engine=engine)
    totals = report.to_dict()["phases"][0]["totals"]
    assert (totals["expected_seconds"], totals["host_bound"]) == (pytest.approx(50e-3), True)
    limits = [text for label, text in summary(report.estimate) if label == "limited by"]
    assert [limit.partition(" (")[0] for limit in limits] == ["host-bound"]
    generated = roofmodel.estimate("gpt2", "a100", phase="generate", seq=64, new_tokens=4, engine=engine).to_dict()
    assert {stage: found["host_bound"] for stage, found in generated["phases"][0]["stages"].items()} == {
        "prefill": True, "decodes": True
    }  # fmt: skip
    (row,) = roofmodel.sweep("gpt2", "a100", phase="decode", engine=str(engine)).to_frame().to_dict("records")
    assert (row["bound"], row["host_bound"]) == ("overhead", True)


def test_a_plan_names_the_host(engine: Path) -> None:
    plan = roofmodel.plan("gpt2", "a100", gpus=1, isl=64, osl=64, engine=engine)
    (best, *_) = plan.to_dict()["candidates"]
    assert best["bound_by"] == "overhead"
    other = roofmodel.plan("gpt2", "a100", gpus=1, isl=64, osl=64).to_dict()["candidates"][0]
    assert other["bound_by"] != "overhead"
