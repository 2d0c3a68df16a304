"""The answers of `roof plan`: the best candidates, the reason for each, what would raise the rate; the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from roofmodel.engines.engine import Engine
from roofmodel.numbers import units
from roofmodel.options.values import MTP, EngineName
from roofmodel.plan.candidate import Candidate
from roofmodel.plan.plan import ServingPlan, Shortage
from roofmodel.plan.ranking import SHARED_ERROR, Ranked, format_text
from roofmodel.plan.tables import CANDIDATES, TRAINING_CANDIDATES
from roofmodel.plan.training import TrainingPlan
from roofmodel.report.document import SEPARATOR, Block, Document, Figure, Heading, Items, Paragraph, Rows
from roofmodel.steps.options import engine_figures


def service_document(plan: ServingPlan, why: bool = False) -> Document:
    """A row for each candidate, the reasons, in full if `why` is true, and the picture of the Pareto front."""
    title = heading(plan)
    formats = {format_text(entry.candidate) for entry in plan.ranked}
    searched = f"{units.grouped(plan.searched)} candidates in {units.count(plan.layouts, 'layout')} and formats"
    blocks: list[Block] = [Paragraph(f"{searched}{SEPARATOR}{formats.pop()}" if len(formats) == 1 else searched)]
    hidden = ["device"] * (len(plan.devices) == 1) + ["formats"] * (not formats)
    expected, bounds = (
        [entry for entry in plan.ranked if entry.candidate.calibrated == is_calibrated]
        for is_calibrated in (True, False)
    )
    for entries in filter(None, (expected, bounds)):
        if entries is bounds and expected:
            blocks.append(Heading("lower bounds of times, of devices that are not calibrated"))
        blocks += [Rows(CANDIDATES.without(*hidden), entries), Items([*_reasons(entries, why)])]
    if plan.ranked:
        blocks += _legends(plan)
    front = f"Pareto front of {title}: output tokens per second and GPU against tokens per second and user"
    blocks.append(Figure(partial(_draw, plan, title), front))
    return Document(title, blocks, partial(service_data, plan), lambda: Rows(CANDIDATES, plan.ranked))


def training_document(plan: TrainingPlan, why: bool = False) -> Document:
    """A row for each candidate, and the reasons, in full if `why` is true."""
    run = plan.run
    words = [
        plan.model, f"at most {run.gpus} × {' or '.join(plan.devices)}", run.dtype,
        Engine.load(run.engine, run.engine_option).label, f"batch {run.batch} of {run.seq} tokens",
        f"{units.si(run.tokens)} tokens in {units.si(run.steps)} steps",
    ]  # fmt: skip
    blocks: list[Block] = [Paragraph(f"{units.grouped(plan.searched)} candidates in {plan.layouts} layouts")]
    if plan.ranked:
        table = TRAINING_CANDIDATES if len(plan.devices) > 1 else TRAINING_CANDIDATES.without("device")
        prices = {entry.candidate.price for entry in plan.ranked}
        compared = "price" if len(prices) > 1 and None not in prices else "step time"
        blocks += [
            Rows(table, plan.ranked),
            Items(
                [f"{entry.rank}: {entry.reason if why else entry.reason.partition('; ')[0]}" for entry in plan.ranked]
            ),
            Paragraph("SP: sequence parallelism", dim=True, columns=("SP",)),
            Paragraph("MFU: FLOPs of the model / peak FLOP/s of all GPUs during the step", dim=True, columns=("MFU",)),
            _ties_legend(compared),
        ]
    return Document(
        SEPARATOR.join(words), blocks, partial(training_data, plan), lambda: Rows(TRAINING_CANDIDATES, plan.ranked)
    )


def heading(plan: ServingPlan) -> str:
    """The model, devices, request lengths, targets and speculative decoding of a plan as text."""
    service = plan.service
    devices = " or ".join(plan.devices)
    words = [plan.model, f"{service.gpus} × {devices}" if service.gpus else f"as few {devices} as suffice"]
    words += [Engine.load(service.engine, service.engine_option).label]
    words += [f"isl {service.traffic.isl}", f"osl {service.traffic.osl}"]
    first = "TTFT" if service.targets.requests is None else "wait + TTFT"
    targets = ((first, service.targets.ttft), ("TPOT", service.targets.tpot), ("ITL p99", service.targets.itl_p99))
    for label, seconds in targets:
        words += [f"{label} ≤ {units.seconds(seconds)}"] if seconds is not None else []
    if service.targets.requests is not None:
        words.append(f"{units.significant(service.targets.requests)} requests/s")
    if (drafts := service.speculation) is not None:
        tokens = f"{drafts.tokens} token{'s' if drafts.tokens > 1 else ''}"
        source = MTP if drafts.is_mtp else drafts.draft.name
        words.append(f"drafts: {source}, {tokens}, acceptance {units.significant(drafts.acceptance)}")
    return SEPARATOR.join(words)


def _draw(plan: ServingPlan, title: str, path: Path, form: str) -> None:
    from roofmodel.plan.picture import draw

    draw(plan, title, path, form)


def _reasons(entries: Sequence[Ranked], why: bool) -> Iterator[str]:
    """A line for each candidate; for the first one also what would raise its rate."""
    for entry in entries:
        if reason := entry.reason if why else entry.short_reason:
            yield f"{entry.rank}: {reason}"
        if entry.rank == 1 and (why or not entry.reason):
            yield f"{entry.rank}: a higher rate needs {entry.limit}"


def _legends(plan: ServingPlan) -> Iterator[Paragraph]:
    """What signs and columns mean."""
    candidates = [entry.candidate for entry in plan.ranked]
    if any(candidate.prefill for candidate in candidates):
        yield Paragraph("→: prefill engines → decode engines", dim=True)
    if not all(candidate.meets for candidate in candidates):
        yield Paragraph("!: misses a target", dim=True)
    if any(candidate.gpus != candidate.gpus_paid for candidate in candidates):
        yield _legend("GPUs", "used / paid for")
    yield _legend("ITL p99", "99th percentile of the gaps between two tokens of a request")
    yield _legend("longest gap", "between two tokens, in a step full of prompts")
    if plan.service.targets.requests is not None:
        yield _legend(
            "TTFT",
            "prefill at the required rate, without the wait (at the full batch if the wait is ∞); TPOT: at the full "
            "batch",
        )
        yield _legend(
            "wait",
            "mean time in the queue before the prefill, with all GPUs in use, if requests arrive at random at the "
            "required rate; the limit of TTFT applies to wait + TTFT; ∞: the queue grows without limit",
        )
    counted = ["tokens/s"] + ["$/M"] * any(each.dollars_per_million_tokens is not None for each in candidates)
    yield Paragraph(f"{' and '.join(counted)}: only output tokens are counted", dim=True)
    yield _ties_legend("rate")


def _legend(title: str, meaning: str) -> Paragraph:
    return Paragraph(f"{title}: {meaning}", dim=True, columns=(title,))


def _ties_legend(quantity: str) -> Paragraph:
    """What the column of ties means, where candidates are compared by this quantity."""
    return _legend(
        "ties",
        f"ranks whose intervals of the {quantity} do not separate; errors on one device are assumed to have a "
        f"correlation of {SHARED_ERROR}",
    )


# --- JSON -----------------------------------------------------------------------------------------


def service_data(plan: ServingPlan) -> dict[str, Any]:
    """The document `roofmodel.plan/1` of a service: the candidates in order, the best first."""
    service, targets = plan.service, plan.service.targets
    return {
        "schema": "roofmodel.plan/1",
        "model": plan.model,
        "devices": list(plan.devices),
        "workload": {
            "gpus": service.gpus, "isl": service.traffic.isl, "osl": service.traffic.osl,
            "memory_utilization": service.memory_utilization, **_engine(service.engine, service.engine_option),
            "modes": list(service.modes), "routing": service.routing and service.routing.name,
            "speculation": _speculation(plan),
        },
        "targets": {
            "ttft_seconds": targets.ttft, "tpot_seconds": targets.tpot, "itl_p99_seconds": targets.itl_p99,
            "requests_per_second": targets.requests,
        },
        "meets": plan.meets,
        "searched": plan.searched,
        "layouts": plan.layouts,
        "complete": plan.complete,
        "candidates": CANDIDATES.records(plan.ranked),
        "front": [_point(candidate) for candidate in plan.front],
        "shortage": plan.shortage and _shortage(plan.shortage),
        "warnings": [str(note) for note in plan.notes],
    }  # fmt: skip


def training_data(plan: TrainingPlan) -> dict[str, Any]:
    """The document `roofmodel.plan/1` of a training run."""
    run = plan.run
    return {
        "schema": "roofmodel.plan/1",
        "model": plan.model,
        "devices": list(plan.devices),
        "workload": {
            "phase": "train", "gpus": run.gpus, "tokens": run.tokens, "batch": run.batch, "seq": run.seq,
            "steps": run.steps, "dtype": run.dtype, "attention": run.attention,
            "memory_utilization": run.memory_utilization, **_engine(run.engine, run.engine_option),
        },
        "searched": plan.searched,
        "layouts": plan.layouts,
        "complete": plan.complete,
        "candidates": TRAINING_CANDIDATES.records(plan.ranked),
        "shortage": plan.shortage and _shortage(plan.shortage),
        "warnings": [str(note) for note in plan.notes],
    }  # fmt: skip


def _engine(name: EngineName, option: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The engine with its options, as in the document of an estimate."""
    engine = Engine.load(name, option)
    return {"engine": engine.id, "engine_option": dict(engine.settings) or None, **engine_figures(engine)}


