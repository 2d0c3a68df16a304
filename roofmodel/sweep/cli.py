"""`roof sweep`: totals of all combinations of models, devices and option values."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from roofmodel.options.command_line import (
    Family,
    Models,
    devices,
    examples,
    format_option,
    name_option,
    output_option,
    required_device,
    takes_grid,
)
from roofmodel.options.values import OutputFormat, ScalingMode, Share, SweepPicture
from roofmodel.report.printing import check_format, check_outputs, ignored, print_line, print_rich, remark

app = typer.Typer(add_completion=False)


@app.command(
    "sweep",
    epilog=examples(
        "roof sweep gpt2-xl --hw a100,h100 --batch 1:256:*2 --phase decode",
        "roof sweep llama-3.1-8b --hw h100 --batch 1,8,64 --seq 512:4096:512 -o sweep.csv",
        'roof sweep llama-3.1-70b --hw h100 --phase decode --tp 2,4,8 --where "tpot<30ms" --sort -tokens/s/gpu',
        "roof sweep resnet-50 --hw v100 --phase train --dtype fp32 --batch 32 --scaling weak -o scaling.png",
        "roof sweep llama-3.1-8b --hw a100,h100 --batch 1:64 --price a100=1.5,h100=3 -o costs.png",
    ),
)
@takes_grid
def sweep_command(
    models: Models,
    hw: Annotated[list[str] | None, typer.Option("--hw", help="Devices: a100,h100, or --hw several times.")] = None,
    family: Family = None,
    price: Annotated[
        str | None, typer.Option(help="Price in dollars per hour: 2 for every device, or a100=1.5,h100=3.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help='Keep rows that satisfy a condition: "tpot<20ms", "memory<70GiB", fits=true; several: all.'),
    ] = None,
    sort: Annotated[
        str | None, typer.Option(help="Column to sort by, such as tpot; largest first with -, such as -tokens/s.")
    ] = None,
    scaling: Annotated[
        ScalingMode | None,
        name_option(
            "Compare the numbers of GPUs in --gpus, with speed-up and efficiency: strong (--batch is the batch of all "
            "GPUs) or weak (--batch is the batch of one GPU)."
        ),
    ] = None,
    gpus: Annotated[str | None, typer.Option(help="Numbers of GPUs for --scaling (default: 1,2,4,8).")] = None,
    share: Annotated[
        Share | None,
        name_option("Parallelism of --scaling: dp, tp, pp or ep (default: dp for training, else tp)."),
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option(
            help="CSV of measured runs for --scaling: columns gpus and seconds (or milliseconds, throughput)."
        ),
    ] = None,
    picture: Annotated[
        SweepPicture | None,
        name_option(
            "Picture in -o FILE.png: rates, roofs (limiting ceiling), costs or scaling (default: rates; costs with "
            "--price; scaling with --scaling)."
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Compute with Dask: the address of a scheduler, or local for processes on this machine."),
    ] = None,
    form: Annotated[OutputFormat, format_option("table, json or csv, on stdout.")] = "table",
    output: Annotated[list[str] | None, output_option("Also write FILE: .csv .json .parquet .png .svg .pdf")] = None,
    **grid: Any,
) -> None:
    """Estimate all combinations of models, devices and option values: 1,8,64 or 1:64 or 0:4096:512 or 1:256:*2."""
    check_format(form, ("table", "json", "csv"))
    required_device(hw, "devices such as --hw a100,h100")
    from roofmodel.files.output_files import PICTURES
    from roofmodel.sweep import api
    from roofmodel.sweep.report import SweepReport

    check_outputs(SweepReport, output, [*models, *devices(hw or []), measured])
    SweepReport.check_picture(picture, price is not None, scaling is not None)
    report = api.sweep(
        models,
        devices(hw or []),
        family=family,
        price=price,
        where=where or (),
        sort=sort,
        scaling=scaling,
        gpus=gpus,
        share=share,
        measured=measured,
        cluster=cluster,
        **grid,
    )
    if len(output or ()) > 1 or (output and form != "table"):
        report = report.evaluated()
    for path in output or ():
        print_line(f"wrote {report.save(path, picture)}")
    if form == "table":
        print_rich(report)
    else:
        report.write(form, sys.stdout)
    unused = picture and not any(path.lower().endswith(PICTURES) for path in output or ())
    remark(report, ignored(["picture"], f"no -o FILE .{', .'.join(PICTURES)} is asked for") if unused else ())
