"""`roof trace`: where the time of a run goes."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.options.command_line import ProfileHardware, examples, format_option, name_option, output_option
from roofmodel.options.values import OutputFormat, RunGrouping
from roofmodel.report.printing import check_format, check_outputs, present

app = typer.Typer(add_completion=False)


@app.command(
    "trace",
    epilog=examples(
        "roof trace trace.json.gz",
        "roof trace report.sqlite --by nvtx --top 20",
        "roof trace trace.json --steps 5:8 -o steps.png",
        "roof trace trace.json -o timeline.html",
        "roof trace old.json.gz new.json.gz",
        "roof trace 'new/*.json' --before 'old/*.json'",
    ),
)
def trace_command(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Files of Nsight Systems, PyTorch or nvprof, patterns or folders; - for stdin. Two arguments with the "
            "same rank or GPU are two runs, before and after a change."
        ),
    ],
    by: Annotated[
        RunGrouping,
        name_option(
            "Sum GPU work by group (such as GEMM), lecture (matrix-mul, memory_mgmt, custom_ops, other), name, nvtx, "
            "operator, device, stream or step.",
            "--by",
        ),
    ] = "group",
    top: Annotated[int, typer.Option("--top", help="Number of the longest kernels and copies that are listed.")] = 10,
    steps: Annotated[
        str | None, typer.Option("--steps", metavar="A:B", help="Only the steps from A up to, not including, B.")
    ] = None,
    before: Annotated[
        list[str] | None,
        typer.Option("--before", help="File, pattern or folder of the run before a change; FILES are the run after."),
    ] = None,
    one_run: Annotated[bool, typer.Option("--one-run", help="All files are ranks of one run.")] = False,
    hw: ProfileHardware = None,
    form: Annotated[OutputFormat, format_option("table, json or csv.")] = "table",
    output: Annotated[
        list[str] | None, output_option("FILE .png .svg .pdf .html .json .csv .perfetto.json[.gz]")
    ] = None,
) -> None:
    """Show where the time of a run goes: compute, communication, copies and idle time by cause, per rank and step."""
    check_format(form, ("table", "json", "csv"))
    from roofmodel.report import progress
    from roofmodel.trace import api
    from roofmodel.trace.report import TraceReport

    check_outputs(TraceReport, output, [*files, *(before or ())])
    with progress.reading_progress() as callback:
        report = api.trace(
            *files, before=before or (), one_run=one_run, by=by, top=top, steps=steps, hw=hw, progress=callback
        )
    present(report, form, output)
