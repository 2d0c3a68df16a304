"""Pipeline stages with given numbers of layers."""

from __future__ import annotations

from typing import Any

import pytest

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models import hub
from roofmodel.steps.estimate import Estimate, estimate

LAYER, TABLE = 12 * 768**2 + 13 * 768, 50257 * 768
"""Parameters of a layer of gpt2, and of its token table, which the first and the last stage have."""


def run(**options: Any) -> Estimate:
    return estimate(hub.load("gpt2"), Device.load("h100"), **{"phase": "train", "dtype": "fp32", "batch": 4, **options})


def test_the_fullest_stage_has_the_layers_that_are_given() -> None:
    """The last stage has the table, its layers and the final norm."""
    found = run(pp=2, stage_layers="2,10", engine="megatron")
    assert found.memory.weights == 4 * (TABLE + 10 * LAYER + 2 * 768)
    assert found.workload.stage_layers == "2,10"


def test_equal_numbers_are_the_default() -> None:
    given, default = (run(pp=3, **options) for options in ({"stage_layers": "4+4+4"}, {}))
    assert given.memory == default.memory
    assert given.phases[0].expected == default.phases[0].expected


def test_the_slowest_stage_sets_the_pace() -> None:
    """More layers on one stage make a step longer, since the other stages wait for it."""
    uneven, even = (run(pp=2, batch=32, seq=512, stage_layers=each).phases[0] for each in ("2,10", "7,5"))
    assert uneven.bound_seconds > even.bound_seconds
    assert sum(each.operator.count for each in uneven.placed if each.operator.name == "mlp.up") == 32 * 10


def test_each_part_of_an_interleaved_stage_has_its_layers() -> None:
    """Parts alternate between the stages: the first stage has 1 + 5 layers, the second 2 + 4."""
    found = run(pp=2, vpp=2, stage_layers="1,2,5,4", batch=8, micro_batch=1)
    counts = {each.operator.count for each in found.phases[0].placed if each.operator.name == "mlp.up"}
    assert counts == {8 * 6}


def test_inference_has_such_stages_too() -> None:
    assert roofmodel.estimate("gpt2", "h100", pp=2, stage_layers="5,7").to_dict()["workload"]["stage_layers"] == "5,7"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pp": 2, "stage_layers": "5,8"}, 'states 13 layers; openai-community/gpt2 has 12; try stage_layers="6,6"'),
        ({"pp": 2, "stage_layers": "12"}, "has layers of 1 stages, not of 2"),
        ({"pp": 2, "stage_layers": "12,0"}, "has a stage without layers"),
        ({"pp": 2, "vpp": 2, "stage_layers": "6,6"}, "has layers of 2 chunks, not of 4"),
        ({"pp": 2, "stage_layers": "a,b"}, "it must be numbers of layers"),
    ],
)  # fmt: skip
def test_layers_that_are_not_those_of_the_model_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        run(**options)
    assert message in str(error.value)


def test_one_stage_ignores_its_layers() -> None:
    assert "stage_layers is ignored: there is one stage" in map(str, run(stage_layers="12").notes)
