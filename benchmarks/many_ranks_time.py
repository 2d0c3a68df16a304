"""Convert and analyze a run of many ranks: time, peak memory, and the ratio to a bare read of the same Parquet files.

    python benchmarks/many_ranks.py run --plant gpu:392:0.01 --plant cpu:17:0.01      a CSV file per rank
    python benchmarks/many_ranks_time.py run kernels                                  prints a table, and the causes

Each line is a process of its own, one after the other: `roof jitter run --cache kernels` (converts; a second call
continues where an interrupted one ended), PyArrow's `read_table` of each Parquet file, and `roof jitter kernels`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

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


def measured(label: str, code: str, source: Path, folder: Path, after: str = "") -> float:
    """Run code in a new process, print its seconds and its peak memory; the seconds."""
    script = (
        f"import time\nsource, folder = {str(source)!r}, {str(folder)!r}\n"
        "import roofmodel, numpy, pandas, pyarrow.parquet\n"
        f"begin = time.perf_counter()\n{code}\nprint('seconds', time.perf_counter() - begin, flush=True)\n{after}"
    )
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(writer, 1)
        os.execv(sys.executable, [sys.executable, "-c", script])
    os.close(writer)
    with os.fdopen(reader) as output:
        lines = output.read().splitlines()
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{label}: failed")
    seconds = float(lines[0].split()[1])
    print(f"{label:<34}{seconds:8.1f} s{usage.ru_maxrss / 1e6:8.2f} GB peak memory", flush=True)
    for line in lines[1:]:
        print(f"  {line}")
    return seconds


def main() -> int:
    """Measure one run."""
    parser = argparse.ArgumentParser(description="Convert and analyze a run of many ranks.")
    parser.add_argument("source", type=Path, help="folder of the profiler files")
    parser.add_argument("folder", type=Path, help="folder of the Parquet files")
    arguments = parser.parse_args()
    measured("convert and analyze", CONVERT, arguments.source, arguments.folder)
    read = measured("read with PyArrow", READ, arguments.source, arguments.folder)
    seconds = measured("analyze the Parquet files", ANALYZE, arguments.source, arguments.folder, FINDINGS)
    print(f"analysis / bare read: {seconds / read:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
