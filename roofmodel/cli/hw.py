"""`roof hw`: the devices, and the check of one of your own."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.doors import Listing, note, print_text, show
from roofmodel.errors import RoofError

app = typer.Typer(
    add_completion=False, help="The devices that are known by name, and checks of your own.", no_args_is_help=True
)


@app.command("list")
def hw_list(form: Listing = "table") -> None:
    """The devices known by name."""
    from roofmodel.devices import library
    from roofmodel.views import listing

    found = []
    for name in library.names():
        try:
            found.append(library.load(name))
        except RoofError as error:  # one file of the user's own must not hide the others
            note(f"warning: {error}")
    show(listing.devices(found, library.ALIASES), form)


@app.command("show")
def hw_show(name: Annotated[str, typer.Argument(help="A name or a YAML file.")], form: Listing = "table") -> None:
    """A device's ceilings, with their sources."""
    from roofmodel.devices import library
    from roofmodel.views import listing

    show(listing.device(library.load(name)), form)


@app.command("check")
def hw_check(file: Annotated[str, typer.Argument(help="A device's YAML file.")]) -> None:
    """Validate a device's YAML file: units, names, sources, and whether its numbers reproduce."""
    from roofmodel.devices import library, schema

    device = library.load(file)
    doubts = schema.doubtful_entries(device)
    for doubt in doubts:
        note(f"warning: {file}: {doubt}")
    count = f", {len(doubts)} warning{'s' if len(doubts) > 1 else ''}" if doubts else ""
    print_text(f"{file}: {device.name}: valid{count}")
