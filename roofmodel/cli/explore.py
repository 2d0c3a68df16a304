"""`roof explore`: models under sliders, as a page."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.doors import devices, note

app = typer.Typer(add_completion=False)

DEVICES = "a100,h100,v100,rtx4090"


@app.command("explore")
def explore_command(
    models: Annotated[list[str], typer.Argument(metavar="MODEL…", help="As for estimate; the page offers them all.")],
    output: Annotated[str, typer.Option("-o", "--output", help="FILE .html: one page, with everything inside.")],
    hw: Annotated[
        list[str] | None,
        typer.Option("--hw", help=f"Devices to offer: a100,h100, or --hw once for each; {DEVICES} if absent."),
    ] = None,
    family: Annotated[str | None, typer.Option(help="As for estimate.")] = None,
) -> None:
    """A page with sliders: operators move on the roofline, with their formulas and today's numbers."""
    from rich.console import Console

    from roofmodel.models import hub
    from roofmodel.views.explore import page as explore
    from roofmodel.views.kit import files

    files.check(output, explore.SUFFIXES)
    asked, offered = [hub.load(model, family) for model in models], devices(hw or [DEVICES])
    with Console(stderr=True).status("writing formulas down: some seconds a model"):  # on a terminal alone
        page = explore.html(asked, offered)
    note(f"wrote {files.write(output, draw=lambda *_: None, texts={'html': lambda: page})}")
