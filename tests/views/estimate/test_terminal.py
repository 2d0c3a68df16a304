"""What a person reads in a terminal, line by line: a golden output, and what holds at any width."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.study.estimate.estimate import estimate
from roofmodel.views.estimate.rows import rows, signed
from roofmodel.views.estimate.terminal import EstimateView
from roofmodel.views.kit import chart

GOLDEN = Path(__file__).parents[1] / "golden"


def render(model: str, hw: str, width: int, **options: Any) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    console.print(EstimateView(estimate(hub.load(model), Device.load(hw), **options)))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize(
    ("name", "model", "hw", "options"),
    [
        ("gpt2-xl-a100", "gpt2-xl", "a100", {}),
        (
            "gpt2-xl-train",
            "gpt2-xl",
            "a100",
            {"phase": "train", "batch": 8, "attention": "eager", "recompute": "selective"},
        ),
        ("llama-generate", "llama-3.2-1b", "h100", {"phase": "generate", "new_tokens": 256}),
        ("llama-h100-int4", "llama-3.1-8b", "h100", {"batch": 8, "weights": "int4", "kv": "fp8"}),
        ("bert-v100-eager", "bert-base-uncased", "v100", {"attention": "eager"}),
    ],
)
def test_the_output_is_the_one_that_was_looked_at(name: str, model: str, hw: str, options: dict[str, Any]) -> None:
    """Golden outputs: to change one on purpose, delete the file, run the test twice, and read what it wrote."""
    path = GOLDEN / f"{name}.txt"
    text = render(model, hw, 80, **options)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path.name} was missing; written for a look")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("model", ["gpt2-xl", "llama-3.1-405b", "opt-350m"])
def test_nothing_is_cut_from_80_columns_on(model: str, width: int) -> None:
    text = render(model, "a100", width, batch=64, seq=4096)
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())


@pytest.mark.parametrize("width", [40, 60, 72])
def test_a_narrow_terminal_loses_columns_and_never_digits(width: int) -> None:
    text = render("bert-base-uncased", "a100", width, seq=384)
    assert "…" not in text
    assert "q projection" in text
    assert all(len(line) <= width for line in text.splitlines())
    for line in text.splitlines():
        if line.startswith("F ") or " q projection" in line:
            assert re.search(r"\d+ µs +\d+%( +[\d.]+ µs)?$", line)


@pytest.mark.parametrize(
    ("model", "attention"), [("gpt2-xl", "flash"), ("opt-350m", "eager"), ("llama-3.1-8b", "eager")]
)
def test_every_operator_with_flops_is_in_the_roofline_at_its_height(model: str, attention: str) -> None:
    report = estimate(hub.load(model), Device.load("a100"), attention=attention)
    marks = [
        chart.Mark(sign, "", row.cost.intensity, row.flops_per_second)
        for i, phase in enumerate(report.phases)
        for sign, row in signed(i, rows(phase))
        if sign
    ]
    lines = [line.plain for line in chart.roofline(marks, 312e12, 2039e9, 64)]
    heights = {
        sign: y for y, line in enumerate(lines[: chart.HEIGHT]) for sign in line[chart.MARGIN + 1 :] if sign.isalpha()
    }
    assert set(heights) == {mark.sign for mark in marks}
    bottom = min(mark.intensity for mark in marks)
    low = math.log10(2039e9) + math.floor(math.log10(min(bottom, 312e12 / 2039e9 / 100)))
    for mark in marks:
        exact = (math.log10(312e12) - math.log10(mark.flops_per_second)) / (math.log10(312e12) - low)
        assert abs(heights[mark.sign] - exact * (chart.HEIGHT - 1)) <= 0.5


def test_a_device_without_stated_memory_says_so(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text("name: Toy\npipes:\n  fp16: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwidth: 10 GB/s}\n")
    assert "memory is not stated" in render("gpt2", str(file), 80)


def test_the_links_that_gpus_exchange_over_are_all_named() -> None:
    """Of 16 GPUs an all-reduce goes over NVLink within a node too: checked by hand with InfiniBand alone it would take
    nine times as long as it says."""
    text = " ".join(render("gpt2", "h100", 120, tp=12, phase="decode").split())
    assert "450 GB/s over nvlink and 50 GB/s over infiniband to other GPUs" in text


@pytest.mark.parametrize("width", [70, 80, 100, 110, 120])
def test_no_line_ends_within_a_number_of_parameters(width: int) -> None:
    lines = render("mixtral-8x7b-v0.1", "h100", width, phase="decode").splitlines()
    assert any("46 702 792 704 parameters, 12 879 925 248 of them active" in line for line in lines)
