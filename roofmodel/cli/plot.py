"""`roof plot`: measured kernels on the roofline."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofmodel.cli.doors import Times, known_format, note, print_rich, print_text
from roofmodel.cli.workload import takes_workload
from roofmodel.errors import OutputError

app = typer.Typer(add_completion=False)


@app.command("plot")
@takes_workload
def plot_command(
    files: Annotated[
        list[str] | None, typer.Argument(help="Profiler files, patterns, - for stdin; FILE@HW names a device.")
    ] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="The device, where the files do not tell it.")] = None,
    clock: Annotated[
        str, typer.Option("--clock", help="Of the roofs: boost (the datasheet's), measured, or one such as 1312MHz.")
    ] = "boost",
    ceilings: Annotated[str, typer.Option("--ceilings", help="datasheet, or measured by benchmarks.")] = "datasheet",
    model: Annotated[str | None, typer.Option("--model", help="Also show a model's operators at their bounds.")] = None,
    times: Times = None,
    by: Annotated[
        str, typer.Option("--by", help="One point a: name, base, nvtx, category, or lecture (its four groups).")
    ] = "name",
    family: Annotated[str | None, typer.Option(help="With --model: read an unknown model_type as this one.")] = None,
    form: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
    output: Annotated[
        list[str] | None, typer.Option("-o", "--output", help="FILE .png .svg .pdf .html .json .csv")
    ] = None,
    **workload: Any,
) -> None:
    """Measured kernels on the roofline, a model's operators beside them; without -o drawn into ./FILE.roofline.png."""
    known_format(form, ("table", "json", "csv"))
    from roofmodel.study.profile import place
    from roofmodel.views.kit import files as outputs
    from roofmodel.views.kit.encoding import as_json
    from roofmodel.views.profile import data as views
    from roofmodel.views.profile import progress, tables

    for path in output or ():
        outputs.check(path, views.SUFFIXES)
    with progress.shown():
        placed = place.place(files or [], hw, by, model, workload, times or [], clock, ceilings, family)
    for path in output or ():
        note(f"wrote {views.save_points(placed, path)}")
    if form == "table":
        print_rich(tables.points_table(placed))
    else:
        print_text(as_json(views.points_document(placed)) if form == "json" else views.points_csv(placed.rooflines))
    for remark in placed.notes:
        note(remark)
    for warning in placed.warnings:
        note(f"warning: {warning}")
    if not output:  # nobody asked for the picture by name: where there is no room for it, the rest stands
        try:
            note(f"wrote {views.save_points(placed, f'{placed.stem}.roofline.png')}")
        except OutputError as error:
            note(f"warning: no picture: {str(error).removeprefix('-o ')}; -o FILE puts it elsewhere")
