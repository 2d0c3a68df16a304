"""Device files with fitted sets: where the calibration section is, and what else of the file changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofmodel.devices.calibration import (
    Calibration,
    DecodeTiming,
    ElementwiseTiming,
    Fit,
    Fitted,
    parameters,
)
from roofmodel.devices.calibration_writer import device_file
from roofmodel.devices.device import Device
from roofmodel.errors import DeviceError

FITTED = Fitted(ElementwiseTiming(1e-6, 0.8, 0.2), Fit(9, 4, 0.1, 0.9, 1, "new", "2026-01-02"))
NEW = Calibration("mine", elementwise={"add": {"fp16/fp16": FITTED}})
SECTION = """\
# Fitted by `roof calibrate`. roofmodel/devices/calibration.py explains the parameters.
calibration:
  elementwise:
    fit: {source: "new", date: 2026-01-02}
    "add": {fp16/fp16: {latency: 1 us, dram: 0.8, l2: 0.2, fit: {rows: 9, held_out: 4, error: 0.1, low: 0.9, high: 1}}}
"""
LEAST = """\
name: Mine  # a comment
multiprocessors: 100
clocks: {boost: 1 GHz}
pipes:
  fp32: {peak: 1 TFLOP/s, source: sheet}
memory:
    dram: {bandwidth: 1 GB/s, source: sheet}
"""
SOURCES = "# where the numbers are from\nsources:\n\n  sheet: a datasheet\n"
STREAM = "{latency: 2 us, dram: 0.5, l2: 0.1, fit: {rows: 9, held_out: 4, error: 0.1, low: 0.9, high: 1.1}}"
OLD = f"""\
calibration:

  # of the old driver
  elementwise:
    fit: {{source: old, date: 2025-01-02}}
    add: {{fp16/fp16: {STREAM}}}
"""


def test_an_optional_parameter_is_written_where_it_is_not_the_usual_one(tmp_path: Path) -> None:
    """`fewest_heads` is 1 for most kernels, whose files do not state it."""
    for heads in (1.0, 8.0):
        usual = [parameter.start for parameter in parameters(DecodeTiming).values()]
        timing = DecodeTiming(*usual)._replace(fewest_heads=heads)
        one = Calibration("mine", decode_attention={"kernel": {"fp16/fp16": Fitted(timing, FITTED.fit)}})
        written = device_file(LEAST + SOURCES, one)
        assert ("fewest_heads: 8" in written) == (heads == 8)
        read = load(tmp_path, written).calibration
        assert read is not None
        assert read.decode_attention["kernel"]["fp16/fp16"].timing == timing


def load(folder: Path, text: str) -> Device:
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    return Device.load(folder / "mine.yaml")


@pytest.mark.parametrize("heading", ["calibration:", "calibration:  # old", '"calibration" :'])
@pytest.mark.parametrize(
    ("before", "after"),
    [(LEAST, SOURCES), (SOURCES, LEAST), (LEAST + SOURCES, ""), ("", LEAST + SOURCES)],
    ids=["before the sources", "before the name", "last", "first"],
)
def test_the_text_before_and_after_the_section_stays(tmp_path: Path, before: str, after: str, heading: str) -> None:
    """The old section may have any place; comments in the first column below it belong to the next key."""
    written = device_file("\n".join(filter(None, (before, OLD.replace("calibration:", heading), after))), NEW)
    assert "".join(written.split()) == "".join(f"{before}{after}{SECTION}".split())  # but for blank lines
    assert written.endswith(f"\n\n{SECTION}")
    assert device_file(written, NEW) == written
    device = load(tmp_path, written)
    assert device.sources == {"sheet": "a datasheet"}
    assert device.calibration is not None
    assert device.calibration.elementwise == NEW.elementwise


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_a_file_without_a_section_gets_one_at_its_end(end: str) -> None:
    assert device_file(LEAST + SOURCES.rstrip("\n") + end, NEW) == f"{LEAST}{SOURCES}\n{SECTION}"


def test_kinds_that_are_not_fitted_are_those_of_the_similar_device(tmp_path: Path) -> None:
    device = load(tmp_path, device_file(f"{LEAST}like: a100\n{SOURCES}", NEW))
    assert device.calibration is not None
    assert device.calibration.elementwise == NEW.elementwise
    assert "gemm" in device.calibration.transferred["a100-sxm-80gb"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{name: Mine, pipes: {}}\n", "start each key of the device in the first column"),
        ("  name: Mine\n  pipes: {}\n", "start each key of the device in the first column"),
        ("name: Mine\n? calibration\n: like: a100\n", "start each key of the device in the first column"),
    ],
)
def test_files_in_another_layout_are_refused(text: str, message: str) -> None:
    with pytest.raises(DeviceError) as caught:
        device_file(text, NEW)
    assert message in str(caught.value)
