"""`roof measure`: a table of operations measured on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.measure.api import BUDGET, measure
from roofmodel.report.command import CommandCall, command
from roofmodel.report.printing import ignored, print_line, print_rich, remark


def _measure(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    """Measure with progress on stderr, and print a summary."""
    from roofmodel.report import progress

    arguments = call.given
    unused = (
        [] if "model" in arguments else [name for name in ("phase", "batch", "seq", "context") if name in arguments]
    )
    with progress.measuring_progress(arguments.get("budget", BUDGET)) as callback:
        report = call(progress=callback)
    print_rich(report)
    print_line(f"wrote {report.path}: {report.measurement.rows} rows of {report.measurement.cases} cases")
    remark(report, ignored(unused, "it needs --model"))
    if report.interrupted:
        raise KeyboardInterrupt


app = command(
    measure,
    settings={"output": {"flags": ("-o", "--output")}},
    run=_measure,
    about="Measure operations on this machine with torch, for `roof validate` and `roof calibrate`.",
    examples=(
        "roof measure -o measured.csv",
        "roof measure --ops gemm,attn_context --dtype fp16 --budget 600 -o measured.csv",
        "roof measure --model gpt2-xl --phase decode --batch 8 -o gpt2-xl.csv",
    ),
)
