"""`roof models`: what is packaged, and what it says."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.doors import Listing, note, show

app = typer.Typer(add_completion=False, help="The models that are known by name.", no_args_is_help=True)


@app.command("list")
def models_list(form: Listing = "table") -> None:
    """The packaged models."""
    from roofmodel.models import hub
    from roofmodel.views import listing

    show(listing.models(list(hub.catalogue())), form)


@app.command("families")
def models_families(form: Listing = "table") -> None:
    """The model types that are counted, exactly as the real classes or as what was published of checkpoints."""
    from roofmodel.models.families import CUSTOM_CODE, FAMILIES
    from roofmodel.views import listing

    show(listing.families(FAMILIES, CUSTOM_CODE), form)


@app.command("show")
def models_show(name: Annotated[str, typer.Argument(help="As for estimate.")], form: Listing = "table") -> None:
    """What a model is, and which config key says so."""
    from roofmodel.models import hub
    from roofmodel.views import listing

    arch = hub.load(name)
    show(listing.model(arch, hub.packaged(name)), form)
    for remark in arch.notes:
        note(remark)
