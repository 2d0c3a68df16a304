"""`roof kernels`: profiler files as one table."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.doors import Files, Times, known_format, note, print_rich, print_text

app = typer.Typer(add_completion=False)


@app.command("kernels")
def kernels_command(
    files: Files,
    hw: Annotated[str | None, typer.Option("--hw", help="The device, where the files do not tell it.")] = None,
    times: Times = None,
    form: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
) -> None:
    """Profiler files (ncu, nvprof, nsys, PyTorch) as one table of kernels."""
    known_format(form, ("table", "json", "csv"))
    from roofmodel.study.profile import place
    from roofmodel.views.kit.encoding import as_json
    from roofmodel.views.profile import data as views
    from roofmodel.views.profile import progress, tables

    with progress.shown():
        found = place.kernels(files, hw, times or [])
    if form == "table":
        print_rich(tables.kernels_table(found))
    else:
        document = views.kernels_document(found)
        print_text(as_json(document) if form == "json" else views.kernels_csv(document))
    for warning in found.warnings:
        note(f"warning: {warning}")
