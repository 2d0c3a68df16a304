"""`roof plan`: the best layout, formats and batch for the targets of a service."""

from __future__ import annotations

from typing import Annotated

import typer

from roofmodel.cli.options import (
    OUTPUT,
    PARALLELISM,
    PRECISION,
    WORKLOAD,
    Family,
    Model,
    devices,
    examples,
    format_option,
    output_option,
    required_device,
)
from roofmodel.cli.output import check_format, check_outputs, present
from roofmodel.option_values import OutputFormat

app = typer.Typer(add_completion=False)
TARGETS, SPECULATION = "Targets", "Speculative decoding"


def _option(panel: str, help_text: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(help=help_text, rich_help_panel=panel)
    return found


@app.command(
    "plan",
    epilog=examples(
        "roof plan llama-3.1-70b --hw h100 --gpus 8 --isl 4096 --osl 512 --ttft 500ms --tpot 30ms",
        "roof plan llama-3.1-8b --hw a100,h100 --gpus 4 --isl 1024 --osl 256 --price a100=1.5,h100=3 -o front.png",
        "roof plan mixtral-8x7b-v0.1 --hw h200 --gpus 8 --isl 2048 --osl 256 --requests 20/s --dtype fp8",
    ),
)
def plan_command(
    model: Model,
    gpus: Annotated[int, _option(WORKLOAD, "GPUs of the service; a layout uses all of them.")],
    hw: Annotated[list[str] | None, typer.Option("--hw", help="Devices: a100,h100, or --hw several times.")] = None,
    isl: Annotated[int | None, _option(WORKLOAD, "Prompt tokens of a request.")] = None,
    osl: Annotated[int | None, _option(WORKLOAD, "New tokens of a request.")] = None,
    ttft: Annotated[str | None, _option(TARGETS, "Longest time to first token, such as 500ms.")] = None,
    tpot: Annotated[str | None, _option(TARGETS, "Longest time per output token, such as 30ms.")] = None,
    requests: Annotated[str | None, _option(TARGETS, "Required rate, such as 5/s or 300/min.")] = None,
    price: Annotated[
        str | None, _option(TARGETS, "Price of a GPU in dollars per hour: 2 for every device, or a100=1.5,h100=3.")
    ] = None,
    tp: Annotated[str | None, _option(PARALLELISM, "Only these tensor-parallel sizes, such as 4,8.")] = None,
    pp: Annotated[str | None, _option(PARALLELISM, "Only these numbers of pipeline stages.")] = None,
    dp: Annotated[str | None, _option(PARALLELISM, "Only these numbers of replicas.")] = None,
    ep: Annotated[str | None, _option(PARALLELISM, "Only these expert-parallel sizes.")] = None,
    dtype: Annotated[
        str | None, _option(PRECISION, "Only these compute formats (default: bf16 or fp16, and fp8).")
    ] = None,
    weights: Annotated[
        str | None, _option(PRECISION, "Only these formats of weights (default: --dtype, or those of the checkpoint).")
    ] = None,
    kv: Annotated[
        str | None, _option(PRECISION, "Only these formats of the KV cache (default: 16 bits, and fp8).")
    ] = None,
    activations: Annotated[
        str | None, _option(PRECISION, "Only these formats of the tensors between operators (default: 16 bits).")
    ] = None,
    memory_utilization: Annotated[float, _option(WORKLOAD, "Share of a device's memory that may be used.")] = 0.9,
    mode: Annotated[
        str | None,
        _option(WORKLOAD, "mixed (prefill and decode on the same engines) or disaggregated (default: both)."),
    ] = None,
    draft: Annotated[
        str | None, _option(SPECULATION, "Draft model of speculative decoding, or mtp for multi-token prediction.")
    ] = None,
    draft_tokens: Annotated[int | None, _option(SPECULATION, "Tokens drafted per step (default: 3).")] = None,
    acceptance: Annotated[
        float | None, _option(SPECULATION, "Probability that a draft token is right (default: 0.7).")
    ] = None,
    family: Family = None,
    top: Annotated[int, _option(OUTPUT, "Number of candidates that are shown.")] = 8,
    cluster: Annotated[
        str | None,
        typer.Option(help="Compute with Dask: the address of a scheduler, or local for processes on this machine."),
    ] = None,
    form: Annotated[OutputFormat, format_option("table, json or csv, on stdout.")] = "table",
    output: Annotated[list[str] | None, output_option("Also write FILE: .csv .json .png .svg .pdf")] = None,
) -> None:
    """Find the layout, formats and batch that serve the most tokens within the latency targets, and their cost."""
    check_format(form, ("table", "json", "csv"))
    required_device(hw, "devices such as --hw a100,h100")
    from roofmodel import api
    from roofmodel.errors import Option, WorkloadError
    from roofmodel.views.kit import progress

    if isl is None or osl is None:
        raise WorkloadError(
            Option("isl" if isl is None else "osl"), " is missing; give the tokens of a request, such as ",
            Option("isl", 4096), " ", Option("osl", 512),
        )  # fmt: skip
    check_outputs(api.PlanReport, output, [model, *devices(hw or [])])
    with progress.of_searching() as callback:
        report = api.plan(
            model, devices(hw or []), gpus=gpus, isl=isl, osl=osl, family=family, ttft=ttft, tpot=tpot,
            requests=requests, price=price, tp=tp, pp=pp, dp=dp, ep=ep, dtype=dtype, weights=weights, kv=kv,
            activations=activations, memory_utilization=memory_utilization, top=top, cluster=cluster,
            progress=callback, mode=mode, draft=draft, draft_tokens=draft_tokens, acceptance=acceptance,
        )  # fmt: skip
    present(report, form, output)
