"""Launches of which a file has only rates: FLOP per cycle, bytes per second, and the clock, but no duration.

The roofline charts of Nsight Compute are such files. A rate is enough for a place on the roofline.
"""

from __future__ import annotations

from collections.abc import Iterable

from roofmodel.profiles.kernel import Evidence, KernelTable
from roofmodel.profiles.ncu import metric_catalog, metric_names, metrics


def with_rates(launches: KernelTable, evidence: Iterable[Evidence], seconds: float | None = None) -> KernelTable:
    """The launches with the FLOPs and bytes of one second, and `seconds` as their time, for files without durations."""
    if not any(".per_" in name for name in launches.metrics):
        return launches
    capabilities = [each.compute_capability for each in evidence if each.compute_capability]
    generation = capabilities[0] if len({*capabilities}) == 1 else None
    columns: dict[str, list[float | None]] = {}
    for row, capability in enumerate(launches.cells("capability")):
        names = (name for name in launches.metrics if metric_names.is_interpreted(name))
        values = {name: value for name in names if (value := launches.cell(name, row)) is not None}
        found = metrics.interpret({**values, metric_catalog.DURATION: 1.0}, capability or generation)
        if found.bytes.dram is not None:
            known = dict(found.quantities()) | {"seconds": seconds}
            for name, value in known.items():
                columns.setdefault(name, [None] * len(launches))[row] = value
    table = launches.copy()
    for name, cells in columns.items():
        table.set(name, cells)
    return table
