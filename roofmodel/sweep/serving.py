"""A sweep of `--phase serve`: the latencies and rates of services, one simulation for each point of the grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from roofmodel.devices.device import Device
from roofmodel.errors import Option, Text, WorkloadError
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.options.serving import serve_request
from roofmodel.options.values import SERVE
from roofmodel.options.workload import DECLARED
from roofmodel.serve.service import ServingEstimate, service
from roofmodel.serve.totals import TOTALS, output_rate
from roofmodel.steps.estimate import complete_totals
from roofmodel.sweep.case import COLUMNS, FORMAT_OPTIONS, ROLES, SERVING_COLUMNS, GridCase
from roofmodel.sweep.data import block_of
from roofmodel.sweep.sweep import Sweep, axis, labels_of, prices_by_device
from roofmodel.sweep.tables import SERVICE_OPTIONS

LAYOUT = ("tp", "pp", "ep", "dp")
"""The sizes of a layout."""
MAX_POINTS = 2_000
"""Limit of the points of a sweep; each takes some tenths of a second."""


def serving_sweep(
    models: Sequence[Architecture],
    devices: Sequence[Device],
    *,
    price: float | str | Mapping[str, float] | None = None,
    progress: Callable[[str, int, int], None] = lambda subject, done, total: None,
    **options: Any,
) -> Sweep:
    """The services of all combinations, evaluated. `options` are those of an estimate, with one or several values each.

    A combination that cannot serve its requests is a row without totals, whose note gives the reason. Raises
    WorkloadError for an invalid value, for too many points, and if no combination is valid.
    """
    declared = {**DECLARED, **SERVICE_OPTIONS}
    axes = {
        name: axis(name, values, declared)
        for name, values in sorted(options.items(), key=lambda each: each[0] in SERVICE_OPTIONS)
        if values is not None and name != "phase"
    }  # fmt: skip
    points = len(models) * len(devices) * prod(len(values) for values in axes.values())
    if points > MAX_POINTS:
        raise WorkloadError(
            f"{points} points; a sweep of ", Option("phase", SERVE), f" has at most {MAX_POINTS}: each is a simulation"
        )
    drafters = {draft: hub.load_draft(draft) for draft in axes.get("draft", ())}
    prices = prices_by_device(price, devices)
    cases: list[GridCase] = []
    rows: list[dict[str, Any]] = []
    notes: dict[Text, None] = dict.fromkeys(note for arch in models for note in arch.notes)
    for arch, device, values in product(models, devices, product(*axes.values())):
        chosen = dict(zip(axes, values, strict=True))
        of_request = {name: value for name, value in chosen.items() if name in SERVICE_OPTIONS}
        request = serve_request(of_request)
        others = {name: value for name, value in chosen.items() if name not in SERVICE_OPTIONS}
        labels: dict[str, Any] = {"model": arch.name, "hardware": device.id, "phase": SERVE, **request._asdict()}
        cost = prices.get(device.id)
        try:
            found = service(arch, device, request, others, drafters.get(request.draft))
        except WorkloadError as error:
            of_formats = dict.fromkeys(("dtype", *FORMAT_OPTIONS), chosen.get("dtype", "fp16"))
            labels |= {**of_formats, **others}
            cases.append(GridCase(labels, ((),) * 4, arch, device, cost, refused=str(error)))
            rows.append({**dict.fromkeys((*COLUMNS, *SERVING_COLUMNS)), **labels, "note": str(error)})
        else:
            step = found.mean_step
            labels |= {**labels_of(arch, step.workload), "phase": SERVE, "chunk": found.chunk}
            # as they were given: the estimate of a step is that of one engine; separate engines state their own
            labels |= {size: None if found.prefill else others.get(size) or 1 for size in LAYOUT}
            cases.append(GridCase(labels, ((),) * 4, arch, device, cost))
            rows.append({**dict.fromkeys((*COLUMNS, *SERVING_COLUMNS)), **labels, **_results(found, cost)})
            notes |= dict.fromkeys(step.notes)
        progress("points", len(rows), points)
    if all(case.refused for case in cases):
        raise WorkloadError(cases[0].refused or "nothing to sweep: give at least one model and one device")
    return Sweep(tuple(cases), tuple(notes), rows=(block_of(rows, (*COLUMNS, *SERVING_COLUMNS)),), serving=True)


def _results(found: ServingEstimate, price: float | None) -> dict[str, Any]:
    """The totals of a point: those of its mean decode step, its memory, and those of the service."""
    step, (phase,) = found.mean_step, found.mean_step.phases
    totals = {**complete_totals(step, phase), **TOTALS.record(found)}
    costs = {}
    for prefix, times in (("", found.expected), ("bound_", found.bound)):
        rate = output_rate(times, found.mean_osl)
        if price is not None and rate:
            costs[f"{prefix}dollars_per_million_tokens"] = price * found.gpus / 3600 * 1e6 / rate
    memory = {f"memory_{role}": getattr(step.memory, role) for role in ROLES} if step.has_total else {}
    return {
        **{name: value for name, value in totals.items() if name in (*COLUMNS, *SERVING_COLUMNS)},
        **memory, **costs, "fits": step.fits, "gpus": found.gpus, "batch": step.workload.batch,
        "context": step.workload.context,
    }  # fmt: skip
