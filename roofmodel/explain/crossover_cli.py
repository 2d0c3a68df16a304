"""`roof crossover`: the size at which another ceiling limits an operator."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofmodel.options.command_line import (
    DocumentFiles,
    DocumentFormat,
    Family,
    Hardware,
    ModelOrKernel,
    examples,
    name_option,
    required_device,
    takes_workload,
)
from roofmodel.options.values import CrossoverSize
from roofmodel.report.printing import DOCUMENT_FORMATS, check_format, check_outputs, present

app = typer.Typer(add_completion=False)


@app.command(
    "crossover",
    epilog=examples(
        "roof crossover gpt2-xl --hw a100 --phase decode",
        "roof crossover llama-3.1-8b --hw h100 --op attention.qkv --over seq --phase prefill --explain",
        "roof crossover matmul --hw v100 --dtype fp32",
    ),
)
@takes_workload
def crossover_command(
    model: Annotated[str, typer.Argument(help=ModelOrKernel)],
    hw: Hardware = None,
    over: Annotated[
        CrossoverSize | None,
        name_option(
            "Size that varies: batch, seq (prefill), context (decode) or gpus (default: batch; n for a kernel)."
        ),
    ] = None,
    op: Annotated[
        str | None,
        typer.Option(help="One operator, such as attention.qkv, or a group, such as mlp (default: the whole phase)."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also derive the result and list the assumptions.")
    ] = False,
    family: Family = None,
    form: DocumentFormat = "table",
    output: DocumentFiles = None,
    **workload: Any,
) -> None:
    """Compute the size at which another ceiling limits an operator or a phase, with the equation."""
    check_format(form, DOCUMENT_FORMATS)
    required_device(hw, "a device such as --hw a100")
    from roofmodel.explain import api
    from roofmodel.report.derivation import Derivation

    check_outputs(Derivation, output, [model, hw])
    report = api.crossover(model, hw or "", over=over, op=op, family=family, explain=explain, **workload)
    present(report, form, output)
