"""`roof kernels`: the kernels of profiler files as one table."""

from __future__ import annotations

from roofmodel.plot.api import read_profile
from roofmodel.report.command import command

app = command(
    read_profile,
    formats=("table", "json", "csv"),
    files=".json .csv .parquet",
    checks=("kernels", "seconds>2ms"),
    examples=(
        "roof kernels ncu.csv",
        "roof kernels trace.json --hw a100 -o kernels.csv",
        "roof kernels counters.csv --times times.sqlite",
        "roof kernels new.csv --before old.csv --fail-if 'relative_change>5%'",
    ),
)
