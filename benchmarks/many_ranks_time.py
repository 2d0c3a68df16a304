"""Convert and analyze a run of many ranks: time, peak memory, and the ratios to a bare read of the same Parquet files.

    python benchmarks/many_ranks.py run --plant gpu:392:0.01 --plant cpu:17:0.01      a CSV file per rank
    python benchmarks/many_ranks_time.py run kernels                                  prints a table, and the causes

Each line is a process of its own, one after the other: `roof jitter run --cache kernels` (converts; a second call
continues where an interrupted one ended), then in turns PyArrow's `read_table` of each Parquet file and
`roof jitter kernels`. CPU time and memory include the child processes of `roof`; the memory is the sum of their peaks,
which counts shared pages several times. The ratios are those of the shortest times: other work on the machine only
adds to a time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CONVERT = """
import roofmodel
roofmodel.jitter(source, cache=folder)
"""
READ = """
from pathlib import Path
from pyarrow import parquet
for path in sorted(Path(folder).glob("*.parquet")):
    parquet.read_table(path)
"""
ANALYZE = """
import roofmodel
report = roofmodel.jitter(folder)
"""
FINDINGS = """
for finding in report.findings:
    print(finding, flush=True)
"""


TIMES = 3  # a read and an analysis


class Usage(NamedTuple):
    """The time of a process with its child processes, in seconds."""

    wall: float
    cpu: float


def measured(label: str, code: str, source: Path, folder: Path, after: str = "") -> Usage:
    """Run code in a new process, and print its time and its peak memory."""
    script = (
        f"import os, resource, time\nsource, folder = {str(source)!r}, {str(folder)!r}\n"
        "import roofmodel.jitter.jitter, numpy, pandas, pyarrow.parquet\n"
        f"begin = time.perf_counter(), sum(os.times()[:4])\n{code}\n"
        "kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "if children := resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss:\n"
        "    kilobytes += children * len(os.sched_getaffinity(0))\n"
        f"print(time.perf_counter() - begin[0], sum(os.times()[:4]) - begin[1], kilobytes / 1e6, flush=True)\n{after}"
    )
    process = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    if process.returncode:
        raise SystemExit(f"{label}: failed")
    numbers, *lines = process.stdout.splitlines()
    wall, cpu, memory = map(float, numbers.split())
    print(f"{label:<34}{wall:8.1f} s wall{cpu:8.1f} s CPU{memory:8.2f} GB peak memory", flush=True)
    for line in lines:
        print(f"  {line}")
    return Usage(wall, cpu)


def main() -> int:
    """Measure one run."""
    parser = argparse.ArgumentParser(description="Convert and analyze a run of many ranks.")
    parser.add_argument("source", type=Path, help="folder of the profiler files")
    parser.add_argument("folder", type=Path, help="folder of the Parquet files")
    arguments = parser.parse_args()
    paths = arguments.source, arguments.folder
    measured("convert and analyze", CONVERT, *paths)
    reads, analyses = [], []
    for number in range(TIMES):
        reads.append(measured("read with PyArrow", READ, *paths))
        last = number == TIMES - 1
        analyses.append(measured("analyze the Parquet files", ANALYZE, *paths, FINDINGS if last else ""))
    wall = min(usage.wall for usage in analyses) / min(usage.wall for usage in reads)
    cpu = min(usage.cpu for usage in analyses) / min(usage.cpu for usage in reads)
    print(f"analysis / bare read: {wall:.1f} wall, {cpu:.1f} CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
