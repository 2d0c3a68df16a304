"""`roof ncu-command`: the ncu command line that collects the metrics of a roofline."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from roofmodel.plot.api import ncu_command
from roofmodel.report.command import CommandCall, command
from roofmodel.report.printing import print_text, remark


def print_command(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    """Print the command on stdout and the reasons of its options on stderr."""
    report = call()
    print_text(report.text(form))
    sys.stderr.write(report.reasons)
    remark(report)


app = command(
    ncu_command,
    formats=("line", "json"),
    settings={"program": {"metavar": "-- CMD…"}},
    context={"allow_interspersed_args": False},
    run=print_command,
    about="Print the ncu command that collects the metrics for a roofline; its parts are explained on stderr.",
    examples=(
        "roof ncu-command --hw a100 -- python train.py",
        "roof ncu-command --hw h100 --nvtx decode --count 200 -- python serve.py",
        "roof ncu-command --nvprof -- python train.py",
    ),
)
