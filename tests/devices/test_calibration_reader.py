"""Values of the calibration section that have no expected time are refused with their line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from roofmodel.devices.calibration import Fit
from roofmodel.devices.calibration_reader import POSITIVE, TIMINGS, is_seconds
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
    """The set of a kind, in line 7 of the file; parameters without a default are 1 or 1 us unless `values` has them."""
    timing = TIMINGS[kind]
    required = [name for name in timing._fields if name not in timing._field_defaults]
    given = {name: "1 us" if is_seconds(timing, name) else "1" for name in required} | dict(values)
    entries = ", ".join(f"{name}: {value}" for name, value in given.items())
    of_fit = ", ".join(f"{name}: {value}" for name, value in fit._asdict().items())
    path = folder / "mine.yaml"
    path.write_text(f"{LEAST}  {kind}: {{any: {{{key}: {{{entries}, fit: {{{of_fit}}}}}}}}}\n", encoding="utf-8")
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
        for name in timing._fields
        if name in POSITIVE and timing._field_defaults.get(name) != 0
    ],
)
def test_a_parameter_that_a_formula_divides_by_cannot_be_zero(tmp_path: Path, kind: str, name: str, value: str) -> None:
    path = f"calibration.{kind}.any.fp16/fp16.{name}"
    assert refusal(tmp_path, kind, {name: value}) == f":7: {path} is {value}; it must be at least 1e-06"


@pytest.mark.parametrize(("kind", "name"), [("collectives", "early"), ("experts", "large")])
def test_the_bandwidth_of_short_messages_and_of_large_experts_cannot_be_zero(
    tmp_path: Path, kind: str, name: str
) -> None:
    """Both are fractions of a bandwidth, by which bytes are divided."""
    assert f"{name} is 0; it must be at least" in refusal(tmp_path, kind, {name: "0"})
    assert getattr(load(tmp_path, kind, {name: "0.5"}).timing, name) == 0.5


def test_a_parameter_whose_default_is_zero_can_be_stated_as_zero(tmp_path: Path) -> None:
    """`kept` has a default only for experts, where 0 means that L2 keeps no rows."""
    assert load(tmp_path, "experts", {"kept": "0"}).timing == load(tmp_path, "experts").timing


@pytest.mark.parametrize("value", ["0.5", "2", "1e8"])
def test_tiles_of_the_last_wave_are_shared_or_not(tmp_path: Path, value: str) -> None:
    """The number of waves is an interpolation: with a large value it is negative."""
    assert f"balanced is {float(value):g}; it must be 0 or 1" in refusal(tmp_path, "gemm", {"balanced": value})


@pytest.mark.parametrize("size", ["abc", "0", "-64", "64.5", "nan", "1e3", "", "9" * 500])
@pytest.mark.parametrize("kind", ["context", "generation"])
def test_the_head_size_of_a_key_is_a_positive_whole_number(tmp_path: Path, kind: str, size: str) -> None:
    message = refusal(tmp_path, kind, key=f"fp16/fp16/{size}")
    assert message.startswith(":7: the key 'fp16/fp16/")
    assert message.endswith("it must be a positive whole number, as in 'fp16/fp16/128'")
    assert len(message) < 300


@pytest.mark.parametrize(("low", "high"), [(2, 0.5), (1.1, 1.2), (0.8, 0.9)])
def test_an_interval_without_the_expected_time_is_refused(tmp_path: Path, low: float, high: float) -> None:
    message = refusal(tmp_path, "stream", fit=FIT._replace(low=low, high=high))
    path = "calibration.stream.any.fp16/fp16.fit"
    assert message == f":7: {path} has the interval {low:g} to {high:g}, which must contain 1, such as 0.9 to 1.1"


def test_an_interval_may_end_at_the_expected_time(tmp_path: Path) -> None:
    assert load(tmp_path, "stream", fit=FIT._replace(low=1, high=1)).fit.high == 1


def test_like_in_the_section_is_refused_with_the_line_to_write(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{LEAST}  like: a100\n", encoding="utf-8")
    message = "'like' is now a key of the file: replace 'calibration: {like: a100}' by 'like: a100'"
    with pytest.raises(DeviceError, match=rf"mine\.yaml:7: {message}"):
        Device.load(path)
