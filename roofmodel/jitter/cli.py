"""`roof jitter`: which of many ranks is late, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.jitter.api import jitter
from roofmodel.report.command import CommandCall, call_with_progress, command
from roofmodel.report.printing import present, print_line


def _present_result(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    report = call_with_progress(call)
    if "kernels" in call.given:
        print_line(f"wrote {call.given['kernels']}")
    present(report, form, output)


app = command(
    jitter,
    run=_present_result,
    formats=("table", "json", "csv"),
    files=".png .svg .pdf .html .json .csv",
    settings={"steps": {"metavar": "A:B"}, "cache": {"metavar": "FOLDER"}, "kernels": {"metavar": "FILE.csv"}},
    checks=("steps", "deviation>1ms"),
    examples=(
        "roof jitter rank*.json.gz",
        "roof jitter report.sqlite --steps 5:8 --threshold 50us -o jitter.png",
        "roof jitter rank*.csv --cache kernels",
        "roof jitter rank*.json.gz --kernels kernels.csv",
    ),
)
