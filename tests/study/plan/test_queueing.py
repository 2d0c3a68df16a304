"""The mean wait of requests that arrive at random, against exact formulas and a simulation."""

from __future__ import annotations

import heapq
import random
from math import exp, inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.study.plan.candidate import Candidate, Interval
from roofmodel.study.plan.plan import plan
from roofmodel.study.plan.queueing import mean_wait


def simulated(rate: float, servers: int, requests: int = 200_000) -> float:
    """The mean wait where each server takes one second per request."""
    draw, arrival, total, free = random.Random(1), 0.0, 0.0, [0.0] * servers
    for _ in range(requests):
        arrival += draw.expovariate(rate)
        start = max(arrival, heapq.heappop(free))
        total += start - arrival
        heapq.heappush(free, start + 1)
    return total / requests


@given(st.floats(0.01, 0.99), st.floats(1e-3, 10))
def test_one_server_has_the_wait_of_pollaczek_and_khinchine(load: float, seconds: float) -> None:
    assert mean_wait(load / seconds, 1, seconds) == pytest.approx(load * seconds / (2 * (1 - load)), rel=1e-9)


@pytest.mark.parametrize(("load", "servers"), [(0.5, 2), (0.8, 2), (0.7, 4), (0.9, 4), (0.9, 16)])
def test_the_mean_wait_is_that_of_a_simulation(load: float, servers: int) -> None:
    assert mean_wait(load * servers, servers, 1.0) == pytest.approx(simulated(load * servers, servers), rel=0.06)


@given(st.floats(0.01, 0.98), st.integers(1, 500))
def test_more_load_waits_longer_and_more_servers_wait_less(load: float, servers: int) -> None:
    wait = mean_wait(load * servers, servers, 1.0)
    assert 0 <= wait <= mean_wait((load + 0.01) * servers, servers, 1.0)
    assert mean_wait(load * servers, servers + 1, 1.0) <= wait


def test_busy_servers_have_an_unlimited_queue_and_idle_ones_none() -> None:
    assert mean_wait(2.0, 2, 1.0) == inf
    assert mean_wait(0.0, 2, 1.0) == 0
    assert mean_wait(exp(-30), 3, 1.0) < 1e-20


def candidate(mode: str, requests: float | None, **options: Any) -> Candidate:
    found = plan(
        hub.load("llama-3.1-8b"), [Device.load("h100")], gpus=2, isl=1024, osl=128, mode=mode, dtype="bf16", kv="bf16",
        tp=1, requests=requests, **options,
    )  # fmt: skip
    return found.ranked[0].candidate


@pytest.mark.parametrize("mode", ["mixed", "disaggregated"])
def test_the_wait_of_a_service_grows_with_the_rate_up_to_its_highest_rate(mode: str) -> None:
    highest = candidate(mode, None).requests.value
    assert candidate(mode, None).mean_wait is None
    waits = [candidate(mode, share * highest).mean_wait for share in (0.1, 0.5, 0.9, 1.01)]
    assert all(wait is not None for wait in waits)
    assert waits == sorted(waits, key=lambda wait: wait or 0.0)
    assert waits[-1] == inf


def test_decode_engines_that_cannot_sustain_the_rate_have_an_unlimited_queue() -> None:
    one = candidate("disaggregated", 5)
    assert one.prefill is not None
    slow = one._replace(prefill=one.prefill._replace(requests=100.0), requests=Interval(4.0, 3.0, 5.0))
    assert slow.mean_wait == inf


def test_a_prefill_engine_is_a_server_that_takes_one_prompt_after_another() -> None:
    one = candidate("disaggregated", 5)
    assert one.prefill is not None
    assert one.prefill.layout.engines == 1
    load = 5 / one.prefill.requests
    assert one.mean_wait == pytest.approx(load / one.prefill.requests / (2 * (1 - load)))
