"""The examples run and print what they claim."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import roofmodel
from roofmodel.devices.ceilings import doubtful_entries
from roofmodel.devices.device import Device
from roofmodel.plot import place

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_block_counted_by_hand_is_right() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "block_by_hand.py"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "wrong" not in done.stdout
    assert done.stdout.count("right") == 7
    assert "3,506,703,564,800" in done.stdout


def test_a_family_is_added_in_one_row_with_the_counts_derived_by_hand() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "add_a_family.py"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "TinyChatForCausalLM" in done.stdout
    assert done.stdout.count(": right") == 2


def test_the_training_trace_written_by_hand_has_the_parts_of_its_events() -> None:
    # of each step of 10 ms: copy 0.5, GEMMs 1.4 + 2.5 of which 0.5 under the all-reduce of 1.5, optimizer 0.3
    report = roofmodel.trace(str(EXAMPLES / "training_by_hand.json"))
    expected = {"compute_only": 3.7, "overlap": 0.5, "communication_exposed": 1.0, "copies_exposed": 0.5, "idle": 4.3}
    for step in report.to_dict()["steps"]:
        assert {part: step[part] * 1e3 for part in expected} == pytest.approx(expected)
    # the loader takes 4 of 10 ms: one worker prepares a batch in the other 6 ms
    assert "DataLoader(num_workers=1)" in report.findings[0]


def test_the_export_written_by_hand_gives_the_figures_of_its_walk() -> None:
    placed = place.place([str(EXAMPLES / "ncu_by_hand.csv")], "a100", by="base")
    found = {(point.name, point.level): point for point in placed.rooflines[0].points}
    saxpy, gemm = found["saxpy", "dram"], found["gemm_fp16_4096", "dram"]
    assert saxpy.intensity == pytest.approx(1 / 6, rel=1e-12)
    assert saxpy.flops_per_second == pytest.approx(33_554_432 / 120e-6)
    assert saxpy.fraction == pytest.approx(201_326_592 / 2039e9 / 120e-6)
    assert (saxpy.bound, gemm.bound, gemm.pipe) == ("memory", "compute", "tensor_fp16")
    assert gemm.fraction == pytest.approx(2 * 4096**3 / 312e12 / 550e-6)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*gpu*.yaml")), ids=lambda path: path.name)
def test_an_example_device_is_valid_without_warnings(path: Path) -> None:
    assert doubtful_entries(Device.load(str(path))) == []
