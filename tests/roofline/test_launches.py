"""The instruction roofline: warp instructions against transactions of 32 bytes."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from roofmodel import plot
from roofmodel.devices.device import Device
from roofmodel.errors import ProfileError, WorkloadError
from roofmodel.profiles.kernel import Traffic
from roofmodel.report.checks import judge
from roofmodel.roofline.launches import InstructionPoint, instruction_points, issue_peak
from roofmodel.roofline.panel import MIN_SHARE
from tests import kernels as make
from tests.printing import printed

H100 = Device.load("h100")
EXAMPLES = Path(__file__).parents[2] / "examples"
DIAGNOSED = Path(__file__).parents[1] / "data/gpu/h100/diagnosed/raw.csv.gz"


def points(**counters: float) -> dict[str, InstructionPoint]:
    """1 ms of 1 M warp instructions that move 320 MB from DRAM, by level."""
    values = {"smsp__inst_executed.sum": 1e6, **counters}
    kernel = make.kernel("0", "a.csv", "sort", seconds=1e-3, bytes=Traffic(dram=320e6), counters=values)
    return {point.level: point for point in instruction_points([kernel], "name", H100)}


def test_the_peak_is_one_instruction_a_scheduler_and_cycle():
    assert issue_peak(H100) == 132 * 4 * 1.98e9


def test_a_chip_with_another_number_of_schedulers_has_no_peak():
    """An SM of the P100 (compute capability 6.0) has two schedulers."""
    assert issue_peak(replace(H100, compute_capability="6.0")) is None
    assert issue_peak(replace(H100, compute_capability="12.0")) == issue_peak(H100)


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


def profile(path: Path, launches: int = 1, **metrics: tuple[str, float]) -> Path:
    """A table of Nsight Compute of an H100 with metrics (unit, value), the same for each launch."""
    metrics = {"gpu__time_duration.sum": ("ns", 1e6), "smsp__inst_executed.sum": ("inst", 1e6)} | metrics
    names, units, values = zip(*((name, *value) for name, value in metrics.items()), strict=True)
    rows = [["ID", "Kernel Name", "Device", "CC", *names], ["", "", "", "", *units]]
    rows += [[str(i), f"sort_{i}", "0", "9.0", *map(str, values)] for i in range(launches)]
    path.write_text("".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows), "utf-8")
    return path


def test_without_the_counters_the_message_names_some_that_suffice(tmp_path: Path):
    by_hand = EXAMPLES / "ncu_by_hand.csv"
    assert plot(by_hand, hw="a100").to_dict()["instructions"] == {"ceilings": [], "points": []}
    named = r"smsp__inst_executed\.sum, dram__bytes\.sum and gpu__time_duration\.sum"
    with pytest.raises(ProfileError, match=named):
        plot(by_hand, hw="a100", instructions=True)
    named_only = profile(tmp_path / "a.csv", **{"dram__bytes.sum": ("byte", 320e6)})
    (point,) = plot(named_only, hw="h100", instructions=True).to_dict()["instructions"]["points"]
    assert (point["level"], point["intensity"]) == ("dram", pytest.approx(0.1))  # 1 M / (320 MB / 32 B)


def test_a_profile_without_bytes_of_dram_has_a_table_and_a_picture(tmp_path: Path):
    """A hundred and one kernels of the same time: each takes less than 1 % of it."""
    sectors = {"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": ("", 1e5),
               "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("", 4e5)}  # fmt: skip
    for launches in (1, 101):
        report = plot(profile(tmp_path / "a.csv", launches, **sectors), hw="h100", instructions=True)
        assert {point["level"] for point in report.to_dict()["instructions"]["points"]} == {"l1", "global"}
        assert "sort_0" in printed(report)
        assert report.save(tmp_path / "a.png").stat().st_size > 10_000


def test_tables_and_checks_have_the_points_of_the_instruction_roofline(tmp_path: Path):
    """1 M warp instructions and 320 MB / 32 B = 10 M transactions in 1 ms."""
    file = profile(tmp_path / "a.csv", **{"dram__bytes.sum": ("byte", 320e6)})
    report = plot(file, hw="h100", instructions=True)
    (row,) = csv.DictReader(report.text("csv").splitlines())
    assert (row["name"], row["level"], float(row["transactions"])) == ("sort_0", "dram", 1e7)
    assert judge(report.rows_to_check(), ["instructions_per_second<0.9G"]).failed == []
    assert len(judge(report.rows_to_check(), ["level=dram and instructions_per_second<1.1G"]).failed) == 1
    assert "| sort_0 | dram | 0.1 | 1 G |" in report.text("markdown")
    assert report.save(tmp_path / "a.html").read_text("utf-8").count("<svg") == 1
    both = plot(f"{file}@h100", f"{file}@h200", instructions=True).to_frame()
    assert list(both["hardware"]) == ["h100-sxm", "h200"]


def test_what_has_no_warp_instructions_is_refused():
    for option in ("regions", "hide_answers"):
        with pytest.raises(WorkloadError, match=f"{option}; leave out one"):
            plot(DIAGNOSED, instructions=True, **{option: True})
    with pytest.raises(WorkloadError, match="needs a profile of ncu"):
        plot(model="matmul", hw="a100", instructions=True)


def test_the_ceilings_are_at_the_requested_clock():
    """--clock 1GHz: 132 SMs x 4 schedulers x 1 GHz, and L1 at 1/1.98 of the boost clock; DRAM has its own clock."""
    boost, slow = (plot(DIAGNOSED, clock=clock).to_dict()["instructions"] for clock in ("boost", "1GHz"))
    rate = "transactions_per_second"
    (issue, fast), (slow_issue, slow_levels) = (
        (ceilings[0]["instructions_per_second"], {each["name"]: each[rate] for each in ceilings[1:]})
        for ceilings in (boost["ceilings"], slow["ceilings"])
    )
    assert (issue, slow_issue) == (132 * 4 * 1.98e9, 132 * 4 * 1e9)
    assert slow_levels["l1"] == pytest.approx(fast["l1"] / 1.98)
    assert slow_levels["dram"] == fast["dram"]
    assert max(p["fraction"] for p in slow["points"] if p["bound"] == "issue") > 1.5  # they ran at 1.943 GHz


def test_the_picture_has_every_point_of_a_kernel_that_is_not_short(tmp_path: Path):
    """The `tail` kernels execute more than 10,000 warp instructions per transaction, where the axes end."""
    points = plot(DIAGNOSED).to_dict()["instructions"]["points"]
    total = sum({p["name"]: p["seconds"] for p in points}.values())
    shown = [p for p in points if p["seconds"] >= MIN_SHARE * total]
    assert any(p["intensity"] > 1e4 for p in shown)
    picture = plot(DIAGNOSED, instructions=True).save(tmp_path / "a.svg").read_text()
    assert picture.count('id="PathCollection_') == len(shown)
