"""Values of the calibration section that have no expected time are refused with their line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from roofmodel.devices.calibration import TIMINGS, Fit, is_seconds, parameters, stated_parameters
from roofmodel.devices.device import Device
from roofmodel.errors import DeviceError

LEAST = """\
name: Mine
multiprocessors: 100
clocks: {boost: 1 GHz}
pipes: {fp32: {peak: 1 TFLOP/s}}
memory: {dram: {bandwidth: 1 GB/s}}
calibration:
"""
FIT = Fit(9, 4, 0.1, 0.9, 1.1, "ours", "2026-01-02")


def load(folder: Path, kind: str, values: Mapping[str, str] = {}, key: str = "fp16/fp16", fit: Fit = FIT) -> Any:
    """The set of a kind, in line 7 of the file; parameters are 1 or 1 us unless `values` has them."""
    declared, stated = parameters(TIMINGS[kind]), stated_parameters(TIMINGS[kind])
    ones = {name: "1 us" if is_seconds(declared[fields[0]]) else "1" for name, fields in stated.items()}
    given = {name: f"{{512: {one}}}" if len(stated[name]) > 1 else one for name, one in ones.items()} | dict(values)
    of_fit = ", ".join(f"{name}: {value}" for name, value in fit._asdict().items())
    entries = ", ".join(f"{name}: {value}" for name, value in {**given, "fit": f"{{{of_fit}}}"}.items())
    path = folder / "mine.yaml"
    path.write_text(f"{LEAST}  {kind}: {{any: {{{key}: {{{entries}}}}}}}\n", encoding="utf-8")
    calibration = Device.load(path).calibration
    assert calibration is not None
    return getattr(calibration, kind)["any"][key]


def refusal(folder: Path, kind: str, values: Mapping[str, str] = {}, key: str = "fp16/fp16", fit: Fit = FIT) -> str:
    with pytest.raises(DeviceError) as caught:
        load(folder, kind, values, key, fit)
    return str(caught.value).removeprefix(str(folder / "mine.yaml"))


@pytest.mark.parametrize("value", ["0", "1e-300"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind, timing in TIMINGS.items()
        for name, fields in stated_parameters(timing).items()
        for parameter in (parameters(timing)[fields[0]],)
        if not is_seconds(parameter) and 0 not in parameter.values
    ],
)
def test_a_parameter_that_a_formula_may_divide_by_cannot_be_zero(
    tmp_path: Path, kind: str, name: str, value: str
) -> None:
    path = f"calibration.{kind}.any.fp16/fp16.{name}"
    if len(stated_parameters(TIMINGS[kind])[name]) > 1:
        path, stated = f"{path}.64", f"{{64: {value}}}"
    else:
        stated = value
    assert refusal(tmp_path, kind, {name: stated}) == f":7: {path} is {value}; it must be at least 1e-06"


def test_like_in_the_section_is_refused_with_the_line_to_write(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{LEAST}  like: a100\n", encoding="utf-8")
    with pytest.raises(DeviceError, match=r"mine\.yaml:7: 'like' is now a key of the file: replace"):
        Device.load(path)


@pytest.mark.parametrize(("low", "high"), [(2, 0.5), (1.1, 1.2), (0.8, 0.9)])
def test_an_interval_without_the_expected_time_is_refused(tmp_path: Path, low: float, high: float) -> None:
    message = refusal(tmp_path, "elementwise", fit=FIT._replace(low=low, high=high))
    path = "calibration.elementwise.any.fp16/fp16.fit"
    assert message == f":7: {path} has the interval {low:g} to {high:g}, which must contain 1, such as 0.9 to 1.1"


def test_an_interval_may_end_at_the_expected_time(tmp_path: Path) -> None:
    assert load(tmp_path, "elementwise", fit=FIT._replace(low=1, high=1)).fit.high == 1


def test_a_parameter_by_head_size_has_the_value_of_the_next_larger_size_or_of_the_largest(tmp_path: Path) -> None:
    timing = load(tmp_path, "prefill_attention", {"pipe": "{64: 0.4, 128: 0.7, 256: 0.6}"}).timing
    assert (timing.pipe_64, timing.pipe_72, timing.pipe_128) == (0.4, 0.7, 0.7)
    assert (timing.pipe_192, timing.pipe_256, timing.pipe_512) == (0.6, 0.6, 0.6)
    assert {timing.fill_64, timing.fill_512} == {1e-6}


@pytest.mark.parametrize(
    ("pipe", "problem"),
    [
        ("0.7", "pipe must be a mapping of keys to values"),
        ("{}", "pipe has no head size, such as {128: ...}"),
        ("{100: 0.7}", "unknown key '100'; known here: 64, 72, 80, 128, 192, 256, 512"),
    ],
)
def test_a_parameter_by_head_size_without_a_known_size_is_refused(tmp_path: Path, pipe: str, problem: str) -> None:
    found = refusal(tmp_path, "prefill_attention", {"pipe": pipe})
    assert found.startswith(":7: ")
    assert found.endswith(problem)
