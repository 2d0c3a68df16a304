"""`roof plan`: the best layout, formats and batch for the targets of a service, or for a training run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args

import typer

from roofmodel.errors import Option, Text, WorkloadError, joined
from roofmodel.options.signature import OUTPUT
from roofmodel.options.workload import DECLARED, TRAINING, WORKLOAD
from roofmodel.plan.api import plan, plan_training
from roofmodel.plan.candidate import Mode
from roofmodel.plan.report import PlanReport, TrainingPlanReport
from roofmodel.report.command import CommandCall, command
from roofmodel.report.printing import check_outputs, ignored, present

GROUPS = {
    WORKLOAD: ("gpus", "isl", "osl", "memory_utilization", "mode", "routing", "engine", "engine_option"),
    "Targets": ("ttft", "tpot", "requests", "price"),
    "Speculative decoding": ("draft", "draft_tokens", "acceptance"),
    TRAINING: ("tokens", "batch", "seq", "attention"),
    OUTPUT: ("top", "time_limit"),
}
SETTINGS: dict[str, dict[str, Any]] = {
    **{name: {"rich_help_panel": group} for group, names in GROUPS.items() for name in names},
    **{
        name: {
            "help": option.plan_help,
            "rich_help_panel": TRAINING if option.plans == ("training",) else option.group,
        }
        for name, option in DECLARED.items()
        if option.plans
    },
}
for _name, _text in {  # each is required by one of the two plans
    "isl": "Prompt tokens of a request (required without --train).",
    "osl": "New tokens of a request (required without --train).",
    "tokens": "Tokens of the run, such as 300B or 15T (required with --train).",
}.items():
    SETTINGS[_name] |= {"default": None, "help": _text}
SETTINGS["mode"]["metavar"] = f"{'|'.join(get_args(Mode))},…"


def _present(
    call: CommandCall,
    form: Any,
    output: Sequence[str],
    train: Annotated[bool, typer.Option("--train", help="Plan a training run.", rich_help_panel=TRAINING)] = False,
) -> None:
    """Present the plan of a service or of a training run; it has notes on the options of the other one."""
    from roofmodel.report import progress

    function = plan_training if train else plan
    parameters = inspect.signature(function).parameters
    foreign = [name for name in call.given if name not in parameters]
    needed: dict[str, Any] = {"tokens": "300B"} if train else {"isl": 4096, "osl": 512}
    for name, example in needed.items():
        if name not in call.given and foreign:
            raise WorkloadError(*_not_together(foreign, train, needed))
        if name not in call.given:
            raise WorkloadError(Option(name), " is missing; try ", Option(name, example))
    applicable = CommandCall(function, {name: value for name, value in call.given.items() if name in parameters})
    check_outputs(TrainingPlanReport if train else PlanReport, output, applicable.inputs)
    with progress.search_progress() as callback:
        report = applicable(progress=callback)
    why = f"{'it does not apply to' if train else 'it only applies to'} --train"
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


app = command(
    plan,
    plan_training,
    formats=("table", "json", "csv"),
    files=".csv .json .png .svg .pdf",
    settings=SETTINGS,
    run=_present,
    about="Find the layout, formats and batch that serve most tokens within latency limits, or that train fastest.",
    checks=("candidates", "tpot>30ms"),
    examples=(
        "roof plan llama-3.1-70b --hw h100 --gpus 8 --isl 4096 --osl 512 --ttft 500ms --tpot 30ms",
        "roof plan llama-3.1-8b --hw a100,h100 --gpus 4 --isl 1024 --osl 256 --price a100=1.5,h100=3 -o front.png",
        "roof plan llama-3.1-8b --hw h100 --gpus 64 --train --tokens 15T --batch 1024 --seq 4096 --price 2",
    ),
)
