"""Convolutions on a V100: the fit of their parameters, and published times that were not fitted."""

import re

import pytest

import roofmodel
from benchmarks import convolutions
from roofmodel.devices.device import Device
from tests.profiles.samples import measured as measured_file


def test_packaged_parameters_are_those_of_the_fit_to_the_trace() -> None:
    times = convolutions.measured(measured_file("traces/torch/kineto_resnet50_v100_no_workers.json.gz"))
    assert len(times) == len(convolutions.operators()) == 68
    found, packaged = convolutions.fit(times), Device.load(convolutions.DEVICE).calibration.gemm["cudnn"]["fp32/fp32"]
    assert found.pipe == packaged.timing.pipe
    assert (found.rows, found.held_out) == (packaged.fit.rows, packaged.fit.held_out)
    for name in ("error", "low", "high"):  # the file states three digits
        assert getattr(found, name) == pytest.approx(getattr(packaged.fit, name), abs=0.006)


def test_expected_times_exceed_published_ones_by_the_percentages_of_the_note() -> None:
    """The networks with the smallest and the largest error of the table in docs/accuracy.md."""
    report = roofmodel.estimate("microsoft/resnet-50", convolutions.DEVICE, dtype="fp32")
    found = re.search(r"these times are (\d+) to (\d+) % longer than published ones", " ".join(report.notes))
    assert found is not None
    low, high = map(int, found.groups())
    rows = tuple(row for row in convolutions.PUBLISHED if row.name in ("RegNetX-1.6GF", "RegNetX-32GF"))
    for network in convolutions.compared(rows):
        assert low <= round(100 * (network.training - 1)) <= high, network.name
        assert low <= round(100 * (network.forward - 1)) <= high, network.name
