"""Notes on GEMMs whose expected times differ much between the parameter sets of frameworks."""

from __future__ import annotations

import csv
import gzip
import re
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.models.hub import load
from roofmodel.steps.estimate import estimate
from roofmodel.steps.gemm_sets import ALL_FRAMEWORKS, MIN_RATIO, describe_set
from roofmodel.timing.timing import expect
from tests.profiles.samples import MEASURED, needs_measured


def gemm_set_notes(hw: str, **options: Any) -> list[str]:
    notes = roofmodel.estimate("llama-3.1-8b", hw, **options).to_dict()["notes"]
    return [note for note in notes if "GEMMs" in note and "times as long" in note]


@pytest.mark.parametrize("hw", ["b200", "b300", "gb200", "h100"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_the_ratio_is_that_of_the_expected_times_with_both_sets(hw: str, phase: str) -> None:
    """The times with each set by its name, GEMM by GEMM, as `roof validate` computes those of a measured kernel."""
    device = Device.load(hw)
    assert device.calibration
    (found,) = estimate(load("llama-3.1-8b"), device, phase=phase, dtype="fp8").phases
    gemms = [operator for operator in found.operators if operator.kind == "gemm"]

    def seconds(implementation: str) -> float:
        times = [(operator.count, expect(operator, device, "fp8", implementation)) for operator in gemms]
        return float(sum(count * time.value for count, time in times if time))

    sets = [name for name, by_key in device.calibration.gemm.items() if "fp8/fp8" in by_key]
    ratios = {name: seconds(name) / seconds(sets[0]) for name in sets}
    fastest = min(ratios, key=lambda name: ratios[name])
    notes = gemm_set_notes(hw, phase=phase, dtype="fp8")
    if 1 / ratios[fastest] <= MIN_RATIO:
        assert not notes
        return
    (note,) = notes
    assert note.startswith(f"fp8 GEMMs of {phase} use the parameters of {describe_set(sets[0])}; with those of ")
    assert describe_set(fastest) in note
    (ratio,) = re.findall(r"they take (\S+) times as long", note)
    assert float(ratio) == pytest.approx(ratios[fastest], rel=0.05)  # two digits


def test_each_phase_has_its_note() -> None:
    assert len(gemm_set_notes("b200", dtype="fp8")) == 2  # prefill and decode


def test_the_note_names_the_format_of_the_weights() -> None:
    (note,) = gemm_set_notes("b200", dtype="fp4", weights="nvfp4", phase="decode")
    assert note.startswith("fp4 GEMMs with nvfp4 weights of decode use the parameters of TensorRT-LLM (torch_flow)")


@pytest.mark.parametrize(
    ("hw", "options"),
    [
        ("b200", {"dtype": "bf16"}),  # one set for all frameworks
        ("a100", {"dtype": "int8"}),  # one set for these formats
        ("v100", {"dtype": "fp32"}),  # the other set is for convolutions
        ("h100", {"dtype": "fp8", "weights": "fp8_block"}),  # the other sets are slower
    ],
)
def test_no_note_without_a_much_faster_set(hw: str, options: dict[str, Any]) -> None:
    assert gemm_set_notes(hw, **options) == []


@needs_measured
@pytest.mark.parametrize("name", ["a100_sxm", "b200_sxm", "b300_sxm", "gb200", "h100_sxm", "l40s"])
def test_the_framework_of_a_set_is_that_of_its_measurements(name: str) -> None:
    assert MEASURED
    with gzip.open(Path(MEASURED) / "ops" / f"aic_{name}_gemm.csv.gz", "rt") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        kernels = {(row["kernel"], row["framework"].partition(" ")[0]) for row in rows}
    frameworks = {"sglang": "SGLang", "trtllm": "TensorRT-LLM", "vllm": "vLLM"}
    assert kernels
    assert ALL_FRAMEWORKS not in {kernel for kernel, _ in kernels}
    for kernel, framework in kernels:
        assert describe_set(kernel) == f"{frameworks[framework]} ({kernel})"


@pytest.mark.parametrize("kernel", ["torch_linear", "my_gemm"])
def test_a_set_of_other_measurements_has_no_framework(kernel: str) -> None:
    """`roof measure` writes `torch_linear`."""
    assert describe_set(kernel) == kernel
