"""Ceilings at a given clock, and measured ceilings."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofmodel.devices import library
from roofmodel.devices.ceilings import ceilings_without_clock, measured_ceilings, with_ceilings
from roofmodel.devices.device import Device
from tests.devices.test_parts import GOOD, write

V100 = Device.load("v100-sxm2-16gb")


def test_a_lower_clock_lowers_only_the_ceilings_that_depend_on_it() -> None:
    slow = with_ceilings(V100, 1312e6)
    # 80 x 64 x 1312 MHz = 6.72 TFLOP/s; "55 % of the theoretical peak, 6.7 TFLOP/s, at nominal frequency 1312 MHz"
    # (Yang, arXiv 2008.11326)
    assert slow.pipes["fp64"].peak == pytest.approx(6.7e12, rel=0.005)
    assert slow.levels["l1"].bandwidth == pytest.approx(80 * 128 * 1312e6)
    assert slow.levels["l2"].bandwidth == pytest.approx(2048 * 1312e6)
    assert slow.bandwidth == V100.bandwidth


def test_a_clock_scales_each_ceiling_of_hopper_from_the_clock_of_that_ceiling() -> None:
    slow = with_ceilings(Device.load("h100-sxm"), 1.2e9)
    assert slow.pipes["tensor_bf16"].peak == pytest.approx(989.4e12 * 1.2 / 1.83)
    assert slow.pipes["fp32"].peak == pytest.approx(67e12 * 1.2 / 1.98)


def test_sparse_peaks_scale_with_the_clock() -> None:
    slow = with_ceilings(Device.load("a100"), 705e6)  # half of 1410 MHz
    assert slow.sparse_pipes["tensor_fp16"].peak == pytest.approx(312e12)


def test_a_measured_ceiling_is_the_maximum_over_all_benchmarks() -> None:
    device = with_ceilings(V100, measured=True)
    assert device.bandwidth == 867e9  # the read benchmark; ERT measured 828.758 and triad 788
    assert measured_ceilings(V100)["dram"].by == "read"
    assert device.pipes["fp64"].peak == 7068.86e9
    assert device.pipes["tensor_fp16"].peak == 125e12  # not measured: the value of the datasheet
    assert with_ceilings(Device.load("h200"), measured=True).levels["l2"].bandwidth == 9.7e12  # not in the datasheet


def test_with_a_clock_the_lower_of_scaled_and_measured_ceiling_is_used() -> None:
    device = with_ceilings(V100, 1312e6, measured=True)
    assert device.pipes["fp64"].peak == pytest.approx(7.8e12 * 1312 / 1530)  # 6.69 TFLOP/s; measured: 7.07
    assert device.levels["l2"].bandwidth == pytest.approx(2048 * 1312e6)  # 2.69 TB/s; measured: 3.00
    assert device.bandwidth == 867e9


@pytest.mark.parametrize("name", library.names())
def test_without_clock_and_measured_ceilings_nothing_changes(name: str) -> None:
    assert with_ceilings(Device.load(name)) == Device.load(name)


def test_a_ceiling_without_a_clock_is_not_scaled_and_is_named(tmp_path: Path) -> None:
    device = Device.load(write(tmp_path, GOOD))
    assert ceilings_without_clock(device) == ["fp32"]
    assert with_ceilings(device, 500e6).pipes["fp32"].peak == 10e12
    assert with_ceilings(device, 500e6).pipes["tensor_fp16"].peak == pytest.approx(50e12)