def _point(candidate: Candidate) -> dict[str, Any]:
    """A point of the Pareto front."""
    return {
        "hardware": candidate.device, "mode": candidate.mode, **candidate.layout._asdict(), "batch": candidate.batch,
        **candidate.formats._asdict(), "chunk": candidate.chunk, "gpus": candidate.gpus,
        "gpus_paid": candidate.gpus_paid,
        "ttft_seconds": candidate.ttft.value, "tpot_seconds": candidate.tpot.value,
        "tokens_per_second_per_gpu": candidate.per_gpu.value, "tokens_per_second_per_user": 1 / candidate.tpot.value,
        "dollars_per_million_tokens": candidate.dollars_per_million_tokens,
    }  # fmt: skip


def _shortage(nearest: Shortage) -> dict[str, Any]:
    """The layout that lacks the least memory."""
    return {
        "hardware": nearest.device, **nearest.layout._asdict(), **nearest.formats._asdict(),
        "memory": nearest.needed, "usable_memory": nearest.usable,
    }  # fmt: skip


def _speculation(plan: ServingPlan) -> dict[str, Any] | None:
    speculation = plan.service.speculation
    if speculation is None:
        return None
    return {
        "draft": speculation.draft.name, "tokens": speculation.tokens,
        "acceptance": speculation.acceptance, "accepted": speculation.accepted,
    }  # fmt: skip
