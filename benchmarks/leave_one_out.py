"""The accuracy on GPUs without measurements of their own: `python benchmarks/leave_one_out.py FOLDER`.

Each measured device is predicted as if its file had no parameters: with those of another measured device and its own
datasheet, as `like: …` does. FOLDER has aiconfigurator's tables of operations. The rows are those of the
kernels that the device's own file uses by default; the parameters are the other device's defaults.
`--into docs/accuracy.md` updates the page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import pages
from roofmodel.devices.device import Device
from roofmodel.devices.transfer import transferred
from roofmodel.measure.table import Array, RowGroup, Table, copies, groups, least_seconds, read, repeated, seconds
from roofmodel.timing.parameter_sets import operator_format_key
from roofmodel.timing.roofline import place
from roofmodel.timing.timing import clamp_to_bound, formula

PAIRS = (
    # device, the nearest measured device: of the same design where there is one, else of the most similar architecture
    ("gb200", "b200"),
    ("b300", "b200"),
    ("a100", "h100"),
    ("h100", "a100"),
    ("h100", "b200"),
    ("b200", "h100"),
    ("gb200", "h100"),
    ("b300", "h100"),
    ("l40s", "rtx-pro-6000-server"),
    ("rtx-pro-6000-server", "l40s"),
)
OPERATIONS = {
    "gemm": "gemm",
    "attn_context": "prefill_attention",
    "attn_generation": "decode_attention",
    "moe": "experts",
}
COLUMNS = ("GEMM, 16 bits", "GEMM, fp8", "prefill", "decode", "MoE")
SAMPLE = 2000  # rows of a table, evenly spaced

HEADER = "\n".join((
    f"| device | parameters of | {' | '.join(COLUMNS)} | all within the interval |",
    "|---|---|" + "---:|" * (len(COLUMNS) + 1),
))  # fmt: skip


class Predicted(NamedTuple):
    """Rows of one column: measured / expected time, and both ends of the interval relative to the expected time."""

    ratio: Array
    low: Array
    high: Array

    @property
    def error(self) -> float:
        """Mean absolute error of the expected time, relative to the measured time."""
        return float(np.abs(1 / self.ratio - 1).mean())

    @property
    def inside(self) -> float:
        """The share of rows within the interval."""
        return float(((self.low <= self.ratio) & (self.ratio <= self.high)).mean())


def unmeasured(device: Device, source: Device) -> Device:
    """The device with the parameters of another one only."""
    return replace(device, calibration=transferred(device, source))


def predicted(folder: Path, name: str, other: str) -> Mapping[str, Predicted]:
    """By column: the rows of a device, predicted with the parameters of another device."""
    device, source = Device.load(name), Device.load(other)
    without = unmeasured(device, source)
    by_column: dict[str, list[Array]] = {}
    for op, kind in OPERATIONS.items():
        table, rows = sampled(folder, device, op)
        measured = seconds(table)
        for group in rows:
            placed = place(group.operator.cost, device, group.compute)
            arguments = (group.operator, placed)
            own = formula(*arguments, device, group.compute, repeated=repeated(group), copies=copies(group, device))
            by = formula(*arguments, without, group.compute, repeated=repeated(group), copies=copies(group, device))
            column = column_of(kind, operator_format_key(group.operator, group.compute))
            if own and by and column and own.implementation in (group.kernel, "any"):
                least = least_seconds(group, placed, device)
                expected, low, high = np.broadcast_arrays(*clamp_to_bound(by.seconds, by.fit, least))
                by_column.setdefault(column, []).append(
                    np.stack((measured[group.rows] / expected, low / expected, high / expected))
                )
    return {column: Predicted(*np.concatenate(by_column[column], axis=1)) for column in COLUMNS if column in by_column}


def column_of(kind: str, key: str) -> str:
    """The column of the page for rows of a kind with a format key; empty for GEMMs in other formats."""
    if kind == "gemm":
        return {"fp16/fp16": "GEMM, 16 bits", "fp8/fp8": "GEMM, fp8"}.get(key, "")
    return {"prefill_attention": "prefill", "decode_attention": "decode", "experts": "MoE"}[kind]


@cache
def _sampled(path: str) -> tuple[Table, list[RowGroup]]:
    full_table = read(path)
    count = len(full_table["op"])
    rows = np.unique(np.linspace(0, count - 1, min(SAMPLE, count)).astype(int))
    table = {name: [cells[row] for row in rows] for name, cells in full_table.items()}
    return table, groups(table)[0]


def sampled(folder: Path, device: Device, op: str) -> tuple[Table, list[RowGroup]]:
    """Evenly spaced rows of the device's table of an operation, and their groups."""
    stems = {"a100-sxm-80gb": "a100_sxm", "b200": "b200_sxm", "b300": "b300_sxm"}
    stem = stems.get(device.id, device.id.replace("-", "_"))
    return _sampled(str(folder / f"aic_{stem}_{op}.csv.gz"))


def row(folder: Path, device: str, other: str) -> str:
    """Markdown: the row of a device that is predicted with the parameters of another device."""
    by_column = predicted(folder, device, other)
    cells = [cell(by_column[column]) if column in by_column else "–" for column in COLUMNS]
    rows = sum(len(each.ratio) for each in by_column.values())
    inside = sum(each.inside * len(each.ratio) for each in by_column.values()) / rows
    return f"| {device} | {other} | {' | '.join(cells)} | {inside:.0%} |"


def cell(rows: Predicted) -> str:
    """The error, and the share of rows within the interval."""
    return f"{rows.error:.0%} ({rows.inside:.0%})"


def main() -> None:
    """Write the table to stdout or into pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="tables of measurements")
    pages.add_option(parser)
    arguments = parser.parse_args()
    table = "\n".join((HEADER, *(row(arguments.folder, *pair) for pair in PAIRS)))
    sys.stdout.write(table + "\n")
    pages.replace_tables(arguments.into, [table])


if __name__ == "__main__":
    main()
