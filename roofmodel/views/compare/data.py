"""A comparison as JSON and as CSV. Base units, unrounded, None for unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.algebra import plain
from roofmodel.study.compare.comparison import Comparison, Passes
from roofmodel.study.compare.diagnosis import why
from roofmodel.views.compare.text import called, closing
from roofmodel.views.kit import encoding


def document(found: Comparison) -> dict[str, Any]:
    """The document `roofmodel.compare/1`. Figures are those of one pass; totals add one of each phase."""
    phases = [_passes(found, passes) for passes in found.passes]
    return {
        "schema": "roofmodel.compare/1",
        "model": {"name": found.estimate.architecture.name, "model_type": found.estimate.architecture.model_type},
        "hardware": found.identified.device.id,
        "hardware_from": found.identified.how,
        "source": {"tool": found.profile.tool, "files": list(found.profile.files)},
        "matched_by": list(found.matched_by),
        "rows": rows(found),
        "unmatched": {
            "kernels": [left._asdict() for left in found.left_kernels],
            "ops": [left._asdict() for left in found.left_operators],
        },
        "totals": {**_sums(phases), "phases": phases},
        "findings": closing(found),
        "notes": list(found.notes),
    }


def rows(found: Comparison) -> list[dict[str, Any]]:
    """One row a group of operators, base units, None for unknown."""
    return [
        {
            "group": " + ".join(row.operators),
            "label": called(found, row),
            "phase": row.phase,
            "stage": row.stage or None,
            "occurrences": row.occurrences,
            "predicted_flops": plain(row.cost.flops),
            "measured_flops": row.measured_flops,
            "predicted_bytes": plain(row.cost.bytes),
            "measured_bytes": row.measured_bytes,
            "bound": row.bound,
            "bound_seconds": row.bound_seconds,
            "expected_seconds": row.expected_seconds,
            "measured_seconds": row.measured_seconds,
            "lost_seconds": row.lost_seconds,
            "bound_fraction": row.bound_seconds / row.measured_seconds if row.measured_seconds else None,
            "expected_fraction": row.expected_seconds / row.measured_seconds
            if row.measured_seconds and row.expected_seconds is not None
            else None,
            "kernels": row.kernels,
            "kernel_names": list(row.names),
            "why": list(why(row, found)),
        }
        for row in found.rows
    ]


_ADDED = (
    "predicted_flops", "measured_flops", "predicted_bytes", "measured_bytes", "bound_seconds", "expected_seconds",
    "matched_seconds", "unmatched_seconds", "measured_seconds", "span_seconds", "idle_seconds", "kernels",
)  # fmt: skip


def _passes(found: Comparison, passes: Passes) -> dict[str, Any]:
    """Totals of a phase: predicted figures of the operators that were matched, measured seconds of all kernels."""
    mine = [row for row in found.rows if row.phase == passes.phase]
    matched = _sum([row.measured_seconds for row in mine])
    return {
        "phase": passes.phase,
        "steps_found": passes.found,
        "steps": passes.used,
        "partial": passes.partial,
        "predicted_flops": _sum([plain(row.cost.flops) for row in mine]),
        "measured_flops": _sum([row.measured_flops for row in mine]),
        "predicted_bytes": _sum([plain(row.cost.bytes) for row in mine]),
        "measured_bytes": _sum([row.measured_bytes for row in mine]),
        "bound_seconds": _sum([row.bound_seconds for row in mine]),
        "expected_seconds": _sum([row.expected_seconds for row in mine]),
        "matched_seconds": matched,
        "unmatched_seconds": _sum([left.seconds for left in found.left_kernels if left.phase == passes.phase]),
        "measured_seconds": passes.seconds,
        "span_seconds": passes.span_seconds,
        "idle_seconds": passes.idle_seconds,
        "kernels": passes.kernels,
    }


def _sums(phases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {key: _sum([phase[key] for phase in phases]) for key in _ADDED}


def _sum(values: Sequence[Any]) -> Any:
    return None if None in values else sum(values)


def as_json(found: Comparison) -> str:
    """The document as text."""
    return encoding.as_json(document(found))


def as_csv(found: Comparison) -> str:
    """The rows, with a header; lists as one cell."""
    flat = [{k: "; ".join(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows(found)]
    return encoding.as_csv(flat)
