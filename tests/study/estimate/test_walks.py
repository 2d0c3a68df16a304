"""How often an estimate walks through the model: operators, memory, all-pairs FLOPs and capacity share one walk."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting import blocks
from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import Step
from roofmodel.devices import library
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.study.estimate.estimate import estimate


@pytest.mark.parametrize("model", ["gpt2-xl", "llama-3.1-8b", "gpt-oss-20b", "t5-large", "vit-base-patch16-224"])
@pytest.mark.parametrize("options", [{}, {"phase": "train"}, {"phase": "generate"}, {"attention": "eager"}])
def test_an_estimate_walks_through_the_model_at_most_five_times(
    model: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    arch = hub.load(model)
    if options.get("phase") == "generate" and not arch.causal:
        return
    walks = []

    def counted(arch: Architecture, step: Step) -> tuple[Operator, ...]:
        walks.append(step.phase)
        return operators(arch, step)

    operators = blocks.operators
    monkeypatch.setattr(blocks, "operators", counted)
    estimate(arch, library.load("a100"), **options)
    assert 1 <= len(walks) <= 5, walks
