"""`roof estimate`: a model's operators under a device's roofs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofmodel.cli.doors import ignored, known_format, note, print_rich, print_text
from roofmodel.cli.workload import takes_workload
from roofmodel.errors import WorkloadError

app = typer.Typer(add_completion=False)

FORMATS = ("table", "json", "csv", "markdown")


@app.command("estimate")
@takes_workload
def estimate_command(
    model: Annotated[str, typer.Argument(help="A packaged name, a config.json or its folder, or a Hub id.")],
    hw: Annotated[str | None, typer.Option("--hw", help="A device's name or a YAML file.")] = None,
    family: Annotated[
        str | None, typer.Option(help="Read an unknown model_type as this one: llama, say; notes what it assumes.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table, json, csv or markdown, on stdout.")] = "table",
    output: Annotated[
        list[str] | None, typer.Option("-o", "--output", help="Also write FILE: .png .svg .pdf .html .json .csv .md")
    ] = None,
    ops: Annotated[bool, typer.Option("--ops", help="A row per operator in the tables, not one per group.")] = False,
    roofline: Annotated[bool, typer.Option("--roofline", help="Also draw the tables' rows in a chart.")] = False,
    **workload: Any,
) -> None:
    """Latency, throughput, what limits them, memory; FLOPs, bytes and times by operator."""
    known_format(form, FORMATS)
    if output:
        from roofmodel.views.estimate.files import SUFFIXES
        from roofmodel.views.kit.files import check

        for path in output:
            check(path, SUFFIXES)
    if hw is None:
        raise WorkloadError("--hw is missing; give a device such as --hw a100 (see 'roof hw list')")
    from roofmodel.devices import library
    from roofmodel.models import hub
    from roofmodel.study.estimate import estimate as study

    estimate = study.estimate(hub.load(model, family), library.load(hw), **workload)
    if output:
        from roofmodel.views.estimate.files import save

        for path in output:
            note(f"wrote {save(estimate, path)}")
    if form == "table":
        from roofmodel.views.estimate.terminal import EstimateView

        print_rich(EstimateView(estimate, ops=ops, roofline=roofline, hint=True))
    else:
        from roofmodel.views.estimate.files import as_text

        print_text(as_text(estimate, form))
        shown = {"ops": ops, "roofline": roofline}
        ignored((name for name, given in shown.items() if given), f"--format {form} has every operator and no chart")
    for remark in estimate.notes:
        note(remark)
