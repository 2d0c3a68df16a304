"""`roof explain`: the derivation of every number of an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, get_args

import typer

from roofmodel.errors import Message, ModelError, Option, Text
from roofmodel.explain.api import conventions, explain, reconcile
from roofmodel.options.values import FlopCounter, check_one_of
from roofmodel.options.workload import DECLARED
from roofmodel.report.command import CommandCall, CommandLine
from roofmodel.report.printing import ignored, present


def _present(
    call: CommandCall,
    form: Any,
    output: Sequence[str],
    show_conventions: Annotated[bool, typer.Option("--conventions", help="Print the counting conventions.")] = False,
    tool: Annotated[
        str | None,
        typer.Option(
            "--reconcile",
            metavar="<name>",
            help="Show how another tool's FLOPs follow from ours: fvcore, calflops, llm-flops or deepspeed.",
        ),
    ] = None,
) -> None:
    """Present a derivation, the conventions, or the derivation of another tool's count."""
    arguments = call.given
    if show_conventions:
        why = "the conventions are the same for all models"
        ignored_names = [name for name in (*arguments, *(["reconcile"] if tool else [])) if name != "model"]
        notes: list[Text] = [f"MODEL is ignored: {why}"] if "model" in arguments else []
        present(conventions(), form, output, notes=[*notes, *ignored(ignored_names, why)])
        return
    if not arguments.keys() & {"model", "line"}:
        raise ModelError("MODEL is missing; give one such as gpt2-xl, or a kernel such as matmul")
    if tool and "model" in arguments:
        check_one_of("reconcile", tool, get_args(FlopCounter))
        used = {name: value for name, value in arguments.items() if name in {"model", "family", *DECLARED}}
        others = ignored(
            (name for name in arguments if name not in used), "--reconcile sums the counts of the whole model"
        )
        present(reconcile(tool=tool, **used), form, output, notes=others)  # type: ignore[arg-type]  # checked there
        return
    report, timing, notes = call(), arguments.get("timing"), []
    if form == "json" and timing:
        notes = ignored(["timing"], "--format json always has the expected times' computation")
    elif timing and "hw" not in arguments:
        notes = ignored(["timing"], "expected times need --hw")
    elif form != "json" and "hw" in arguments and not timing:
        notes = [Message(Option("timing"), " shows how each expected time is computed")]
    present(report, form, output, notes=notes)


COMMAND = CommandLine(
    explain,
    run=_present,
    examples=(
        "roof explain gpt2-xl --op attention.qkv --hw a100",
        "roof explain matmul --n 4096 --format markdown",
        "roof explain --line 'A\\[i k] B\\[k j] -> C\\[i j]' --size i=4096,j=4096,k=512 --hw a100",
        "roof explain --conventions",
    ),
)
