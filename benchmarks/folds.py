"""Threefold cross-validation of 16-bit GEMMs: `python benchmarks/folds.py FOLDER`.

The sets in `hardware/` were fitted with one fixed third of the cells of shapes held out. Here each third is predicted
with parameters fitted to the other two, so that each row is held out once. It takes an hour on two cores.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pandas as pd

from roofmodel.devices.device import Device
from roofmodel.measure.calibrate import DEFAULT_FORMATS, calibrate

DEVICES = ("a100", "h100")
WIDE = ("bfloat16", "float16")  # as the tables call them
THIRDS = range(3)


class Fold(NamedTuple):
    """A held-out third of a framework's rows, and its mean absolute percentage error."""

    device: str
    third: int
    framework: str
    rows: int
    error: float


def fold(path: str, device: str, third: int) -> list[Fold]:
    """The errors of each framework's own set, and of the set for all frameworks (`any`)."""
    # The search would start from the sets of the device's file, which were fitted to two of the three thirds.
    uncalibrated = replace(Device.load(device), calibration=None)
    fitted = calibrate([path], uncalibrated, "folds", third).calibration.gemm
    fits = {name: forms[DEFAULT_FORMATS].fit for name, forms in fitted.items()}
    return [Fold(device, third, name, fit.held_out, fit.error) for name, fit in fits.items()]


def table(folder: Path) -> Iterator[str]:
    """Markdown: one line per device and framework; then all rows with their own sets, and with one set for all."""
    with TemporaryDirectory() as temporary, ProcessPoolExecutor() as pool:
        paths = {device: _wide(folder / f"aic_{device}_sxm_gemm.csv.gz", Path(temporary)) for device in DEVICES}
        asked = [(path, device, third) for device, path in paths.items() for third in THIRDS]
        found = [one for folds in pool.map(fold, *zip(*asked, strict=True)) for one in folds]
    yield "| device | set | rows | " + " | ".join(f"third {third + 1}" for third in THIRDS) + " | all |"
    yield "|---|---|---:|" + "---:|" * (len(THIRDS) + 1)
    for device in DEVICES:
        folds = [one for one in found if one.device == device]
        own = [one for one in folds if one.framework != "any"]
        for framework in dict.fromkeys(one.framework for one in own):
            yield _line(device, framework, [one for one in own if one.framework == framework])
        yield _line(device, "each its own", own)
        yield _line(device, "one for all", [one for one in folds if one.framework == "any"])


def _wide(source: Path, into: Path) -> str:
    """A table of the 16-bit rows only."""
    rows = pd.read_csv(source)
    path = into / source.name.removesuffix(".gz")
    rows[rows.dtype.isin(WIDE)].to_csv(path, index=False)
    return str(path)


def _line(device: str, name: str, folds: list[Fold]) -> str:
    thirds = [[one for one in folds if one.third == third] for third in THIRDS]
    errors = " | ".join(f"{_error(some):.1%}" for some in (*thirds, folds))
    return f"| {device} | {name} | {sum(one.rows for one in folds)} | {errors} |"


def _error(folds: list[Fold]) -> float:
    return sum(one.rows * one.error for one in folds) / sum(one.rows for one in folds)


if __name__ == "__main__":
    for line in table(Path(sys.argv[1])):
        sys.stdout.write(line + "\n")
