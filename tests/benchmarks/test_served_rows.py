"""Predictions of published serving benchmarks, and the host's terms that follow from them."""

from __future__ import annotations

from collections import Counter
from statistics import median

import numpy as np
import pytest

from benchmarks.errors import RelativeErrors, by_name
from benchmarks.served_choices import FrontPoint, front_point, front_ratios, lost, maximum_error
from benchmarks.served_hosts import host_fit
from benchmarks.served_loop import simulated
from benchmarks.served_rows import VARIANTS, WHOLE, RowErrors, ServedRow, errors, latencies, rows
from roofmodel.devices.device import Device
from roofmodel.models.hub import load
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.step_times import decode_times, replica
from tests.profiles.samples import measured

ROW = ServedRow(
    "vllm", "0.12.0", "Qwen/Qwen3-32B", "h100", Layout(tp=2), Formats("bf16"), 1, 1024, 512, False, 0.1, 0.01
)  # fmt: skip


def test_a_single_request_meets_no_other_prompts() -> None:
    """Alone in the engine, each of its tokens takes a decode step; a prompt does not wait. With equal lengths in waves,
    the same 16 requests meet half as many prompts, so that TPOT is halfway between this and the steady state."""
    served = replica(load("qwen3-32b"), Device.load("h100"), Layout(tp=2), Formats("bf16"), 0.9)
    _, tpot = latencies(served, [ROW, ROW._replace(batch=16)])
    in_waves = served._replace(work=served.work._replace(engine=served.work.engine._replace(prompts_first=True)))
    _, halved = latencies(in_waves, [ROW._replace(batch=16)])
    alone = decode_times(served, np.array([1, 16]), 1024 + 256).seconds
    assert tpot.seconds[0] == pytest.approx(alone[0])
    assert halved.seconds[0] == pytest.approx((tpot.seconds[1] + alone[1]) / 2)
    assert tpot.seconds[1] > 1.05 * alone[1]


def test_the_fit_finds_the_hosts_terms_of_models_that_an_engine_serves() -> None:
    """TPOT is 10 ms of kernels, 0.5 ms per step and 20 us per sequence; one row in ten is twice as long."""
    found = []
    for at, batch in enumerate((1, 4, 16, 64, 128) * 6):
        tpot = (10e-3 + 0.5e-3 + 20e-6 * batch) * (2 if at % 10 == 9 else 1)
        row = ROW._replace(batch=batch, model=f"model {at % 3}", tpot=tpot)
        error = RelativeErrors(0.0, 10e-3 / tpot - 1, inside=True)
        found.append(RowErrors(row, error, error))
    host = host_fit(found)
    assert (host.step, host.sequence) == (pytest.approx(0.5, rel=0.1), pytest.approx(20, rel=0.1))
    assert median(np.abs(host.left_out)) < 0.02


def test_the_simulation_of_a_server_agrees_with_what_benchmarks_measured() -> None:
    """A sample of the rows on two and on eight GPUs; docs/accuracy.md has all, by engine and version."""
    table = measured("whole") / "served_aic_silicon.csv.gz"
    some = [row for row in rows(table, Counter()) if row.layout in (Layout(tp=8), Layout(tp=2))][::12]
    found = simulated(table, errors(table, some, VARIANTS[WHOLE]))
    for engine, of_engine in by_name((each.row.engine, each.tpot.expected) for each in found).items():
        assert median(map(abs, of_engine)) < 0.15, engine
    assert sum(each.tpot.inside for each in found) > 0.75 * len(found)


def test_each_engines_tpot_is_closer_than_that_of_aiconfigurator() -> None:
    """aiconfigurator 0.12 has a median error of 21 % on models and GPUs that are kept aside."""
    table = measured("whole") / "served_aic_silicon.csv.gz"
    some = [row for row in rows(table, Counter()) if row.layout == Layout(tp=4)]
    found = errors(table, some, VARIANTS[WHOLE])
    for engine, of_engine in by_name((each.row.engine, each.tpot.expected) for each in found).items():
        assert median(map(abs, of_engine)) < 0.15, engine


def test_the_rate_of_a_row_follows_from_its_latency() -> None:
    """8 requests in flight on 2 GPUs, 101 tokens in 1 s + 100 × 10 ms: 8 × 101 / 2 s / 2; expected with 20 ms."""
    row = ROW._replace(batch=8, osl=101, ttft=1.0, tpot=0.01)
    point = front_point(RowErrors(row, RelativeErrors(0, 0, True), RelativeErrors(0, 1.0, True)))
    assert point == pytest.approx(FrontPoint(8 * 101 / 2 / 2, 8 * 101 / 3 / 2, 100, 50))


def test_the_choice_of_a_layout_loses_what_another_one_delivers() -> None:
    """The first layout is predicted to have the highest throughput, 120, and delivers 90 of the second one's 100."""
    first = [FrontPoint(90, 120, 10, 10), FrontPoint(50, 60, 20, 20)]
    second = [FrontPoint(100, 110, 10, 10)]
    assert lost([first, second]) == pytest.approx(0.1)
    assert maximum_error(first) == pytest.approx(120 / 90 - 1)


def test_fronts_are_compared_at_the_same_speed_per_user() -> None:
    """The predicted front falls from 100 at 10 to 25 at 40 tokens/s: 50 at 20, halfway in logarithms. A measured speed
    beyond the predicted ones is left out."""
    points = [FrontPoint(40, 100, 20, 10), FrontPoint(20, 25, 80, 40)]
    assert front_ratios(points) == [pytest.approx(50 / 40)]
