"""Deviations between ranks of pipelines per computation and step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from roofmodel.jitter.pipelines.operation_deviations import operation_jitter
from roofmodel.profiles.operation_table import read_operations
from tests.jitter.pipelines.jobs import Key, job, random_seconds, table
from tests.profiles.samples import measured

THRESHOLD = 1e-4


def late_rank(key: Key, step: int) -> float:
    """Rank 3 (stage 1, data-parallel rank 1) takes 50 ms instead of 40 ms for the backward pass of microbatch 1."""
    if key == (1, 1, "backward-compute", 1):
        return 0.05
    return {"forward-compute": 0.02, "backward-compute": 0.04}.get(key[2], 0.001)


def test_a_late_rank_is_found_with_the_operation_from_which_it_is_late(tmp_path: Path) -> None:
    found = operation_jitter(table(tmp_path, job(late_rank, dp=2, stages=2, microbatches=3, steps=2)), THRESHOLD)
    assert [(rank.rank, rank.dp_rank, rank.stage) for rank in found.ranks] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 0, 1),
        (3, 1, 1),
    ]
    for step in found.steps:
        assert step.latest_rank == 3
        # 10 ms more than three other ranks: 10 - 10/4 ms above the mean of four.
        assert step.latest_seconds == pytest.approx(0.0075)
        assert step.earliest_seconds == pytest.approx(-0.0025)
        assert step.diverges_at_kernel == 3  # the last stage computes F0 B0 F1 B1 F2 B2
        assert step.kernel_name == "microbatch 1 backward"
    assert found.computations == 2 * 6
    assert found.ranks[3].compute_seconds - found.ranks[2].compute_seconds == pytest.approx(2 * 0.01)
    assert found.lateness.shape == (2, 4)
    assert found.curves.times_to_end[3, -1] == pytest.approx(0.0075)


def test_deviations_of_all_ranks_sum_to_zero(tmp_path: Path) -> None:
    found = operation_jitter(
        table(tmp_path, job(random_seconds(1), dp=3, stages=3, microbatches=4, steps=2)), THRESHOLD
    )
    assert np.allclose(found.curves.durations.sum(axis=0), 0)
    assert np.allclose(found.lateness.sum(axis=1), 0)


def test_equal_ranks_are_not_late(tmp_path: Path) -> None:
    rows = job(lambda key, step: 0.02, dp=2, stages=2, steps=2)
    for step in operation_jitter(table(tmp_path, rows), THRESHOLD).steps:
        assert (step.diverges_at_kernel, step.kernel_name, step.cause) == (None, None, None)


def test_the_last_stage_is_the_latest_in_every_step_of_st() -> None:
    found = operation_jitter(read_operations(measured("traces/stragglers/trace-ST.parquet")), THRESHOLD)
    assert {step.latest_rank for step in found.steps} == {6, 7}
    assert {step.cause for step in found.steps} == {"stage"}
    assert not found.warnings


def test_the_workload_is_the_cause_in_every_step_of_se() -> None:
    found = operation_jitter(read_operations(measured("traces/stragglers/trace-SE.parquet")), THRESHOLD)
    assert {step.cause for step in found.steps} == {"workload"}
    assert len({step.latest_rank for step in found.steps}) > 10  # no rank is persistently late


def test_ranks_are_compared_although_a_missing_stage_prevents_a_replay(tmp_path: Path) -> None:
    rows = job(random_seconds(2), dp=2, stages=3, steps=3)
    found = operation_jitter(table(tmp_path, rows[rows["stage"] != 1]), THRESHOLD)
    assert found.what_if is None
    assert len(found.steps) == 3
    assert "the steps cannot be replayed: " in found.warnings[0]
    assert "no operations of stage 1; add the traces of its ranks" in found.warnings[0]


def test_a_missing_worker_removes_no_other_worker_from_the_comparison(tmp_path: Path) -> None:
    # Rank 3 (stage 1 of data-parallel rank 0) is missing; rank 0 has all its computations.
    def seconds(key: Key, step: int) -> float:
        slow = key[:2] == (0, 0) and key[2:] == ("backward-compute", 1)
        return 0.07 if slow else late_rank(key, step)

    rows = job(seconds, dp=3, stages=2, microbatches=3, steps=2)
    found = operation_jitter(table(tmp_path, rows[(rows["dp_rank"] != 0) | (rows["stage"] != 1)]), THRESHOLD)
    assert [rank.rank for rank in found.ranks] == [0, 1, 2, 4, 5]
    assert (found.ranks[0].dp_rank, found.ranks[0].stage) == (0, 0)
    assert found.ranks[0].compute_seconds == pytest.approx(2 * (3 * 0.02 + 2 * 0.04 + 0.07))
    for late in found.lateness:
        # Of five ranks, rank 0 is slower by 30 ms and rank 4 by 10 ms: 8 ms on average.
        assert late.tolist() == pytest.approx([0.022, -0.008, -0.008, 0.002, -0.008])
    assert {(step.latest_rank, step.cause) for step in found.steps} == {(0, None)}  # the worker is not replayed
    assert found.warnings[0].endswith("; its rank 0 is compared")


def test_a_worker_that_lacks_computations_is_named_as_not_compared(tmp_path: Path) -> None:
    rows = job(random_seconds(3), dp=3, stages=2, microbatches=3, steps=2)
    lost = (rows["rank"] == 4) & (rows["optype"] == "backward-compute") & (rows["seq_id"] == 1)
    found = operation_jitter(table(tmp_path, rows[~lost]), THRESHOLD)
    assert [rank.rank for rank in found.ranks] == [0, 1, 2, 3, 5]
    assert found.warnings[0].endswith(
        "; its rank 1 is compared; its rank 4 is not compared, because computations are missing"
    )


def test_a_single_rank_has_no_deviation(tmp_path: Path) -> None:
    found = operation_jitter(table(tmp_path, job(random_seconds(2), dp=1, stages=1)), THRESHOLD)
    assert found.lateness.tolist() == [[0.0]]
