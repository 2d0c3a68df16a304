"""Training runs that fail: the interval between checkpoints, and the share of the time that is useful."""

from __future__ import annotations

import random
from math import exp, sqrt
from typing import Any

import pytest

import roofmodel
from roofmodel.errors import WorkloadError
from roofmodel.steps.training_options import checkpoint_interval, useful_share

HOUR = 3600


def train(**options: Any) -> dict[str, Any]:
    settings = {"phase": "train", "dtype": "bf16", "engine": "torch", **options}
    return dict(roofmodel.estimate("gpt2", "a100", **settings).totals["train"])


def simulated_share(interval: float, checkpoint: float, failure: float, steps: int) -> float:
    """The share of useful time in a run that fails at random, also during checkpoints and restarts."""
    draw, elapsed, done = random.Random(1), 0.0, 0
    until_failure = draw.expovariate(1 / failure)
    restarts = False
    while done < steps:
        needed = interval + checkpoint + (checkpoint if restarts else 0)
        if until_failure > needed:
            elapsed, until_failure, done, restarts = elapsed + needed, until_failure - needed, done + 1, False
        else:
            elapsed, until_failure, restarts = elapsed + until_failure, draw.expovariate(1 / failure), True
    return steps * interval / elapsed


@pytest.mark.parametrize(("checkpoint", "failure"), [(60, 3 * HOUR), (600, 3 * HOUR), (300, HOUR)])
def test_the_useful_share_agrees_with_a_simulated_run(checkpoint: float, failure: float) -> None:
    interval = checkpoint_interval(checkpoint, failure)
    found = useful_share(interval, checkpoint, failure)
    assert found == pytest.approx(simulated_share(interval, checkpoint, failure, 20_000), rel=0.02)


@pytest.mark.parametrize(("checkpoint", "failure"), [(60, 3 * HOUR), (600, 3 * HOUR), (300, HOUR)])
def test_no_other_interval_is_better(checkpoint: float, failure: float) -> None:
    best = checkpoint_interval(checkpoint, failure)
    share = useful_share(best, checkpoint, failure)
    for factor in (0.5, 0.8, 1.25, 2):
        assert useful_share(factor * best, checkpoint, failure) < share


def test_rare_failures_have_the_interval_of_young() -> None:
    assert checkpoint_interval(1, 1e8) == pytest.approx(sqrt(2 * 1e8), rel=1e-3)


def test_the_run_of_llama_3_is_useful_for_nine_tenths_of_its_time() -> None:
    """419 interruptions in 54 days on 16,384 GPUs, with more than 90 % effective training time (arXiv 2407.21783,
    section 3.3.4); its checkpoints took less than a minute."""
    failure = 54 * 24 * HOUR / 419
    assert 0.88 < useful_share(checkpoint_interval(60, failure), 60, failure) < 0.95


def test_all_gpus_fail_and_replicas_divide_a_checkpoint() -> None:
    """gpt2: 124 439 808 parameters with 2 bytes and 12 of the optimizer, over 4 replicas."""
    totals = train(dp=4, batch=8, mtbf=1000, checkpoint_time="30s")
    found = totals["goodput"]
    assert found["failure_seconds"] == 1000 * HOUR / 4
    assert found["checkpoint_seconds"] == 30
    assert found["checkpoint_bytes"] == 14 * 124_439_808 // 4
    assert found["tokens_per_second"] == pytest.approx(found["share"] * 8 * 1024 / totals["expected_seconds"])


def test_a_run_whose_checkpoints_take_longer_than_it_lives_makes_no_progress() -> None:
    assert useful_share(checkpoint_interval(10 * HOUR, 1), 10 * HOUR, 1) == 0
    assert useful_share(checkpoint_interval(100, 10), 100, 10) < exp(-10)


def test_a_run_without_progress_is_said_so_and_has_no_length() -> None:
    settings: dict[str, Any] = {"phase": "train", "mtbf": 1e-4, "checkpoint_time": "60s", "tokens": "1B"}
    report = roofmodel.estimate("gpt2", "a100", **settings)
    assert "none: the run fails every 360 ms, and a checkpoint takes 60 s" in report.text("markdown")
    run = report.totals["train"]["run"]
    assert (run["days"], run["gpu_hours"]) == (None, None)
    assert run["steps"] == 1e9 / 1024


def test_a_run_takes_its_steps_and_its_failures() -> None:
    asked: dict[str, Any] = {"dp": 4, "batch": 8, "tokens": "15T"}
    totals, failing = train(**asked), train(**asked, mtbf=100, checkpoint_time="60s")
    run, steps = totals["run"], 15e12 / (8 * 1024)
    assert run["steps"] == steps
    assert run["days"] == pytest.approx(steps * totals["expected_seconds"] / 86400)
    assert run["days_low"] < run["days"] < run["days_high"]
    assert run["gpu_hours"] == pytest.approx(run["days"] * 24 * 4)
    assert run["days"] == pytest.approx(failing["goodput"]["share"] * failing["run"]["days"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mtbf": 100}, 'mtbf=100 needs another option; add checkpoint_time="60s"'),
        ({"checkpoint_time": "5s"}, 'checkpoint_time="5s" needs another option; add mtbf=50000'),
        ({"mtbf": 0, "checkpoint_time": "5s"}, "mtbf is 0; it must be hours above 0"),
        ({"mtbf": 9, "checkpoint_time": "5"}, 'try checkpoint_time="60s"'),
        ({"mtbf": 9, "checkpoint_time": "5s", "phase": "prefill"}, 'is of a training run; try phase="train"'),
        ({"tokens": "5B", "phase": "prefill"}, 'tokens=5B is of a training run; try phase="train"'),
        ({"tokens": "many"}, "tokens: 'many' is no number of tokens; try tokens=15T"),
    ],
)
def test_options_that_state_no_run_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        train(**options)
    assert message in str(error.value)
