"""The reasons for kernels with a known fault, which were measured with and without it on an H100."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import pages
from benchmarks.diagnosed import FOLDER, SETS, Diagnosis, diagnoses, tables

# docs/accuracy.md says why
NOT_FIRST = {"diagnosed": {"latency", "small_gemm"}, "unseen": {"stencil_fp64", "gemm_tail"}}


@pytest.fixture(scope="module", params=SETS)
def results(request: pytest.FixtureRequest) -> tuple[str, list[Diagnosis]]:
    return request.param, diagnoses(FOLDER / request.param)


def test_the_first_reason_is_the_fault(results: tuple[str, list[Diagnosis]]) -> None:
    name, kernels = results
    assert {each.name for each in kernels if each.state == "sick" and not each.is_right} == NOT_FIRST[name]


def test_healthy_kernels_are_at_a_ceiling(results: tuple[str, list[Diagnosis]]) -> None:
    healthy = [each for each in results[1] if each.state == "healthy"]
    assert len(healthy) >= 2
    assert all(each.is_right for each in healthy)


def test_costs_are_near_the_measured_gain(results: tuple[str, list[Diagnosis]]) -> None:
    """They assume proportional waiting: 25 % too low to 53 % too high where the fault is the first reason."""
    ratios = [each.ratio for each in results[1] if each.ratio and each.is_right]
    assert len(ratios) >= 10
    assert min(ratios) > 0.7
    assert max(ratios) < 1.6
    assert sorted(ratios)[len(ratios) // 2] == pytest.approx(1, abs=0.1)


def test_the_page_has_the_tables() -> None:
    page = (Path(__file__).parents[2] / "docs/accuracy.md").read_text(encoding="utf-8")
    assert pages.with_tables(page, tables()) == page
