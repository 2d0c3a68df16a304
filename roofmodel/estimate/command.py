"""`roof estimate` and `roofmodel.estimate`: FLOPs, bytes and time of a model's operators on a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from roofmodel.devices.device import Device, Hardware
from roofmodel.errors import Option, Text, WorkloadError
from roofmodel.options.serving import ServeRequest, requests_of, serve_request
from roofmodel.options.signature import checked, lists_request
from roofmodel.options.values import SERVE, CopyMode, Model
from roofmodel.report.base import PICTURES, Result
from roofmodel.report.command import CommandLine
from roofmodel.report.document import Document

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.options.keywords import EstimateOptions
    from roofmodel.serve.service import ServingEstimate
    from roofmodel.steps.estimate import Estimate


class Report(Result):
    """Result of `estimate`: operators with counts and times, totals, memory.

    A notebook shows the tables that `roof estimate` prints. With the phase `serve`, `service` has the latencies and
    rates, and `estimate` is that of the mean decode step.
    """

    FILES: ClassVar[Sequence[str]] = (*PICTURES, *Result.FILES)
    naming = ("phase", "op.phase", "op.name")

    def __init__(self, estimate: Estimate, service: ServingEstimate | None = None) -> None:
        self.estimate, self.service = estimate, service

    def answer(self, *, ops: bool = False, roofline: bool = False) -> Document:
        """The tables of `roof estimate`.

        Args:
            ops: Print one row per operator instead of one per group.
            roofline: Also draw the rows of the tables on a roofline chart.
        """
        if self.service is not None:
            from roofmodel.estimate import serve_answer

            return serve_answer.document(self.service, ops=ops, roofline=roofline)
        from roofmodel.estimate.answer import document

        return document(self.estimate, ops=ops, roofline=roofline)

    def complete(self) -> Document:
        """The document of files, with every operator."""
        if self.service is not None:
            return self.answer(ops=True)
        from roofmodel.estimate.answer import complete_document

        return complete_document(self.estimate)

    def _write(self, form: str, file: Path) -> None:
        """Write a file. Raises WorkloadError for a picture of weights in an unknown format."""
        if form not in PICTURES:
            super()._write(form, file)
            return
        from roofmodel.estimate.picture import draw

        draw(self.estimate, file, form)

    @property
    def totals(self) -> dict[str, dict[str, Any]]:
        """Totals by phase, with the keys of the JSON: `report.totals["decode"]["bound_seconds"]`."""
        if self.service is not None:
            return {"serve": self.to_dict()["phases"][0]["totals"]}
        from roofmodel.steps.estimate import complete_totals

        return {phase.step.phase: complete_totals(self.estimate, phase) for phase in self.estimate.phases}

    def _messages(self) -> Iterable[Text]:
        return self.estimate.notes

    def rows_to_check(self) -> list[dict[str, Any]]:
        """The rows of `--fail-if`: phases with their totals and the memory, and operators with `op.` before a column.

        `ttft` and `tpot` are the expected times of prefill and decode.
        """
        document, rows = self.to_dict(), list[dict[str, Any]]()
        memory = {
            key if key in ("fits", "largest_batch", "largest_context") else f"memory_{key}": value
            for key, value in document["memory"].items()
            if not isinstance(value, list)
        }
        for each, phase in zip(document["phases"], self.estimate.phases, strict=True):
            name, totals = each["phase"], each["totals"]
            latency = {"prefill": "ttft_seconds", "decode": "tpot_seconds"}.get(name)
            expected = totals["expected_seconds"]
            latencies = {latency: expected and expected + phase.outside_steps} if latency else {}
            limit = phase.limit if self.estimate.has_total else None
            rows.append({"phase": name, "bound": limit, **totals, **memory, **latencies})
        for op in super().rows_to_check():
            own = {key: value for key, value in op.items() if key != "expected_seconds" or not op["fused"]}
            rows.append({f"op.{key}": value for key, value in own.items()})
        return rows

    def to_frame(self) -> pandas.DataFrame:
        """One row per operator in base units, with the columns of `roof estimate --format csv`.

        `bound_seconds` and `expected_seconds` are those of one occurrence; `total_bound_seconds` and
        `total_expected_seconds` are multiplied by `count`.
        """
        frame = super().to_frame()
        for name in ("bound_seconds", "expected_seconds"):
            frame[f"total_{name}"] = frame[name].astype(float) * frame["count"]
        return frame

    def __repr__(self) -> str:
        phases = ", ".join(f"{phase.step.phase} ≥ {phase.bound_seconds:.3g} s" for phase in self.estimate.phases)
        return f"<Report {self.estimate.architecture.name} on {self.estimate.device.name}: {phases}>"


@checked
@lists_request(ServeRequest)
def estimate(
    model: Model,
    hw: Hardware,
    *,
    family: str | None = None,
    loader: float | str | None = None,
    workers: int | None = None,
    copy: CopyMode | None = None,
    measured: float | str | None = None,
    mtbf: float | None = None,
    checkpoint_time: float | str | None = None,
    tokens: float | str | None = None,
    **options: Unpack[EstimateOptions],
) -> Report:
    """Estimate latency, throughput, memory and the limiting ceiling; FLOPs, bytes and times of each operator.

    `.to_dict()["input_pipeline"]` has the result of `loader`. Raises RoofError.

    Args:
        model: A packaged name, a config.json or its folder, or a Hub id.
        hw: A packaged device (see 'roof hw list') or a YAML file.
        family: Read an unknown model_type as this family, such as llama.
        loader: Time of one worker of the data loader for a batch of one GPU, such as 1500ms (train and forward).
        workers: Workers of the data loader (default: 0).
        copy: Copy of a batch to the GPU; async: pinned and overlapped (default: pageable).
        measured: Measured time of a training step, such as 7.4s, or its rate per GPU, such as 12000tokens/s: adds its
            MFU, and its ratio to the expected time.
        mtbf: Hours between failures of one GPU of a training run, such as 50000: adds its goodput.
        checkpoint_time: Time of a checkpoint of a training run, such as 60s.
        tokens: Tokens of a training run, such as 15T: adds its steps, days and GPU-hours, with failures if `mtbf` is
            given.
        **options: The options of `roof estimate`. A time is seconds, or text such as "12us". None selects the default,
            which depends on the model, the phase or another option.

    Examples:
        >>> report = estimate("gpt2-xl", "a100", batch=8)
        >>> f"{report.totals['decode']['bound_seconds']:.2e} s"
        '2.78e-03 s'
        >>> report.to_frame().nlargest(1, "total_bound_seconds")["name"].item()
        'mlp.up'
    """
    from roofmodel.models import hub
    from roofmodel.steps.estimate import estimate as study

    requests = requests_of(options)
    if options.get("phase") == SERVE:
        of_run = {"measured": measured, "mtbf": mtbf, "checkpoint_time": checkpoint_time, "tokens": tokens}
        further = {"loader": loader, "workers": workers, "copy": copy, **of_run, **options}
        return _served(model, hw, family, requests, further)
    if requests:
        name, value = next(iter(requests.items()))
        raise WorkloadError(Option(name, value), " needs ", Option("phase", SERVE))
    data_loader = None
    if (loader, workers, copy) != (None, None, None):
        from roofmodel.steps.input_pipeline import loader_options

        data_loader = loader_options(loader, workers, copy)
    return Report(
        study(
            hub.load(model, family), Device.load(hw), loader=data_loader, measured=measured, mtbf=mtbf,
            checkpoint_time=checkpoint_time, tokens=tokens, **options,
        )
    )  # fmt: skip


def _served(
    model: Model, hw: Hardware, family: str | None, given: Mapping[str, Any], options: Mapping[str, Any]
) -> Report:
    """The report of a service whose requests are given."""
    from roofmodel.models import hub
    from roofmodel.serve.service import service

    request = serve_request(given)
    drafter = hub.load_draft(request.draft)
    of_workload = {name: value for name, value in options.items() if name != "phase"}
    found = service(hub.load(model, family), Device.load(hw), request, of_workload, drafter)
    return Report(found.mean_step, found)


COMMAND = CommandLine(
    estimate,
    settings={name: {"rich_help_panel": "Input pipeline"} for name in ("loader", "workers", "copy")},
    checks=("phases (and operators, with op. before a column)", "tpot>20ms"),
    examples=(
        "roof estimate gpt2-xl --hw a100 --batch 8",
        "roof estimate llama-3.1-70b --hw h100 --tp 8 --phase generate --new-tokens 256 -o estimate.html",
        "roof estimate llama-3.1-70b --hw h100 --tp 8 --phase serve --concurrency 64 --isl 2048 --osl 512",
        "roof estimate resnet-50 --hw v100 --phase train --batch 32 --dtype fp32 --loader 1500ms --workers 7",
        "roof estimate gpt2-xl --hw a100 --phase train --engine-option launch=graph --format json",
    ),
)
