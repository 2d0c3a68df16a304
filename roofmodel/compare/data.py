"""A comparison as JSON. Base units, unrounded, None for unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.compare.columns import ROWS, compared_rows
from roofmodel.compare.comparison import FoundPasses, ModelComparison
from roofmodel.files.text_files import display_names
from roofmodel.numbers.algebra import plain


def to_dict(comparison: ModelComparison, findings: Sequence[str]) -> dict[str, Any]:
    """The document `roofmodel.compare/1`. Figures are per pass; totals are sums of one pass per phase."""
    phases = [_passes(comparison, passes) for passes in comparison.passes]
    return {
        "schema": "roofmodel.compare/1",
        "model": {
            "name": comparison.estimate.architecture.name,
            "model_type": comparison.estimate.architecture.model_type,
        },
        "hardware": comparison.identified.device.id,
        "hardware_from": comparison.identified.source,
        "source": {"tool": comparison.profile.tool, "files": list(display_names(comparison.profile.files).values())},
        "matched_by": list(comparison.matched_by),
        "rows": ROWS.records(compared_rows(comparison)),
        "unmatched": {
            "kernels": [each._asdict() for each in comparison.unmatched_kernels],
            "ops": [each._asdict() for each in comparison.unmatched_operators],
        },
        "totals": {**_sums(phases), "phases": phases},
        "findings": list(findings),
        "notes": [str(note) for note in comparison.notes],
    }


_SUMMED = (
    "predicted_flops", "measured_flops", "predicted_bytes", "measured_bytes", "bound_seconds", "expected_seconds",
    "matched_seconds", "unmatched_seconds", "measured_seconds", "span_seconds", "idle_seconds", "kernels",
)  # fmt: skip


def _passes(comparison: ModelComparison, passes: FoundPasses) -> dict[str, Any]:
    """Totals of a phase: predicted figures of matched operators, measured seconds of all kernels."""
    own = [row for row in comparison.rows if row.phase == passes.phase]
    matched = _sum([row.measured_seconds for row in own])
    return {
        "phase": passes.phase,
        "steps_found": passes.detected,
        "steps": passes.used,
        "partial": passes.partial,
        "predicted_flops": _sum([plain(row.cost.flops) for row in own]),
        "measured_flops": _sum([row.measured_flops for row in own]),
        "predicted_bytes": _sum([plain(row.cost.bytes) for row in own]),
        "measured_bytes": _sum([row.measured_bytes for row in own]),
        "bound_seconds": _sum([row.bound_seconds for row in own]),
        "expected_seconds": _sum([row.expected_seconds for row in own]),
        "matched_seconds": matched,
        "unmatched_seconds": _sum(
            [each.seconds for each in comparison.unmatched_kernels if each.phase == passes.phase]
        ),
        "measured_seconds": passes.seconds,
        "span_seconds": passes.span_seconds,
        "idle_seconds": passes.idle_seconds,
        "kernels": passes.kernels,
    }


def _sums(phases: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {key: _sum([phase[key] for phase in phases]) for key in _SUMMED}


def _sum(values: Sequence[Any]) -> Any:
    return None if None in values else sum(values)
