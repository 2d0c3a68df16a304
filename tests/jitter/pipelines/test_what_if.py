"""The what-if analysis: published results, a pipeline derived by hand, properties of replays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.errors import ProfileError
from roofmodel.jitter.data import what_if_slowdowns
from roofmodel.jitter.pipelines.what_if import WhatIf, Worker, analyze
from roofmodel.profiles.operation_table import COLUMNS, read_operations
from tests.jitter.pipelines.jobs import job, random_seconds, rebuilt, table, written
from tests.profiles.samples import measured

FOLDER = "traces/stragglers"


def published(name: str) -> Any:
    return json.loads(measured(f"{FOLDER}/{name}.json").read_text())


def analyzed(folder: Path, rows: pandas.DataFrame) -> WhatIf:
    return analyze(rebuilt(table(folder, rows)))


# --- Published results ------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["ST", "SE"])
def trace(request: pytest.FixtureRequest) -> tuple[str, WhatIf]:
    return request.param, analyze(rebuilt(read_operations(measured(f"{FOLDER}/trace-{request.param}.parquet"))))


def test_published_slowdowns_are_reproduced(trace: tuple[str, WhatIf]) -> None:
    name, found = trace
    expected = published(f"result-{name}")
    # The authors store times as float32.
    assert found.slowdown == pytest.approx(expected["blocking_slowdown"], rel=1e-6)
    data = what_if_slowdowns(found)
    for name_in_data, published_name in (("operation", "optype"), ("dp_rank", "dp_rank"), ("stage", "stage")):
        assert data[f"by_{name_in_data}"] == pytest.approx(
            expected[f"blocking_decompose_by_{published_name}"], rel=1e-6
        )


def test_published_step_times_are_reproduced(trace: tuple[str, WhatIf]) -> None:
    name, found = trace
    expected = published(f"result-{name}")
    for key, seconds in (
        ("base", found.recorded_seconds), ("nodelay", found.replayed_seconds), ("noblk", found.ideal_seconds)
    ):  # fmt: skip
        assert dict(zip(map(str, found.steps), seconds, strict=True)) == pytest.approx(expected[f"step_t_{key}"], 1e-6)


def test_published_shares_of_workers_and_last_stage_are_reproduced(trace: tuple[str, WhatIf]) -> None:
    name, found = trace
    assert found.m_w == pytest.approx(published(f"mw-{name}")["Mw"], abs=1e-5)
    assert found.m_s == pytest.approx(published(f"ms-{name}")["Ms"], abs=1e-5)


def test_a_worker_in_a_step_has_the_smaller_published_slowdown_of_its_rank_and_stage(
    trace: tuple[str, WhatIf],
) -> None:
    name, found = trace
    expected = published(f"result-{name}")
    for column, step in enumerate(found.steps):
        ranks, stages = (expected[f"blocking_decompose_by_{key}_per_step"][str(step)] for key in ("dp_rank", "stage"))
        for row, worker in enumerate(found.by_worker):
            smaller = min(ranks[str(worker.dp_rank)], stages[str(worker.stage)])
            assert found.worker_slowdowns[row, column] == pytest.approx(smaller, rel=1e-6)


def test_the_replay_differs_from_the_recorded_steps_by_their_launch_delays(trace: tuple[str, WhatIf]) -> None:
    name, found = trace
    expected = published(f"result-{name}")
    ratios = [expected["step_t_nodelay"][step] / seconds for step, seconds in expected["step_t_base"].items()]
    assert found.replay_error == pytest.approx(1 - np.mean(ratios), rel=1e-3)


# --- A pipeline derived by hand ------------------------------------------------------------------


def two_stages() -> pandas.DataFrame:
    """Two microbatches, two stages, one data-parallel rank. Forward transfers take 1 s, all others no time.

    Recorded: stage 0 computes F0 0-2, F1 2-4; stage 1 receives F0 at 3, F1 at 5.
    Stage 1: F0 3-6, B0 6-10, F1 10-13, B1 13-17. Stage 0: B0 10-13, B1 17-20.
    """

    def row(stage: int, kind: str, seq: int, start: float, end: float, microbatch: int = -1) -> tuple[object, ...]:
        chunk = 0 if microbatch >= 0 else -1
        return (0, stage, stage, 7, kind, start, end - start, seq, chunk, microbatch, stage if chunk == 0 else -1)

    return pandas.DataFrame(
        [
            row(0, "forward-compute", 0, 0, 2, 0), row(0, "forward-compute", 1, 2, 4, 1),
            row(0, "forward-send", 0, 2, 3), row(0, "forward-send", 1, 4, 7),
            row(1, "forward-recv", 0, 0, 3), row(1, "forward-recv", 1, 6, 7),  # posted after F0 has ended
            row(1, "forward-compute", 0, 3, 6, 0), row(1, "forward-compute", 1, 10, 13, 1),
            row(1, "backward-compute", 0, 6, 10, 0), row(1, "backward-compute", 1, 13, 17, 1),
            row(1, "backward-send", 0, 10, 10), row(1, "backward-send", 1, 17, 17),
            row(0, "backward-recv", 0, 0, 10), row(0, "backward-recv", 1, 13, 17),
            row(0, "backward-compute", 0, 10, 13, 0), row(0, "backward-compute", 1, 17, 20, 1),
        ],
        columns=list(COLUMNS),
    )  # fmt: skip


def test_a_pipeline_of_two_stages_has_the_slowdowns_derived_by_hand(tmp_path: Path) -> None:
    found = analyzed(tmp_path, two_stages())
    assert found.replay_error == pytest.approx(0)
    # Ideal: forward (2+2+3+3)/4 = 2.5, backward (3+3+4+4)/4 = 3.5, forward transfer 1, backward transfer 0.
    # Stage 1: F0 3.5-6, B0 6-9.5, F1 9.5-12, B1 12-15.5. Stage 0: B0 9.5-13, B1 15.5-19.
    assert found.ideal_seconds == pytest.approx([19])
    assert found.slowdown == pytest.approx(20 / 19)
    # Only forward recorded: stage 1: F0 3-6, B0 6-9.5, F1 9.5-12.5, B1 12.5-16; stage 0: B1 16-19.5.
    assert found.by_operation["forward-compute"] == pytest.approx(19.5 / 19)
    # Only backward recorded: stage 1: F0 3.5-6, B0 6-10, F1 10-12.5, B1 12.5-16.5; stage 0: B1 16.5-19.5.
    assert found.by_operation["backward-compute"] == pytest.approx(19.5 / 19)
    assert found.by_operation["forward-pp-comm"] == pytest.approx(1)
    assert found.by_operation["backward-pp-comm"] == pytest.approx(1)
    # Only stage 0 recorded: stage 1: F0 3-5.5, B0 5.5-9, F1 9-11.5, B1 11.5-15; stage 0: B1 15-18.
    assert found.by_stage[0] == pytest.approx(18 / 19)
    # Only stage 1 recorded: F0 3.5-6.5, B0 6.5-10.5, F1 10.5-13.5, B1 13.5-17.5; stage 0: B1 17.5-21.
    assert found.by_stage[1] == pytest.approx(21 / 19)
    assert found.by_dp_rank == {0: pytest.approx(20 / 19)}
    assert found.by_worker == {Worker(0, 0): pytest.approx(18 / 19), Worker(0, 1): pytest.approx(20 / 19)}
    # With an ideal stage 1, the step takes 18 s: (20 - 18) / (20 - 19).
    assert found.m_s == pytest.approx(2)
    assert found.worst_workers == (Worker(0, 1),)
    assert found.m_w == pytest.approx(2)


def test_the_json_object_has_the_keys_of_the_contract(tmp_path: Path) -> None:
    data = what_if_slowdowns(analyzed(tmp_path, two_stages()))
    assert list(data) == [
        "replay_error", "slowdown", "by_operation", "by_dp_rank", "by_stage", "by_worker", "m_w", "m_s"
    ]  # fmt: skip
    assert set(data["by_worker"]) == {"0-0", "0-1"}
    assert set(data["by_stage"]) == {"0", "1"}
    json.dumps(data, allow_nan=False)


# --- Properties -------------------------------------------------------------------------------------

JOBS = st.one_of(
    st.fixed_dictionaries(
        {"dp": st.integers(1, 3), "stages": st.integers(1, 4), "microbatches": st.integers(1, 5),
         "steps": st.integers(1, 2), "tail": st.booleans()}
    ),
    st.sampled_from(
        [
            {"stages": stages, "chunks": chunks, "microbatches": stages * rounds, "dp": 2, "recorded_edges": edges}
            for stages in (2, 3) for chunks in (2, 3) for rounds in (1, 2) for edges in (False, True)
        ]
    ),
)  # fmt: skip


@given(shape=JOBS, seed=st.integers(0, 10**6))
@settings(max_examples=40)
def test_the_replay_of_a_job_without_launch_delays_is_exact(
    tmp_path_factory: pytest.TempPathFactory, shape: dict[str, Any], seed: int
) -> None:
    found = analyzed(tmp_path_factory.mktemp("job"), job(random_seconds(seed), **shape))
    assert found.replay_error == pytest.approx(0, abs=1e-12)
    assert not found.warnings


@given(shape=JOBS)
@settings(max_examples=15)
def test_a_job_with_equal_times_has_no_slowdown(
    tmp_path_factory: pytest.TempPathFactory, shape: dict[str, Any]
) -> None:
    times = {"forward-compute": 0.02, "backward-compute": 0.04}
    found = analyzed(tmp_path_factory.mktemp("job"), job(lambda key, step: times.get(key[2], 0.001), **shape))
    assert found.slowdown == pytest.approx(1)
    for slowdowns in (found.by_operation, found.by_dp_rank, found.by_stage, found.by_worker):
        assert list(slowdowns.values()) == pytest.approx([1] * len(slowdowns))


@given(seed=st.integers(0, 10**6), dp=st.integers(2, 4))
@settings(max_examples=15)
def test_renumbered_ranks_change_only_the_keys_of_results(
    tmp_path_factory: pytest.TempPathFactory, seed: int, dp: int
) -> None:
    rows = job(random_seconds(seed), dp=dp, steps=2)
    folder = tmp_path_factory.mktemp("job")
    first = analyzed(folder, rows)
    second = analyzed(folder, rows.assign(dp_rank=dp - 1 - rows["dp_rank"], rank=100 - rows["rank"]))
    assert second.slowdown == pytest.approx(first.slowdown)
    assert (second.m_w, second.m_s) == (pytest.approx(first.m_w), pytest.approx(first.m_s))
    for rank in range(dp):
        assert second.by_dp_rank[dp - 1 - rank] == pytest.approx(first.by_dp_rank[rank])


@given(seed=st.integers(0, 10**6), microbatches=st.integers(1, 6))
@settings(max_examples=20)
def test_the_slowest_of_independent_ranks_is_never_faster_than_the_mean(
    tmp_path_factory: pytest.TempPathFactory, seed: int, microbatches: int
) -> None:
    """Without pipeline stages, only computations vary; the slowest rank takes at least the mean time."""

    def seconds(key: tuple[int, int, str, int], step: int) -> float:
        return random_seconds(seed)(key, step) if key[2].endswith("compute") else 0.001

    found = analyzed(tmp_path_factory.mktemp("job"), job(seconds, dp=3, stages=1, microbatches=microbatches, steps=2))
    assert found.slowdown >= 1 - 1e-12
    assert found.ideal_seconds == pytest.approx([found.ideal_seconds[0]] * 2)


def test_one_slow_worker_explains_the_slowdown(tmp_path: Path) -> None:
    slow = (2, 1)

    def seconds(key: tuple[int, int, str, int], step: int) -> float:
        if not key[2].endswith("compute"):
            return 0.001
        return (0.02 if key[2].startswith("forward") else 0.04) * (1.5 if key[:2] == slow else 1)

    found = analyzed(tmp_path, job(seconds, dp=4, stages=3, microbatches=6, steps=3))
    assert found.worst_workers == (Worker(*slow),)
    assert max(found.by_worker, key=lambda worker: found.by_worker[worker]) == Worker(*slow)
    assert found.m_w == pytest.approx(1, abs=0.15)
    assert found.m_s is not None
    assert found.m_s < 0.2


def test_long_launch_delays_cause_a_warning(tmp_path: Path) -> None:
    rows = job(random_seconds(3), dp=2, steps=3)
    rows.loc[rows["optype"] == "optimizer", "start_ts"] += 0.2
    found = analyzed(tmp_path, rows)
    expected = found.replayed_seconds / (found.replayed_seconds + 0.2)
    assert found.replay_error == pytest.approx(1 - expected.mean())
    assert "launch delays, or operations that are not recorded" in found.warnings[0]


# --- Incomplete and damaged jobs --------------------------------------------------------------------


def whole(steps: int = 4, dp: int = 4, stages: int = 2) -> pandas.DataFrame:
    return job(random_seconds(5), dp=dp, stages=stages, microbatches=3, steps=steps)


def test_a_step_that_one_rank_lacks_is_left_out(tmp_path: Path) -> None:
    rows = whole()
    found = analyzed(tmp_path, rows[~((rows["step"] == 2) & (rows["rank"] == 5))])
    assert found.steps == (0, 1, 3)
    (warning,) = found.warnings
    assert "the replay and the comparison leave out 1 step (2): in step 2, rank 5 has 0 backward-compute" in warning


def test_a_missing_operation_removes_its_step(tmp_path: Path) -> None:
    rows = whole()
    lost = (rows["step"] == 1) & (rows["rank"] == 2) & (rows["optype"] == "forward-send") & (rows["seq_id"] == 1)
    found = analyzed(tmp_path, rows[~lost])
    assert found.steps == (0, 2, 3)
    assert "rank 2 has 2 forward-send operations, 3 expected" in found.warnings[0]
    expected = analyzed(tmp_path, rows[rows["step"] != 1])
    assert what_if_slowdowns(found) == what_if_slowdowns(expected)


def test_a_missing_rank_leaves_out_its_data_parallel_rank(tmp_path: Path) -> None:
    rows = whole()
    found = analyzed(tmp_path, rows[rows["rank"] != 5])  # stage 1 of dp_rank 1
    assert set(found.by_dp_rank) == {0, 2, 3}
    assert len(found.steps) == 4
    assert "dp_rank 1 is left out of the replay: operations are missing in 4 of 4 steps" in found.warnings[0]
    assert "stage 1 of dp_rank 1 has 0" in found.warnings[0]


def test_a_missing_data_parallel_rank_is_named(tmp_path: Path) -> None:
    rows = whole()
    found = analyzed(tmp_path, rows[rows["dp_rank"] != 1])
    assert set(found.by_dp_rank) == {0, 2, 3}
    assert "no operations of dp_rank 1" in found.warnings[0]


def test_a_missing_middle_stage_is_refused(tmp_path: Path) -> None:
    rows = whole(stages=3)
    with pytest.raises(ProfileError, match="no operations of stage 1; add the traces of its ranks"):
        analyzed(tmp_path, rows[rows["stage"] != 1])


def test_a_missing_last_stage_is_named(tmp_path: Path) -> None:
    rows = whole(stages=3)
    found = analyzed(tmp_path, rows[rows["stage"] != 2])
    assert set(found.by_stage) == {0, 1}
    assert "stage 1 has forward-send operations, but the file has no stage at the other end" in found.warnings[0]


def test_a_job_without_a_whole_step_is_refused(tmp_path: Path) -> None:
    rows = whole(steps=2, dp=2)
    lost = ((rows["step"] == 0) & (rows["rank"] == 0)) | ((rows["step"] == 1) & (rows["rank"] == 1))
    with pytest.raises(ProfileError, match="no step has all operations of all ranks"):
        analyzed(tmp_path, rows[~lost])


def test_steps_with_other_numbers_of_microbatches_are_analyzed_together(tmp_path: Path) -> None:
    rows = pandas.concat(
        [job(random_seconds(1), dp=2, steps=2), job(random_seconds(2), dp=2, microbatches=5).assign(step=9)]
    ).astype({"optype": "category"})
    found = analyzed(tmp_path, rows)
    assert found.steps == (0, 1, 9)
    assert found.replay_error == pytest.approx(0, abs=1e-12)
    assert found.ideal_seconds[2] > found.ideal_seconds[0] == pytest.approx(found.ideal_seconds[1])


def test_a_step_that_ends_early_on_all_ranks_is_left_out(tmp_path: Path) -> None:
    rows = whole()
    found = analyzed(tmp_path, rows[~((rows["step"] == 3) & (rows["optype"] == "optimizer"))])
    assert found.steps == (0, 1, 2)
    assert "has 0 optimizer operations, 1 expected" in found.warnings[0]


def test_a_missing_stage_is_found_by_its_chunks(tmp_path: Path) -> None:
    rows = job(random_seconds(5), stages=2, chunks=2, microbatches=2)
    with pytest.raises(ProfileError, match=r"job\.parquet: no computations of model chunk 1; add the traces of all"):
        analyzed(tmp_path, rows[rows["stage"] == 0])


@pytest.mark.parametrize("value", [-1, 0])
@pytest.mark.parametrize("chunks", [1, 2])
def test_chunks_and_microbatches_need_no_numbers(tmp_path: Path, value: int, chunks: int) -> None:
    rows = job(random_seconds(5), stages=2, chunks=chunks, microbatches=4, dp=2)
    expected = analyzed(tmp_path, rows)
    found = analyzed(tmp_path, rows.assign(gmc=value, mb_id=value))
    assert what_if_slowdowns(found) == what_if_slowdowns(expected)
    assert [warning.split(": ", 1)[1][:3] for warning in found.warnings] == ["gmc"] * (value + 1)


def test_a_very_large_rank_number_needs_no_memory(tmp_path: Path) -> None:
    rows = whole().replace({"dp_rank": {3: 10**12}})
    (warning,) = analyzed(tmp_path, rows).warnings
    assert "no operations of dp_rank 3, 4, 5, 6, 7 and 999999999992 more" in warning


def test_operations_without_time_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"step 0 takes no time; check the durations"):
        analyzed(tmp_path, whole().assign(duration=0.0))


def test_a_rank_with_its_computations_in_another_order_is_analyzed(tmp_path: Path) -> None:
    rows = whole()
    early = (rows["rank"] == 2) & (rows["step"] == 1) & (rows["optype"] == "backward-compute") & (rows["seq_id"] == 0)
    rows.loc[early, "start_ts"] = 0.0  # before its forward computations
    found = analyzed(tmp_path, rows)
    assert found.steps == (0, 1, 2, 3)


def test_unknown_kinds_are_named(tmp_path: Path) -> None:
    rows = whole()
    extra = rows[rows["optype"] == "gc"].assign(optype="checkpoint")
    found = analyzed(tmp_path, pandas.concat([rows.astype({"optype": str}), extra]))
    assert "32 operations of unknown kinds are left out: 'checkpoint'" in found.warnings[0]
    assert what_if_slowdowns(found) == what_if_slowdowns(analyzed(tmp_path, rows))


def test_a_table_without_computations_is_refused(tmp_path: Path) -> None:
    rows = whole()
    with pytest.raises(ProfileError, match="no forward-compute or backward-compute operations"):
        analyzed(tmp_path, rows[~rows["optype"].isin(["forward-compute", "backward-compute"])])


def test_sends_without_receives_are_refused(tmp_path: Path) -> None:
    rows = whole(steps=2)
    with pytest.raises(ProfileError, match="stage 1 has 0 forward-recv operations for 3 forward-compute operations"):
        analyzed(tmp_path, rows[rows["optype"] != "forward-recv"])


def test_a_file_is_analyzed_after_damaged_rows_are_left_out(tmp_path: Path) -> None:
    rows = whole()
    rows.loc[(rows["step"] == 1) & (rows["rank"] == 3) & (rows["optype"] == "optimizer"), "duration"] = float("nan")
    read = read_operations(written(tmp_path, rows))
    assert read.warnings
    assert analyze(rebuilt(read)).steps == (0, 2, 3)
