"""The tables of the profiling lecture, reproduced from nvprof files made from them (a circular regression test)."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from roofmodel.trace.groups import lecture_shares
from roofmodel.trace.trace import RunAnalysis, trace
from tests.trace import lecture

RUNS = list(lecture.TABLES)


def read(folder: Path, run: tuple[str, int]) -> RunAnalysis:
    return trace([lecture.written(folder, run)], by="lecture")


def compared(folder: Path, model: str, before: int, after: int) -> RunAnalysis:
    return trace([lecture.written(folder, (model, gpus)) for gpus in (before, after)], by="lecture")


@pytest.mark.parametrize("run", RUNS)
def test_the_groups_of_the_lecture_equal_all_printed_digits(run: tuple[str, int], tmp_path: Path) -> None:
    found = read(tmp_path, run)
    assert len(found.ranks) == run[1]
    for device, totals in enumerate(lecture.groups(run)):
        rows = {row.group: row.seconds for row in found.groups if row.rank == device}
        assert {group: round(seconds * 1e9) for group, seconds in rows.items()} == {
            group: int(time * 10**6) for group, time in totals.items()
        }


@pytest.mark.parametrize("run", RUNS)
def test_the_ten_longest_kernels_of_the_lecture_equal_all_printed_digits(run: tuple[str, int], tmp_path: Path) -> None:
    found = read(tmp_path, run)
    rows = [
        (found.ranks[row.rank].rank.device, row.group, Decimal(round(row.seconds * 1e9)) / 10**6) for row in found.top
    ]
    assert rows == lecture.top(run)


# Printed group memory_mgmt in percent of the sum of the printed groups, per device
SHARES = {
    ("bert", 1): [1.78],
    ("bert", 2): [5.75, 5.88],
    ("bert", 4): [35.74, 34.07, 50.39, 34.93],
    ("gpt2", 1): [3.75],
    ("gpt2", 2): [15.30, 18.25],
    ("gpt2", 4): [34.92, 30.40, 34.04, 34.42],
}


@pytest.mark.parametrize("run", RUNS)
def test_the_share_of_communication_per_device_equals_the_printed_one(run: tuple[str, int], tmp_path: Path) -> None:
    shares = [lecture_shares(report.rank) for report in read(tmp_path, run).ranks]
    assert [round(100 * share.memory_mgmt, 2) for share in shares if share] == SHARES[run]


def test_nccl_and_copies_have_separate_shares(tmp_path: Path) -> None:
    ratios = []
    for report in read(tmp_path, ("bert", 4)).ranks:
        shares = lecture_shares(report.rank)
        assert shares
        ratios.append(round(100 * shares.collectives / shares.memory_mgmt, 1))
    assert ratios == [96.5, 96.6, 98.1, 96.7]  # reduce + broadcast of the ten longest / memory_mgmt


@pytest.mark.parametrize(
    ("model", "before", "after", "speedup", "gemm"),
    [
        ("bert", 1, 2, 2.183, "(-14%)"),  # 1263133 -> 1086256.6 ms
        ("bert", 1, 4, 1.945, "(+19%)"),  # -> 1501898.6 ms
        ("gpt2", 1, 2, 0.199, "(8.7 times)"),  # 6293.2 -> 54450.0 ms
        ("gpt2", 1, 4, 0.288, "(9.2 times)"),  # -> 57910.6 ms
        ("bert", 2, 4, 1.945 / 2.183, "(+38%)"),
    ],
)
def test_runs_of_the_lecture_on_other_numbers_of_gpus_are_different_work(
    model: str, before: int, after: int, speedup: float, gemm: str, tmp_path: Path
) -> None:
    found = compared(tmp_path, model, before, after)
    assert found.comparison
    assert found.comparison.speedup == pytest.approx(speedup, abs=6e-4)
    first = found.findings[0]
    assert first.kind == "different_work"
    assert f"on {before} → {after} GPUs" in first.text
    assert gemm in first.text


def test_the_two_and_four_gpu_runs_of_gpt2_differ_only_in_the_number_of_kernels(tmp_path: Path) -> None:
    # matrix-mul 54450.0 -> 57910.6 ms (+6 %); custom_ops 35333.8 -> 36693.2 ms; summed computation +5 %
    found = compared(tmp_path, "gpt2", 2, 4)
    (finding,) = (each for each in found.findings if each.kind == "different_work")
    assert "on 2 → 4 GPUs: kernels (without collectives) " in finding.text
    assert "GEMM" not in finding.text
    assert "summed computation" not in finding.text
