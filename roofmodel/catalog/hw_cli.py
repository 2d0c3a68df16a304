"""`roof hw`: the known devices, and the validation of a device's YAML file."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.options.command_line import ListingFormat, examples
from roofmodel.report.printing import check_format, present, print_text, remark

app = typer.Typer(
    add_completion=False,
    help="List and show the packaged devices, and check a device's YAML file.",
    no_args_is_help=True,
    epilog=examples("roof hw list", "roof hw list h100", "roof hw show a100", "roof hw check own.yaml"),
)


@app.command("list")
def hw_list(
    text: Annotated[str | None, typer.Argument(help="List only devices whose name contains this text.")] = None,
    form: ListingFormat = "table",
) -> None:
    """List the packaged devices."""
    check_format(form, ("table", "json"))
    from roofmodel.catalog import api

    present(api.list_hardware(text), form)


@app.command("show")
def hw_show(
    name: Annotated[str, typer.Argument(help="A packaged name or a YAML file.")], form: ListingFormat = "table"
) -> None:
    """Show the ceilings of a device, with their sources."""
    check_format(form, ("table", "json"))
    from roofmodel.catalog import api

    present(api.show_hardware(name), form)


@app.command("check")
def hw_check(file: Annotated[str, typer.Argument(help="A device's YAML file.")]) -> None:
    """Check a device's YAML file: units, names, sources, and whether its numbers are consistent."""
    from roofmodel.catalog import api

    report = api.check_hardware(file)
    remark(report)
    print_text(str(report))
