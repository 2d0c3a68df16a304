"""`roof measure`: a table of operations measured on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.options.command_line import examples, name_option
from roofmodel.options.values import BenchmarkDevice, L2State, Phase
from roofmodel.report.printing import ignored, print_line, print_rich, remark

app = typer.Typer(add_completion=False)

MODEL_ONLY = "it needs --model"


@app.command(
    "measure",
    epilog=examples(
        "roof measure -o measured.csv",
        "roof measure --ops gemm,attn_context --dtype fp16 --budget 600 -o measured.csv",
        "roof measure --model gpt2-xl --phase decode --batch 8 -o gpt2-xl.csv",
    ),
)
def measure_command(
    output: Annotated[str, typer.Option("-o", "--output", help="FILE .csv: one row per measured operation.")],
    ops: Annotated[
        str | None, typer.Option(help="Operations to measure, such as gemm,attn_context (default: all).")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Formats, such as fp16,bf16 (default: all that the device supports).")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Measure the operators of this model instead of random shapes.")
    ] = None,
    phase: Annotated[Phase | None, name_option("With --model: as for estimate.")] = None,
    batch: Annotated[int, typer.Option(help="With --model: as for estimate.")] = 1,
    seq: Annotated[int | None, typer.Option(help="With --model: as for estimate.")] = None,
    context: Annotated[int | None, typer.Option(help="With --model: as for estimate.")] = None,
    l2: Annotated[L2State, name_option("cold (L2 cache flushed before each launch) or warm.", "--l2")] = "cold",
    budget: Annotated[float, typer.Option(help="Seconds after which the run stops and keeps its rows.")] = 120,
    device: Annotated[BenchmarkDevice | None, name_option("cuda or cpu (default: cuda if a GPU is found).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random shapes.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run that wrote to FILE.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing FILE.")] = False,
) -> None:
    """Measure operations on this machine with torch, for `roof validate` and `roof calibrate`."""
    from roofmodel.measure import api
    from roofmodel.report import progress

    of_model = {"phase": phase, "batch": None if batch == 1 else batch, "seq": seq, "context": context}
    unused = [name for name, value in of_model.items() if model is None and value is not None]
    with progress.measuring_progress(budget) as callback:
        report = api.measure(
            output, ops=ops, dtype=dtype, model=model, phase=phase, batch=batch, seq=seq, context=context,
            l2=l2, budget=budget, device=device, seed=seed, resume=resume, force=force, progress=callback,
        )  # fmt: skip
    print_rich(report)
    print_line(f"wrote {report.path}: {report.measurement.rows} rows of {report.measurement.cases} cases")
    remark(report, ignored(unused, MODEL_ONLY))
    if report.interrupted:
        raise KeyboardInterrupt
