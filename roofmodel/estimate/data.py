"""An Estimate as data: the JSON document, its parts, flat records for CSV. Base units, unrounded, None for unknown."""

from __future__ import annotations

from typing import Any

from roofmodel.counting.passes import NEED_WEIGHTS, without_weights
from roofmodel.estimate.tables import MEMORY_OF_A_GPU, OPERATORS
from roofmodel.numbers.algebra import plain
from roofmodel.options.workload import key_of
from roofmodel.steps.capacity import StartMemory
from roofmodel.steps.estimate import Estimate, complete_totals, phase_totals, stage_totals
from roofmodel.steps.options import engine_figures, options_in_effect
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.placed import Placed, totals_of


def to_dict(estimate: Estimate) -> dict[str, Any]:
    """The document `roofmodel.estimate/1`: base units, unrounded, None for unknown."""
    arch, device = estimate.architecture, estimate.device
    return {
        "schema": "roofmodel.estimate/1",
        "model": {
            "name": arch.name,
            "model_type": arch.model_type,
            "head": arch.head.name,
            "parameters": estimate.parameters,
            "active_parameters": estimate.active_parameters,
        },
        "hardware": {"name": device.id, "full_name": device.name, "calibrated": device.calibrated},
        "workload": workload_document(estimate),
        "phases": [_phase(estimate, phase) for phase in estimate.phases],
        "memory": {
            **MEMORY_OF_A_GPU.record(estimate.memory),
            "all_gpus": estimate.memory_of_all,
            **({} if estimate.has_total else dict.fromkeys((*NEED_WEIGHTS, "all_gpus"))),
            **start_document(estimate.start),
            "needed": int(estimate.needed) if estimate.has_total else None,
            "capacity": estimate.device.capacity,
            "usable": None if estimate.usable_memory is None else int(estimate.usable_memory),
            "fits": estimate.fits,
            "largest_batch": estimate.largest_batch,
            "largest_context": estimate.largest_context,
        },
        **({} if estimate.input_pipeline is None else {"input_pipeline": input_document(estimate)}),
        "notes": list(map(str, estimate.notes)),
    }


def start_document(start: StartMemory | None) -> dict[str, Any]:
    """What a serving engine reports of its memory when it starts; None where it is not stated."""
    return {
        "kv_tokens": start and int(start.kv_tokens),
        "max_concurrency": start and start.max_concurrency,
        "non_torch_bytes": start and start.non_torch,
        "activation_peak_bytes": start and start.activation_peak,
        "graph_bytes": start and start.graphs,
    }


def _phase(estimate: Estimate, phase: PhaseEstimate) -> dict[str, Any]:
    """A phase with its totals by stage; without what depends on the bytes of weights in an unknown format."""
    document = phase_document(phase) | _stages(phase)
    document["totals"] = complete_totals(estimate, phase)
    if not estimate.has_total:
        document["ops"] = [*map(_without_weights, phase.kernel_rows, document["ops"])]
        for part in document.keys() & {"totals", "without_cache"}:
            document[part] = without_weights(document[part])
        if "stages" in document:
            document["stages"] = {name: without_weights(totals) for name, totals in document["stages"].items()}
    return document


NEED_BYTES = (
    "bytes_read", "intensity", "bound", "bound_seconds", "kernel_bound_seconds", "expected_seconds",
    "implementation", "expected_from", "fused", "fused_into",
)  # fmt: skip
"""What is unknown of an operator that reads weights in an unknown format."""


def _without_weights(placed: Placed, row: dict[str, Any]) -> dict[str, Any]:
    return row | dict.fromkeys(NEED_BYTES) if placed.operator.parameters else row


def workload_document(estimate: Estimate) -> dict[str, Any]:
    """The options in effect, without those that other parts of the document state; None where one does not apply."""
    arch, work = estimate.architecture, estimate.workload
    values = options_in_effect(arch, work) | {
        "seq": work.seq or None,
        "context": estimate.phases[-1].step.context,
        "attention": work.attention,
    }
    if start := estimate.start:
        values |= {"max_len": start.max_len, "token_budget": start.token_budget, "max_seqs": start.max_seqs}
    left_out = {"phase", "new_tokens", "mla"}
    left_out |= set() if arch.encoder else {"decoder_seq"}
    values["image"] = values["image"] and list(values["image"])
    left_out |= set() if arch.image or values["images"] else {"image"}
    if "train" not in work.phases:
        left_out |= {"lora", "lora_targets", "optimizer", "overlap", "recompute", "sequence_parallel", "states", "zero"}
        left_out |= {"fsdp", "hsdp", "no_reshard"}
    options = {key_of(name): value for name, value in values.items() if name not in left_out}
    return options | engine_figures(work.engine)


def input_document(estimate: Estimate) -> dict[str, Any]:
    """The input pipeline of an estimate that has one: times of a step on one GPU, the largest rate of all GPUs."""
    pipeline, phase = estimate.input_pipeline, estimate.phases[0]
    assert pipeline is not None
    unit = "images" if phase.is_vision else "tokens"
    return {
        "loader_seconds": pipeline.loader.seconds,
        "workers": pipeline.loader.workers,
        "copy": pipeline.loader.copy,
        "copy_bytes": pipeline.copy_bytes,
        "copy_seconds": pipeline.copy_seconds,
        "gpu_seconds": pipeline.gpu_seconds,
        "gpu_seconds_from": "expected" if pipeline.is_expected else "bound",
        "step_seconds": pipeline.seconds,
        "limited_by": pipeline.limit,
        "gpu_utilization": pipeline.utilization,
        f"{unit}_per_second": plain(phase.sequences if phase.is_vision else phase.tokens) / pipeline.seconds,
        "workers_to_hide": pipeline.workers_to_hide,
    }


def phase_document(phase: PhaseEstimate) -> dict[str, Any]:
    """A phase in the document: its operators and totals."""
    step = phase.step
    document = {
        "phase": step.phase,
        "tokens": step.of_sequence.tokens,
        "context": step.context,
        "microbatches": step.microbatches,
        "stage": step.parallel.stage,
        "ops": OPERATORS.records(phase.kernel_rows),
        "totals": phase_totals(phase),
    }
    if phase.uncached is not None:
        document["new_tokens"] = step.passes - 1
        document["without_cache"] = {
            **totals_of(phase.uncached.placed),
            "bound_seconds": phase.uncached.bound_seconds,
        }
    return document


def _stages(phase: PhaseEstimate) -> dict[str, Any]:
    """`stages`, the totals by stage, if the phase has stages.

    Not part of `phase_document`: `roof explore` traces that document, and its page shows no totals by stage.
    """
    stages = stage_totals(phase)
    return {"stages": stages} if stages else {}


def flat(estimate: Estimate) -> list[dict[str, Any]]:
    """One flat record per operator, for CSV and data frames."""
    return [
        {"phase": phase.step.phase} | (op if estimate.has_total else _without_weights(placed, op))
        for phase in estimate.phases
        for rows in [phase.kernel_rows]
        for placed, op in zip(rows, OPERATORS.flat(rows), strict=True)
    ]
