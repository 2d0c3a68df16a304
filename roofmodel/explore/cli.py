"""`roof explore`: a page with sliders for models and devices."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.options.command_line import Family, Models, devices, examples
from roofmodel.report.printing import check_outputs, save

app = typer.Typer(add_completion=False)


@app.command(
    "explore",
    epilog=examples(
        "roof explore gpt2-xl -o gpt2-xl.html",
        "roof explore llama-3.1-8b mixtral-8x7b-v0.1 --hw h100,h200 -o models.html",
        "roof explore ./config.json --family llama -o own.html",
    ),
)
def explore_command(
    models: Models,
    output: Annotated[str, typer.Option("-o", "--output", help="FILE .html: one file that contains all data.")],
    hw: Annotated[
        list[str] | None,
        typer.Option("--hw", help="Devices: a100,h100, or --hw several times (default: a100,h100,v100,rtx4090)."),
    ] = None,
    family: Family = None,
) -> None:
    """Write a web page with sliders that shows operators on the roofline, their formulas and numbers."""
    from roofmodel.explore import api
    from roofmodel.explore.report import ExplorePage
    from roofmodel.report import progress

    check_outputs(ExplorePage, [output], [*models, *devices(hw or [])])
    with progress.derivation_progress() as callback:
        page = api.explore(models, *([devices(hw)] if hw else []), family=family, progress=callback)
    save(page, [output])
