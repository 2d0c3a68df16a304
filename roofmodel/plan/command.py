"""`roof plan`, `roofmodel.plan` and `roofmodel.plan_training`: the best layouts of a service or of a training run."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from roofmodel.devices.device import Device, Hardware
from roofmodel.errors import Option, Text, WorkloadError, joined
from roofmodel.options import values
from roofmodel.options.signature import checked, lists_request
from roofmodel.options.values import Model, PathLike, PlanKind, ProgressCallback, declared_options, no_progress
from roofmodel.options.workload import DECLARED, TRAINING
from roofmodel.plan.request import ServiceRequest, TrainingRequest, request_of, restrictions
from roofmodel.report.base import PICTURES, Result
from roofmodel.report.command import CommandCall, CommandLine, present_result
from roofmodel.report.document import Document
from roofmodel.report.printing import check_outputs, ignored, print_line, search_progress

if TYPE_CHECKING:
    from roofmodel.options.keywords import ServiceOptions, TrainingOptions
    from roofmodel.plan.plan import ServingPlan
    from roofmodel.plan.training import TrainingPlan


SCRIPTS = ("sh",)
"""The suffix of scripts."""


class _PlanReport(Result):
    """The candidates of a search, the best first."""

    plan: ServingPlan | TrainingPlan
    identifying = ("rank", "tp", "pp", "dp", "ep", "batch")

    def _messages(self) -> Iterable[Text]:
        return self.plan.notes

    def answer(self, *, why: bool = False) -> Document:
        """The candidates and the reasons.

        Args:
            why: Print the reasons in full.
        """
        raise NotImplementedError

    def complete(self) -> Document:
        """The document of files, with the reasons in full."""
        return self.answer(why=True)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.plan.searched} candidates>"


class PlanReport(_PlanReport):
    """Result of `plan`: the best layouts, formats and batches, with the reason for each; the Pareto front."""

    FILES: ClassVar[Sequence[str]] = (*PICTURES, *Result.FILES)

    def __init__(self, plan: ServingPlan) -> None:
        self.plan: ServingPlan = plan

    @property
    def meets(self) -> bool:
        """Whether some layout fits and meets all targets."""
        return self.plan.meets

    def answer(self, *, why: bool = False) -> Document:
        """The candidates, the reasons, and the picture of the Pareto front.

        Args:
            why: Print the reasons in full.
        """
        from roofmodel.plan.answer import service_document

        return service_document(self.plan, why)

    def save_serve_script(self, path: PathLike) -> Path:
        """Write a shell script that starts the engines of the best candidate, with the command of a benchmark to run
        next and of its comparison; return its path. Raises RoofError where the engine has no such layout."""
        from roofmodel.files import output_files
        from roofmodel.plan.servers.commands import plan_script

        target, text = output_files.check(values.path("path", path), SCRIPTS), plan_script(self.plan)
        output_files.replace(target, partial(Path.write_text, data=text, encoding="utf-8"))
        return target


class TrainingPlanReport(_PlanReport):
    """Result of `plan_training`: the fastest layouts of a training run, its days and its cost."""

    def __init__(self, plan: TrainingPlan) -> None:
        self.plan: TrainingPlan = plan

    @property
    def fits(self) -> bool:
        """Whether some layout fits."""
        return self.plan.fits

    def answer(self, *, why: bool = False) -> Document:
        """The candidates and the reasons, in full if `why` is true."""
        from roofmodel.plan.answer import training_document

        return training_document(self.plan, why)


@checked
@lists_request(ServiceRequest, "service")
def plan(
    model: Model,
    hw: Hardware | Iterable[Hardware],
    *,
    family: str | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[ServiceOptions],
) -> PlanReport:
    """Find the layouts, formats and batches with which GPUs serve the most output tokens per second within limits.

    Layouts use at most `gpus` GPUs, all of which are paid for: `tp` × `pp` × `dp`. With `requests`, they use the fewest
    that serve this rate, of at most `gpus` or 1024. With prices of all devices the cost per token decides. A result
    without a layout that fits or meets the targets names the nearest. Raises RoofError.

    Args:
        model: A packaged name, a config.json or its folder, or a Hub id.
        hw: Devices: a100,h100, or `hw` several times.
        family: Read an unknown model_type as this family, such as llama.
        progress: Called with "layouts", the number of evaluated layouts, and the number of all.
        **options: Those of `roof plan`: `isl`, `osl`, and `gpus` or `requests` are required. A time is seconds, or text
            such as "30ms". Of some options of `estimate`, such as `tp` and `kv`, only the given values are searched.

    Examples:
        >>> report = plan("llama-3.1-8b", "h100", gpus=1, isl=1024, osl=256, tpot="20ms", dtype="bf16", kv="bf16")
        >>> report.meets, report.to_dict()["candidates"][0]["tp"]
        (True, 1)
    """
    from roofmodel.models import hub
    from roofmodel.plan.plan import plan as study
    from roofmodel.plan.servers.commands import with_commands

    request = request_of(ServiceRequest, options, "service")
    devices = [Device.load(device) for device in values.as_sequence(hw)]
    drafter = hub.load_draft(request.draft)
    arch = hub.load(model, family)
    return PlanReport(with_commands(study(arch, devices, request, drafter, progress), arch, devices, request))


@checked
@lists_request(TrainingRequest, "training")
def plan_training(
    model: Model,
    hw: Hardware | Iterable[Hardware],
    *,
    family: str | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[TrainingOptions],
) -> TrainingPlanReport:
    """Find the layouts with which GPUs train a model in the shortest time.

    Layouts use at most `gpus` GPUs: `tp` × `pp` × `dp`; they differ in the other options that are searched, too. Raises
    RoofError.

    Args:
        model: A packaged name, a config.json or its folder, or a Hub id.
        hw: Devices, as for `plan`.
        family: Read an unknown model_type as this family, such as llama.
        progress: Called with "layouts", the number of evaluated layouts, and the number of all.
        **options: Those of `roof plan --train`: `gpus` and `tokens` are required. Of some options of `estimate`, such
            as `tp` and `zero`, only the given values are searched.

    Examples:
        >>> report = plan_training("gpt2-xl", "a100", gpus=8, tokens="300B", batch=512, seq=1024, tp=1)
        >>> report.to_dict()["candidates"][0]["dp"]
        8
    """
    from roofmodel.models import hub
    from roofmodel.plan.training import plan_training as study

    request = request_of(TrainingRequest, options, "training")
    devices = [Device.load(device) for device in values.as_sequence(hw)]
    return TrainingPlanReport(study(hub.load(model, family), devices, request, progress))


# --- The command line -------------------------------------------------------------------------------


def _run(
    call: CommandCall, form: Any, output: Sequence[str], train: bool = False, serve_script: str | None = None,
    shown: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Present the plan of a service or of a training run; it has notes on the options of the other one.

    Args:
        train: Plan a training run.
        serve_script: Also write a shell script (.sh) that starts the engines of the best layout, with the command of a
            benchmark to run next.
    """
    if serve_script is not None:
        from roofmodel.files import output_files

        output_files.check(serve_script, SCRIPTS)
        if train:
            raise WorkloadError(Option("serve_script"), " is for a service; leave out ", Option("train"))

    function = plan_training if train else plan
    parameters = inspect.signature(function).parameters
    foreign = [name for name in call.given if name not in parameters]
    applicable = CommandCall(function, {name: value for name, value in call.given.items() if name in parameters})
    needed = {name: declared.example for name, declared in _needed(train).items()}
    if foreign and not needed.keys() <= applicable.given.keys():
        raise WorkloadError(*_not_together(foreign, train, needed))
    other: PlanKind = "service" if train else "training"
    searched = {name: call.given[name] for name in foreign if name in DECLARED and other in DECLARED[name].plans}
    restrictions(searched, other)  # an ignored value is checked, too
    check_outputs(TrainingPlanReport if train else PlanReport, output, applicable.inputs)
    with search_progress() as callback:
        report = applicable(progress=callback)
    why = f"{'it does not apply to' if train else 'it only applies to'} --train"
    present_result(lambda: report, form, output, shown, ignored(foreign, why))
    if serve_script is not None:
        print_line(f"wrote {report.save_serve_script(serve_script)}")


