"""`roof explain`: the derivation of every number of an estimate."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofmodel.errors import Message, ModelError, Option, Text
from roofmodel.options.command_line import (
    DocumentFiles,
    DocumentFormat,
    Family,
    ModelOrKernel,
    examples,
    name_option,
    takes_workload,
)
from roofmodel.options.values import FlopCounter
from roofmodel.options.workload import non_default_options
from roofmodel.report.printing import DOCUMENT_FORMATS, check_format, check_outputs, ignored, present

app = typer.Typer(add_completion=False)


@app.command(
    "explain",
    epilog=examples(
        "roof explain gpt2-xl --op attention.qkv --hw a100",
        "roof explain matmul --n 4096 --format markdown",
        "roof explain --line 'A\\[i k] B\\[k j] -> C\\[i j]' --size i=4096,j=4096,k=512 --hw a100",
        "roof explain --conventions",
    ),
)
@takes_workload
def explain_command(
    model: Annotated[str | None, typer.Argument(help=ModelOrKernel)] = None,
    op: Annotated[
        str | None, typer.Option(help="One operator, such as mlp.up or 'q projection', or a group, such as mlp.")
    ] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Also derive bounds and expected times on a device.")] = None,
    family: Family = None,
    n: Annotated[int | None, typer.Option("--n", help="Size n of a kernel such as matmul (default: 1024).")] = None,
    line: Annotated[
        str | None,
        typer.Option("--line", help="Derive your own kernel, such as 'A\\[i k] B\\[k j] -> C\\[i j]', with --size."),
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option("--size", help="Size of an axis of --line: i=4096, or i=4096,k=512.")
    ] = None,
    conventions: Annotated[bool, typer.Option("--conventions", help="Print the counting conventions.")] = False,
    reconcile: Annotated[
        FlopCounter | None,
        name_option("Show how another tool's FLOPs follow from ours: fvcore, calflops, llm-flops or deepspeed."),
    ] = None,
    timing: Annotated[bool, typer.Option("--timing", help="Also show how each expected time is computed.")] = False,
    form: DocumentFormat = "table",
    output: DocumentFiles = None,
    **workload: Any,
) -> None:
    """Derive every number of an estimate: the formula with symbols, the formula with numbers, and the value."""
    check_format(form, DOCUMENT_FORMATS)
    from roofmodel.explain import api
    from roofmodel.report.derivation import Derivation

    check_outputs(Derivation, output, [model, hw])
    notes: list[Text] = []
    if conventions:
        options = {
            **workload, "op": op, "hw": hw, "family": family, "n": n, "reconcile": reconcile, "line": line,
            "size": size, "timing": timing or None,
        }  # fmt: skip
        why = "the conventions are the same for all models"
        notes = [*([] if model is None else [f"MODEL is ignored: {why}"]), *ignored(non_default_options(options), why)]
        present(api.conventions(), form, output, notes=notes)
        return
    if model is None and line is None:
        raise ModelError("MODEL is missing; give one such as gpt2-xl, or a kernel such as matmul")
    if reconcile and model is not None:
        notes = ignored(
            non_default_options({"op": op, "hw": hw, "n": n, "timing": timing or None}),
            "--reconcile sums the counts of the whole model",
        )
        present(api.reconcile(model, reconcile, family=family, **workload), form, output, notes=notes)
        return
    report = api.explain(model, hw, family=family, op=op, n=n, line=line, size=size, timing=timing, **workload)
    if form == "json" and timing:
        notes = ignored(["timing"], "--format json always has the expected times' computation")
    elif timing and not hw:
        notes = ignored(["timing"], "expected times need --hw")
    elif form != "json" and hw and not timing:
        notes = [Message(Option("timing"), " shows how each expected time is computed")]
    present(report, form, output, notes=notes)
