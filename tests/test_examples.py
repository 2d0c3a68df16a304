"""The examples run and print what they claim."""

from __future__ import annotations

import csv
import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

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


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the lectures' pictures, which lies beside the notebooks."""
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    monkeypatch.syspath_prepend(EXAMPLES / "lectures")
    yield importlib.import_module("drawings")
    plt.close("all")


@pytest.mark.parametrize("name", [path.stem for path in sorted((EXAMPLES.parent / "hardware").glob("*.yaml"))])
def test_the_schematic_shows_the_bandwidth_of_a_device_file(name: str, drawings: ModuleType) -> None:
    import matplotlib.pyplot as plt

    device = Device.load(name)
    drawings.gpu(device)
    texts = [text.get_text() for text in plt.gca().texts]
    assert any(f"{device.bandwidth / 1e12:.4g} TB/s" in text for text in texts)
    assert any(text.startswith(device.name) for text in texts)


def test_the_links_of_a_dgx1_have_the_bandwidth_of_its_device_file(drawings: ModuleType) -> None:
    links = Device.load("v100-sxm2-32gb").links
    for gpu in range(8):
        own = sum(count for pair, count in drawings.DGX1_LINKS.items() if gpu in pair)
        assert own == 6  # NVLinks of a V100
    each = links["nvlink"].bandwidth / 6
    assert drawings.DGX1_LINKS[0, 1] * each == links["nvlink_pair"].bandwidth
    rings = Counter([(0, 1), (1, 2), (2, 3), (0, 3), (0, 3), (1, 3), (1, 2), (0, 2)])  # among GPUs 0 to 3
    assert all(used <= drawings.DGX1_LINKS[pair] for pair, used in rings.items())
    assert 2 * 2 * each == links["nvlink_quad"].bandwidth  # two rings, two links of each GPU


def test_the_files_of_lectures_are_rows_of_the_measured_tables() -> None:
    tables = [
        EXAMPLES.parent / "tests" / "data" / "gpu" / "h100" / f"model-{name}.csv" for name in ("gpt2-xl", "llama")
    ]
    measured = {row["peak_bytes"] for table in tables for row in csv.DictReader(table.read_text("utf-8").splitlines())}
    with (EXAMPLES / "memory_h100.csv").open(encoding="utf-8") as file:
        assert {row["peak_bytes"] for row in csv.DictReader(file)} <= measured
