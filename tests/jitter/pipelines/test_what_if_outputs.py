"""`roof jitter` on tables of training operations: document, table, picture and page, with and without --what-if."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import roofmodel
from roofmodel.errors import RoofError
from roofmodel.jitter import picture
from roofmodel.jitter.pipelines.what_if import WhatIf, Worker
from roofmodel.jitter.tables import what_if_text
from roofmodel.numbers import units
from tests.jitter.pipelines.jobs import job, random_seconds, written
from tests.printing import printed
from tests.profiles.samples import measured

WHAT_IF = ["replay_error", "slowdown", "by_operation", "by_dp_rank", "by_stage", "by_worker", "m_w", "m_s"]  # contract


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("job"), job(random_seconds(4), dp=2, stages=2, microbatches=3, steps=4))


@pytest.fixture(scope="module")
def report(path: Path) -> roofmodel.JitterReport:
    return roofmodel.jitter(path, what_if=True)


def test_the_document_has_the_what_if_object_of_the_contract(report: roofmodel.JitterReport) -> None:
    document = json.loads(report.text("json"))
    assert list(document["what_if"]) == WHAT_IF
    assert set(document["what_if"]["by_worker"]) == {"0-0", "0-1", "1-0", "1-1"}
    assert [(rank["rank"], rank["dp_rank"], rank["stage"]) for rank in document["ranks"]] == [
        (0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)
    ]  # fmt: skip
    assert [step["step"] for step in document["steps"]] == [0, 1, 2, 3]
    assert document["alignment"]["common_kernels"] == 4 * 6  # steps, forward and backward of three microbatches


def test_without_the_option_the_object_is_null(path: Path) -> None:
    assert roofmodel.jitter(path).to_dict()["what_if"] is None


def test_published_causes_and_slowdowns_are_in_the_document() -> None:
    """ST: the last stage, SE: the sequence lengths."""
    for name, kind, slowdown, m_w, m_s in (
        ("ST", "stage", 1.1787, 0.031, 1.219),
        ("SE", "workload", 1.5374, 0.025, 0.688),
    ):
        document = roofmodel.jitter(measured(f"traces/stragglers/trace-{name}.parquet"), what_if=True).to_dict()
        assert document["causes"][0]["kind"] == kind
        assert document["what_if"]["slowdown"] == pytest.approx(slowdown, rel=1e-4)
        assert (document["what_if"]["m_w"], document["what_if"]["m_s"]) == pytest.approx((m_w, m_s), abs=1e-3)


@pytest.mark.parametrize(
    ("scale", "threshold", "expected"),
    [(1e-6, None, 100e-6), (1e-6, "20us", 20e-6), (1, None, None), (1, "100us", 100e-6)],
)
def test_a_rank_is_late_from_half_a_percent_of_a_long_step_on(
    tmp_path: Path, scale: float, threshold: str | None, expected: float | None
) -> None:
    """The smallest delay that is a cause is 0.5 % of the step, too; 100 µs are the noise of short steps."""
    seconds = random_seconds(4)
    rows = job(lambda *place: scale * seconds(*place), dp=2, stages=2, microbatches=3, steps=4)
    report = roofmodel.jitter(written(tmp_path, rows), threshold=threshold)
    document = report.to_dict()
    expected = expected or 0.005 * document["step_seconds"]
    assert document["threshold_seconds"] == pytest.approx(expected)
    assert f"late by more than {units.seconds(expected)}" in " ".join(printed(report, 120).split())
    for step in document["steps"]:
        assert step["diverges_at_kernel"] is not None or step["deviation_seconds"] <= expected


def test_the_table_has_no_column_without_values(report: roofmodel.JitterReport) -> None:
    """Tables of operations have no launches, so the column launch → start has no value."""
    text = printed(report, 120)
    assert "launch → start" not in text
    heading = next(line for line in text.splitlines() if line.startswith("rank "))
    assert heading.split()[:4] == ["rank", "operations", "compute", "latest"]


def test_steps_are_selected(path: Path) -> None:
    document = roofmodel.jitter(path, steps="1:3", what_if=True).to_dict()
    assert [step["step"] for step in document["steps"]] == [1, 2]
    with pytest.raises(RoofError, match=r"job\.parquet has no such step; it has 4 steps \(0, 1, 2, 3\)"):
        roofmodel.jitter(path, steps="10:12")


def test_files_of_single_ranks_give_the_same_result(path: Path, report: roofmodel.JitterReport) -> None:
    import pandas

    rows = pandas.read_parquet(path)
    parts = [written(path.parent, rows[rows["rank"] == rank], f"rank{rank}.parquet") for rank in range(4)]
    document = roofmodel.jitter(*parts, what_if=True).to_dict()
    assert document["what_if"] == report.to_dict()["what_if"]
    assert [rank["file"] for rank in document["ranks"]] == [part.name for part in parts]


def test_a_file_given_twice_counts_once(path: Path, report: roofmodel.JitterReport) -> None:
    document = roofmodel.jitter(path, path, what_if=True).to_dict()
    assert document["what_if"] == report.to_dict()["what_if"]
    assert "given 2 times; it counts once" in document["warnings"][0]


@pytest.mark.parametrize("width", [80, 160])
def test_the_terminal_shows_slowdowns(report: roofmodel.JitterReport, width: int) -> None:
    text = printed(report, width)
    found = report.to_dict()["what_if"]
    assert f"factor of {found['slowdown']:.3f}" in " ".join(text.split())
    assert f"{max(found['by_operation'].values()):.4f}" in text
    assert "dp_rank 0, stage 1" in text
    assert all(len(line) <= width for line in text.splitlines())


def test_the_shares_of_workers_and_of_the_last_stage_are_explained() -> None:
    worst = (Worker(0, 0), Worker(1, 0))
    found = SimpleNamespace(
        slowdown=1.1, replay_error=0.01, m_w=0.025, m_s=1.2, worst_workers=worst, ranks={worst[0]: 80, worst[1]: 118}
    )
    text = what_if_text(cast("WhatIf", found))
    assert "of the workers 80 and 118: 2.5%; of the last stage: 120.0%." in text
    assert text.endswith("Above 100%: the other parts are faster than their ideal (mean) times.")
    found.m_s, found.worst_workers = 0.5, worst[:1]
    text = what_if_text(cast("WhatIf", found))
    assert "of the worker 80: 2.5%; of the last stage: 50.0%." in text
    assert "Above 100%" not in text


def test_picture_and_page_show_slowdowns(report: roofmodel.JitterReport, tmp_path: Path) -> None:
    svg, page = report.save(tmp_path / "jitter.svg"), report.save(tmp_path / "jitter.html")
    assert "slowdown by rank and step" in svg.read_text()
    text = page.read_text()
    assert "<h2>What if</h2>" in text
    assert f"{report.to_dict()['what_if']['by_stage']['1']:.4f}" in text
    assert report.save(tmp_path / "jitter.png").stat().st_size > 10_000


def test_a_job_without_replay_is_compared_with_a_warning(tmp_path: Path) -> None:
    rows = job(random_seconds(4), dp=2, stages=3, steps=3)
    report = roofmodel.jitter(written(tmp_path, rows[rows["stage"] != 1]), what_if=True)
    assert report.to_dict()["what_if"] is None
    assert "the steps cannot be replayed" in report.warnings[0]
    assert "What if" not in printed(report, 120)


def test_a_table_of_one_rank_is_rejected(tmp_path: Path) -> None:
    path = written(tmp_path, job(random_seconds(4), dp=1, stages=1, steps=3))
    with pytest.raises(RoofError, match=r"job\.parquet: 1 rank with operations, and a comparison needs at least two"):
        roofmodel.jitter(path)


def test_a_table_that_leaves_one_rank_names_the_reason(tmp_path: Path) -> None:
    rows = job(random_seconds(4), dp=2, stages=1, steps=3)
    path = written(tmp_path, rows[(rows["rank"] == 0) | (rows["seq_id"] > 0)])
    with pytest.raises(RoofError, match=r"1 rank with operations.*dp_rank 1 is left out"):
        roofmodel.jitter(path)


def test_equal_ranks_have_no_latest_rank(tmp_path: Path) -> None:
    rows = job(lambda key, step: 0.25, dp=2, stages=2, steps=2)  # exact in binary
    report = roofmodel.jitter(written(tmp_path, rows))
    assert report.findings == ["no rank is later than the others in any step"]
    assert "is the latest" not in printed(report, 120)
    assert "0 ns" not in printed(report, 120)
    assert not any(line.strip() == "step" for line in printed(report, 120).splitlines())


def test_a_rank_that_is_the_latest_in_few_steps_is_not_named_first(tmp_path: Path) -> None:
    rows = job(random_seconds(1), dp=8, stages=2, microbatches=3, steps=6)
    report = roofmodel.jitter(written(tmp_path, rows))
    latest = [step["latest_rank"] for step in report.to_dict()["steps"]]
    times = max(map(latest.count, latest))
    assert len(set(latest)) > 1
    assert times <= 3
    (finding,) = [finding for finding in report.findings if "is the latest" in finding]
    assert finding.startswith(f"no rank is the latest in more than {times} of 6 steps; the largest deviation is ")
    assert finding == report.findings[-1]
    assert report.findings[0].startswith("stragglers make the steps ")


def test_steps_in_which_all_ranks_are_equal_count_for_no_rank(tmp_path: Path) -> None:
    rows = job(lambda key, step: 0.5 if step == 1 and key[0] == 1 else 0.25, dp=2, stages=1, steps=3)
    report = roofmodel.jitter(written(tmp_path, rows))
    (finding,) = [finding for finding in report.findings if "the latest" in finding]
    assert finding.startswith("rank 1 is the latest in 1 of 3 steps; the largest deviation is")


def test_a_rank_that_is_compared_but_not_replayed_is_blank_in_the_heat_map_of_slowdowns(tmp_path: Path) -> None:
    rows = job(random_seconds(4), dp=3, stages=2, microbatches=3, steps=2)
    report = roofmodel.jitter(written(tmp_path, rows[rows["rank"] != 3]), what_if=True)  # stage 1 of dp_rank 0
    assert [rank["rank"] for rank in report.to_dict()["ranks"]] == [0, 1, 2, 4, 5]
    assert "slowdown by rank and step" in report.save(tmp_path / "jitter.svg").read_text()
    assert report.analyzed.what_if is not None
    shown = picture._slowdowns(report.analyzed, report.analyzed.what_if)
    assert np.isnan(shown).all(axis=1).tolist() == [True, False, False, False, False]
