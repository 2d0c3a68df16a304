"""`roof count`: any torch module as operators."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.doors import known_format, print_rich, print_text

app = typer.Typer(add_completion=False)


@app.command("count")
def count_command(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:FACTORY", help="torchvision.models:resnet50 or ./my.py:make.")
    ],
    inputs: Annotated[list[str], typer.Option("--input", help="1x3x224x224, or int:1x1024; once for each input.")],
    hw: Annotated[str | None, typer.Option("--hw", help="Also bound each operator on this device.")] = None,
    dtype: Annotated[str, typer.Option(help="Of all floating-point tensors.")] = "fp16",
    form: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
) -> None:
    """Any torch module as operators: FLOPs, bytes, bound (needs torch)."""
    known_format(form, ("table", "json", "csv"))
    from roofmodel.study.count import count
    from roofmodel.views import count as views

    counted = count(target, inputs, dtype, hw)
    if form == "table":
        print_rich(views.table(counted))
    else:
        print_text(views.as_json(counted) if form == "json" else views.as_csv(counted))
