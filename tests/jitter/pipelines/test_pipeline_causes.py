"""Causes of lost time in pipelines, in published traces and in jobs with one planted cause."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from roofmodel.jitter.causes import Cause
from roofmodel.jitter.pipelines.pipeline_causes import pipeline_causes
from roofmodel.jitter.pipelines.what_if import analyze
from roofmodel.profiles.operation_table import OperationTable, read_operations
from tests.jitter.pipelines.jobs import Key, Seconds, job, rebuilt, table
from tests.profiles.samples import measured


def causes(operations: OperationTable) -> list[Cause]:
    replay = rebuilt(operations)
    return pipeline_causes(replay, analyze(replay))


def published(name: str) -> list[Cause]:
    return causes(read_operations(measured(f"traces/stragglers/trace-{name}.parquet")))


def even(key: Key, step: int) -> float:
    """20 ms forward, 40 ms backward, 1 ms for all other operations, with 0.1 % noise."""
    seconds = {"forward-compute": 0.02, "backward-compute": 0.04}.get(key[2], 0.001)
    return seconds * (1 + 0.001 * random.Random(f"{key} {step}").random())


def planted(folder: Path, seconds: Seconds, **shape: int) -> list[Cause]:
    return causes(table(folder, job(seconds, **({"dp": 4, "stages": 3, "microbatches": 6, "steps": 5} | shape))))


def test_the_long_last_stage_is_the_only_cause_in_st() -> None:
    (cause,) = published("ST")
    assert (cause.kind, cause.ranks) == ("stage", (6, 7))
    assert cause.evidence_values["stage"] == 3
    assert cause.evidence_values["m_s"] == pytest.approx(1.219, abs=0.02)
    assert cause.evidence.startswith("stage 3 computes longer than the other stages (2.08 times in forward")


def test_the_sequence_lengths_are_the_first_cause_in_se_and_the_last_stage_the_second() -> None:
    """The authors state this in the readme of their artifact."""
    first, second = published("SE")
    assert (first.kind, first.ranks) == ("workload", ())
    assert first.seconds_per_step > 5 * second.seconds_per_step
    assert float(first.evidence_values["forward_backward_correlation"]) > 0.9
    assert float(first.evidence_values["stage_correlation"]) > 0.9
    assert (second.kind, second.evidence_values["stage"]) == ("stage", 1)


def test_evidence_is_plain_data() -> None:
    json.dumps([cause._asdict() for cause in published("SE")], allow_nan=False)


def test_equal_ranks_have_no_cause(tmp_path: Path) -> None:
    assert planted(tmp_path, even) == []


@pytest.mark.parametrize("dp", [2, 3, 8])
def test_only_the_slow_rank_is_named(tmp_path: Path, dp: int) -> None:
    def seconds(key: Key, step: int) -> float:
        return even(key, step) * (1.1 if key[:2] == (1, 1) and key[2].endswith("compute") else 1)

    (cause,) = planted(tmp_path, seconds, dp=dp)
    assert (cause.kind, cause.ranks) == ("rank", (dp + 1,))
    assert cause.evidence_values["compute_to_other_ranks"] == pytest.approx(1.1, rel=1e-3)


def test_two_slow_ranks_are_named(tmp_path: Path) -> None:
    def seconds(key: Key, step: int) -> float:
        return even(key, step) * (1.2 if key[:2] in ((1, 1), (3, 0)) and key[2].endswith("compute") else 1)

    (cause,) = planted(tmp_path, seconds, dp=5)
    assert (cause.kind, set(cause.ranks)) == ("rank", {6, 3})


@pytest.mark.parametrize("dp", [1, 4])
def test_a_slow_stage_is_named(tmp_path: Path, dp: int) -> None:
    def seconds(key: Key, step: int) -> float:
        return even(key, step) * (1.3 if key[1] == 1 and key[2].endswith("compute") else 1)

    (cause,) = planted(tmp_path, seconds, dp=dp)
    assert (cause.kind, cause.evidence_values["stage"]) == ("stage", 1)
    assert cause.ranks == tuple(range(dp, 2 * dp))
    assert cause.evidence_values["forward_compute_to_other_stages"] == pytest.approx(1.3, rel=1e-3)


@pytest.mark.parametrize("stages", [1, 3])
def test_long_microbatches_are_a_cause_of_the_workload(tmp_path: Path, stages: int) -> None:
    def seconds(key: Key, step: int) -> float:
        length = random.Random(f"{key[0]} {key[3]} {step}").uniform(0.7, 1.3)
        return even(key, step) * (length if key[2].endswith("compute") else 1)

    (cause,) = planted(tmp_path, seconds, stages=stages)
    assert (cause.kind, cause.ranks) == ("workload", ())


@pytest.mark.parametrize("stages", [1, 3])
def test_independent_variations_are_random(tmp_path: Path, stages: int) -> None:
    def seconds(key: Key, step: int) -> float:
        return even(key, step) * (random.Random(f"{key} {step} x").uniform(0.7, 1.3) if "compute" in key[2] else 1)

    (cause,) = planted(tmp_path, seconds, stages=stages)
    assert cause.kind == "random"
    assert abs(float(cause.evidence_values["forward_backward_correlation"])) < 0.5


def test_a_rank_that_is_slow_in_single_steps_is_random(tmp_path: Path) -> None:
    """Forward and backward are slow together, but not on all stages as for a long sequence."""

    def seconds(key: Key, step: int) -> float:
        slow = random.Random(f"{key[:2]} {step}").random() < 0.2
        return even(key, step) * (1.5 if slow and key[2].endswith("compute") else 1)

    assert {cause.kind for cause in planted(tmp_path, seconds, steps=20)} == {"random"}


def test_slow_transfers_are_named_by_their_kind(tmp_path: Path) -> None:
    def seconds(key: Key, step: int) -> float:
        return 0.1 if key[2] == "grads-reduce-scatter" and step == 2 else even(key, step)

    (cause,) = planted(tmp_path, seconds)
    assert (cause.kind, cause.evidence_values["operation"]) == ("operation", "grads-reduce-scatter")
    # It takes 99 ms more than the median in one of five steps.
    assert cause.seconds_per_step == pytest.approx(0.099 / 5, rel=0.01)


def test_a_job_without_backward_computations_is_analyzed(tmp_path: Path) -> None:
    rows = job(even, dp=2, stages=1, steps=3)
    assert causes(table(tmp_path, rows[rows["optype"] != "backward-compute"])) == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("variation", [0.0, 0.5])
@pytest.mark.parametrize(
    "zero",
    [
        lambda key: key[1] == 0 and key[2] == "forward-compute",  # one kind of one stage
        lambda key: key[1] != 1 and key[2].endswith("compute"),  # all stages except one
        lambda key: key[:2] == (1, 1) and key[2] == "forward-compute",  # one kind of one rank
        lambda key: key[2].endswith("compute"),
    ],
)
def test_computations_without_time_leave_finite_evidence(
    tmp_path: Path, zero: Callable[[Key], bool], variation: float
) -> None:
    def seconds(key: Key, step: int) -> float:
        slow = 2.0 if key[0] == 2 and key[1] == 1 and key[2].endswith("compute") else 1.0
        varied = 1 + variation * random.Random(f"{key} {step} x").random()
        return 0.0 if zero(key) else even(key, step) * slow * varied

    found = planted(tmp_path, seconds)
    json.dumps([cause._asdict() for cause in found], allow_nan=False)
    assert not any("()" in cause.evidence for cause in found)


def test_a_stage_without_forward_time_is_balanced_with_the_mean_of_the_stages(tmp_path: Path) -> None:
    """Stage 1 takes 40 ms per forward computation and stage 0 no time; balanced, both would take 20 ms."""

    def seconds(key: Key, step: int) -> float:
        if key[2] == "forward-compute":
            return 0.04 * key[1]
        return 0.04 if key[2] == "backward-compute" else 0.0

    (cause,) = planted(tmp_path, seconds, dp=1, stages=2, microbatches=6, steps=2)
    assert (cause.kind, cause.evidence_values["stage"]) == ("stage", 1)
    assert "forward_compute_to_other_stages" not in cause.evidence_values
    assert cause.evidence_values["backward_compute_to_other_stages"] == pytest.approx(1)
    # 80 ms of each of 6 microbatches on stage 1, then the last backward of stage 0; balanced, 60 ms each and the first
    # forward of stage 0 before them.
    assert cause.seconds_per_step == pytest.approx((6 * 0.08 + 0.04) - (0.02 + 6 * 0.06 + 0.04))
