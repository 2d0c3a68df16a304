"""`roof plan`: the best layout, formats and batch for the targets of a service, or for a training run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from roofmodel.errors import Option, Text, WorkloadError, joined
from roofmodel.options.command_line import (
    OUTPUT,
    Family,
    Model,
    devices,
    examples,
    format_option,
    output_option,
    panel_option,
    required_device,
    takes_search,
)
from roofmodel.options.values import OutputFormat
from roofmodel.options.workload import DECLARED, TRAINING, WORKLOAD
from roofmodel.report.printing import check_format, check_outputs, ignored, present

app = typer.Typer(add_completion=False)
TARGETS, SPECULATION = "Targets", "Speculative decoding"


@app.command(
    "plan",
    epilog=examples(
        "roof plan llama-3.1-70b --hw h100 --gpus 8 --isl 4096 --osl 512 --ttft 500ms --tpot 30ms",
        "roof plan llama-3.1-8b --hw a100,h100 --gpus 4 --isl 1024 --osl 256 --price a100=1.5,h100=3 -o front.png",
        "roof plan llama-3.1-8b --hw h100 --gpus 64 --train --tokens 15T --batch 1024 --seq 4096 --price 2",
    ),
)
@takes_search
def plan_command(
    model: Model,
    gpus: Annotated[int, panel_option(WORKLOAD, "Number of GPUs; every layout uses all of them.")],
    hw: Annotated[list[str] | None, typer.Option("--hw", help="Devices: a100,h100, or --hw several times.")] = None,
    isl: Annotated[int | None, panel_option(WORKLOAD, "Prompt tokens of a request.")] = None,
    osl: Annotated[int | None, panel_option(WORKLOAD, "New tokens of a request.")] = None,
    ttft: Annotated[
        str | None,
        panel_option(
            TARGETS, "Limit of the time to first token, such as 500ms; with --requests, it includes the wait."
        ),
    ] = None,
    tpot: Annotated[str | None, panel_option(TARGETS, "Limit of the time per output token, such as 30ms.")] = None,
    requests: Annotated[str | None, panel_option(TARGETS, "Required rate, such as 5/s or 300/min; 5 is 5/s.")] = None,
    price: Annotated[
        str | None, panel_option(TARGETS, "Price of a GPU in dollars per hour: 2 for every device, or a100=1.5,h100=3.")
    ] = None,
    memory_utilization: Annotated[float, panel_option(WORKLOAD, "Share of a device's memory that may be used.")] = 0.9,
    mode: Annotated[
        str | None,
        panel_option(
            WORKLOAD,
            "mixed (prefill and decode on the same engines) or disaggregated (on separate ones); default: both.",
        ),
    ] = None,
    draft: Annotated[
        str | None, panel_option(SPECULATION, "Draft model of speculative decoding, or mtp for multi-token prediction.")
    ] = None,
    draft_tokens: Annotated[int | None, panel_option(SPECULATION, "Tokens drafted per step (default: 3).")] = None,
    acceptance: Annotated[
        float | None, panel_option(SPECULATION, "Probability that a draft token is right (default: 0.7).")
    ] = None,
    routing: Annotated[
        str | None, panel_option(WORKLOAD, f"{DECLARED['routing'].help[:-1]} (default: uniform).")
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Plan a training run.", rich_help_panel=TRAINING)] = False,
    tokens: Annotated[str | None, panel_option(TRAINING, "Tokens of the run, such as 300B or 15T.")] = None,
    batch: Annotated[
        int | None, panel_option(TRAINING, "Sequences of a step, over all GPUs (default: 4 M tokens / --seq).")
    ] = None,
    seq: Annotated[
        int | None, panel_option(TRAINING, "Tokens of a sequence (default: 4096, or the model's limit).")
    ] = None,
    attention: Annotated[str | None, panel_option(TRAINING, "flash or eager (default: flash).")] = None,
    family: Family = None,
    top: Annotated[int, panel_option(OUTPUT, "Number of candidates to show, at least one per device.")] = 8,
    cluster: Annotated[
        str | None,
        typer.Option(help="Compute with Dask: the address of a scheduler, or local for processes on this machine."),
    ] = None,
    form: Annotated[OutputFormat, format_option("table, json or csv, on stdout.")] = "table",
    output: Annotated[list[str] | None, output_option("Also write FILE: .csv .json .png .svg .pdf")] = None,
    **search: Any,
) -> None:
    """Find the layout, formats and batch that serve most tokens within latency limits, or that train fastest."""
    check_format(form, ("table", "json", "csv"))
    required_device(hw, "devices such as --hw a100,h100")
    from roofmodel.plan import api
    from roofmodel.plan.report import PlanReport, TrainingPlanReport
    from roofmodel.report import progress

    report_class = TrainingPlanReport if train else PlanReport
    check_outputs(report_class, output, [model, *devices(hw or [])])
    service: dict[str, Any] = {
        "isl": isl, "osl": osl, "ttft": ttft, "tpot": tpot, "requests": requests, "mode": mode, "draft": draft,
        "draft_tokens": draft_tokens, "acceptance": acceptance, "routing": routing,
    }  # fmt: skip
    training: dict[str, Any] = {"tokens": tokens, "batch": batch, "seq": seq, "attention": attention}
    shared: dict[str, Any] = {
        "gpus": gpus, "family": family, "price": price, "memory_utilization": memory_utilization, "top": top,
        "cluster": cluster,
    }  # fmt: skip
    for name, value in search.items():
        kind, *others = DECLARED[name].plans
        (shared if others else training if kind == "training" else service)[name] = value
    shared["dtype"] = service.pop("dtype")  # several of a service, one of a training run
    applicable, other = (training, service) if train else (service, training)
    needed: dict[str, Any] = {"tokens": "300B"} if train else {"isl": 4096, "osl": 512}
    foreign = [name for name, value in other.items() if value is not None]
    for name, example in needed.items():
        if applicable[name] is None and foreign:
            raise WorkloadError(*_not_together(foreign, train, needed))
        if applicable[name] is None:
            raise WorkloadError(Option(name), " is missing; try ", Option(name, example))
    why = f"{'it does not apply to' if train else 'it only applies to'} --train"
    given = {name: value for name, value in applicable.items() if value is not None}
    with progress.search_progress() as callback:
        report: PlanReport | TrainingPlanReport
        if train:
            report = api.plan_training(model, devices(hw or []), progress=callback, **shared, **given)
        else:
            report = api.plan(model, devices(hw or []), progress=callback, **shared, **given)
    present(report, form, output, notes=ignored(foreign, why))


def _not_together(foreign: Sequence[str], train: bool, needed: Mapping[str, Any]) -> Iterator[Text]:
    """The options of the other kind of plan, and what works for each kind; `needed` are examples of this kind."""
    own = joined(" ", [Option(name, example) for name, example in needed.items()])
    options = joined(", ", map(Option, foreign))
    if train:
        yield from (options, " cannot be used with --train; for a training run, replace them by ", own)
        yield "; for a service, leave out --train"
    else:
        yield from (options, " can only be used with --train; for a training run, add --train; for a service, ")
        yield from ("replace them by ", own)
