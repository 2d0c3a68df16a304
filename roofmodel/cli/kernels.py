"""`roof kernels`: the kernels of profiler files as one table."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.options import Files, ProfileHardware, Times, examples, format_option
from roofmodel.cli.output import check_format, present

app = typer.Typer(add_completion=False)


@app.command(
    "kernels",
    epilog=examples(
        "roof kernels ncu.csv",
        "roof kernels trace.json --hw a100 --format csv",
        "roof kernels counters.csv --times times.sqlite",
    ),
)
def kernels_command(
    files: Files,
    hw: ProfileHardware = None,
    times: Times = None,
    form: Annotated[str, format_option("table, json or csv.")] = "table",
) -> None:
    """Read profiler files (ncu, nvprof, nsys, PyTorch) into one table of kernels."""
    check_format(form, ("table", "json", "csv"))
    from roofmodel import api
    from roofmodel.views.kit import progress

    with progress.of_reading() as callback:
        report = api.read_profile(*files, hw=hw, times=times or (), progress=callback)
    present(report, form)
