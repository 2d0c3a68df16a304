"""`roof jitter`: which of many ranks is late, and why."""

from __future__ import annotations

from roofmodel.jitter.api import jitter
from roofmodel.report.command import command

app = command(
    jitter,
    formats=("table", "json", "csv"),
    files=".png .svg .pdf .html .json .csv",
    settings={"steps": {"metavar": "A:B"}, "cache": {"metavar": "FOLDER"}, "kernels": {"metavar": "FILE.csv"}},
    checks=("steps", "deviation>1ms"),
    examples=(
        "roof jitter rank*.json.gz",
        "roof jitter report.sqlite --steps 5:8 --threshold 50us -o jitter.png",
        "roof jitter rank*.csv --cache kernels",
        "roof jitter rank*.json.gz --kernels kernels.csv",
        "roof jitter trace.parquet --what-if --format json",
    ),
)
