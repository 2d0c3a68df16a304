"""`roof kernels`: the kernels of profiler files as one table."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.options.command_line import Files, ProfileHardware, Times, examples, format_option, output_option
from roofmodel.options.values import OutputFormat
from roofmodel.report.printing import check_format, check_outputs, present

app = typer.Typer(add_completion=False)


@app.command(
    "kernels",
    epilog=examples(
        "roof kernels ncu.csv",
        "roof kernels trace.json --hw a100 -o kernels.csv",
        "roof kernels counters.csv --times times.sqlite",
    ),
)
def kernels_command(
    files: Files,
    hw: ProfileHardware = None,
    times: Times = None,
    form: Annotated[OutputFormat, format_option("table, json or csv.")] = "table",
    output: Annotated[list[str] | None, output_option("FILE .json .csv .parquet")] = None,
) -> None:
    """Read profiler files (ncu, nvprof, nsys, PyTorch) into one table of kernels."""
    check_format(form, ("table", "json", "csv"))
    from roofmodel.plot import api
    from roofmodel.plot.report import ProfileReport
    from roofmodel.report import progress

    check_outputs(ProfileReport, output, [*files, *(times or [])])
    with progress.reading_progress() as callback:
        report = api.read_profile(*files, hw=hw, times=times or (), progress=callback)
    present(report, form, output)
