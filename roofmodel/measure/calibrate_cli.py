"""`roof calibrate`: timing parameters fitted to measured operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.measure.api import calibrate
from roofmodel.report.command import CommandCall, command
from roofmodel.report.printing import note, present


def _present(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    report = call(progress=lambda subject, *_: note(f"fitting {subject}"))
    present(report, form, output, warn_first=True)


app = command(
    calibrate,
    files=".yaml: the device file with the fitted parameters.",
    run=_present,
    examples=(
        "roof calibrate measured.csv --hw a100 -o a100.yaml",
        "roof calibrate gemm.csv attention.csv --hw h100 -o h100.yaml",
        "roof calibrate measured.csv --hw own.yaml -o calibrated.yaml --source 'torch 2.9, driver 580'",
    ),
)
