"""How far measurements of the same operation agree, which limits any prediction: `python benchmarks/repeats.py FOLDER`.

FOLDER has aiconfigurator's tables. The first table compares 16-bit GEMMs of the same shape under two frameworks on the
same GPU, which call the same library. The second one shows the errors of the expected times by framework. The third one
shows whether slow rows are slow on another chip of the same architecture as well. The fourth one shows that GPUs of the
Blackwell generation start a CUDA graph only every 2.048 us. `--into docs/accuracy.md` updates the page.
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
from roofmodel.measure.table import held_out, read, seconds
from roofmodel.measure.validate import validate
from roofmodel.numbers import units

DEVICES = {
    "a100": "a100_sxm", "h100": "h100_sxm", "b200": "b200_sxm", "gb200": "gb200", "b300": "b300_sxm", "l40s": "l40s",
    "rtx-pro-6000-server": "rtx_pro_6000_server",
}  # fmt: skip
GEMMS = "\n".join((
    "| device | ordered pairs of frameworks, all shapes | other framework's time as prediction | expected time |",
    "|---|---:|---:|---:|",
))  # fmt: skip
FRAMEWORKS = "\n".join((
    "| device | framework | unseen rows | error | median error | wrong by over 20 % "
    "| median error on the same shapes in other frameworks |",
    "|---|---|---:|---:|---:|---:|---:|",
))  # fmt: skip
CHIPS = "\n".join((
    "| device | framework | slow rows | also measured on | shapes | median of measured / expected there |",
    "|---|---|---:|---|---:|---:|",
))  # fmt: skip
ONE_ARCHITECTURE = ("b200", "gb200", "b300")
GRAPHS = "\n".join((
    "| device | framework | decode attention, rows under 32 µs | concentration at 2.048 µs | above the multiples |",
    "|---|---|---:|---:|---:|",
))  # fmt: skip
INTERVAL = 2.048e-6  # seconds between the starts of CUDA graphs
LONGEST = 32e-6  # seconds of the longest kernels in the fourth table
LEAST_ROWS = 100
LEAST_SHAPES = 10  # that two chips share
LARGE_ERROR = 0.2
SHAPE = ("m", "n", "k")


def gemms(folder: Path) -> dict[str, pd.DataFrame]:
    """The measured and expected seconds of 16-bit GEMMs by device, with their shape, framework and `unseen`."""
    found = {}
    for name, part in DEVICES.items():
        validated = validate(str(folder / f"aic_{part}_gemm.csv.gz"), Device.load(name))
        rows = pd.DataFrame({column: validated.table[column] for column in ("dtype", "framework")})
        rows = rows.assign(**{size: pd.to_numeric(validated.table[size]) for size in SHAPE})
        rows["measured"], rows["expected"] = validated.measured, validated.expected
        rows["unseen"] = held_out({size: rows[size].to_numpy(float) for size in SHAPE})
        found[name] = rows[rows.dtype.isin(("bfloat16", "float16"))]
    return found


def by_pair(gemms: dict[str, pd.DataFrame]) -> Iterator[str]:
    """By device: the mean error of the other framework's time, and of the expected time.

    The other framework's time is scaled by the ratio of the expected times, because the benchmarks keep different
    operands in L2, and by the median ratio of a pair of frameworks.
    """
    for name, rows in gemms.items():
        by_shape = rows.groupby([*SHAPE, "framework"])[["measured", "expected"]].mean().unstack()
        pairs = []
        for one, other in permutations(sorted(set(rows.framework)), 2):
            both = by_shape.loc[by_shape["measured"][[one, other]].notna().all(axis=1)]
            by_model = both["expected"][one] / both["measured"][one]
            ratio = by_model * both["measured"][other] / both["expected"][other]
            pairs.append(np.stack([np.abs(ratio / ratio.median() - 1), np.abs(by_model - 1)]))
        errors = np.concatenate(pairs, axis=1)
        yield f"| {name} | {errors.shape[1]} | {errors[0].mean():.1%} | {errors[1].mean():.1%} |"


def by_framework(gemms: dict[str, pd.DataFrame]) -> Iterator[str]:
    """By device and framework: the errors of the expected time on rows that no fit used.

    The last column is about shapes, fitted or not, that are wrong by more than LARGE_ERROR and that another framework
    measured as well: the median error of the expected time in the other frameworks, and the number of these shapes.
    """
    for name, rows in gemms.items():
        errors = np.abs(rows.expected / rows.measured - 1)
        elsewhere = rows.assign(error=errors).groupby([*SHAPE, "framework"])["error"].mean().unstack()
        for framework, group in rows[rows.unseen].groupby("framework"):
            unseen = errors[group.index]
            others = elsewhere.drop(columns=framework)[elsewhere[framework] > LARGE_ERROR].mean(axis=1).dropna()
            shares = f"{unseen.mean():.1%} | {unseen.median():.1%} | {(unseen > LARGE_ERROR).mean():.0%}"
            elsewhere_too = f"{others.median():.0%} ({units.count(len(others), 'shape')})" if len(others) else "–"
            yield f"| {name} | {framework} | {len(group)} | {shares} | {elsewhere_too} |"


def by_chip(gemms: dict[str, pd.DataFrame]) -> Iterator[str]:
    """By device and framework: the rows that took more than LARGE_ERROR longer than expected.

    The last column shows these shapes under the same framework on another chip of the architecture, where at least
    LEAST_SHAPES of them were measured.
    """
    ratios = {
        name: rows.assign(ratio=rows.measured / rows.expected).groupby(["framework", *SHAPE])["ratio"].mean()
        for name, rows in gemms.items()
        if name in ONE_ARCHITECTURE
    }
    for name, other in permutations(ratios, 2):
        slow = ratios[name][ratios[name] > 1 + LARGE_ERROR]
        for framework, rows in slow.groupby("framework"):
            there = ratios[other].reindex(rows.index).dropna()
            if len(there) >= LEAST_SHAPES:
                yield f"| {name} | {framework} | {len(rows)} | {other} | {len(there)} | {there.median():.2f} |"


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
    given = parser.parse_args()
    measured = gemms(given.folder)
    tables = [
        "\n".join((GEMMS, *by_pair(measured))),
        "\n".join((FRAMEWORKS, *by_framework(measured))),
        "\n".join((CHIPS, *by_chip(measured))),
        "\n".join((GRAPHS, *graphs(given.folder))),
    ]
    sys.stdout.write("\n\n".join(tables) + "\n")
    pages.replace_tables(given.into, tables)


if __name__ == "__main__":
    main()
