"""`roof jitter`: which of many ranks is late, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.options.command_line import examples, format_option, name_option, output_option
from roofmodel.options.values import FirstGap, OutputFormat
from roofmodel.report.printing import check_format, check_outputs, present

app = typer.Typer(add_completion=False)


@app.command(
    "jitter",
    epilog=examples(
        "roof jitter rank*.json.gz",
        "roof jitter report.sqlite --steps 5:8 --threshold 50us -o jitter.png",
        "roof jitter rank*.csv --cache kernels",
        "roof jitter trace.parquet --what-if --format json",
    ),
)
def jitter_command(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Files of all ranks: Nsight Systems, PyTorch, step or operation tables, or patterns; - for stdin."
        ),
    ],
    steps: Annotated[
        str | None, typer.Option("--steps", metavar="A:B", help="Only the steps from A up to, not including, B.")
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            help="Time by which a rank must exceed the mean over ranks to be late (default: 100us, or 0.5% of the step "
            "if that is longer).",
        ),
    ] = None,
    first_gap: Annotated[
        FirstGap,
        name_option(
            "Gap before the first kernel of a step: on clocks aligned at the last collective of the same-step, or from "
            "the last collective of the previous-step.",
            "--first-gap",
        ),
    ] = "same-step",
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Replay the steps with ideal times (tables of operations, Parquet).")
    ] = False,
    cache: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Write the kernels to Parquet files in FOLDER, and read them there the next time."
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Compute with Dask: the address of a scheduler, or local for processes on this machine."),
    ] = None,
    form: Annotated[OutputFormat, format_option("table, json or csv.")] = "table",
    output: Annotated[list[str] | None, output_option("FILE .png .svg .pdf .html .json .csv")] = None,
) -> None:
    """Find which of many ranks is late, from which kernel on, and why: GPU, CPU launches, input or network."""
    check_format(form, ("table", "json", "csv"))
    from roofmodel.jitter import api
    from roofmodel.jitter.report import JitterReport
    from roofmodel.report import progress

    check_outputs(JitterReport, output, files)
    with progress.reading_progress() as callback:
        report = api.jitter(
            *files, steps=steps, threshold=threshold, first_gap=first_gap, what_if=what_if, cache=cache,
            cluster=cluster, progress=callback,
        )  # fmt: skip
    present(report, form, output)
