"""The fraction of the DRAM bandwidth that a kernel reaches on another device, against published benchmarks."""

from __future__ import annotations

from itertools import permutations
from statistics import mean

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from roofmodel.devices.calibration_reader import TIMINGS
from roofmodel.devices.device import Device
from roofmodel.devices.dram_fraction import ATTAINABLE, transferred_fraction
from roofmodel.devices.transfer import STREAMING, transferred

# RRZE-HPC/gpu-benches@1038c5d0, gpu-stream/*.txt: GB/s of `read` and `scale` with 128, 256, 512 and 1024 threads per SM
READ_AND_SCALE = {
    "v100-sxm2-16gb": ((139, 246), (263, 426), (491, 675), (746, 784)),
    "a100-sxm-40gb": ((162, 292), (310, 548), (592, 956), (1064, 1338)),
    "a100-sxm-80gb": ((166, 303), (323, 579), (615, 1025), (1119, 1577)),
    "h100-pcie": ((189, 341), (368, 607), (702, 1037), (1261, 1583)),
    "gh200": ((245, 464), (486, 854), (935, 1397), (1715, 2269)),
}
DEVICES = st.sampled_from(["v100", "t4", "a10", "a100", "a100-sxm-40gb", "h100", "h200", "l40s", "b200", "rtx5090"])
FRACTIONS = st.floats(0.02, ATTAINABLE - 1e-3)


def measured(name: str) -> list[float]:
    """The rates of a device as fractions of its datasheet's bandwidth."""
    return [1e9 * rate / Device.load(name).bandwidth for rates in READ_AND_SCALE[name] for rate in rates]


def threads_per_bandwidth(device: Device) -> float:
    """Threads of all SMs x clock / bandwidth; most threads of an SM by the CUDA C++ programming guide."""
    threads = {"7.5": 1024, "8.6": 1536, "8.9": 1536, "12.0": 1536}.get(device.compute_capability or "", 2048)
    assert device.multiprocessors
    return device.multiprocessors * threads * device.clocks["boost"] / device.bandwidth


def test_published_rates_on_one_gpu_predict_those_on_another_at_the_same_threads_per_sm() -> None:
    errors, of_equal_fractions = [], []
    for name, other in permutations(READ_AND_SCALE, 2):
        device, source = Device.load(name), Device.load(other)
        for fraction, truth in zip(measured(other), measured(name), strict=True):
            errors.append(abs(transferred_fraction(fraction, device, source) / truth - 1))
            of_equal_fractions.append(abs(fraction / truth - 1))
    assert mean(errors) < 0.15 < 0.3 < mean(of_equal_fractions)
    assert max(errors) < 0.4 < 1 < max(of_equal_fractions)


@given(FRACTIONS, DEVICES, DEVICES, DEVICES)
def test_a_transfer_over_a_third_device_is_the_direct_transfer(
    fraction: float, first: str, second: str, third: str
) -> None:
    one, two, three = map(Device.load, (first, second, third))
    direct = transferred_fraction(fraction, three, one)
    assert 0 < direct < ATTAINABLE
    assert transferred_fraction(transferred_fraction(fraction, two, one), three, two) == pytest.approx(direct, rel=1e-6)


@given(FRACTIONS, DEVICES, DEVICES)
def test_more_threads_per_bandwidth_reach_a_larger_fraction(fraction: float, first: str, second: str) -> None:
    device, source = Device.load(first), Device.load(second)
    more, fewer = threads_per_bandwidth(device), threads_per_bandwidth(source)
    assume(more == fewer or abs(more / fewer - 1) > 1e-3)
    found = transferred_fraction(fraction, device, source)
    assert (found > fraction) == (more > fewer)
    assert (found < fraction) == (more < fewer)


def test_faster_memory_at_the_same_sms_does_not_speed_up_a_kernel_with_few_loads_in_flight() -> None:
    h100, h200 = Device.load("h100"), Device.load("h200")
    rates = 0.3 * h100.bandwidth, transferred_fraction(0.3, h200, h100) * h200.bandwidth
    assert rates[1] == pytest.approx(rates[0], rel=0.01)


def test_a_kernel_that_the_dram_limits_reaches_the_same_fraction_everywhere() -> None:
    assert transferred_fraction(0.93, Device.load("t4"), Device.load("a100")) == 0.93


def test_without_the_number_of_sms_the_fraction_stays() -> None:
    assert transferred_fraction(0.4, Device.load("tpu-v4"), Device.load("a100")) == 0.4


@pytest.mark.parametrize("kind", [kind for kind in TIMINGS if "dram" in TIMINGS[kind]._fields])
def test_only_streaming_kernels_have_another_fraction_on_another_device(kind: str) -> None:
    h100 = Device.load("h100")
    assert h100.calibration
    found = getattr(transferred(Device.load("h200"), h100, (kind,)), kind)
    fractions = [
        (one.timing.dram, found[name][form].timing.dram)
        for name, forms in getattr(h100.calibration, kind).items()
        for form, one in forms.items()
    ]
    assert all((before > after) == (kind in STREAMING and before < ATTAINABLE) for before, after in fractions)
