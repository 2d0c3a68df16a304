"""`roof estimate`: FLOPs, bytes and time of a model's operators on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from roofmodel.estimate.api import estimate
from roofmodel.options.signature import OUTPUT
from roofmodel.report.command import CommandCall, command
from roofmodel.report.printing import ignored, present

INPUT = {"rich_help_panel": "Input pipeline"}


def _present(
    call: CommandCall,
    form: Any,
    output: Sequence[str],
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
) -> None:
    """Present the estimate in a table of groups or operators, with a chart."""
    report = call()
    shown = {"ops": ops, "roofline": roofline} if form != "table" else {}
    why = f"--format {form} has every operator and no chart"
    notes = ignored((name for name, is_given in shown.items() if is_given), why)
    present(report, form, output, table=report.table(ops=ops, roofline=roofline, hint=True), notes=notes)


app = command(
    estimate,
    formats=("table", "json", "csv", "markdown"),
    files=".png .svg .pdf .html .json .csv .md",
    settings={"loader": INPUT, "workers": INPUT, "copy": INPUT},
    run=_present,
    checks=("phases (and operators, with op. before a column)", "tpot>20ms"),
    examples=(
        "roof estimate gpt2-xl --hw a100 --batch 8",
        "roof estimate llama-3.1-70b --hw h100 --tp 8 --phase generate --new-tokens 256 -o estimate.html",
        "roof estimate resnet-50 --hw v100 --phase train --batch 32 --dtype fp32 --loader 1500ms --workers 7",
        "roof estimate gpt2-xl --hw a100 --phase train --engine-option launch=graph --format json",
    ),
)
