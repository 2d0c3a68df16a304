"""Steady states of an engine, with step times chosen by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from roofmodel.counting.workload import PromptChunk
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models import hub
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.queueing import FullBatches
from roofmodel.plan.serving import Points, RequestLengths, peak_memory, steady_states
from roofmodel.plan.speculation import GenerationTimes, generation_times
from roofmodel.plan.step_times import ServingReplica, StepTimes, replica
from roofmodel.steps.estimate import estimate

ISL, OSL = 1024, 129
"""Prompts in chunks of 1024, 512, 256 and 128 tokens; 128 decodes."""
LENGTHS = RequestLengths(ISL, OSL)


@pytest.fixture(scope="module")
def gpt2() -> ServingReplica:
    """GPT-2 on one GPU."""
    return replica(hub.load("gpt2"), Device.load("a100"), Layout(), Formats("fp16"), 0.9)


def seconds(*interval: Any) -> StepTimes:
    """A step of these times, whose activations take 1000 bytes."""
    return StepTimes(*interval, 0, 0, interval[0], 0, 0, 0, activations=1000)


def points_of(served: ServingReplica, chunks: list[PromptChunk] | None = None) -> list[dict[str, Any]]:
    """What `steady` finds, as a row for each batch and chunk."""
    points, _ = steady(served, chunks)
    names = ("batch", "chunk", "ttft", "tpot", "requests", "longest", "memory")
    rows = zip(points.batch, points.chunk, zip(*points.ttft, strict=True), zip(*points.tpot, strict=True),
               zip(*points.requests, strict=True), points.longest, points.memory, strict=True)  # fmt: skip
    return [dict(zip(names, row, strict=True)) for row in rows]


def steady(
    served: ServingReplica,
    chunks: list[PromptChunk] | None = None,
    rate: float | None = None,
    lengths: RequestLengths = LENGTHS,
) -> tuple[Points, FullBatches | None]:
    """The steady states of batches of 64 and 128 sequences, of which a decode takes 1 s, and 3 s with a chunk.

    The interval is from 10 % below to 20 % above. Weights take 50,000 bytes, the cache of a sequence 100.
    """

    def mixed(chunk: PromptChunk) -> StepTimes:
        if chunks is not None:
            chunks.append(chunk)
        shape = np.broadcast_shapes((2, 1), np.shape(chunk.tokens))
        return seconds(*(np.full(shape, value) for value in (3.0, 2.7, 3.6)))

    decode = seconds(*(np.full(2, value) for value in (1.0, 0.9, 1.2)))
    times = GenerationTimes(np.array([64, 128]), 1.0, decode, mixed, mixed)
    return steady_states(served, lengths, [(50_000, 100)], times, rate)


def test_a_chunk_starts_with_half_of_the_rest_of_its_prompt_in_the_cache_on_average(gpt2: ServingReplica) -> None:
    """The chunks of 256 tokens start at 0, 256, 512 and 768: at 384 on average."""
    chunks: list[PromptChunk] = []
    points_of(gpt2, chunks)
    (chunk,) = chunks
    cached = dict(zip(chunk.tokens.ravel().tolist(), np.ravel(chunk.context).tolist(), strict=True))
    assert cached == {1024: 0, 512: 256, 256: (0 + 256 + 512 + 768) / 4, 128: (1024 - 128) / 2}


def test_a_decode_has_the_prompt_and_half_of_the_answer_in_the_cache(gpt2: ServingReplica) -> None:
    found = generation_times(gpt2, None, 640, np.array([8])).decode
    alike = estimate(gpt2.arch, gpt2.device, phase="decode", batch=8, context=512 + 128, dtype="fp16", engine="vllm")
    assert alike.phases[0].expected is not None
    assert found.seconds.tolist() == pytest.approx([alike.phases[0].expected.value])


def test_prompts_in_a_chunk_take_places_in_the_cache_besides_the_sequences_that_decode(gpt2: ServingReplica) -> None:
    for point in points_of(gpt2):
        prompts = max(1, point["chunk"] // ISL)
        assert point["memory"] == 50_000 + (point["batch"] + prompts) * 100 + 1000
    # the stage that stores most: 7 sequences take 7 x 10 bytes on the second one
    assert peak_memory([(100, 1), (50, 10)], np.array([1, 7]), np.array([5, 5])).tolist() == [106, 125]


def test_the_rates_of_a_full_batch_follow_littles_law(gpt2: ServingReplica) -> None:
    """128 sequences need 128 decodes each: one finishes per step, and its successor brings 1024 prompt tokens."""
    points = {(point["batch"], point["chunk"]): point for point in points_of(gpt2)}
    assert min(chunk for batch, chunk in points if batch == 128) == 1024  # smaller chunks do not fill the batch
    assert min(chunk for batch, chunk in points if batch == 64) == 512
    every, half = points[128, 1024], points[128, 2048]
    assert every["tpot"] == pytest.approx((3.0, 2.7, 3.6))  # each step has a chunk
    assert half["tpot"] == pytest.approx((2.0, 1.8, 2.4))  # every second one
    assert half["requests"] == pytest.approx((1 / 2.0, 1 / 2.4, 1 / 1.8))
    outside = Engine.load("vllm").host.outside_steps(ISL)
    assert every["ttft"] == pytest.approx((3.0 + outside, 2.7 + outside, 3.6 + outside))
    two_chunks = points[64, 512]["ttft"]
    assert two_chunks == pytest.approx((6.0 + outside, 5.4 + outside, 7.2 + outside))
    assert half["longest"] == 3.0


def test_the_99th_percentile_of_gaps_is_a_step_with_a_chunk_unless_such_steps_are_rare(
    gpt2: ServingReplica,
) -> None:
    """64 sequences of 64 prompt and 1025 new tokens bring 4 prompt tokens per step: 1.6 % of all steps have a chunk of
    256 tokens, 0.8 % one of 512."""
    points, _ = steady(gpt2, lengths=RequestLengths(64, 1025))
    by_chunk = dict(zip(points.chunk[points.batch == 64].tolist(), points.itl_p99[points.batch == 64], strict=True))
    assert by_chunk[256] == 3.0
    assert by_chunk[512] == 1.0


def test_a_random_time_is_more_often_in_a_longer_step(gpt2: ServingReplica) -> None:
    """Of steps of 1 and 3 s in turn, 3 of 4 seconds are in the longer one, which then lasts 1.5 s more on average."""
    full = steady(gpt2, rate=0.1)[1]
    assert full is not None
    row, column = full.batch.tolist().index(128), full.tokens.tolist().index(2048)
    assert full.remaining[row, column] == pytest.approx(3 / 4 * 1.5 + 1 / 4 * 0.5)
    assert full.remaining[row, full.tokens.tolist().index(1024)] == pytest.approx(1.5)
