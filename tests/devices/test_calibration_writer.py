"""Device files with fitted sets: where the calibration section is, and what else of the file changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roofmodel.devices.calibration import Calibration, Fit, Fitted, ElementwiseTiming
from roofmodel.devices.calibration_writer import device_file
from roofmodel.devices.device import Device
from roofmodel.errors import DeviceError

FITTED = Fitted(ElementwiseTiming(1e-6, 0.8, 0.2), Fit(9, 4, 0.1, 0.9, 1, "new", "2026-01-02"))
NEW = Calibration("mine", stream={"add": {"fp16/fp16": FITTED}})
SECTION = """\
# Fitted by `roof calibrate`. roofmodel/devices/calibration.py explains the parameters.
calibration:
  stream:
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
RECURRENCE = STREAM.replace("latency: 2 us", "latency: 2 us, block: 3 ns")
OLD = f"""\
calibration:

  # of the old driver
  stream:
    fit: {{source: old, date: 2025-01-02}}
    add: {{fp16/fp16: {STREAM}}}

  # of a colleague
  recurrence:
    fit: {{source: old, date: 2025-01-02}}
    # two implementations
    first: {{fp16/fp16: {RECURRENCE}}}
  # a comment between sets
    second: {{fp16/fp16: {RECURRENCE}}}
"""
KEPT = OLD[OLD.index("\n  # of a colleague") :]


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
    """The section may have any place; comments in the first column below it belong to the next key."""
    written = device_file("\n".join(filter(None, (before, OLD.replace("calibration:", heading), after))), NEW)
    assert written == "\n".join(filter(None, (before, SECTION + KEPT, after)))
    assert device_file(written, NEW) == written
    device = load(tmp_path, written)
    assert device.sources == {"sheet": "a datasheet"}
    assert device.calibration is not None
    assert device.calibration.stream == NEW.stream
    assert list(device.calibration.recurrence) == ["first", "second"]


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_a_file_without_a_section_gets_one_at_its_end(end: str) -> None:
    assert device_file(LEAST + SOURCES.rstrip("\n") + end, NEW) == f"{LEAST}{SOURCES}\n{SECTION}"


@pytest.mark.parametrize("columns", [1, 3])
def test_new_kinds_have_the_indentation_of_the_kinds_that_stay(tmp_path: Path, columns: int) -> None:
    kept = re.sub(r"^  (?=\S)", " " * columns, KEPT, flags=re.MULTILINE)
    device = load(tmp_path, device_file(f"{LEAST}{SOURCES}\ncalibration:{kept}", NEW))
    assert device.calibration is not None
    assert device.calibration.stream == NEW.stream
    assert list(device.calibration.recurrence) == ["first", "second"]


def test_values_that_continue_in_the_first_column_stay(tmp_path: Path) -> None:
    """YAML allows this inside braces."""
    broken = KEPT.replace("block: ", "block:\n").replace("}}}", "}}\n}")
    device = load(tmp_path, device_file(f"{LEAST}\ncalibration:\n{broken}\n{SOURCES}", NEW))
    assert device.calibration is not None
    assert device.calibration.recurrence["second"]["fp16/fp16"].timing.block == pytest.approx(3e-9)


@pytest.mark.parametrize("like", ["like: a100", "like:\n    a100"])
def test_kinds_that_are_not_fitted_refer_to_the_source_device_of_the_section(tmp_path: Path, like: str) -> None:
    device = load(tmp_path, device_file(f"{LEAST}calibration:\n  {like}\n{SOURCES}", NEW))
    assert device.calibration is not None
    assert device.calibration.stream == NEW.stream
    assert "gemm" in device.calibration.transferred["a100-sxm-80gb"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{LEAST}calibration: {{like: a100}}\n{SOURCES}", "'calibration: {like: a100}': roof calibrate cannot"),
        (f"{LEAST}calibration:\n  {{like: a100}}\n{SOURCES}", "write each set on lines of its own"),
        ("{name: Mine, pipes: {}}\n", "start each key of the device in the first column"),
        ("  name: Mine\n  pipes: {}\n", "start each key of the device in the first column"),
        ("name: Mine\n? calibration\n: like: a100\n", "start each key of the device in the first column"),
    ],
)
def test_files_in_another_layout_are_refused(text: str, message: str) -> None:
    with pytest.raises(DeviceError) as caught:
        device_file(text, NEW)
    assert message in str(caught.value)
