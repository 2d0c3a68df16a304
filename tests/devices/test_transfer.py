"""Parameter sets that a device's file takes from another device's file.

The fraction of the DRAM bandwidth that a kernel reaches on another device, against published benchmarks.
"""

from __future__ import annotations

import math
import pickle
from functools import cache
from itertools import permutations
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from roofmodel.devices import device as module
from roofmodel.devices import library
from roofmodel.devices.calibration import TIMINGS
from roofmodel.devices.device import Device
from roofmodel.devices.transfer import ATTAINABLE, STREAMING, transferred, transferred_fraction
from roofmodel.errors import DeviceError

FILES = sorted((Path(__file__).parents[2] / "hardware").glob("*.yaml"))


def sources(file: Path) -> dict[str, str]:
    """Kind of parameters -> source device: the file's `like`, for the kinds that were not fitted on the device."""
    like = yaml.safe_load(file.read_text(encoding="utf-8")).get("like")
    own = file.parent / "fitted" / file.name
    fitted: dict[str, Any] = yaml.safe_load(own.read_text(encoding="utf-8")) if own.exists() else {}
    return {kind: like for kind in TIMINGS if kind not in fitted} if like else {}


TRANSFERS = [(file.stem, kind, source) for file in FILES for kind, source in sources(file).items()]


@pytest.mark.parametrize(("name", "kind", "source"), TRANSFERS)
def test_a_device_has_the_sets_of_its_source_device_with_intervals_at_least_as_wide(
    name: str, kind: str, source: str
) -> None:
    sets, source_sets = (getattr(Device.load(each).calibration, kind) for each in (name, source))
    assert (
        {key: set(forms) for key, forms in sets.items()}
        == {key: set(forms) for key, forms in source_sets.items()}
        != {}
    )
    for key, forms in sets.items():
        for formats, fitted in forms.items():
            assert fitted.fit.low <= source_sets[key][formats].fit.low
            assert fitted.fit.high >= source_sets[key][formats].fit.high


@pytest.mark.parametrize(
    ("name", "source", "measured", "kind"),
    [
        ("a40", "a100-pcie-80gb", "a100-sxm-80gb", "gemm"),
        ("l40s", "h100-pcie", "h100-sxm", "gemm"),
        ("a40", "gb200", "b200", "encoder_attention"),
        ("a40", "a100-sxm-80gb", "h100-sxm", "encoder_attention"),
    ],
)
def test_a_second_source_of_the_same_design_does_not_narrow_the_interval(
    name: str, source: str, measured: str, kind: str
) -> None:
    device = Device.load(name)
    second, first = (getattr(transferred(device, Device.load(each), (kind,)), kind) for each in (source, measured))
    assert second.keys() == first.keys() != set()
    for key, forms in first.items():
        for form, one in forms.items():
            fit = second[key][form].fit
            assert fit.low <= one.fit.low * (1 + 1e-9)
            assert fit.high >= one.fit.high * (1 - 1e-9)


def test_two_devices_of_one_design_widen_the_interval_once() -> None:
    """h100-nvl takes its sets from h100-pcie, which takes them from h100-sxm."""
    first, second = (Device.load(name).calibration for name in ("h100-pcie", "h100-nvl"))
    assert first is not None
    assert second is not None
    for key, forms in first.gemm.items():
        assert {form: one.fit for form, one in second.gemm[key].items()} == {f: one.fit for f, one in forms.items()}


def test_the_file_of_a_source_device_is_read_when_its_sets_are_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_shipped", module._shipped.__wrapped__)
    find, opened = library.find, []
    monkeypatch.setattr(library, "find", lambda name: opened.append(name) or find(name))
    device = Device.load("a100")
    assert device.calibration is not None
    assert opened == ["a100"]
    assert device.calibration.encoder_attention
    assert opened == ["a100"]
    assert len(device.calibration.encoder_attention) == len(device.calibration.encoder_attention) > 0
    assert opened == ["a100", "h100-sxm"]
    assert len(device.calibration.delta_rule_decode) > 0
    assert opened == ["a100", "h100-sxm"]


def test_a_kind_that_neither_of_two_devices_has_has_no_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The A100 takes kinds from the H100, and the H100 from the A100."""
    monkeypatch.setattr(module, "_shipped", cache(module._shipped.__wrapped__))
    fitted = library.fitted_file

    def without(path: Path) -> Path | None:
        found = fitted(path)
        if found is None or path.stem != "h100-sxm":
            return found
        copy = tmp_path / found.name
        lines = found.read_text(encoding="utf-8").splitlines(keepends=True)
        start = lines.index("encoder_attention:\n")
        end = next(number for number in range(start + 1, len(lines)) if not lines[number].startswith(" "))
        copy.write_text("".join((*lines[:start], *lines[end:])), encoding="utf-8")
        return copy

    monkeypatch.setattr(library, "fitted_file", without)
    for name in ("a100", "h100", "h200"):
        calibration = Device.load(name).calibration
        assert calibration is not None
        assert dict(calibration.encoder_attention) == {}
        assert calibration.latent_prefill


def test_a_device_with_transferred_sets_can_be_pickled() -> None:
    device = Device.load("a100")
    assert pickle.loads(pickle.dumps(device)) == device


def test_an_error_in_the_source_device_of_a_users_file_is_raised_when_the_file_is_read(tmp_path: Path) -> None:
    text = (FILES[0].parent / "a100-sxm-80gb.yaml").read_text(encoding="utf-8")
    file = tmp_path / "user.yaml"
    file.write_text(text.replace("\nlike: h100-sxm", "\nlike: h1000"), encoding="utf-8")
    with pytest.raises(DeviceError, match="unknown device 'h1000'"):
        Device.load(str(file))


@pytest.mark.parametrize(
    ("name", "source", "spread"),
    [
        ("h200", "h100", 0.08),  # the same compute capability
        ("b300", "b200", 0.08),  # the same generation, with the same kind of memory
        ("l40s", "rtx-pro-6000-server", math.hypot(0.08, 0.25)),  # mma.sync and GDDR
        ("b200", "h100", math.hypot(0.08, 0.25, 0.35)),
        ("a40", "a100", math.hypot(0.08, 0.25, 0.6)),  # GDDR6 and HBM2e
    ],
)
def test_each_difference_of_the_designs_widens_the_interval(name: str, source: str, spread: float) -> None:
    device, measured = Device.load(name), Device.load(source)
    assert measured.calibration is not None
    widened = transferred(device, measured, ("experts",)).experts
    fit, found = (next(iter(sets.values()))["fp16/fp16"].fit for sets in (measured.calibration.experts, widened))
    assert math.log(found.high) == pytest.approx(math.hypot(math.log(fit.high), spread))
    assert math.log(found.low) == pytest.approx(-math.hypot(math.log(fit.low), spread))


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
