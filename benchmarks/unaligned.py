"""What GEMMs lose whose rows are not multiples of 16 bytes: the fit of a device's `unaligned_gemms`, and its errors.

    python -m benchmarks.unaligned [FOLDER OF tests/data/gpu]

The shares of the rate are fitted to the rows of the H100; those of the H200 are predicted with them. The tables are of
`benchmarks/collect/layouts.py`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from math import log
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from roofmodel.counting.tensors import FORMATS
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Unaligned
from roofmodel.measure.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.timing import gemm
from roofmodel.timing.formula import chip
from roofmodel.timing.timing import gemm_work

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "gpu"
DEVICES = {"h100": "h100-sxm", "h200": "h200"}
ALIGNED = Unaligned(1, 1)


class MeasuredGemm(NamedTuple):
    """A measured GEMM, its widest load in bytes, and the seconds that are expected with some shares."""

    device: Device
    dtype: str
    work: gemm.GemmWork
    load: int
    seconds: float

    def expected(self, shares: Unaligned) -> float:
        calibration, ceilings = self.device.calibration, chip(self.device, self.dtype)
        assert calibration is not None
        assert ceilings is not None
        work = self.work._replace(aligned=gemm.aligned_share(self.load, shares))
        return float(gemm.seconds(work, ceilings, calibration.gemm["any"]["fp16/fp16"].timing))

    def error(self, shares: Unaligned) -> float:
        return abs(self.expected(shares) / self.seconds - 1)


def read(path: Path, device: Device) -> list[MeasuredGemm]:
    """The GEMMs of a table."""
    gemms = []
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sizes, dtype = {axis: int(row[axis]) for axis in "mnk"}, row["dtype"]
            operator = OPERATIONS["gemm"].operator(sizes, widths(PRECISIONS[dtype]))
            work = gemm_work(operator, dtype)
            assert work is not None
            load = int(gemm.load_bytes(operator, work, FORMATS[dtype], pads_vocabulary=False))
            gemms.append(MeasuredGemm(device, dtype, work, load, float(row["latency_us"]) * 1e-6))
    return gemms


def fitted(rows: Sequence[MeasuredGemm]) -> Unaligned:
    """The shares with the least mean absolute logarithm of expected / measured."""
    from scipy.optimize import minimize_scalar

    def share(load: int) -> float:
        of_load = [row for row in rows if (row.load < gemm.LOADS[0]) and (row.load >= 4) == (load >= 4)]

        def loss(value: float) -> float:
            return mean(abs(log(row.expected(Unaligned(value, value)) / row.seconds)) for row in of_load)

        return float(minimize_scalar(loss, bounds=(0.02, 1), method="bounded").x)

    return Unaligned(share(4), share(2))


def main(folder: Path = FOLDER) -> None:
    """Print the fitted shares, and the errors with those of the devices' files."""
    tables = {name: read(folder / name / "unaligned.csv", Device.load(hw)) for name, hw in DEVICES.items()}
    shares = fitted(tables["h100"])
    print(f"fitted to the H100: rows of 4 bytes {shares.rows_of_4_bytes:.2f}, of 2 {shares.rows_of_2_bytes:.2f}\n")
    header = "device", "rows are multiples of", "GEMMs", "measured / expected as if aligned", "mean error"
    print(f"| {' | '.join(header)} | mean error if counted as aligned |")
    print("|---|---|---:|---:|---:|---:|")
    for name, rows in tables.items():
        for load in gemm.LOADS:
            of_load = [row for row in rows if row.load == load]
            stated_shares = of_load[0].device.unaligned or ALIGNED
            slower = median(row.seconds / row.expected(ALIGNED) for row in of_load)
            errors = (mean(row.error(each) for row in of_load) for each in (stated_shares, ALIGNED))
            cells = " | ".join(f"{error:.0%}" for error in errors)
            print(f"| {name} | {load} B | {len(of_load)} | {slower:.1f} | {cells} |")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
