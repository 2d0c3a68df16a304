"""`roof count`: FLOPs, bytes and training memory of any torch module."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.options.command_line import examples, format_option, name_option
from roofmodel.options.values import ComputeFormat, Optimizer, OutputFormat
from roofmodel.report.printing import check_format, present

app = typer.Typer(add_completion=False)


@app.command(
    "count",
    epilog=examples(
        "roof count torchvision.models:resnet50 --input 1x3x224x224",
        "roof count ./my.py:make --input int:1x1024 --hw a100",
        "roof count torchvision.models:vit_b_16 --input 8x3x224x224 --dtype bf16 --format csv",
    ),
)
def count_command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FACTORY",
            help="A class or function that returns a module: torchvision.models:resnet50 or ./my.py:make.",
        ),
    ],
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input", help="Shape of an input: 1x3x224x224, or int:1x1024 for integers; repeat for each input."
        ),
    ],
    hw: Annotated[
        str | None, typer.Option("--hw", help="Also print the bound of each operator on this device.")
    ] = None,
    dtype: Annotated[ComputeFormat, name_option("Format of all floating-point tensors.")] = "fp16",
    optimizer: Annotated[Optimizer, name_option("Optimizer of the training memory: adam, momentum or sgd.")] = "adam",
    form: Annotated[OutputFormat, format_option("table, json or csv.")] = "table",
) -> None:
    """Count FLOPs and bytes of each operator of a torch module, and its training memory (needs torch)."""
    check_format(form, ("table", "json", "csv"))
    from roofmodel.count import api

    present(api.count(target, inputs, dtype=dtype, hw=hw, optimizer=optimizer), form)
