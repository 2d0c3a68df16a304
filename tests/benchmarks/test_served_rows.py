"""Predictions of published serving benchmarks, and the host's terms that follow from them."""

from __future__ import annotations

from collections import Counter
from statistics import median

import numpy as np
import pytest

import roofmodel
from benchmarks.errors import RelativeErrors, by_name
from benchmarks.served_choices import FrontPoint, front_point, front_ratios, lost, maximum_error
from benchmarks.served_hosts import host_fit
from benchmarks.served_rows import RowErrors, ServedRow, client_ttft, errors, rows, served
from roofmodel.engines.engine import Engine
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.serve.totals import ServiceTimes
from tests.profiles.samples import measured

ROW = ServedRow(
    "vllm", "0.12.0", "Qwen/Qwen3-32B", "h100", Layout(tp=2), Formats("bf16"), 1, 1024, 512, False, 0.1, 0.01
)  # fmt: skip


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


def test_estimates_agree_with_what_benchmarks_measured() -> None:
    """A sample of the rows on four GPUs; docs/accuracy.md has all, by engine and version. aiconfigurator 0.12 has a
    median error of TPOT of 21 % on models and GPUs that are kept aside."""
    table = measured("whole") / "served_aic_silicon.csv.gz"
    some = [row for row in rows(table, Counter()) if row.layout == Layout(tp=4)][::30]
    found = errors(table, some)
    for engine, of_engine in by_name((each.row.engine, each.tpot.expected) for each in found).items():
        assert median(map(abs, of_engine)) < 0.15, engine
    assert sum(each.tpot.inside for each in found) > 0.75 * len(found)
    assert median(abs(each.ttft.expected) for each in found if each.row.engine == "vllm") < 0.3


def test_a_benchmark_is_predicted_as_the_command_does() -> None:
    """Lengths that vary are stated as the longest ones, and requests in flight are those of all replicas."""
    table = measured("whole") / "served_aic_silicon.csv.gz"
    row = ROW._replace(drawn=True, isl=900, osl=450, batch=3, layout=Layout(tp=2))
    found = served(table, row, Engine.load("vllm@0.12"))
    report = roofmodel.estimate(
        "qwen3-32b", "h100", phase="serve", concurrency=3, isl=1000, osl=500, length_ratio=0.8, tp=2, dtype="bf16",
        engine="vllm@0.12", token_budget=8192,
    )  # fmt: skip
    assert found.expected is not None
    assert report.totals["serve"]["ttft_seconds"] == found.expected.ttft
    assert report.totals["serve"]["tpot_seconds"] == found.expected.tpot


def test_prompts_that_a_server_collects_are_late() -> None:
    """Llama 70B under TensorRT-LLM with 1024 + 1024 tokens, drawn from 0.8 to 1 times these: up to 20 steps later."""
    late = ROW._replace(engine="trtllm", model="meta-llama/Llama-3.1-70B", isl=922, osl=922, drawn=True)
    times = ServiceTimes(0.1, 0.01, 1.0, 0.0, ((0.01, 1),), 1.0)
    assert client_ttft(late, times) == pytest.approx(0.1 + 20 * 0.01)
    for other in (late._replace(osl=7373), late._replace(layout=Layout(tp=8)), late._replace(engine="vllm")):
        assert client_ttft(other, times) == 0.1


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
