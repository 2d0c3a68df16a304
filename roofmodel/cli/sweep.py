"""`roof sweep`: grids over workload, models, devices and widths."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from roofmodel.cli.doors import devices, ignored, known_format, note, print_rich
from roofmodel.cli.workload import takes_grid
from roofmodel.errors import WorkloadError

app = typer.Typer(add_completion=False)


@app.command("sweep")
@takes_grid
def sweep_command(
    models: Annotated[list[str], typer.Argument(metavar="MODEL…", help="As for estimate; several, one after another.")],
    hw: Annotated[list[str] | None, typer.Option("--hw", help="Devices: a100,h100, or --hw once for each.")] = None,
    family: Annotated[str | None, typer.Option(help="As for estimate.")] = None,
    price: Annotated[
        str | None, typer.Option(help="Dollars an hour of each device, or of each: a100=1.5,h100=3.")
    ] = None,
    picture: Annotated[
        str | None, typer.Option(help="What -o FILE.png shows: rates, roofs or costs; rates, with --price costs.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Dask: a scheduler's address, or local for processes on this machine.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table, json or csv, on stdout.")] = "table",
    output: Annotated[
        list[str] | None, typer.Option("-o", "--output", help="Also write FILE: .csv .json .parquet .png .svg .pdf")
    ] = None,
    **grid: Any,
) -> None:
    """Grids: totals of every combination. Each option of estimate takes 1,8,64 or 1:64 or 0:4096:512 or 1:256:*2."""
    known_format(form, ("table", "json", "csv"))
    if hw is None:
        raise WorkloadError("--hw is missing; give devices such as --hw a100,h100 (see 'roof hw list')")
    from roofmodel.models import hub
    from roofmodel.study.sweep.sweep import sweep
    from roofmodel.views.kit import files
    from roofmodel.views.sweep import files as sweep_files
    from roofmodel.views.sweep import picture as sweep_picture
    from roofmodel.views.sweep.table import View

    for path in output or ():
        files.check(path, sweep_files.SUFFIXES)
    sweep_picture.check(picture, price is not None)
    found = sweep([hub.load(model, family) for model in models], devices(hw), price=price, cluster=cluster, **grid)
    if len(output or ()) > 1 or (output and form != "table"):
        found = found.kept()
    for path in output or ():
        note(f"wrote {sweep_files.save(found, path, picture)}")
    if form == "table":
        print_rich(View(found))
    else:
        {"json": sweep_files.write_json, "csv": sweep_files.write_csv}[form](found, sys.stdout)
    if picture and not any(path.lower().endswith(files.PICTURES) for path in output or ()):
        ignored(["picture"], f"no -o FILE .{', .'.join(files.PICTURES)} is asked for")
    for remark in found.notes:
        note(remark)
