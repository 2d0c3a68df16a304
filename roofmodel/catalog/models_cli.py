"""`roof models`: the packaged models, the families, and the architecture of one model."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.options.command_line import ListingFormat, examples
from roofmodel.report.printing import check_format, present

app = typer.Typer(
    add_completion=False,
    help="List the packaged models and the supported families, and show the architecture of a model.",
    no_args_is_help=True,
    epilog=examples("roof models list", "roof models list llama", "roof models families", "roof models show gpt2-xl"),
)


@app.command("list")
def models_list(
    text: Annotated[str | None, typer.Argument(help="List only models whose name or type contains this text.")] = None,
    form: ListingFormat = "table",
) -> None:
    """List the packaged models."""
    check_format(form, ("table", "json"))
    from roofmodel.catalog import api

    present(api.list_models(text), form)


@app.command("families")
def models_families(
    text: Annotated[
        str | None, typer.Argument(help="List only model types whose name or classes contain this text.")
    ] = None,
    form: ListingFormat = "table",
) -> None:
    """List the model types that can be counted, with their classes."""
    check_format(form, ("table", "json"))
    from roofmodel.catalog import api

    present(api.list_families(text), form)


@app.command("show")
def models_show(
    name: Annotated[str, typer.Argument(help="A model, as for estimate.")], form: ListingFormat = "table"
) -> None:
    """Show the architecture of a model, and the config key of each field."""
    check_format(form, ("table", "json"))
    from roofmodel.catalog import api

    present(api.show_model(name), form)
