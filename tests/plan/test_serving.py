"""Steady states of an engine, with step times chosen by hand."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pytest
from scipy.stats import poisson

import roofmodel
from roofmodel.counting.workload import PromptChunk
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models import hub
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.queueing import FullBatches
from roofmodel.plan.serving import (
    MAX_PROMPT_TOKENS,
    Points,
    RequestLengths,
    batches,
    largest_batch,
    peak_memory,
    prompt_limit,
    steady_states,
)
from roofmodel.plan.speculation import GenerationTimes, generation_times
from roofmodel.plan.step_times import ServingReplica, StepTimes, replica
from roofmodel.steps.estimate import estimate

ISL, OSL = 1024, 129
"""128 decodes: 128 sequences finish one per step."""
LENGTHS = RequestLengths(ISL, OSL)


@pytest.fixture(scope="module")
def gpt2() -> ServingReplica:
    """GPT-2 on one GPU."""
    return replica(hub.load("gpt2"), Device.load("a100"), Layout(), Formats("fp16"), 0.9)


def seconds(value: Any) -> StepTimes:
    """A step of these seconds, whose interval is from 10 % below to 20 % above, and whose activations take 1000
    bytes."""
    return StepTimes(value, 0.9 * value, 1.2 * value, 0, 0, value, 0, 0, 0, 700 * value, activations=1000)


def steady(
    served: ServingReplica, lengths: RequestLengths = LENGTHS, chunk: int | None = None,
    seen: list[PromptChunk] | None = None,
) -> tuple[Points, FullBatches]:  # fmt: skip
    """The steady states of batches of 64 and 128 sequences, of which a decode takes 1 s. 1024 prompt tokens take 2 s
    more in the same step, and 1.5 s, and 0.5 s for the step, in a step of their own.

    Weights take 50,000 bytes, the cache of a sequence 100.
    """

    def prompts(chunk: PromptChunk) -> Any:
        if seen is not None:
            seen.append(chunk)
        return np.asarray(chunk.batch * chunk.tokens / 1024)

    sizes = np.array([64, 128])
    times = GenerationTimes(
        sizes, 1.0, seconds(np.full(2, 1.0)), lambda chunk: seconds(1 + 2 * prompts(chunk) + 0 * sizes[:, None]),
        lambda chunk: seconds(0.5 + 1.5 * prompts(chunk)),
    )  # fmt: skip
    return steady_states(served, lengths, [(50_000, 100)], times, chunk)


def test_a_chunk_starts_with_half_of_the_rest_of_its_prompt_in_the_cache_on_average(gpt2: ServingReplica) -> None:
    """The chunks of 256 tokens start at 0, 256, 512 and 768: at 384 on average."""
    seen: list[PromptChunk] = []
    steady(gpt2, chunk=256, seen=seen)
    (chunk,) = seen
    assert {*np.ravel(chunk.tokens).tolist()} == {256}
    assert {*np.ravel(chunk.context).tolist()} == {(0 + 256 + 512 + 768) / 4}
    assert np.ravel(chunk.batch).tolist() == [1]


def test_whole_prompts_are_computed_as_many_at_a_time_as_the_engine_takes(gpt2: ServingReplica) -> None:
    seen: list[PromptChunk] = []
    steady(gpt2, chunk=5 * ISL + 1, seen=seen)
    assert np.ravel(seen[0].batch).tolist() == [1, 2, 4, 5]
    assert {*np.ravel(seen[0].context).tolist()} == {0}


def test_a_decode_has_the_prompt_and_half_of_the_answer_in_the_cache(gpt2: ServingReplica) -> None:
    found = generation_times(gpt2, None, 640, np.array([8])).decode
    alike = estimate(gpt2.arch, gpt2.device, phase="decode", batch=8, context=512 + 128, dtype="fp16", engine="vllm")
    assert alike.phases[0].expected is not None
    assert found.seconds.tolist() == pytest.approx([alike.phases[0].expected.value])


def test_prompts_take_places_in_the_cache_besides_the_sequences_that_decode(gpt2: ServingReplica) -> None:
    points, _ = steady(gpt2)  # half a prompt per step, and one
    assert points.memory.tolist() == [50_000 + (64 + 1) * 100 + 1000, 50_000 + (128 + 1) * 100 + 1000]
    # the stage that stores most: 7 sequences take 7 x 10 bytes on the second one
    assert peak_memory([(100, 1), (50, 10)], np.array([1, 7]), np.array([5, 5])).tolist() == [106, 125]


def test_the_rates_of_a_full_batch_follow_littles_law(gpt2: ServingReplica) -> None:
    """128 sequences need 128 decodes each: one finishes per step, and its successor brings a prompt of 2 s."""
    points, _ = steady(gpt2)
    step = np.array([1 + 2 / 2, 1 + 2])
    assert points.tpot[0] == pytest.approx(step)
    assert points.tpot[1:] == (pytest.approx(0.9 * step), pytest.approx(1.2 * step))
    rate = np.array([0.5, 1]) / step
    assert points.requests == (pytest.approx(rate), pytest.approx(rate / 1.2), pytest.approx(rate / 0.9))
    assert points.step.energy == pytest.approx(700 * step)


def test_the_step_of_a_prompt_also_has_the_prompts_that_arrive_with_it(gpt2: ServingReplica) -> None:
    """Arrivals are independent, so a prompt sees as many others as there are in any step: half a one, and one."""
    points, _ = steady(gpt2)
    outside = Engine.load("vllm").host.outside_steps(ISL)
    assert points.ttft[0] == pytest.approx(outside + 1 + 2 * np.array([1.5, 2]))


def test_prompts_in_chunks_limit_the_rate_where_they_fill_every_step(gpt2: ServingReplica) -> None:
    """Chunks of 256 tokens take 0.5 s; 4 of them start a sequence. 64 sequences bring 2 chunks per step, 1 is done."""
    points, _ = steady(gpt2, chunk=256)
    assert points.tpot[0] == pytest.approx(1.5)
    assert points.requests[0] == pytest.approx(1 / 4 / 1.5)
    assert points.ttft[0] == pytest.approx(4 * 1.5 + Engine.load("vllm").host.outside_steps(ISL))
    assert points.longest.tolist() == points.itl_p99.tolist() == [1.5, 1.5]


def test_the_99th_percentile_of_gaps_is_that_of_the_prompts_in_a_step(gpt2: ServingReplica) -> None:
    points, _ = steady(gpt2)
    assert points.itl_p99 == pytest.approx([1 + 2 * poisson.ppf(0.99, mean) for mean in (0.5, 1)])
    most = (MAX_PROMPT_TOKENS - np.array([64, 128])) // ISL  # decodes take tokens of a step
    assert points.longest == pytest.approx(1 + 2 * most)
    rare, _ = steady(gpt2, RequestLengths(ISL, 1 + 128 * 101))  # less than a prompt in 100 steps
    assert rare.itl_p99.tolist() == [1, 1]


def test_an_engine_that_computes_prompts_first_has_no_decodes_in_their_steps() -> None:
    """A gap is a decode, and a pass of all prompts that came: 0.5 s, and 1.5 s for each."""
    served = replica(hub.load("gpt2"), Device.load("a100"), Layout(), Formats("fp16"), 0.9, engine="sglang")
    assert served.work.engine.prompts_first
    points, full = steady(served)
    for place, mean in enumerate((0.5, 1)):
        some = 1 - poisson.pmf(0, mean)  # of the steps have prompts
        assert points.tpot[0][place] == pytest.approx(1 + 0.5 * some + 1.5 * mean)
        assert points.itl_p99[place] == pytest.approx(1 + 0.5 + 1.5 * poisson.ppf(0.99, mean))
        outside = served.work.engine.host.outside_steps(ISL)
        assert points.ttft[0][place] == pytest.approx(outside + 0.5 + 1.5 * (1 + mean))
    most = MAX_PROMPT_TOKENS // ISL
    assert full.prompt == pytest.approx((0.5 + 1.5 * most) / most)


def test_a_long_prompt_stops_all_decodes_of_an_engine_that_computes_prompts_first() -> None:
    """4 passes of 256 tokens take 0.5 + 1.5 / 4 s each."""
    served = replica(hub.load("gpt2"), Device.load("a100"), Layout(), Formats("fp16"), 0.9, engine="sglang")
    points, _ = steady(served, chunk=256)
    prompt = 4 * (0.5 + 1.5 / 4)
    assert points.tpot[0] == pytest.approx(1 + np.array([0.5, 1]) * prompt)
    assert points.requests[0] == pytest.approx(np.array([0.5, 1]) / points.tpot[0])
    assert points.longest == pytest.approx(1 + prompt)


def test_a_random_time_is_more_often_in_a_longer_step(gpt2: ServingReplica) -> None:
    """The rest of a step is E[t²] / (2 E[t]) with t = 1 + 2 N: E[N²] = m + m²."""
    _, full = steady(gpt2)
    mean = np.array([0.5, 1])
    assert full.remaining == pytest.approx((1 + 4 * mean + 4 * (mean + mean**2)) / (2 * (1 + 2 * mean)))


def test_batches_that_leave_no_tokens_for_prompts_are_left_out() -> None:
    arch, device = hub.load("gpt2"), Device.load("a100")
    served = replica(arch, device, Layout(), Formats("fp16"), 0.9, max_len=ISL + OSL, token_budget=100)
    assert prompt_limit(served, ISL, None) == 100
    assert prompt_limit(served, ISL, 30) == 30
    assert steady(served)[0].batch.tolist() == [64]


def test_an_engine_has_no_more_sequences_than_it_is_started_for() -> None:
    served = replica(hub.load("gpt2"), Device.load("h100"), Layout(), Formats("fp16"), None, max_len=64, max_seqs=24)
    assert largest_batch(served, [(0, 1)]) == 24


@pytest.mark.parametrize(("engine", "batch"), [("vllm", 16), ("vllm", 64), ("sglang", 16), ("sglang", 64)])
def test_a_plan_expects_the_rates_and_gaps_of_a_simulated_service(engine: str, batch: int) -> None:
    """`--phase serve` with lengths that differ by a quarter, so that requests are independent of each other."""
    isl, osl = 540, 135
    served = replica(
        hub.load("llama-3.1-8b"), Device.load("h100"), Layout(), Formats("fp16"), None, engine=engine, max_len=750
    )
    sizes = np.array([n for n in batches(batch) if n <= batch])
    times = generation_times(served, None, isl + osl // 2, sizes)
    points, full = steady_states(served, RequestLengths(isl, osl), [(0, 1)], times)
    rate = points.requests[0][-1]
    alike: dict[str, Any] = {
        "phase": "serve", "isl": 600, "osl": 150, "engine": engine, "sustained": "off", "length_ratio": 0.8,
    }  # fmt: skip
    in_flight = batch + ceil(rate * points.ttft[0][-1])  # Little's law
    report = roofmodel.estimate("llama-3.1-8b", "h100", concurrency=in_flight, **alike)
    assert report.service is not None
    found, steady = (
        report.totals["serve"],
        report.service.loop,
    )  # the totals also have the first requests of a benchmark
    assert in_flight / steady.latency == pytest.approx(rate, rel=0.06)
    assert found["tpot_seconds"] == pytest.approx(points.tpot[0][-1], rel=0.08)
    assert found["itl_p99_seconds"] == pytest.approx(points.itl_p99[-1], rel=0.12)
    # under vLLM a prompt arrives at a random time and waits for the end of the running step
    assert 0.9 * points.ttft[0][-1] < steady.ttft < 1.1 * (points.ttft[0][-1] + full.remaining[-1])
