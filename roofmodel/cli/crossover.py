"""`roof crossover`: where a bound changes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofmodel.cli.doors import WRITTEN, Saved, Written, known_format, write
from roofmodel.cli.workload import takes_workload
from roofmodel.errors import WorkloadError

app = typer.Typer(add_completion=False)


@app.command("crossover")
@takes_workload
def crossover_command(
    model: Annotated[
        str,
        typer.Argument(
            help="As for estimate, or a kernel: matmul, matmul-accumulate, saxpy, triad, stencil7, stencil7-uncached."
        ),
    ],
    hw: Annotated[str | None, typer.Option("--hw", help="A device's name or a YAML file.")] = None,
    over: Annotated[
        str | None,
        typer.Option(help="batch, seq (of a prefill), context (of a decode) or gpus; of a kernel its size; batch."),
    ] = None,
    op: Annotated[
        str | None, typer.Option(help="One operator, such as attention.qkv, or a group, such as mlp; else the phase.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Also what the answer rests on.")] = False,
    family: Annotated[str | None, typer.Option(help="Read an unknown model_type as this one.")] = None,
    form: Written = "table",
    output: Saved = None,
    **workload: Any,
) -> None:
    """Where another roof starts to bind: the size, and the equation."""
    known_format(form, WRITTEN)
    if hw is None:
        raise WorkloadError("--hw is missing; give a device such as --hw a100 (see 'roof hw list')")
    from roofmodel.devices import library
    from roofmodel.study.derive.crossover import crossover
    from roofmodel.views.derive import crossover as views
    from roofmodel.views.kit.operator_names import operator_name

    op = op and operator_name(op)
    found = crossover(model, library.load(hw), over=over, op=op, family=family, derive=explain, **workload)
    write(views.document(found, views.explained(found) if explain else ()), form, output)
