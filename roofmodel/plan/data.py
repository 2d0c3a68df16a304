"""A plan as a JSON document and as rows."""

from __future__ import annotations

from math import isinf
from typing import Any

from roofmodel.plan.candidate import Candidate
from roofmodel.plan.plan import ServingPlan
from roofmodel.plan.ranking import Ranked
from roofmodel.plan.search import Shortage


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
        "candidates": rows(plan),
        "front": [point(one) for one in plan.front],
        "shortage": plan.shortage and shortage(plan.shortage),
        "warnings": [str(note) for note in plan.notes],
    }  # fmt: skip


def rows(plan: ServingPlan) -> list[dict[str, Any]]:
    """A row for each candidate, in order."""
    return [row(one) for one in plan.ranked]


def flat_rows(plan: ServingPlan) -> list[dict[str, Any]]:
    """The same rows without lists and dicts: `prefill_tp` and further columns for the prefill engines."""
    found = []
    for one in rows(plan):
        prefill = one.pop("prefill") or dict.fromkeys(PREFILL_KEYS)
        ties = " ".join(map(str, one["ties_with"]))
        found.append({**one, "ties_with": ties, **{f"prefill_{key}": prefill[key] for key in PREFILL_KEYS}})
    return found


PREFILL_KEYS = ("tp", "pp", "ep", "dp", "batch", "transfer_seconds", "limits")


def row(one: Ranked) -> dict[str, Any]:
    """A candidate with all its values in base units."""
    found = one.candidate
    shares = found.shares
    return {
        "rank": one.rank,
        "hardware": found.device,
        "mode": found.mode,
        **_layout(found),
        "gpus": found.gpus,
        "gpus_needed": found.gpus_needed,
        "chunk": found.chunk,
        **interval("ttft", "seconds", found.ttft),
        **interval("tpot", "seconds", found.tpot),
        "wait_seconds": _finite(found.mean_wait),
        "largest_itl_seconds": found.largest_itl,
        **interval("tokens_per_second", "", found.tokens_per_second),
        **interval("tokens_per_second_per_gpu", "", found.per_gpu),
        "tokens_per_second_per_user": 1 / found.tpot.value,
        **interval("requests_per_second", "", found.requests),
        "dollars_per_million_tokens": found.dollars_per_million_tokens,
        "memory": found.memory,
        "usable_memory": found.usable,
        "largest_batch": found.largest_batch,
        "fits": found.fits,
        "meets": found.meets,
        "violation": found.violation,
        "ties_with": list(one.ties_with),
        "bound_by": shares.bound_by,
        "communication_share": shares.communication,
        "bubble_share": shares.idle,
        "bound_share": shares.ceiling_share,
        "reason": one.reason,
        "limit": one.limit,
        "prefill": _prefill(found),
    }


def point(one: Candidate) -> dict[str, Any]:
    """A point of the Pareto front."""
    return {
        "hardware": one.device, "mode": one.mode, **_layout(one), "chunk": one.chunk,
        "ttft_seconds": one.ttft.value, "tpot_seconds": one.tpot.value,
        "tokens_per_second_per_gpu": one.per_gpu.value, "tokens_per_second_per_user": 1 / one.tpot.value,
        "dollars_per_million_tokens": one.dollars_per_million_tokens,
    }  # fmt: skip


def shortage(one: Shortage) -> dict[str, Any]:
    """The layout that lacks the least memory."""
    return {
        "hardware": one.device, **one.layout._asdict(), **one.formats._asdict(),
        "memory": one.needed, "usable_memory": one.usable,
    }  # fmt: skip


def _finite(seconds: float | None) -> float | None:
    return None if seconds is None or isinf(seconds) else seconds


def _layout(one: Candidate) -> dict[str, Any]:
    return {**one.layout._asdict(), "batch": one.batch, **one.formats._asdict()}


def _speculation(plan: ServingPlan) -> dict[str, Any] | None:
    found = plan.service.speculation
    if found is None:
        return None
    return {
        "draft": found.draft.name, "tokens": found.tokens, "acceptance": found.acceptance, "accepted": found.accepted,
    }  # fmt: skip


def _prefill(one: Candidate) -> dict[str, Any] | None:
    if one.prefill is None:
        return None
    return {
        **one.prefill.layout._asdict(), "batch": one.prefill.batch, "transfer_seconds": one.prefill.transfer,
        "limits": one.prefill.limits,
    }  # fmt: skip


def interval(name: str, unit: str, value: tuple[float, float, float]) -> dict[str, float]:
    """A value and the ends of its interval: `ttft_seconds`, `ttft_low_seconds`, `ttft_high_seconds`."""
    end = f"_{unit}" if unit else ""
    return {f"{name}{part}{end}": number for part, number in zip(("", "_low", "_high"), value, strict=True)}