def _needed(train: bool) -> dict[str, Any]:
    """The options that only one kind of plan has, and needs."""
    own, other = (TrainingRequest, ServiceRequest) if train else (ServiceRequest, TrainingRequest)
    defaults = own._field_defaults
    return {
        name: declared
        for name, declared in declared_options(own).items()
        if name not in defaults and name not in other._fields
    }


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


COMMAND = CommandLine(
    plan,
    (plan_training,),
    settings={
        "train": {"rich_help_panel": TRAINING},
        **{
            name: {
                "default": None,
                "help": f"{declared.help[:-1]} (required {'with' if train else 'without'} --train).",
            }
            for train in (False, True)
            for name, declared in _needed(train).items()
        },
    },
    run=_run,
    about="Find the layout, formats and batch that serve most tokens within latency limits, or a request rate with the "
    "fewest GPUs, or that train fastest.",
    checks=("candidates", "tpot>30ms"),
    examples=(
        "roof plan llama-3.1-70b --hw h100 --gpus 8 --isl 4096 --osl 512 --ttft 500ms --tpot 30ms",
        "roof plan llama-3.1-8b --hw a100,h100 --gpus 4 --isl 1024 --osl 256 --price a100=1.5,h100=3 -o front.png",
        "roof plan llama-3.1-70b --hw h100 --isl 3000 --osl 500 --ttft 1s --tpot 40ms --requests 20/s --price 2.5",
        "roof plan llama-3.1-8b --hw h100 --gpus 64 --train --tokens 15T --batch 1024 --seq 4096 --price 2",
    ),
)
