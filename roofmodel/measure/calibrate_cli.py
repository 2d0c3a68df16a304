"""`roof calibrate`: timing parameters fitted to measured operations."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.options.command_line import examples
from roofmodel.report.printing import check_outputs, note, present

app = typer.Typer(add_completion=False)


@app.command(
    "calibrate",
    epilog=examples(
        "roof calibrate measured.csv --hw a100 -o a100.yaml",
        "roof calibrate gemm.csv attention.csv --hw h100 -o h100.yaml",
        "roof calibrate measured.csv --hw own.yaml -o calibrated.yaml --source 'torch 2.9, driver 580'",
    ),
)
def calibrate_command(
    tables: Annotated[list[str], typer.Argument(help="CSV tables of measured operations, as for 'roof validate'.")],
    hw: Annotated[str, typer.Option("--hw", help="The device on which the operations were measured.")],
    output: Annotated[
        str, typer.Option("-o", "--output", help="FILE .yaml: the device file with the fitted parameters.")
    ],
    source: Annotated[
        str, typer.Option(help="Source of the measurements, written into the file.")
    ] = "own measurements",
) -> None:
    """Fit the timing model to measured operations (needs scipy, which the extra `calibrate` installs)."""
    from roofmodel.measure import api
    from roofmodel.measure.report import CalibrationReport

    check_outputs(CalibrationReport, [output], [*tables, hw])
    report = api.calibrate(tables, hw, source=source, progress=lambda what, *_: note(f"fitting {what}"))
    present(report, "table", [output], warn_first=True)
