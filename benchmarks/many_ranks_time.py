"""Convert and analyze a run of many ranks: time, peak memory, and the ratios to a bare read of the same Parquet files.

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


def measured(label: str, code: str, source: Path, folder: Path, after: str = "") -> tuple[float, float]:
    """Run code in a new process, print its seconds and its peak memory; the wall and CPU seconds."""
    script = (
        f"import time\nsource, folder = {str(source)!r}, {str(folder)!r}\n"
        "import roofmodel, numpy, pandas, pyarrow.parquet\n"
        f"begin = time.perf_counter(), time.process_time()\n{code}\n"
        f"print('seconds', time.perf_counter() - begin[0], time.process_time() - begin[1], flush=True)\n{after}"
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
    wall, cpu = map(float, lines[0].split()[1:])
    print(f"{label:<34}{wall:8.1f} s wall{cpu:8.1f} s CPU{usage.ru_maxrss / 1e6:8.2f} GB peak memory", flush=True)
    for line in lines[1:]:
        print(f"  {line}")
    return wall, cpu


def main() -> int:
    """Measure one run."""
    parser = argparse.ArgumentParser(description="Convert and analyze a run of many ranks.")
    parser.add_argument("source", type=Path, help="folder of the profiler files")
    parser.add_argument("folder", type=Path, help="folder of the Parquet files")
    arguments = parser.parse_args()
    measured("convert and analyze", CONVERT, arguments.source, arguments.folder)
    read = measured("read with PyArrow", READ, arguments.source, arguments.folder)
    analysis = measured("analyze the Parquet files", ANALYZE, arguments.source, arguments.folder, FINDINGS)
    wall, cpu = (mine / bare for mine, bare in zip(analysis, read, strict=True))
    print(f"analysis / bare read: {wall:.2f} wall, {cpu:.2f} CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
