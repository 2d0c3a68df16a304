"""Operators of a mixed step (decode and prompt chunk), compared with those of its decode and of its chunk."""

import pytest

from roofmodel.counting import phases
from roofmodel.counting.operator import Cost
from roofmodel.counting.workload import PromptChunk, Step
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.steps.options import workload

BATCH, CONTEXT = 8, 700
CHUNK = PromptChunk(2, 96, 160)


def steps(arch: Architecture) -> tuple[Step, Step, Step]:
    """A decode, a chunk of prompts, and both in one step, on one of two tensor-parallel GPUs."""
    work, _ = workload(arch, phase="decode", batch=BATCH, context=CONTEXT, tp=2)
    (decode,) = work.steps()
    prompt = decode._replace(phase="prefill", batch=CHUNK.batch, tokens=CHUNK.tokens, context=CHUNK.context)
    return decode, prompt, decode._replace(chunk=CHUNK)


def total(arch: Architecture, step: Step) -> Cost:
    """The cost of all operators except the head: the chunk needs no logits."""
    found = (each.count * each.cost for each in phases.operators(arch, step) if not each.name.startswith("head."))
    return sum(found, Cost())


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b-v0.1", "deepseek-v3", "qwen3-next-80b-a3b-instruct"])
def test_flops_of_a_mixed_step_are_the_sum_and_weights_are_read_once(model: str) -> None:
    arch = hub.load(model)
    decode, prompt, mixed = (total(arch, step) for step in steps(arch))
    assert mixed.matmul_flops == pytest.approx(decode.matmul_flops + prompt.matmul_flops, rel=1e-12)
    assert mixed.cache_bytes == pytest.approx(decode.cache_bytes + prompt.cache_bytes, rel=1e-12)
    assert mixed.link_bytes == pytest.approx(decode.link_bytes + prompt.link_bytes, rel=1e-12)
    largest = max(decode.weight_bytes, prompt.weight_bytes)
    assert largest <= mixed.weight_bytes < decode.weight_bytes + prompt.weight_bytes


def test_weights_of_a_dense_mixed_step_are_those_of_a_decode() -> None:
    arch = hub.load("llama-3.1-8b")
    decode, _, mixed = steps(arch)
    assert phases.weight_bytes(arch, mixed) == phases.weight_bytes(arch, decode)
    layers = [each for each in phases.operators(arch, mixed) if each.layers is not None]
    assert sum(each.count * each.cost.weight_bytes for each in layers) == sum(
        each.count * each.cost.weight_bytes for each in phases.operators(arch, decode) if each.layers is not None
    )
