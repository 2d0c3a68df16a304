"""Expected ratios of NCCL and GEMM times under DataParallel, compared with a lecture's profile."""

from pathlib import Path

from benchmarks import dataparallel


def test_the_ratio_of_nccl_and_gemm_times_of_two_gpus_is_within_10_percent_of_the_published_one() -> None:
    (row,) = (each for each in dataparallel.PUBLISHED if (each.name, each.gpus) == ("DistilGPT2", 2))
    expected = dataparallel.expected_ratio(row, row.batch * row.gpus)
    assert abs(expected / (row.nccl / row.gemm) - 1) < 0.1


def test_the_page_shows_the_expected_ratios() -> None:
    page = Path(__file__).parents[2] / "docs" / "accuracy.md"
    assert dataparallel.table() in page.read_text(encoding="utf-8")
