"""`roof compare`: predicted and measured figures of a model's operators."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofmodel.options.command_line import (
    Family,
    Model,
    ProfileHardware,
    Times,
    examples,
    format_option,
    is_given,
    output_option,
    takes_workload,
)
from roofmodel.options.values import OutputFormat
from roofmodel.report.printing import check_format, check_outputs, present

app = typer.Typer(add_completion=False)


@app.command(
    "compare",
    epilog=examples(
        "roof compare gpt2-xl ncu.csv --hw a100 --phase decode",
        "roof compare gpt2 trace.json --phase train --batch 8 --seq 1024 --attention eager",
        "roof compare gpt2-xl trace.json --phase prefill --steps 10 --format json -o compare.png",
    ),
)
@takes_workload
def compare_command(
    command_line: typer.Context,
    model: Model,
    files: Annotated[list[str], typer.Argument(help="Profiler files or patterns, all of one run; - for stdin.")],
    hw: ProfileHardware = None,
    times: Times = None,
    steps: Annotated[int | None, typer.Option(help="Number of passes in the files (default: detected).")] = None,
    device: Annotated[
        str | None, typer.Option(help="Number of the GPU to compare, if the files contain several.")
    ] = None,
    family: Family = None,
    form: Annotated[OutputFormat, format_option("table, json or csv.")] = "table",
    output: Annotated[list[str] | None, output_option("Also write FILE: .png .svg .pdf .json .csv")] = None,
    **workload: Any,
) -> None:
    """Compare the bound and expected time of each operator with its achieved time in a profile."""
    check_format(form, ("table", "json", "csv"))
    from roofmodel.compare import api
    from roofmodel.compare.report import CompareReport
    from roofmodel.report import progress

    check_outputs(CompareReport, output, [model, hw, *files, *(times or ())])
    with progress.reading_progress() as callback:
        report = api.compare(
            model,
            *files,
            hw=hw,
            family=family,
            times=times or (),
            steps=steps,
            device=device,
            progress=callback,
            **{name: value for name, value in workload.items() if is_given(command_line, name)},
        )
    present(report, form, output)
