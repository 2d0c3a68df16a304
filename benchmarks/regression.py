"""What a regression of the errors reaches on unseen GEMMs: `python benchmarks/regression.py FOLDER`.

FOLDER has aiconfigurator's tables. Gradient boosting predicts measured / expected time of 16-bit GEMMs from the shape,
the number of tiles per SM and the framework, for each device on its own. It is trained on the rows that our parameters
were fitted to, and judged on those that no fit used. What it removes is an error that a better formula could remove as
well; what it leaves is noise, or needs more rows or another input. `--into docs/accuracy.md` updates the page. It needs
scikit-learn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from benchmarks import pages
from benchmarks.repeats import SHAPE, gemms
from roofmodel.devices.device import Device

HEADER = "\n".join((
    "| device | unseen rows | expected time | with a regression of its errors |",
    "|---|---:|---:|---:|",
))  # fmt: skip
TILES = ((64, 64), (128, 128), (128, 256), (256, 128))  # rows, columns


def inputs(rows: pd.DataFrame, multiprocessors: int) -> pd.DataFrame:
    """The inputs of the regression, by row: logarithms of sizes, the waves of tiles, and the framework as a number."""
    m, n, k = (np.log2(rows[size]) for size in SHAPE)
    found = {"m": m, "n": n, "k": k, "flops": m + n + k, "c": m + n, "m/n": m - n, "k/n": k - n}
    found["elements"] = np.log2(rows.m * rows.k + rows.k * rows.n + rows.m * rows.n)
    found["seconds"], found["framework"] = np.log2(rows.expected), rows.framework.astype("category").cat.codes
    for tile in TILES:
        waves = np.ceil(rows.m / tile[0]) * np.ceil(rows.n / tile[1]) / multiprocessors
        found |= {f"waves {tile}": np.log2(waves), f"idle {tile}": np.ceil(waves) / waves}
    return pd.DataFrame(found)


def errors(rows: pd.DataFrame, features: pd.DataFrame) -> pd.Series:
    """The relative errors on the unseen rows, of a regression that is trained on the others."""
    model = HistGradientBoostingRegressor(
        loss="absolute_error", learning_rate=0.03, max_iter=600, min_samples_leaf=10, random_state=0
    )
    ratio = np.log(rows.measured / rows.expected)
    model.fit(features[~rows.unseen], ratio[~rows.unseen])
    unseen = rows[rows.unseen]
    predicted = np.exp(model.predict(features[rows.unseen])) * unseen.expected
    return np.abs(predicted / unseen.measured - 1)


def lines(by_device: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """The rows of the table: mean errors on the unseen rows of each device."""
    for name, rows in by_device.items():
        unseen = rows[rows.unseen]
        ours = np.abs(unseen.expected / unseen.measured - 1)
        left = errors(rows, inputs(rows, Device.load(name).multiprocessors))
        yield f"| {name} | {len(unseen)} | {ours.mean():.1%} | {left.mean():.1%} |"


def main() -> None:
    """Write the table to stdout or into pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="tables of measurements")
    pages.add_option(parser)
    given = parser.parse_args()
    table = "\n".join((HEADER, *lines(gemms(given.folder))))
    sys.stdout.write(table + "\n")
    pages.replace_tables(given.into, [table])


if __name__ == "__main__":
    main()
