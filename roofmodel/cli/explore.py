"""`roof explore`: a page with sliders for models and devices."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from roofmodel.cli.options import Family, Models, devices, examples
from roofmodel.cli.output import check_outputs, save

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
    from roofmodel import api

    check_outputs(api.ExplorePage, [output], [*models, *devices(hw or [])])
    with _progress():
        page = api.explore(models, *([devices(hw)] if hw else []), family=family)
    save(page, [output])


@contextmanager
def _progress() -> Iterator[None]:
    """Within this context, a terminal shows on stderr which model is derived, and the share of its variants."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from roofmodel.errors import shorten
    from roofmodel.study import explore

    columns = TextColumn("deriving formulas: {task.description}"), BarColumn(20), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(model: str, done: int, total: int) -> None:
            name = escape(shorten(model.rpartition("/")[2]))
            bar.update(task, description=name, completed=done, total=total, refresh=True)

        token = explore.progress.set(show)
        try:
            yield
        finally:
            explore.progress.reset(token)
