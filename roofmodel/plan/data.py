"""A plan as a JSON document and as rows."""

from __future__ import annotations

from typing import Any

from roofmodel.engines.engine import Engine
from roofmodel.options.values import EngineName
from roofmodel.plan.candidate import Candidate
from roofmodel.plan.columns import CANDIDATES
from roofmodel.plan.plan import ServingPlan
from roofmodel.plan.search import Shortage
from roofmodel.steps.options import engine_figures


def document(plan: ServingPlan) -> dict[str, Any]:
    """The document `roofmodel.plan/1`: the candidates in order, the best first."""
    traffic, targets = plan.service.traffic, plan.service.targets
    return {
        "schema": "roofmodel.plan/1",
        "model": plan.model,
        "devices": list(plan.devices),
        "workload": {
            "gpus": plan.service.gpus, "isl": traffic.isl, "osl": traffic.osl,
            "memory_utilization": plan.service.memory_utilization,
            **engine_keys(plan.service.engine, plan.service.engine_option),
            "modes": list(plan.service.modes),
            "routing": plan.service.routing and plan.service.routing.name,
            "speculation": _speculation(plan),
        },
        "targets": {
            "ttft_seconds": targets.ttft, "tpot_seconds": targets.tpot, "requests_per_second": targets.requests,
        },
        "meets": plan.meets,
        "searched": plan.searched,
        "layouts": plan.layouts,
        "complete": plan.complete,
        "candidates": CANDIDATES.records(plan.ranked),
        "front": [point(candidate) for candidate in plan.front],
        "shortage": plan.shortage and shortage(plan.shortage),
        "warnings": [str(note) for note in plan.notes],
    }  # fmt: skip


def engine_keys(name: EngineName, option: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The engine with its options, as in the document of an estimate."""
    engine = Engine.load(name, option)
    return {"engine": engine.id, "engine_option": dict(engine.settings) or None, **engine_figures(engine)}


def point(candidate: Candidate) -> dict[str, Any]:
    """A point of the Pareto front."""
    return {
        "hardware": candidate.device, "mode": candidate.mode, **_layout(candidate), "chunk": candidate.chunk,
        "ttft_seconds": candidate.ttft.value, "tpot_seconds": candidate.tpot.value,
        "tokens_per_second_per_gpu": candidate.per_gpu.value, "tokens_per_second_per_user": 1 / candidate.tpot.value,
        "dollars_per_million_tokens": candidate.dollars_per_million_tokens,
    }  # fmt: skip


def shortage(nearest: Shortage) -> dict[str, Any]:
    """The layout that lacks the least memory."""
    return {
        "hardware": nearest.device, **nearest.layout._asdict(), **nearest.formats._asdict(),
        "memory": nearest.needed, "usable_memory": nearest.usable,
    }  # fmt: skip


def _layout(candidate: Candidate) -> dict[str, Any]:
    return {**candidate.layout._asdict(), "batch": candidate.batch, **candidate.formats._asdict()}


def _speculation(plan: ServingPlan) -> dict[str, Any] | None:
    speculation = plan.service.speculation
    if speculation is None:
        return None
    return {
        "draft": speculation.draft.name, "tokens": speculation.tokens,
        "acceptance": speculation.acceptance, "accepted": speculation.accepted,
    }  # fmt: skip
