"""Steps between the evaluated ones, against steps that are evaluated."""

from __future__ import annotations

import numpy as np
import pytest

from roofmodel.counting.workload import PromptChunk
from roofmodel.devices.device import Device
from roofmodel.models.hub import load
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.step_times import ServingReplica, decode_times, mixed_times, prefill_times, replica
from roofmodel.serve.step_table import StepTable, shapes

ISL, OSL, LARGEST, BUDGET = 1024, 512, 200, 8192


@pytest.fixture(scope="module")
def llama() -> ServingReplica:
    return replica(load("llama-3.1-8b"), Device.load("h100"), Layout(), Formats("bf16"), None, max_len=2048)


@pytest.fixture(scope="module")
def table(llama: ServingReplica) -> StepTable:
    return StepTable(llama, None, LARGEST, (ISL, 0, OSL), BUDGET)


@pytest.mark.parametrize(("batch", "context"), [(1, 1024), (7, 1100), (45, 1280), (90, 1500), (200, 1536)])
@pytest.mark.parametrize(("kind", "name"), [("seconds", "seconds"), ("bound", "bound")])
def test_a_decode_step(
    llama: ServingReplica, table: StepTable, batch: int, context: int, kind: str, name: str
) -> None:  # fmt: skip
    evaluated = getattr(decode_times(llama, np.array([batch]), context), name)[0]
    assert table.of(kind)(batch, context, 0, 0.0) == pytest.approx(evaluated, rel=0.02)


@pytest.mark.parametrize("batch", [1, 30, 150])
@pytest.mark.parametrize(("prompts", "tokens", "context"), [(1, 1024, 0), (1, 512, 400), (3, 1024, 0), (6, 1024, 0)])
def test_a_step_with_prompt_tokens(
    llama: ServingReplica, table: StepTable, batch: int, prompts: int, tokens: int, context: int
) -> None:  # fmt: skip
    evaluated = mixed_times(llama, np.array([[batch]]), 1400, PromptChunk(prompts, tokens, context)).seconds.item()
    total = prompts * tokens
    assert table.of("seconds")(batch, 1400, total, total * (context + tokens / 2)) == pytest.approx(evaluated, rel=0.05)


def test_a_step_of_prompts_alone(llama: ServingReplica, table: StepTable) -> None:
    evaluated = prefill_times(llama, np.array([5]), 1024).seconds.item()
    assert table.of("seconds")(0, 0.0, 5 * 1024, 5 * 1024 * 512) == pytest.approx(evaluated, rel=0.03)


def test_a_long_prompt_takes_longer_chunk_by_chunk(llama: ServingReplica) -> None:
    """The chunks of a prompt of 128 k tokens take as long together as steps that are evaluated one by one."""
    isl = 131072
    long = StepTable(llama, None, 4, (isl, 0, 16), BUDGET)
    starts = range(0, isl, BUDGET)
    found = [long.of("seconds")(0, 0.0, BUDGET, BUDGET * (start + BUDGET / 2)) for start in starts]
    evaluated = [prefill_times(llama, np.array([1]), BUDGET, start).seconds.item() for start in starts]
    assert sum(found) == pytest.approx(sum(evaluated), rel=0.03)
    assert found == sorted(found)


@pytest.mark.parametrize(("computed", "cached", "budget"), [(1, 0, 1), (100, 0, 8192), (131072, 0, 2048), (10, 90, 35)])
def test_evaluated_prompt_tokens_reach_the_budget_but_never_exceed_it(computed: int, cached: int, budget: int) -> None:
    found = shapes(computed, cached, budget)
    totals = [shape.total for shape in found]
    assert totals == sorted(set(totals))
    assert budget * 0.9 <= totals[-1] <= budget
    assert all(shape.context + shape.tokens <= cached + computed for shape in found)
