"""`roof estimate`: FLOPs, bytes and time of a model's operators on a device."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofmodel.options.command_line import (
    INPUT,
    OUTPUT,
    Family,
    Hardware,
    Model,
    examples,
    format_option,
    name_option,
    output_option,
    required_device,
    takes_workload,
)
from roofmodel.options.values import CopyMode, OutputFormat
from roofmodel.report.printing import check_format, check_outputs, ignored, present

app = typer.Typer(add_completion=False)

FORMATS = ("table", "json", "csv", "markdown")


@app.command(
    "estimate",
    epilog=examples(
        "roof estimate gpt2-xl --hw a100 --batch 8",
        "roof estimate llama-3.1-70b --hw h100 --tp 8 --phase generate --new-tokens 256 -o estimate.html",
        "roof estimate resnet-50 --hw v100 --phase train --batch 32 --dtype fp32 --loader 1500ms --workers 7",
        "roof estimate gpt2-xl --hw a100 --phase train --runtime graph --format json",
    ),
)
@takes_workload
def estimate_command(
    model: Model,
    hw: Hardware = None,
    family: Family = None,
    form: Annotated[OutputFormat, format_option("table, json, csv or markdown, on stdout.")] = "table",
    output: Annotated[list[str] | None, output_option("Also write FILE: .png .svg .pdf .html .json .csv .md")] = None,
    ops: Annotated[
        bool,
        typer.Option("--ops", help="Print one row per operator instead of one per group.", rich_help_panel=OUTPUT),
    ] = False,
    roofline: Annotated[
        bool,
        typer.Option(
            "--roofline", help="Also draw the rows of the tables on a roofline chart.", rich_help_panel=OUTPUT
        ),
    ] = False,
    loader: Annotated[
        str | None,
        typer.Option(
            help="Time of one worker of the data loader for a batch of one GPU, such as 1500ms (train and forward).",
            rich_help_panel=INPUT,
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Workers of the data loader (default: 0).", rich_help_panel=INPUT)
    ] = None,
    copy: Annotated[
        CopyMode | None,
        name_option(
            "Copy of a batch to the GPU: pinned, pageable or async (pinned and overlapped; default: pageable).",
            panel=INPUT,
        ),
    ] = None,
    **workload: Any,
) -> None:
    """Estimate latency, throughput, memory and the limiting ceiling; FLOPs, bytes and times of each operator."""
    check_format(form, FORMATS)
    from roofmodel.estimate import api
    from roofmodel.estimate.report import Report

    check_outputs(Report, output, [model, hw])
    required_device(hw, "a device such as --hw a100")
    report = api.estimate(model, hw or "", family=family, loader=loader, workers=workers, copy=copy, **workload)
    shown = {"ops": ops, "roofline": roofline} if form != "table" else {}
    why = f"--format {form} has every operator and no chart"
    notes = ignored((name for name, given in shown.items() if given), why)
    present(report, form, output, table=report.table(ops=ops, roofline=roofline, hint=True), notes=notes)
