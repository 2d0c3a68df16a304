"""`roof validate`: errors of bound and expected time on measured operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.measure.api import validate
from roofmodel.report.command import CommandCall, command
from roofmodel.report.printing import present


def _present(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    present(call(), form, output, warn_first=True)


app = command(
    validate,
    formats=("table", "json"),
    files=".csv (all rows, with bound and expected time) .json .png .svg .pdf",
    run=_present,
    checks=("operations", "expected_mape>10%"),
    examples=(
        "roof validate measured.csv --hw a100",
        "roof validate measured.csv --hw h100 -o errors.png",
        "roof validate measured.csv --hw own.yaml --format json -o rows.csv",
    ),
)
