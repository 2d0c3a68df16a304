"""`roof ncu-command`: the line that collects what roof reads."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from roofmodel.cli.doors import known_format, note, print_text

app = typer.Typer(add_completion=False)


@app.command("ncu-command", context_settings={"allow_interspersed_args": False})
def ncu_command(
    program: Annotated[list[str] | None, typer.Argument(metavar="-- CMD…", help="What to profile.")] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="The device it will run on; a100 if absent.")] = None,
    nvtx: Annotated[str | None, typer.Option("--nvtx", help="Only launches within this NVTX range.")] = None,
    skip: Annotated[int | None, typer.Option("--skip", help="Without this many launches at the start.")] = None,
    count: Annotated[int | None, typer.Option("--count", help="No more launches than this.")] = None,
    nvprof: Annotated[bool, typer.Option("--nvprof", help="Times of a V100 in production, by nvprof.")] = False,
    form: Annotated[str, typer.Option("--format", help="line or json.")] = "line",
) -> None:
    """The ncu line that collects what roof reads; on stderr, why each part stands in it."""
    known_format(form, ("line", "json"))
    from roofmodel.study.profile.ncu_command import collect
    from roofmodel.views.profile import ncu_command as views

    collection = collect(program or (), hw, nvtx=nvtx, skip=skip, count=count, nvprof=nvprof)
    print_text(views.line(collection) if form == "line" else views.as_json(collection))
    sys.stderr.write(views.reasons(collection))
    for remark in collection.notes:
        note(remark)
