"""Number of traversals of the model per estimate: operators, memory, all-pairs FLOPs and capacity share one."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting import blocks
from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import Step
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.steps.estimate import estimate

CAUSAL = ("gpt2-xl", "llama-3.1-8b", "gpt-oss-20b", "t5-large")
VISION = "vit-base-patch16-224"


MAX_TRAVERSALS = 5


def max_traversals(options: dict[str, Any], model: str = "gpt2") -> int:
    """Five; one more for eager attention, to count unmasked pairs. If it does not fit, six for generation, two of them
    for larger tensor-parallel sizes, and eight for training, one of them for recomputation and two for smaller
    microbatches."""
    fits = estimate(hub.load(model), Device.load("a100"), **options).fits
    return (
        MAX_TRAVERSALS
        + 2 * ("attention" in options)
        + (0 if fits else {"generate": 1, "train": 3}.get(options.get("phase", ""), 0))
    )


@pytest.mark.parametrize(
    ("model", "options"),
    [
        *(
            (name, options)
            for name in (*CAUSAL, VISION)
            for options in ({}, {"phase": "train"}, {"attention": "eager"})
        ),
        *((name, {"phase": "generate"}) for name in CAUSAL),
    ],
)
def test_an_estimate_traverses_the_model_a_few_times(
    model: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 1 <= len(traversals(model, options, monkeypatch)) <= max_traversals(options, model)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        *(("llama-3.1-70b", options) for options in ({}, {"phase": "generate"}, {"attention": "eager"})),
        *(("gpt2-xl", {"batch": 10**6, "phase": phase}) for phase in (None, "generate", "train")),
        ("t5-large", {"batch": 10**6}),
    ],
)
def test_an_estimate_that_does_not_fit_traverses_the_model_a_few_times(
    model: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(traversals(model, options, monkeypatch)) <= max_traversals(options, model)


@pytest.mark.parametrize("options", [{"tp": 2}, {"tp": 2, "phase": "generate"}, {"tp": 4, "dp": 2, "batch": 2}])
def test_an_estimate_on_several_gpus_traverses_the_model_a_few_times(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(traversals("llama-3.1-70b", options, monkeypatch)) <= max_traversals(options, "llama-3.1-70b") + (
        "phase" in options
    )


def test_a_prompt_of_one_token_adds_one_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt of one token has other operators, so its formula differs from that of longer prompts."""
    assert len(traversals("gpt2-xl", {"seq": 1}, monkeypatch)) <= 6


def traversals(model: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The phases of all traversals of the model in one estimate."""
    found = []

    def counted(arch: Architecture, step: Step) -> tuple[Operator, ...]:
        found.append(step.phase)
        return operators(arch, step)

    operators = blocks.operators
    monkeypatch.setattr(blocks, "operators", counted)
    estimate(hub.load(model), Device.load("a100"), **options)
    return found
