"""Predicted before measured: `python -m benchmarks.collect.predicted FOLDER [--into docs/accuracy.md]`.

A Markdown table of whole models from predicted-*.csv, which the kit wrote before each run, and from the times that it
then measured (model-*.csv, compiled-*.csv). Nothing is predicted again.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pages import add_option, replace_tables
from roofmodel.numbers.units import seconds

HEADER = (
    "| model | step | bound | launched by the host: expected | measured | as a graph: expected | measured "
    "| serving engine: expected | measured, compiled, as a graph |\n|---|---|---:|---:|---:|---:|---:|---:|---:|"
)
KEY = ("model", "phase", "batch", "seq", "context", "image", "dtype")


def rows(folder: Path, name: str) -> Iterator[dict[str, str]]:
    """The rows of all tables of this name, those of failed steps left out."""
    for file in sorted(folder.glob(f"{name}-*.csv")):
        with file.open(newline="", encoding="utf-8") as text:
            yield from (row for row in csv.DictReader(text) if row["status"] == "done")


def table(folder: Path) -> str:
    """A row per model and step, in the order of the predictions; a cell without a number is empty."""
    by_step: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for name in ("predicted", "model", "compiled"):
        for row in rows(folder, name):
            by_step.setdefault(tuple(row[each] for each in KEY), {})[f"{name} {row['runtime']}"] = row
    lines = [HEADER]
    for (model, phase, batch, seq, context, *_), measurements in by_step.items():
        size = f"{batch} × {seq}" if seq else f"{batch} × 1 after {context}" if context else batch
        bound = _number(measurements.get("predicted eager"), "bound_seconds")
        cells = [model, f"{phase} {size}", "" if bound is None else seconds(bound)]
        for runtime, measured in (
            ("eager", "model eager"),
            ("graph", "model graph"),
            ("serving", "compiled compile, graph"),
        ):
            expected = _number(measurements.get(f"predicted {runtime}"), "expected_seconds")
            took = _number(measurements.get(measured), "seconds")
            error = f" ({expected / took - 1:+.0%})" if expected and took else ""
            cells += ["" if expected is None else seconds(expected), f"{seconds(took)}{error}" if took else ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(row: dict[str, str] | None, column: str) -> float | None:
    return float(row[column]) if row and row[column] else None


def main() -> None:
    """Print the table, or write it into pages."""
    parser = argparse.ArgumentParser("python -m benchmarks.collect.predicted", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the kit")
    add_option(parser)
    options = parser.parse_args()
    text = table(options.folder)
    replace_tables(options.into, [text])
    if not options.into:
        print(text)


if __name__ == "__main__":
    main()
