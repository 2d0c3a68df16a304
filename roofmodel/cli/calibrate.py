"""`roof calibrate`: the timing model fitted to measured operations."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.doors import note, print_rich

app = typer.Typer(add_completion=False)


@app.command("calibrate")
def calibrate_command(
    tables: Annotated[list[str], typer.Argument(help="CSV tables of measured operations, as 'roof validate' takes.")],
    hw: Annotated[str, typer.Option("--hw", help="The device that they were measured on.")],
    output: Annotated[str, typer.Option("-o", "--output", help="FILE .yaml: the device, with what was fitted.")],
    source: Annotated[str, typer.Option(help="Where the tables come from, for the file.")] = "own measurements",
) -> None:
    """Fit the timing model to measured operations (needs scipy, which the extra `calibrate` brings)."""
    from roofmodel.devices import library
    from roofmodel.devices.calibration_writer import device_file
    from roofmodel.study.benchmark.calibrate import calibrate
    from roofmodel.study.benchmark.table import read
    from roofmodel.study.profile.device import others
    from roofmodel.views.benchmark import calibrate as views
    from roofmodel.views.kit import files

    files.check(output, ("yaml",))
    path, device = library.find(hw), library.load(hw)
    found = calibrate(tables, device, source, begin=lambda what: note(f"fitting {what}"))
    text = device_file(path.read_text(encoding="utf-8"), found.calibration)
    note(f"wrote {files.write(output, draw=None, texts={'yaml': lambda: text.rstrip()})}")
    print_rich(views.table(device, found.calibration))
    for remark in found.remarks:
        note(f"note: {remark}")
    for table in tables:
        for text in others(device, read(table).get("gpu", ()), table):
            note(f"warning: {text}")
