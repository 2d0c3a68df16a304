"""`roof validate`: errors of bound and expected time on measured operations."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.options.command_line import examples, format_option, output_option
from roofmodel.options.values import OutputFormat
from roofmodel.report.printing import check_format, check_outputs, present

app = typer.Typer(add_completion=False)


@app.command(
    "validate",
    epilog=examples(
        "roof validate measured.csv --hw a100",
        "roof validate measured.csv --hw h100 -o errors.png",
        "roof validate measured.csv --hw own.yaml --format json -o rows.csv",
    ),
)
def validate_command(
    table: Annotated[
        str, typer.Argument(help="CSV table of measured operations: op, dtype, latency_us and the shape columns.")
    ],
    hw: Annotated[str, typer.Option("--hw", help="The device on which the operations were measured.")],
    form: Annotated[OutputFormat, format_option("table or json.")] = "table",
    output: Annotated[
        list[str] | None,
        output_option("FILE .csv (all rows, with bound and expected time) .json .png .svg .pdf"),
    ] = None,
) -> None:
    """Compute the errors of bound and expected time for measured operations."""
    check_format(form, ("table", "json"))
    from roofmodel.measure import api
    from roofmodel.measure.report import ValidationReport

    check_outputs(ValidationReport, output, [table, hw])
    present(api.validate(table, hw), form, output, warn_first=True)
