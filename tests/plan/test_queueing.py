"""The mean wait of requests that arrive at random, against exact formulas and a simulation."""

from __future__ import annotations

import heapq
import random
from collections import deque
from functools import cache
from math import exp, inf
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models import hub
from roofmodel.plan.candidate import Candidate
from roofmodel.plan.queueing import FullBatches, fewest_engines, mean_wait, partial_load
from tests.plan.searching import plan


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


@pytest.mark.parametrize(("load", "servers"), [(0.05, 2), (0.1, 2), (0.2, 2), (0.3, 2), (0.1, 4), (0.2, 4), (0.3, 4)])
def test_the_mean_wait_in_light_traffic_is_that_of_a_simulation(load: float, servers: int) -> None:
    assert mean_wait(load * servers, servers, 1.0) == pytest.approx(simulated(load * servers, servers), rel=0.15)


@given(st.floats(0.01, 0.98), st.integers(1, 500))
def test_more_load_waits_longer_and_more_servers_wait_less(load: float, servers: int) -> None:
    wait = mean_wait(load * servers, servers, 1.0)
    assert 0 <= wait <= mean_wait((load + 0.01) * servers, servers, 1.0)
    assert mean_wait(load * servers, servers + 1, 1.0) <= wait


def test_busy_servers_have_an_unlimited_queue_and_idle_ones_none() -> None:
    assert mean_wait(2.0, 2, 1.0) == inf
    assert mean_wait(0.0, 2, 1.0) == 0
    assert mean_wait(exp(-30), 3, 1.0) < 1e-20


@given(st.lists(st.tuples(st.floats(0.01, 1.2), st.integers(1, 200)), min_size=1, max_size=5))
def test_arrays_have_the_waits_of_their_elements(queues: list[tuple[float, int]]) -> None:
    servers, seconds = (np.array(each) for each in zip(*((c, load * c) for load, c in queues), strict=True))
    assert mean_wait(1.0, servers, seconds) == pytest.approx(
        [mean_wait(1.0, c, load * c) for load, c in queues], rel=1e-12
    )


@cache
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


OUTSIDE = Engine.load("vllm").host.outside_steps(1024)
"""Seconds of TTFT outside the steps, of a prompt of 1024 tokens."""


def test_an_idle_mixed_engine_has_no_wait() -> None:
    found = candidate("mixed", 1e-3)
    waits = [candidate("mixed", rate).mean_wait or 0.0 for rate in (1e-3, 1e-5, 1e-7)]
    in_service = 1e-3 * (found.ttft.value + 127 * found.tpot.value)  # requests at a time, by Little's law
    assert 0 < waits[0] < in_service * found.largest_itl
    assert waits[1:] == pytest.approx([waits[0] / 100, waits[0] / 10_000], rel=0.05)  # proportional to the rate


def test_at_a_low_rate_ttft_is_the_prefill_of_one_prompt() -> None:
    options: dict[str, Any] = {"dtype": "bf16", "engine": "vllm", "sustained": "on"}
    prefill = roofmodel.estimate("llama-3.1-8b", "h100", phase="prefill", seq=1024, **options)
    alone = prefill.totals["prefill"]["expected_seconds"]
    apart, mixed = (candidate(mode, 1e-3) for mode in ("disaggregated", "mixed"))
    assert apart.prefill is not None
    assert apart.ttft.value - apart.prefill.transfer - OUTSIDE == pytest.approx(alone)
    assert alone < mixed.ttft.value - OUTSIDE < 1.2 * alone  # a step of one decode more
    assert mixed.ttft.value < 0.5 * candidate("mixed", None).ttft.value


@pytest.mark.parametrize("mode", ["mixed", "disaggregated"])
def test_the_limit_of_ttft_applies_to_the_wait_and_the_prefill(mode: str) -> None:
    rate = 0.8 * candidate(mode, None).requests.value
    loose = candidate(mode, rate)
    assert loose.mean_wait is not None
    assert loose.first_token == loose.ttft.value + loose.mean_wait
    limited = candidate(mode, rate, ttft=1.001 * loose.first_token)
    assert limited.meets
    assert (limited.layout, limited.batch, limited.first_token) == (loose.layout, loose.batch, loose.first_token)
    strict = candidate(mode, rate, ttft=0.999 * loose.first_token)
    assert strict.ttft.value < loose.first_token
    assert strict.meets == (strict.mean_wait < inf and strict.first_token <= 0.999 * loose.first_token)
    assert not strict.meets or strict.first_token < loose.first_token


@pytest.mark.parametrize("mode", ["mixed", "disaggregated"])
def test_a_service_without_an_infinite_wait_is_nearer_to_a_limit_of_ttft(mode: str) -> None:
    found = candidate(mode, 5, ttft="10ms")  # less than a prefill
    assert not found.meets
    assert found.mean_wait is not None
    assert found.mean_wait < inf
    assert found.violation == found.first_token / 0.01
    assert candidate(mode, 5000, ttft="10ms").mean_wait == inf  # no service sustains the rate


class Case(NamedTuple):
    """An engine whose steps take `base` seconds, `sequence` for each decode and `prompt` for each prompt."""

    batch: int
    decodes: int
    base: float
    sequence: float
    prompt: float
    prompts: int = 1  # in a chunk at most
    parts: int = 1  # chunks of a prompt


