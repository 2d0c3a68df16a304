"""`roof explain`: where each number comes from."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofmodel.cli.doors import WRITTEN, Saved, Written, ignored, known_format, note, write
from roofmodel.cli.workload import takes_workload
from roofmodel.errors import ModelError

app = typer.Typer(add_completion=False)


@app.command("explain")
@takes_workload
def explain_command(
    model: Annotated[
        str | None,
        typer.Argument(
            help="As for estimate, or a kernel: matmul, matmul-accumulate, saxpy, triad, stencil7, stencil7-uncached."
        ),
    ] = None,
    op: Annotated[
        str | None, typer.Option(help="One operator, or a group: attention.qkv, up, mlp, 'q projection'.")
    ] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Also which roof binds, and the expected time.")] = None,
    family: Annotated[str | None, typer.Option(help="Read an unknown model_type as this one.")] = None,
    n: Annotated[int | None, typer.Option("--n", help="Size of a kernel; 1024.")] = None,
    conventions: Annotated[bool, typer.Option("--conventions", help="How we count, point by point.")] = False,
    reconcile: Annotated[
        str | None, typer.Option(help="fvcore, calflops, llm-flops or deepspeed: their figure out of ours.")
    ] = None,
    timing: Annotated[bool, typer.Option("--timing", help="Also how each expected time is computed.")] = False,
    form: Written = "table",
    output: Saved = None,
    **workload: Any,
) -> None:
    """Every number's formula, with symbols, with numbers, and the value."""
    known_format(form, WRITTEN)
    if conventions:
        from roofmodel.views.derive import conventions as views

        write(views.document(), form, output)
        if model is not None:
            note("MODEL is ignored: conventions are those of every model")
        _ignored(
            "conventions are those of every model",
            **workload,
            op=op,
            hw=hw,
            family=family,
            n=n,
            reconcile=reconcile,
            timing=timing or None,
        )
        return
    if model is None:
        raise ModelError("MODEL is missing; give one such as gpt2-xl, or a kernel such as matmul")
    from roofmodel.devices import library

    device = library.load(hw) if hw else None
    if reconcile:
        from roofmodel.models import hub
        from roofmodel.study.derive.reconcile import reconcile as study
        from roofmodel.views.derive import reconcile as reconciling

        write(reconciling.document(study(hub.load(model, family), reconcile, **workload)), form, output)
        _ignored("--reconcile adds up the whole model's counts", op=op, hw=hw, n=n, timing=timing or None)
        return
    from roofmodel.study.derive.explain import explain_named
    from roofmodel.views.derive import explain as explaining
    from roofmodel.views.kit.operator_names import operator_name

    op = op and operator_name(op)
    found = explain_named(model, device, family=family, op=op, n=n, **workload)
    write(explaining.document(found, timing=timing), form, output)
    if form == "json" and timing:
        ignored(["timing"], "--format json always has the expected times' computation")
    elif timing and device is None:
        ignored(["timing"], "expected times need --hw")
    elif form != "json" and device and not timing:
        note("--timing shows how each expected time is computed")


def _ignored(why: str, **options: Any) -> None:
    from roofmodel.study.estimate.options import given

    ignored(given(options), why)
