"""`roof plot`: measured kernels on the roofline."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofmodel.errors import OutputError
from roofmodel.options.command_line import (
    Family,
    ProfileHardware,
    Times,
    examples,
    format_option,
    name_option,
    output_option,
    takes_workload,
)
from roofmodel.options.values import CeilingSource, KernelGrouping, OutputFormat
from roofmodel.report.printing import check_format, check_outputs, present, print_line, save

app = typer.Typer(add_completion=False)


@app.command(
    "plot",
    epilog=examples(
        "roof plot ncu.csv --hw a100 -o roofline.png",
        "roof plot ncu.csv --hw a100 --flops 'gemm*=2*4096^3'",
        "roof plot ncu.csv --by nvtx --ceilings measured --clock measured",
        "roof plot ncu.csv --hw a100 --model gpt2-xl --phase decode -o roofline.html",
    ),
)
@takes_workload
def plot_command(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Profiler files or patterns; - for stdin; FILE@HW sets the device of a file."),
    ] = None,
    hw: ProfileHardware = None,
    clock: Annotated[
        str,
        typer.Option(
            "--clock", help="Clock of the ceilings: boost (datasheet), measured, or a frequency such as 1312MHz."
        ),
    ] = "boost",
    ceilings: Annotated[
        CeilingSource, name_option("datasheet, or measured (reached in benchmarks).", "--ceilings")
    ] = "datasheet",
    model: Annotated[
        str | None, typer.Option("--model", help="Also show the operators of this model at their bounds.")
    ] = None,
    flops: Annotated[
        list[str] | None,
        typer.Option(
            "--flops", help="FLOPs per launch of the kernels that match a pattern: 'gemm*=2*4096^3[:PIPE]'; repeat."
        ),
    ] = None,
    times: Times = None,
    by: Annotated[
        KernelGrouping,
        name_option(
            "Group kernels by name, base (without template arguments), nvtx, category, or lecture (matrix-mul, "
            "memory_mgmt, custom_ops, other).",
            "--by",
        ),
    ] = "name",
    family: Family = None,
    form: Annotated[OutputFormat, format_option("table, json or csv.")] = "table",
    output: Annotated[list[str] | None, output_option("FILE .png .svg .pdf .html .json .csv")] = None,
    **workload: Any,
) -> None:
    """Show measured kernels and a model's operators on the roofline (default picture: ./FILE.roofline.png)."""
    check_format(form, ("table", "json", "csv"))
    from roofmodel.plot import api
    from roofmodel.plot.report import PlotReport
    from roofmodel.report import progress

    inputs = [model, hw, *(files or ()), *(times or ())]
    check_outputs(PlotReport, output, inputs)
    with progress.reading_progress() as callback:
        report = api.plot(
            *files or [], hw=hw, by=by, model=model, family=family, times=times or (), clock=clock, ceilings=ceilings,
            flops=flops or (), progress=callback, **workload,
        )  # fmt: skip
    present(report, form, output)
    if not output:  # the picture was not asked for: without a writable folder, the table is still a result
        try:
            check_outputs(report, [report.default_path], inputs)
            save(report, [report.default_path])
        except OutputError as error:
            print_line(f"warning: no picture: {error}; -o FILE selects another place")
