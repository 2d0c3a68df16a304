"""Parameter sets that a device's file takes from another device's file."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

from roofmodel.devices import device as module
from roofmodel.devices import library
from roofmodel.devices.calibration_reader import TIMINGS
from roofmodel.devices.device import Device
from roofmodel.devices.transfer import transferred
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
