"""Convolutions on a V100: the fit of their parameters, and times that no fit saw."""

import pytest

from benchmarks import convolutions, ddp
from roofmodel.devices.device import Device
from tests.profiles.samples import measured as measured_file


def test_packaged_parameters_are_those_of_the_fit_to_the_trace() -> None:
    times = convolutions.measured(measured_file("traces/torch/kineto_resnet50_v100_no_workers.json.gz"))
    assert len(times) == len(convolutions.operators()) == 68
    found, packaged = convolutions.fit(times), Device.load(convolutions.DEVICE).calibration.gemm["cudnn"]["fp32/fp32"]
    assert found.pipe == packaged.timing.pipe
    assert (found.rows, found.held_out) == (packaged.fit.rows, packaged.fit.held_out)
    for name in ("error", "low", "high"):
        assert getattr(found, name) == pytest.approx(getattr(packaged.fit, name), abs=0.006)


def test_training_steps_of_a_resnext_are_expected_within_12_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp, "PUBLISHED", [one for one in ddp.PUBLISHED if one.name == "resnext50_32x4d"])
    for one in ddp.steps():
        assert abs(one.expected / one.measured - 1) < 0.12, one.gpus
        assert abs(one.efficiency - one.measured_efficiency) < 0.03
