"""`roof count`: FLOPs, bytes and training memory of any torch module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from roofmodel.count.api import count
from roofmodel.options.signature import OUTPUT
from roofmodel.report.command import CommandCall, command
from roofmodel.report.printing import ignored, present


def _present(
    call: CommandCall,
    form: Any,
    output: Sequence[str],
    summary: Annotated[
        bool,
        typer.Option(
            "--summary", help="Print layers, output shapes and parameters, as torchsummary.", rich_help_panel=OUTPUT
        ),
    ] = False,
    sort: Annotated[
        str | None,
        typer.Option("--sort", help="Largest first.", metavar="intensity|flops|bytes", rich_help_panel=OUTPUT),
    ] = None,
) -> None:
    """Present the operators, sorted if that is requested, or the summary."""
    report = call()
    table = report.summary() if summary else report.table(sort)
    unused = [
        *(["sort"] if sort and (summary or form != "table") else []),
        *(["summary"] if summary and form != "table" else []),
    ]
    why = "the summary has no operators" if summary and form == "table" else f"--format {form} has both, in their order"
    present(report, form, output, table=table, notes=ignored(unused, why))


app = command(
    count,
    formats=("table", "json", "csv"),
    settings={"target": {"metavar": "MODULE:FACTORY"}, "inputs": {"flags": ("--input",)}},
    run=_present,
    examples=(
        "roof count torchvision.models:resnet50 --input 1x3x224x224",
        "roof count ./my.py:make --input int:1x1024 --hw a100 --sort intensity",
        "roof count ./my.py:make --input 1x3x224x224 --dtype fp32 --summary",
        "roof count torchvision.models:vit_b_16 --input 8x3x224x224 --dtype bf16 --format csv",
    ),
)
