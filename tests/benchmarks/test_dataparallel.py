"""Our expected ratios of NCCL and GEMM times under DataParallel, against a lecture's profile."""

from pathlib import Path

from benchmarks import dataparallel


def test_the_exchange_of_two_gpus_takes_the_published_part_of_the_gemms() -> None:
    (row,) = (each for each in dataparallel.PUBLISHED if (each.name, each.gpus) == ("DistilGPT2", 2))
    expected = dataparallel.expected_ratio(row, row.batch * row.gpus)
    assert abs(expected / (row.nccl / row.gemm) - 1) < 0.1


def test_the_documented_ratios_are_the_expected_ones() -> None:
    page = Path(__file__).parents[2] / "docs" / "accuracy.md"
    assert dataparallel.table() in page.read_text(encoding="utf-8")
