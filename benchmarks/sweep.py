"""Measure a sweep of a million points, relative to single estimates and to NumPy multiplications in the same run.

    python benchmarks/sweep.py             prints the table, exits with 1 if a ratio exceeds its limit
    python benchmarks/sweep.py --runs 5

Times are CPU times of one thread, because other load affects wall time more.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy

import roofmodel
from roofmodel.sweep.case import COLUMNS

GRIDS: dict[str, dict[str, Any]] = {
    "decodes: batch × context": {"phase": "decode", "batch": "1:1000", "context": "1:1000"},
    "prefills: batch × length": {"phase": "prefill", "batch": "1:1000", "seq": "2:1001"},
    "both phases, fewer lengths": {"batch": "1:5000", "seq": "10:1000:10"},
}
POINTS = 10**6
ESTIMATES = 20
MAX_ESTIMATES, MAX_PASSES = 500, 500  # the limits: ratios for a million points


def seconds(work: Callable[[], object]) -> float:
    """CPU time of one run in seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def swept(grid: dict[str, Any]) -> None:
    """Compute all points of a grid of gpt2-xl on an A100, with expected times and memory."""
    report = roofmodel.sweep("gpt2-xl", "a100", **grid)
    assert report.sweep.points == POINTS
    for _ in report.sweep.blocks():
        pass


def estimated() -> None:
    """A few estimates of one phase."""
    for batch in range(1, ESTIMATES + 1):
        roofmodel.estimate("gpt2-xl", "a100", phase="decode", batch=batch).to_dict()


def passed() -> None:
    """One NumPy multiplication of a million numbers per column of a sweep."""
    numbers = numpy.arange(POINTS, dtype=float)
    for factor in range(len(COLUMNS)):
        numpy.multiply(numbers, factor)


def main() -> int:
    """Measure and print; return 1 if a ratio exceeds its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    estimated()  # imports modules on first use
    estimate_seconds = min(seconds(estimated) for _ in range(runs)) / ESTIMATES
    bare = min(seconds(passed) for _ in range(runs))
    worst = 0.0
    print(f"{'a million points of gpt2-xl':30} {'seconds':>8} {'estimates':>10} {'passes':>7}")
    for name, grid in GRIDS.items():
        took = min(seconds(lambda grid=grid: swept(grid)) for _ in range(runs))  # type: ignore[misc]
        worst = max(worst, took / estimate_seconds / MAX_ESTIMATES, took / bare / MAX_PASSES)
        print(f"{name:30} {took:8.2f} {took / estimate_seconds:10.0f} {took / bare:7.1f}")
    print(f"an estimate takes {estimate_seconds * 1e3:.1f} ms, the bare passes {bare * 1e3:.1f} ms")
    print(f"limits: {MAX_ESTIMATES} estimates, {MAX_PASSES} passes")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB at its peak")
    return int(worst > 1)


if __name__ == "__main__":
    raise SystemExit(main())
