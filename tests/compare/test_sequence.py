"""Operators of a pass in execution order."""

from __future__ import annotations

from itertools import pairwise

import pytest

from roofmodel.compare.sequence import Occurrence, in_order
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.steps.estimate import estimate


def sequence(model: str, **workload: object) -> list[Occurrence]:
    return in_order(estimate(hub.load(model), Device.load("a100"), **workload).phases[0])


@pytest.mark.parametrize(
    ("model", "phase"),
    [("gpt2", "prefill"), ("gpt2", "train"), ("google/gemma-2-2b", "decode"), ("google-t5/t5-small", "prefill"),
     ("microsoft/resnet-18", "train")],
)  # fmt: skip
def test_every_occurrence_is_listed_once(model: str, phase: str) -> None:
    found = estimate(hub.load(model), Device.load("a100"), phase=phase).phases[0]
    listed = in_order(found)
    assert len(listed) == found.kernels
    assert sum(o.placed.placement.bound_seconds for o in listed) == pytest.approx(found.bound_seconds)


def test_layers_run_in_order_and_gradients_in_reverse_order() -> None:
    layers = [(o.placed.operator.stage, o.layer) for o in sequence("gpt2", phase="train") if o.layer is not None]
    forward = [layer for stage, layer in layers if stage == "forward" and layer is not None]
    backward = [layer for stage, layer in layers if stage == "backward" and layer is not None]
    assert all(a <= b for a, b in pairwise(forward))
    assert all(a >= b for a, b in pairwise(backward))


def test_recomputation_of_a_layer_runs_before_its_gradients() -> None:
    order = [(o.placed.operator.stage, o.layer) for o in sequence("gpt2", phase="train", recompute="full")]
    runs = [key for key, last in zip(order, [None, *order], strict=False) if key != last]
    assert runs.index(("recomputation", 11)) + 1 == runs.index(("backward", 11))
    assert runs.index(("recomputation", 0)) + 1 == runs.index(("backward", 0))


def test_alternating_layers_keep_their_order() -> None:
    """Gemma 2 has a sliding window in every other layer; an estimate lists both kinds separately."""
    attention_layers = [o.layer for o in sequence("google/gemma-2-2b", phase="prefill") if o.anchor == "attention"]
    assert attention_layers == list(range(26))


def test_gemms_of_one_input_share_a_slot() -> None:
    slots = {o.placed.operator.name: o.slot for o in sequence("meta-llama/Llama-3.2-1B", phase="train")}
    assert slots["attention.q"] == slots["attention.k"] == slots["attention.v"]
    assert slots["mlp.gate"] == slots["mlp.up"] != slots["mlp.down"]
    assert slots["attention.q.grad_input"] == slots["attention.v.grad_input"] != slots["attention.q.grad_weight"]
