"""Operators as an engine runs them: products of one input as one, sums and rotary embedding without a launch."""

from __future__ import annotations

import pytest

from roofmodel.devices.device import Device
from roofmodel.models.hub import load
from roofmodel.prediction.timing import expect
from roofmodel.study.estimate import estimate
from roofmodel.study.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.study.phase import Placed

A100 = Device.load("a100")


def placed(runtime: str) -> dict[str, Placed]:
    found = estimate(load("llama-3.2-1b"), A100, phase="decode", batch=4, runtime=runtime)
    return {each.operator.name: each for each in found.phases[0].placed}


def test_queries_keys_and_values_take_the_time_of_one_product() -> None:
    """2048 wide, 32 heads and 8 key-value heads of 64: one product of 2048 + 512 + 512 = 3072 columns."""
    shape = {"m": 4, "n": 3072, "k": 2048}
    whole = expect(OPERATIONS["gemm"].operator(shape, widths(PRECISIONS["float16"])), A100, "fp16")
    parts = [placed("graph")[f"attention.{name}"].expected for name in "qkv"]
    assert whole is not None
    times = [part.seconds for part in parts if part is not None]
    assert sum(times) == pytest.approx(whole.seconds, rel=1e-9)
    assert times[0] == pytest.approx(whole.seconds * 2048 / 3072, rel=1e-9)


def test_sums_and_rotary_embedding_cost_their_bytes_alone() -> None:
    graph, eager = placed("graph"), placed("eager")
    riding = [name for name in graph if name.endswith("rotary") or graph[name].operator.group == "residual"]
    assert riding
    for name in riding:
        one, other = graph[name], eager[name]
        assert one.expected is not None
        assert other.expected is not None
        assert one.expected.seconds == one.placement.bound_seconds < other.expected.seconds


def test_nothing_takes_longer_in_a_graph_and_everything_else_as_long() -> None:
    graph, eager = placed("graph"), placed("eager")
    for name, one in graph.items():
        other = eager[name].expected
        assert one.expected is not None
        assert other is not None
        assert one.placement.bound_seconds <= one.expected.seconds <= other.seconds
    assert graph["mlp.down"].expected == eager["mlp.down"].expected
    assert graph["attention.flash"].expected == eager["attention.flash"].expected
