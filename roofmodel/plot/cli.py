"""`roof plot`: measured kernels on the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.errors import OutputError
from roofmodel.plot.api import plot
from roofmodel.report.command import CommandCall, call_with_progress, command
from roofmodel.report.printing import check_outputs, present, print_line, save


def _present(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    """Present the points, and without `-o` also write the default picture."""
    report = call_with_progress(call)
    present(report, form, output)
    if not output:  # the picture was not asked for: without a writable folder, the table is still a result
        try:
            check_outputs(report, [report.default_path], call.inputs)
            save(report, [report.default_path])
        except OutputError as error:
            print_line(f"warning: no picture: {error}; -o FILE selects another place")


app = command(
    plot,
    formats=("table", "json", "csv"),
    files=".png .svg .pdf .html .json .csv",
    settings={"files": {"default": None}},
    run=_present,
    about="Show measured kernels and a model's operators on the roofline (default picture: ./FILE.roofline.png).",
    checks=("points", "level=dram and achieved<60%"),
    examples=(
        "roof plot ncu.csv --hw a100 -o roofline.png",
        "roof plot ncu.csv --hw a100 --flops 'gemm*=2*4096^3'",
        "roof plot --model matmul,triad,fft --n 512,4096 --hw a100 -o kernels.png",
        "roof plot ncu.csv --by nvtx --ceilings measured --clock measured",
        "roof plot ncu.csv --hw a100 --model gpt2-xl --phase decode -o roofline.html",
    ),
)
