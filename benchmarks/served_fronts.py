"""Fronts of published serving benchmarks (`served_rows.py`), with a host fitted to a few of their concurrencies, as
`roof calibrate MODEL RESULT…` fits it: `python -m benchmarks.served_fronts TABLE`.

A front is one model, GPU, layout, engine and pair of lengths at four concurrencies or more. Every other one is fitted,
from the smallest one on; the rest is predicted, with the engine's own host and with the fitted one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from benchmarks.errors import by_name
from benchmarks.served_choices import fronts
from benchmarks.served_rows import RowErrors, ServedRow, client_ttft, errors, rows, served
from roofmodel.compare.serving.host_fit import HostSample, fit_host
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import Host

SMALLEST_FRONT = 4
"""Concurrencies of a front."""


class FrontErrors(NamedTuple):
    """Relative errors of TPOT and TTFT of the rows that were not fitted, with the file's and the fitted host."""

    engine: str
    tpot: list[tuple[float, float]]
    ttft: list[tuple[float, float]]


def distinct_rows(every: Sequence[RowErrors]) -> Iterator[list[ServedRow]]:
    """The rows of each front at different concurrencies, ascending."""
    for layouts in fronts(every, SMALLEST_FRONT).values():
        for some in layouts:
            distinct = {each.row.batch: each.row for each in some}
            if len(distinct) >= SMALLEST_FRONT:
                yield [distinct[batch] for batch in sorted(distinct)]


def front_errors(table: Path, front: Sequence[ServedRow]) -> FrontErrors:
    """The errors of every other row, with a host fitted to the others."""
    fitted, rest = front[::2], front[1::2]
    own = Engine.load(front[0].engine_file).host
    host = fit_host(lambda host: samples(table, fitted, host), own).host
    before, after = samples(table, rest, own), samples(table, rest, host)
    pairs = [*zip(before, after, strict=True)]
    return FrontErrors(
        front[0].engine,
        [(a.expected_tpot / a.tpot - 1, b.expected_tpot / b.tpot - 1) for a, b in pairs],
        [(_ttft(a), _ttft(b)) for a, b in pairs],
    )


def _ttft(sample: HostSample) -> float:
    assert sample.ttft is not None
    assert sample.expected_ttft is not None
    return sample.expected_ttft / sample.ttft - 1


def samples(table: Path, some: Sequence[ServedRow], host: Host) -> list[HostSample]:
    """The rows as `roof calibrate` predicts them with a host."""
    pairs = [(row, served(table, row, Engine.load(row.engine_file)._replace(host=host))) for row in some]
    return [
        HostSample(
            found.loop.decodes, row.isl, row.tpot, found.times.tpot, row.ttft, client_ttft(row, found.times)
        )
        for row, found in pairs
    ]  # fmt: skip


def table_of_fronts(every: Sequence[FrontErrors]) -> str:
    """Markdown: median errors and bias of the rows that were not fitted, by engine."""
    lines = [
        "| engine | fronts | rows | TPOT: file | bias | fitted | bias | TTFT: file | bias | fitted | bias |",
        "|---|" + "---:|" * 10,
    ]
    for engine, some in sorted(by_name((each.engine, each) for each in every).items()):
        cells = []
        for name in ("tpot", "ttft"):
            pairs = [pair for each in some for pair in getattr(each, name)]
            for every_row in zip(*pairs, strict=True):
                cells += [f"{median(map(abs, every_row)):.1%}", f"{mean(every_row):+.1%}"]
        lines.append(f"| {engine} | {len(some)} | {len(pairs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Write the table to stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take every N-th front (a front takes about 3 s)")
    arguments = parser.parse_args()
    table = arguments.table
    of_file = errors(table, rows(table, Counter()))
    possible = [each for each in of_file if each.tpot.bound <= 0]
    chosen = [*distinct_rows(possible)][:: arguments.every]
    sys.stdout.write(table_of_fronts([front_errors(table, front) for front in chosen]) + "\n")


if __name__ == "__main__":
    main()
