"""`roof ncu-command`: the ncu command line that collects the metrics of a roofline."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from roofmodel.options.command_line import examples, format_option
from roofmodel.options.values import TextFormat
from roofmodel.report.printing import check_format, print_text, remark

app = typer.Typer(add_completion=False)


@app.command(
    "ncu-command",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "roof ncu-command --hw a100 -- python train.py",
        "roof ncu-command --hw h100 --nvtx decode --count 200 -- python serve.py",
        "roof ncu-command --nvprof -- python train.py",
    ),
)
def ncu_command(
    program: Annotated[list[str] | None, typer.Argument(metavar="-- CMD…", help="The program to profile.")] = None,
    hw: Annotated[
        str | None, typer.Option("--hw", help="The device on which the program runs (default: a100).")
    ] = None,
    nvtx: Annotated[str | None, typer.Option("--nvtx", help="Profile only launches in this NVTX range.")] = None,
    skip: Annotated[int | None, typer.Option("--skip", help="Number of launches to skip at the start.")] = None,
    count: Annotated[int | None, typer.Option("--count", help="Largest number of launches to profile.")] = None,
    nvprof: Annotated[
        bool, typer.Option("--nvprof", help="Print an nvprof command instead, for times on a V100.")
    ] = False,
    form: Annotated[TextFormat, format_option("line or json.")] = "line",
) -> None:
    """Print the ncu command that collects the metrics for a roofline; its parts are explained on stderr."""
    check_format(form, ("line", "json"))
    from roofmodel.plot import api

    report = api.ncu_command(program or (), hw, nvtx=nvtx, skip=skip, count=count, nvprof=nvprof)
    print_text(report.text(form))
    sys.stderr.write(report.reasons)
    remark(report)