def simulated_engine(case: Case, rate: float, requests: int) -> tuple[float, float]:
    """The mean wait and the mean time of a prefill on one engine."""
    draw, now, waits, prefills, started = random.Random(3), 0.0, 0.0, 0.0, 0
    arrival, queue, remaining = draw.expovariate(rate), deque[float](), list[int]()
    current = list[list[float]]()  # chunks left and start of the prompts that are computed
    while started < requests:
        while arrival <= now:
            queue.append(arrival)
            arrival += draw.expovariate(rate)
        if not queue and not remaining and not current:
            now = arrival
            continue
        remaining = [steps - 1 for steps in remaining if steps > 1]  # in the batch in this step
        while queue and len(current) < case.prompts and len(remaining) + len(current) < case.batch:
            waits += now - queue.popleft()
            current.append([case.parts, now])
            started += 1
        now += case.base + case.sequence * len(remaining) + case.prompt / case.parts * len(current)
        current = [[left - 1, start] for left, start in current]
        prefills += sum(now - start for left, start in current if not left)
        remaining += [case.decodes for left, _ in current if not left]
        current = [each for each in current if each[0]]
    return waits / started, prefills / started


def full_batches(case: Case) -> FullBatches:
    """The formulas of `serving.py` for this engine: N units (prompts, or chunks of one) in a step, with a Poisson
    distribution, each of which takes `unit` seconds."""
    b = np.arange(1.0, case.batch + 1)
    most, unit = 1 if case.parts > 1 else case.prompts, case.prompt / case.parts
    mean = np.minimum(b / case.decodes * case.parts, most)
    plain = case.base + case.sequence * b
    step = plain + unit * mean
    squares = step**2 + unit**2 * mean  # the variance of N is its mean
    with_others = sum(min(n + 1, most) * poisson.pmf(n, mean) for n in range(200))
    ttft = case.parts * (plain + unit * with_others)
    prompt = case.parts * (plain + unit * most) / most
    return FullBatches(b, mean / case.parts / step, (ttft, ttft, ttft), squares / (2 * step), prompt, 1)


def found_and_simulated(case: Case, load: float, requests: int) -> tuple[float, float, float]:
    """The found wait / the simulated one, the same ratio of the sums of wait and prefill, and TTFT of a full batch /
    the simulated prefill."""
    full = full_batches(case)
    rate = load * full.requests[-1]
    found = partial_load(full, rate, 1)
    ttft, wait = found.ttft[0][-1], found.wait[-1]
    simulated, prefill = simulated_engine(case, rate, requests)
    return wait / simulated, (ttft + wait) / (simulated + prefill), full.ttft[0][-1] / prefill


CASES = [
    Case(16, 63, 1, 0, 0.5),
    Case(16, 100, 1, 0.05, 4, parts=4),
    Case(32, 16, 1, 0, 0.5, prompts=2),
    Case(32, 64, 1, 0.05, 2, prompts=4),
    Case(64, 64, 0.2, 0.02, 2, prompts=8),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("load", [0.5, 0.95, 2.5])
@pytest.mark.parametrize("slack", [1.02, 1.5, inf])
def test_the_fewest_engines_are_the_first_number_that_meets_the_limit(case: Case, load: float, slack: float) -> None:
    full, most = full_batches(case), 8
    rate, place = load * full.requests[-1], case.batch - 1
    loads = [partial_load(full, rate, engines) for engines in range(1, most + 1)]
    first_tokens = [float(each.ttft[0][-1] + each.wait[-1]) for each in loads]
    limit = slack * first_tokens[-1]
    expected = next(n for n, each in enumerate(first_tokens, 1) if each < inf and each <= limit)
    assert fewest_engines(full, place, rate, most, limit) == expected
    assert fewest_engines(full, place, rate, most, 0) is None


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("load", [0.05, 0.3, 0.7])
def test_wait_and_prefill_of_a_mixed_engine_are_at_most_a_quarter_longer_than_simulated(
    case: Case, load: float
) -> None:
    wait, both, _ = found_and_simulated(case, load, requests=8_000)
    assert wait > 0.95  # within the spread of simulations
    assert 0.95 < both < 1.25


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[4]])
def test_near_the_highest_rate_wait_and_prefill_are_at_most_three_quarters_longer_than_simulated(case: Case) -> None:
    _, both, _ = found_and_simulated(case, 0.9, requests=100_000)
    assert 0.85 < both < 1.75  # two simulations of 100 000 requests differ by 10 %


def test_the_wait_of_an_engine_with_equal_steps_is_the_rest_of_a_step_and_the_queue_of_prompts() -> None:
    """Steps of 1 s, with a prompt or without; a request is 64 steps in service. At 0.01 requests per second, the 16
    places of the batch are free, and 0.64 requests are in service on average."""
    found = partial_load(full_batches(Case(16, 63, 1, 0, 0)), 0.01, 1)
    rest_of_step = (1 - exp(-0.01 * 64)) * 1 / 2
    earlier_prompts = 0.01 * 1 / (2 * (1 - 0.01))
    assert found.wait[-1] == pytest.approx(rest_of_step + earlier_prompts, rel=1e-6)
    assert found.ttft[0][-1] == 1


def test_a_chunk_for_several_prompts_contains_one_at_a_low_rate() -> None:
    _, both, full_batch = found_and_simulated(CASES[-1], 0.05, requests=2_000)
    assert full_batch > 2  # with the prompts of a full batch in each step
    assert both == pytest.approx(1, abs=0.05)


def test_decode_engines_that_cannot_sustain_the_rate_have_an_unlimited_queue() -> None:
    one = candidate("disaggregated", 20, tpot="6.5ms")  # small batches: the decode engine limits the rate
    assert one.prefill is not None
    assert one.requests.value < 20 < one.prefill.requests
    assert one.mean_wait == inf


def test_a_prefill_engine_is_a_server_that_takes_one_prompt_after_another() -> None:
    one = candidate("disaggregated", 5)
    assert one.prefill is not None
    assert one.prefill.layout.engines == 1
    seconds = one.ttft.value - one.prefill.transfer - OUTSIDE
    assert one.mean_wait == pytest.approx(5 * seconds * seconds / (2 * (1 - 5 * seconds)))
