"""The instruction roofline: warp instructions against transactions of 32 bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from roofmodel import plot
from roofmodel.devices.device import Device
from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import Kernel, Traffic
from roofmodel.roofline.instructions import InstructionPoint, instruction_points, peak

H100 = Device.load("h100")
DIAGNOSED = Path(__file__).parents[1] / "data/gpu/h100/diagnosed/raw.csv.gz"


def points(**counters: float) -> dict[str, InstructionPoint]:
    """1 ms of 1 M warp instructions that move 320 MB from DRAM, by level."""
    values = {"smsp__inst_executed.sum": 1e6, **counters}
    kernel = Kernel("0", "a.csv", "sort", seconds=1e-3, bytes=Traffic(dram=320e6), counters=values)
    return {point.level: point for point in instruction_points([kernel], "name", H100)}


def test_the_peak_is_one_instruction_a_scheduler_and_cycle():
    assert peak(H100) == 132 * 4 * 1.98e9


def test_a_chip_with_another_number_of_schedulers_has_no_peak():
    """An SM of the P100 (compute capability 6.0) has two schedulers."""
    assert peak(replace(H100, compute_capability="6.0")) is None
    assert peak(replace(H100, compute_capability="12.0")) == peak(H100)


def test_a_point_is_under_the_ceilings_of_issue_and_of_its_level():
    """1 M instructions / 10 M transactions; DRAM: 3350 GB/s / 32 B = 104.7 G transactions/s."""
    dram = points()["dram"]
    assert dram.intensity == pytest.approx(0.1)
    assert dram.instructions_per_second == pytest.approx(1e9)
    assert dram.attainable == pytest.approx(0.1 * 3350e9 / 32)
    assert (dram.bound, dram.limiting) == ("memory", True)


@pytest.mark.parametrize(("sectors", "intensity"), [(1, 1), (4, 1 / 4), (32, 1 / 32)])
def test_the_global_level_shows_the_access_pattern(sectors: int, intensity: float):
    requests, of_request = ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
                            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")  # fmt: skip
    found = points(**{requests: 1e5, of_request: sectors * 1e5})
    assert found["global"].intensity == pytest.approx(intensity)


def test_the_shared_memory_of_a_conflicting_kernel_is_at_its_ceiling():
    """Measured: 94 % of the wavefronts are conflicts, and L1 is busy 97 % of the time."""
    rows = [
        p for r in plot(DIAGNOSED).placed.rooflines for p in r.instructions if p.name.startswith("bank_conflicts__sick")
    ]
    l1 = next(point for point in rows if point.level == "l1")
    assert l1.limiting
    assert l1.fraction == pytest.approx(0.97, abs=0.03)


def test_a_picture_and_a_table_are_made(tmp_path: Path):
    report = plot(DIAGNOSED, instructions=True)
    assert report.save(tmp_path / "a.png").stat().st_size > 10_000
    assert report.default_path == "raw.csv.gz.instructions.png"
    assert {point["level"] for point in report.to_dict()["instructions"]["points"]} == {"dram", "l2", "l1", "global"}


def test_without_the_counters_the_message_names_them():
    report = plot(Path(__file__).parents[2] / "examples/ncu_by_hand.csv", hw="a100", instructions=True)
    assert report.to_dict()["instructions"] == {"ceilings": [], "points": []}
    with pytest.raises(ProfileError, match=r"smsp__inst_executed\.sum"):
        report.__rich__()
