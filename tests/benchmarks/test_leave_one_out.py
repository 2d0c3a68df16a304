"""docs/accuracy.md shows the errors on devices predicted with the parameters of another device."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import leave_one_out
from roofmodel.devices.device import Device
from tests.profiles.samples import measured

PAGE = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text(encoding="utf-8")


def documented() -> list[str]:
    """The rows of the documented table."""
    (rows,) = re.findall(rf"^{re.escape(leave_one_out.HEADER)}\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return str(rows).splitlines()


def test_the_page_shows_the_errors_computed_from_the_measurements() -> None:
    pair = leave_one_out.PAIRS[-1]
    assert leave_one_out.row(measured("ops"), *pair) == documented()[-1]


def test_every_pair_is_documented_and_its_intervals_contain_at_least_72_percent_of_the_measurements() -> None:
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in documented()]
    assert [(device, other) for device, other, *_ in cells] == list(leave_one_out.PAIRS)
    assert all(float(coverage.removesuffix("%")) >= 72 for *_, coverage in cells)


def test_a_device_without_measurements_uses_no_parameters_of_its_own() -> None:
    device = leave_one_out.unmeasured(Device.load("h100"), Device.load("a100"))
    assert device.calibration is not None
    assert device.calibration.device == "a100-sxm-80gb"
    assert not device.calibrated
