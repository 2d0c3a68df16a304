"""How far measurements of the same operation agree, which limits any prediction: `python benchmarks/repeats.py FOLDER`.

FOLDER has aiconfigurator's tables. The first table compares 16-bit GEMMs of the same shape under two frameworks on the
same GPU, which call the same library. The second one shows that GPUs of the Blackwell generation start a CUDA graph
only every 2.048 us. `--into docs/accuracy.md` updates the page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import pages
from roofmodel.devices.device import Device
from roofmodel.measure.table import read, seconds
from roofmodel.measure.validate import validate

DEVICES = {
    "a100": "a100_sxm", "h100": "h100_sxm", "b200": "b200_sxm", "gb200": "gb200", "b300": "b300_sxm", "l40s": "l40s",
    "rtx-pro-6000-server": "rtx_pro_6000_server",
}  # fmt: skip
GEMMS = "\n".join((
    "| device | ordered pairs of frameworks, all shapes | other framework's time as prediction | expected time |",
    "|---|---:|---:|---:|",
))  # fmt: skip
GRAPHS = "\n".join((
    "| device | framework | decode attention, rows under 32 µs | concentration at 2.048 µs | above the multiples |",
    "|---|---|---:|---:|---:|",
))  # fmt: skip
INTERVAL = 2.048e-6  # seconds between the starts of CUDA graphs
LONGEST = 32e-6  # seconds of the longest kernels in the second table
LEAST_ROWS = 100
SHAPE = ("m", "n", "k")


def gemms(folder: Path) -> dict[str, pd.DataFrame]:
    """The measured and expected seconds of 16-bit GEMMs by device, with their shape and framework."""
    by_device = {}
    for name, part in DEVICES.items():
        validated = validate(str(folder / f"aic_{part}_gemm.csv.gz"), Device.load(name))
        rows = pd.DataFrame({column: validated.table[column] for column in ("dtype", "framework")})
        rows = rows.assign(**{size: pd.to_numeric(validated.table[size]) for size in SHAPE})
        rows["measured"], rows["expected"] = validated.measured, validated.expected
        by_device[name] = rows[rows.dtype.isin(("bfloat16", "float16"))]
    return by_device


def by_pair(gemms: dict[str, pd.DataFrame]) -> Iterator[str]:
    """By device: the mean error of the other framework's time, and of the expected time.

    The other framework's time is scaled by the ratio of the expected times, because the benchmarks keep different
    operands in L2, and by the median ratio of a pair of frameworks.
    """
    for name, rows in gemms.items():
        by_shape = rows.groupby([*SHAPE, "framework"])[["measured", "expected"]].mean().unstack()
        pairs = []
        for first, second in permutations(sorted(set(rows.framework)), 2):
            both = by_shape.loc[by_shape["measured"][[first, second]].notna().all(axis=1)]
            by_model = both["expected"][first] / both["measured"][first]
            ratio = by_model * both["measured"][second] / both["expected"][second]
            pairs.append(np.stack([np.abs(ratio / ratio.median() - 1), np.abs(by_model - 1)]))
        errors = np.concatenate(pairs, axis=1)
        yield f"| {name} | {errors.shape[1]} | {errors[0].mean():.1%} | {errors[1].mean():.1%} |"


def graphs(folder: Path) -> Iterator[str]:
    """By device and framework: how closely measured times cluster at a constant plus multiples of INTERVAL.

    The concentration is the absolute mean of exp(2 pi i t / INTERVAL): 0 for evenly spread times, 1 for multiples.
    """
    for name, part in DEVICES.items():
        table = read(str(folder / f"aic_{part}_attn_generation.csv.gz"))
        rows = pd.DataFrame({"seconds": seconds(table), "framework": table["framework"]})
        for framework, group in rows[rows.seconds < LONGEST].groupby("framework"):
            if len(group) >= LEAST_ROWS:
                mean = np.exp(2j * np.pi * group.seconds / INTERVAL).mean()
                above = f"{np.angle(mean) / (2 * np.pi) % 1 * INTERVAL * 1e6:.2f} µs" if abs(mean) > 1 / 2 else ""
                yield f"| {name} | {framework} | {len(group)} | {abs(mean):.2f} | {above} |"


def main() -> None:
    """Write the tables to stdout or into pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="tables of measurements")
    pages.add_option(parser)
    arguments = parser.parse_args()
    measured = gemms(arguments.folder)
    tables = [
        "\n".join((GEMMS, *by_pair(measured))),
        "\n".join((GRAPHS, *graphs(arguments.folder))),
    ]
    sys.stdout.write("\n\n".join(tables) + "\n")
    pages.replace_tables(arguments.into, tables)


if __name__ == "__main__":
    main()
