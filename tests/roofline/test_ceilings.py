"""The clock of the ceilings, and measured or datasheet ceilings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.devices.device import Device
from roofmodel.errors import RoofError
from roofmodel.plot import place
from roofmodel.profiles.kernel import Flops, Kernel
from roofmodel.roofline.ceilings import choose_ceilings, kernel_clock
from tests import kernels as make
from tests.profiles.samples import MEASURED, needs_measured

V100, H100 = Device.load("v100-sxm2-16gb"), Device.load("h100")


def kernel(clock: float | None, seconds: float | None = 1e-3, **flops: float) -> Kernel:
    return make.kernel("0", "f", "k", clock=clock, seconds=seconds, flops=Flops(**flops))


def test_the_mean_clock_is_cycles_divided_by_seconds() -> None:
    clock = kernel_clock([kernel(1e9, 3.0), kernel(2e9, 1.0), kernel(None, 9.0), kernel(5e9, None)])
    assert clock is not None
    assert clock == (1.25e9, 1e9, 2e9)  # (1 GHz x 3 s + 2 GHz x 1 s) / 4 s
    assert kernel_clock([kernel(None), kernel(0), kernel(-1e9), kernel(math.inf), kernel(1e9, 0)]) is None


@given(st.lists(st.tuples(st.floats(1e8, 3e9), st.floats(1e-7, 1)), min_size=1, max_size=9))
def test_the_mean_clock_lies_between_the_lowest_and_the_highest(timed: list[tuple[float, float]]) -> None:
    clock = kernel_clock([kernel(hertz, seconds) for hertz, seconds in timed])
    assert clock is not None
    assert clock.low * (1 - 1e-12) <= clock.mean <= clock.high * (1 + 1e-12)


def test_the_default_keeps_the_datasheets_ceilings_and_a_note_states_the_effect_of_the_clock() -> None:
    found = choose_ceilings(V100, "boost", "datasheet", [kernel(1.224e9, fp32=1.0)])
    assert found.device == V100
    assert found.clock is None
    assert found.clock_deviation == pytest.approx(-0.2)  # 1224 / 1530
    (note,) = map(str, found.notes)
    assert "1.224 GHz, 20% below the 1.53 GHz of the ceilings" in note
    assert (
        "lowers the compute, L2 and L1 ceilings: fp32 15.7 TFLOP/s to 12.6 TFLOP/s (-20%)" in note
    )  # 15.7 x 0.8 = 12.56


def test_the_reference_clock_is_that_of_a_pipe_used_by_the_kernels() -> None:
    # Hopper's tensor pipes are stated at 1.83 GHz, others at 1.98 GHz: a clock of 1.83 GHz is 0 % or 8 % below
    assert choose_ceilings(H100, "boost", "datasheet", [kernel(1.83e9, fp32=1.0)]).clock_deviation == pytest.approx(
        1.83 / 1.98 - 1
    )
    assert choose_ceilings(H100, "boost", "datasheet", [kernel(1.83e9, tensor_bf16=1.0)]).notes == ()


def test_a_clock_within_rounding_gets_no_note() -> None:
    assert choose_ceilings(V100, "boost", "datasheet", [kernel(1.515e9)]).notes == ()  # 1 % below


def test_the_measured_clock_scales_the_ceilings_and_a_note_states_it() -> None:
    found = choose_ceilings(V100, "measured", "datasheet", [kernel(1.224e9, tensor_fp16=1.0)])
    assert found.clock == 1.224e9
    assert found.device.pipes["tensor_fp16"].peak == pytest.approx(100e12)  # 125 x 0.8
    assert found.clock_deviation is None
    (note,) = map(str, found.notes)
    assert "scaled to the clock of the kernels, 1.224 GHz" in note


def test_a_given_clock_that_the_kernels_contradict_gets_a_note() -> None:
    found = choose_ceilings(V100, "1.53GHz", "datasheet", [kernel(1.224e9)])
    assert found.device.pipes == V100.pipes
    assert str(found.notes[1]) == "the kernels ran at 1.224 GHz, but the ceilings are at 1.53 GHz"


def test_a_clock_of_the_devices_file_is_accepted() -> None:
    assert choose_ceilings(H100, "boost_tensor", "datasheet", []).clock == 1.83e9
    base = replace(V100, clocks={**V100.clocks, "base": 1.29e9})
    assert choose_ceilings(base, "base", "datasheet", []).clock == 1.29e9


def test_a_profile_without_a_clock_gets_a_note_if_its_profiler_locks_clocks() -> None:
    (note,) = map(str, choose_ceilings(V100, "boost", "datasheet", [kernel(None)], may_be_locked=True).notes)
    assert "sm__cycles_elapsed.avg.per_second" in note
    assert choose_ceilings(V100, "boost", "datasheet", [kernel(None)]).notes == ()


def test_a_note_lists_measured_and_datasheet_ceilings() -> None:
    (note,) = map(str, choose_ceilings(V100, "boost", "measured", []).notes)
    assert note == (
        "measured ceilings: fp64 (ERT with FMA), dram (read), l2 (ERT); datasheet ceilings: tensor_fp16, fp32, fp16, l1"
    )
    (note,) = map(str, choose_ceilings(Device.load("v100-pcie-16gb"), "boost", "measured", []).notes)
    assert "v100-pcie-16gb has no measured ceiling" in note


@pytest.mark.parametrize(
    ("clock", "ceilings", "fragment"),
    [
        ("measured", "datasheet", "no file contains the clock of the kernels on v100-sxm2-16gb"),
        ("1.41", "datasheet", "'1.41' has no unit; write it as in '1410 MHz'"),
        ("1410 MB", "datasheet", "expected a quantity in Hz"),
        ("1.41MHz", "datasheet", "its highest clock is 1.53 GHz"),
        ("0Hz", "datasheet", "'0Hz' is not a clock"),
        ("bost", "datasheet", "did you mean 'boost'?"),
        ("", "datasheet", "unknown clock ''"),
    ],
)
def test_an_invalid_clock_or_ceiling_source_is_refused(clock: str, ceilings: str, fragment: str) -> None:
    with pytest.raises(RoofError) as caught:
        choose_ceilings(V100, clock, ceilings, [])
    assert fragment in str(caught.value)


def test_a_device_without_clocks_cannot_be_scaled() -> None:
    clockless = replace(V100, clocks={}, pipes={n: p._replace(clock=None) for n, p in V100.pipes.items()})
    with pytest.raises(RoofError, match="has no clocks"):
        choose_ceilings(clockless, "1GHz", "datasheet", [])


@needs_measured
def test_a_published_run_on_v100_has_the_clock_that_its_authors_state() -> None:
    folder = MEASURED / "ncu" / "nersc_v100" / "TF-fp32-batch1-fw-noamp-732370"
    placed = place.place([str(folder / "*")], "v100-sxm2-16gb", clock="measured")
    # the authors state a nominal frequency of 1312 MHz for their V100s (arXiv 2008.11326)
    assert placed.rooflines[0].ceilings.clock == pytest.approx(1312e6, rel=1e-3)
    assert any("1.312 GHz" in str(warning) for warning in placed.warnings)
