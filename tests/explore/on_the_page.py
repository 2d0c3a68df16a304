"""An estimate as the page of sliders has it: without what depends on the engine's kernels and on long load."""

from __future__ import annotations

from typing import Any

from roofmodel.estimate.data import phase_document, to_dict
from roofmodel.estimate.tables import OPERATORS
from roofmodel.explore.page import OF_DEVICE
from roofmodel.numbers.traced import map_cases
from roofmodel.options.values import MEMORY_UTILIZATION
from roofmodel.steps.estimate import Estimate
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.placed import ENERGY_KEYS


def divided(estimate: PhaseEstimate) -> dict[str, Any]:
    """A phase whose operators each have their part of the time of a fused kernel, as on the page."""
    document = phase_document(estimate)
    document.pop("stages", None)  # not traced: the page does not show these sums of operators
    return document | {"ops": OPERATORS.records(estimate.placed)}


def without_kernels(phase: dict[str, Any]) -> dict[str, Any]:
    """A phase without the kernels of its operators and without power, which depend on the device."""
    totals = {key: value for key, value in phase["totals"].items() if key not in ENERGY_KEYS}
    return {**phase, "totals": totals, "ops": [map_cases(row, without_kernel) for row in phase["ops"]]}


def without_kernel(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in OF_DEVICE}


def memory(estimate: Estimate) -> dict[str, Any]:
    """The memory of the estimate, which fits as the page says: it does not count as a serving engine does."""
    found: dict[str, Any] = to_dict(estimate)["memory"]
    if estimate.device.capacity is not None:
        found["fits"] = found["total"] <= MEMORY_UTILIZATION * estimate.device.capacity
    return found
