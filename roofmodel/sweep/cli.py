"""`roof sweep`: totals of all combinations of models, devices and option values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from roofmodel.files.output_files import PICTURES
from roofmodel.report.command import CommandCall, command
from roofmodel.report.printing import ignored, print_line, print_rich, remark
from roofmodel.sweep.api import sweep
from roofmodel.sweep.report import SweepReport


def _present(
    call: CommandCall,
    form: Any,
    output: Sequence[str],
    picture: Annotated[
        str | None,
        typer.Option(
            metavar="<name>",
            help="Content of -o FILE.png: rates, roofs (limiting ceilings), costs or scaling (default: rates; costs "
            "with --price; scaling with --scaling).",
        ),
    ] = None,
) -> None:
    """Print the rows block by block; they are evaluated once for several outputs."""
    kind: Any = picture  # checked here
    SweepReport.check_picture(kind, "price" in call.given, "scaling" in call.given)
    report = call()
    if len(output) > 1 or (output and form != "table"):
        report = report.evaluated()
    for path in output:
        print_line(f"wrote {report.save(path, kind)}")
    if form == "table":
        print_rich(report)
    else:
        report.write(form, sys.stdout)
    unused = kind and not any(path.lower().endswith(PICTURES) for path in output)
    remark(report, ignored(["picture"], f"no -o FILE .{', .'.join(PICTURES)} is asked for") if unused else ())


app = command(
    sweep,
    formats=("table", "json", "csv"),
    files=".csv .json .parquet .png .svg .pdf",
    settings={"models": {"metavar": "MODEL…"}, "where": {"metavar": "CONDITION"}},
    run=_present,
    examples=(
        "roof sweep gpt2-xl --hw a100,h100 --batch 1:256:*2 --phase decode",
        "roof sweep llama-3.1-8b --hw h100 --batch 1,8,64 --seq 512:4096:512 -o sweep.csv",
        'roof sweep llama-3.1-70b --hw h100 --phase decode --tp 2,4,8 --where "tpot<30ms" --sort -tokens/s/gpu',
        "roof sweep resnet-50 --hw v100 --phase train --dtype fp32 --batch 32 --scaling weak -o scaling.png",
        "roof sweep llama-3.1-8b --hw a100,h100 --batch 1:64 --price a100=1.5,h100=3 -o costs.png",
    ),
)
