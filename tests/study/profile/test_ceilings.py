"""At which clock, and under whose ceilings, points are placed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.devices.device import Device
from roofmodel.errors import RoofError
from roofmodel.profiles.kernel import Flops, Kernel
from roofmodel.study.profile import place
from roofmodel.study.profile.ceilings import counters_clock, settle
from tests.profiles.samples import MEASURED, needs_measured

V100, H100 = Device.load("v100-sxm2-16gb"), Device.load("h100")


def kernel(clock: float | None, seconds: float | None = 1e-3, **flops: float) -> Kernel:
    return Kernel("0", "f", "k", clock=clock, seconds=seconds, flops=Flops(**flops))


def test_the_clock_is_cycles_over_seconds() -> None:
    clock = counters_clock([kernel(1e9, 3.0), kernel(2e9, 1.0), kernel(None, 9.0), kernel(5e9, None)])
    assert clock is not None
    assert clock == (1.25e9, 1e9, 2e9)  # (1 GHz x 3 s + 2 GHz x 1 s) / 4 s
    assert counters_clock([kernel(None), kernel(0), kernel(-1e9), kernel(math.inf), kernel(1e9, 0)]) is None


@given(st.lists(st.tuples(st.floats(1e8, 3e9), st.floats(1e-7, 1)), min_size=1, max_size=9))
def test_the_mean_lies_between_the_extremes(told: list[tuple[float, float]]) -> None:
    clock = counters_clock([kernel(hertz, seconds) for hertz, seconds in told])
    assert clock is not None
    assert clock.low * (1 - 1e-12) <= clock.mean <= clock.high * (1 + 1e-12)


def test_the_default_keeps_the_datasheets_roofs_and_says_by_how_much_they_would_come_down() -> None:
    found = settle(V100, "boost", "datasheet", [kernel(1.224e9, fp32=1.0)])
    assert found.device == V100
    assert found.clock is None
    assert found.apart == pytest.approx(-0.2)  # 1224 / 1530
    (note,) = [*map(str, found.notes)]
    assert "1.224 GHz, 20% below the 1.53 GHz of the roofs" in note
    assert "down: fp32 15.7 TFLOP/s to 12.6 TFLOP/s (-20%)" in note  # 15.7 x 0.8 = 12.56


def test_the_roof_that_is_named_is_one_that_the_kernels_use() -> None:
    # Hopper states its tensor pipes at 1.83 GHz, the others at 1.98: 1.83 is 8 % below for one and none for the other
    assert settle(H100, "boost", "datasheet", [kernel(1.83e9, fp32=1.0)]).apart == pytest.approx(1.83 / 1.98 - 1)
    assert settle(H100, "boost", "datasheet", [kernel(1.83e9, tensor_bf16=1.0)]).notes == ()


def test_a_clock_within_rounding_is_not_worth_a_word() -> None:
    assert settle(V100, "boost", "datasheet", [kernel(1.515e9)]).notes == ()  # 1 % below


def test_the_measured_clock_is_taken_and_said() -> None:
    found = settle(V100, "measured", "datasheet", [kernel(1.224e9, tensor_fp16=1.0)])
    assert found.clock == 1.224e9
    assert found.device.pipes["tensor_fp16"].peak == pytest.approx(100e12)  # 125 x 0.8
    assert found.apart is None
    (note,) = [*map(str, found.notes)]
    assert "the clock that the kernels ran at, 1.224 GHz" in note


def test_a_given_clock_that_the_kernels_contradict_is_said_twice() -> None:
    found = settle(V100, "1.53GHz", "datasheet", [kernel(1.224e9)])
    assert found.device.pipes == V100.pipes
    assert [*map(str, found.notes)][1] == "the kernels ran at 1.224 GHz, and the roofs are drawn at 1.53 GHz"


def test_a_clock_may_be_one_that_the_devices_file_names() -> None:
    assert settle(H100, "boost_tensor", "datasheet", []).clock == 1.83e9
    base = replace(V100, clocks={**V100.clocks, "base": 1.29e9})
    assert settle(base, "base", "datasheet", []).clock == 1.29e9


def test_a_profiler_that_locks_clocks_and_tells_none_gets_a_word() -> None:
    (note,) = [*map(str, settle(V100, "boost", "datasheet", [kernel(None)], may_be_locked=True).notes)]
    assert "sm__cycles_elapsed.avg.per_second" in note
    assert settle(V100, "boost", "datasheet", [kernel(None)]).notes == ()


def test_which_ceilings_are_measured_and_which_stay_is_said() -> None:
    (note,) = [*map(str, settle(V100, "boost", "measured", []).notes)]
    assert note == (
        "ceilings as benchmarks reached them: fp64 (ERT with FMA), dram (read), l2 (ERT); none is known, and the "
        "datasheet's drawn, for tensor_fp16, fp32, fp16, l1"
    )
    (note,) = [*map(str, settle(Device.load("v100-pcie-16gb"), "boost", "measured", []).notes)]
    assert "v100-pcie-16gb has no measured ceiling" in note


@pytest.mark.parametrize(
    ("clock", "ceilings", "fragment"),
    [
        ("measured", "datasheet", "no file tells the clock that v100-sxm2-16gb ran at"),
        ("1.41", "datasheet", "'1.41' has no unit; write it as in '1410 MHz'"),
        ("1410 MB", "datasheet", "expected a quantity in Hz"),
        ("1.41MHz", "datasheet", "whose highest is 1.53 GHz"),
        ("0Hz", "datasheet", "'0Hz' is no clock"),
        ("bost", "datasheet", "did you mean 'boost'?"),
        ("", "datasheet", "unknown clock ''"),
        ("boost", "sheet", "unknown ceilings 'sheet'"),
    ],
)
def test_what_is_no_clock_and_no_kind_of_ceilings_is_refused(clock: str, ceilings: str, fragment: str) -> None:
    with pytest.raises(RoofError) as caught:
        settle(V100, clock, ceilings, [])
    assert fragment in str(caught.value)


def test_a_device_without_clocks_cannot_be_scaled() -> None:
    clockless = replace(V100, clocks={}, pipes={n: p._replace(clock=None) for n, p in V100.pipes.items()})
    with pytest.raises(RoofError, match="names no clocks"):
        settle(clockless, "1GHz", "datasheet", [])


@needs_measured
def test_nerscs_run_was_at_the_base_clock() -> None:
    folder = MEASURED / "ncu" / "nersc_v100" / "TF-fp32-batch1-fw-noamp-732370"
    placed = place.place([str(folder / "*")], "v100-sxm2-16gb", clock="measured")
    # the nominal frequency of its V100s, by the authors: 1312 MHz (arXiv 2008.11326)
    assert placed.rooflines[0].drawn.clock == pytest.approx(1312e6, rel=1e-3)
    assert any("1.312 GHz" in warning for warning in placed.warnings)
