"""`roof compare`: what a model was predicted to take beside what a profiler measured, operator by operator."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from roofmodel.cli.doors import Times, known_format, note, print_rich, print_text
from roofmodel.cli.workload import takes_workload

app = typer.Typer(add_completion=False)


@app.command("compare")
@takes_workload
def compare_command(
    model: Annotated[str, typer.Argument(help="A packaged name, a config.json or its folder, or a Hub id.")],
    files: Annotated[list[str], typer.Argument(help="Profiler files of one run, patterns, - for stdin.")],
    hw: Annotated[str | None, typer.Option("--hw", help="The device, where the files do not tell it.")] = None,
    times: Times = None,
    steps: Annotated[int | None, typer.Option(help="Passes that the files hold; found if absent.")] = None,
    device: Annotated[str | None, typer.Option(help="The GPU's ordinal, where the files hold several.")] = None,
    family: Annotated[str | None, typer.Option(help="Read an unknown model_type as this one.")] = None,
    form: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
    output: Annotated[
        list[str] | None, typer.Option("-o", "--output", help="Also write FILE: .png .svg .pdf .json .csv")
    ] = None,
    **workload: Any,
) -> None:
    """Predicted against achieved, operator by operator; where the time is lost."""
    known_format(form, ("table", "json", "csv"))
    from roofmodel.study.compare.compare import compare
    from roofmodel.views.compare import data
    from roofmodel.views.compare import terminal as views
    from roofmodel.views.kit import files as outputs
    from roofmodel.views.profile import progress

    for path in output or ():
        outputs.check(path, views.SUFFIXES)
    with progress.shown():
        found = compare(
            model, files, hw, family=family, times=times or (), steps=steps, device=device, workload=workload
        )
    for path in output or ():
        note(f"wrote {views.save(found, path)}")
    if form == "table":
        print_rich(views.table(found))
    else:
        print_text(data.as_json(found) if form == "json" else data.as_csv(found))
    for text in found.notes:
        note(f"warning: {text}")
