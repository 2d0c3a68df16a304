"""`roof validate`: how far bound and expectation are from measured operations."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.doors import known_format, note, print_rich, print_text

app = typer.Typer(add_completion=False)


@app.command("validate")
def validate_command(
    table: Annotated[str, typer.Argument(help="CSV of measured operations: op, dtype, latency_us and shapes.")],
    hw: Annotated[str, typer.Option("--hw", help="The device that it was measured on.")],
    form: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
    output: Annotated[
        list[str] | None,
        typer.Option("-o", "--output", help="FILE .csv (every row, bounded) .json .png .svg .pdf"),
    ] = None,
) -> None:
    """How far bound and expectation are from measured operations: by operation, size, and set of parameters."""
    known_format(form, ("table", "json"))
    from roofmodel.devices import library
    from roofmodel.study.benchmark.validate import validate
    from roofmodel.views.benchmark import validate as views
    from roofmodel.views.kit import files

    for path in output or ():
        files.check(path, views.SUFFIXES)
    found = validate(table, library.load(hw))
    for path in output or ():
        note(f"wrote {views.save(found, path)}")
    if form == "json":
        print_text(views.as_json(found))
    else:
        print_rich(views.table(found))
    for text in found.warnings:
        note(f"warning: {text}")
