"""Devices in the data of the explorable page."""

from __future__ import annotations

import pytest

from roofmodel.devices.device import Device
from roofmodel.explore.devices import describe_device
from roofmodel.explore.nodes import UniqueRecords


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["gemm", "elementwise"], "expected times are fitted to measurements of this device"),
        (
            ["gemm", "latent_prefill", "delta_rule_prefill", "delta_rule_decode"],
            "expected times of these kernels use parameters of other devices: latent prefill attention, delta-rule "
            "from h100-sxm",
        ),
    ],
)
def test_only_the_kernels_of_the_models_on_the_page_are_named(kinds: list[str], expected: str) -> None:
    described = describe_device(Device.load("a100"), [(kind, "") for kind in kinds], UniqueRecords())
    assert described["parameters"] == expected
