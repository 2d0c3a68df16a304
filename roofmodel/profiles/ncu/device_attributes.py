"""What is Nsight Compute's own in a cell or a report: units of its metrics, attributes of a device, NVTX ranges."""

from __future__ import annotations

import re
from collections.abc import Callable

from roofmodel.profiles import cell_values
from roofmodel.profiles.kernel import Evidence
from roofmodel.profiles.ncu import metric_names
from roofmodel.profiles.streams import printable

ATTRIBUTE = "device__attribute_"
ATTRIBUTES = (
    "display_name",
    "compute_capability_major",
    "compute_capability_minor",
    "multiprocessor_count",
    "l2_cache_size",
    "total_memory",
    "global_memory_bus_width",
    "max_mem_frequency_khz",
    "max_gpu_frequency_khz",
)


def scale(name: str, unit: str) -> float | None:
    """What turns a number of this metric, in this unit, into base units; None where the two do not go together."""
    known, wanted = cell_values.unit(unit), metric_names.dimension(name)
    if wanted == "%" and not unit:
        return 0.01
    return known[0] if known is not None and (known[1] == wanted or (not known[1] and wanted == "/s")) else None


def in_base_units(value: float, factor: float) -> float:
    """A division by 10^9 is exact to the last digit, a product with 1e-9 is not."""
    return value * factor if factor >= 1 else value / round(1 / factor)


def evidence(attributes: dict[str, str], unit: Callable[[str], str]) -> Evidence:
    """A device by its `ATTRIBUTES`, as they are written, and their units.

    DRAM moves data on both edges: bandwidth = 2 × clock × bus width / 8.
    """

    def base(name: str) -> int | None:
        number, scale = cell_values.count(attributes[name]), cell_values.unit(unit(name))
        return number if scale and scale[0] == 1 else None  # a scaled one has lost its last digits

    def kilohertz(name: str) -> int | None:
        number = cell_values.count(attributes[name])
        return number * 1000 if number is not None and unit(name).lower() in ("", "khz", "kilohertz") else None

    width, clock = cell_values.count(attributes["global_memory_bus_width"]), kilohertz("max_mem_frequency_khz")
    return Evidence(
        name=attributes["display_name"] or None,
        compute_capability=metric_names.capability(
            f"{attributes['compute_capability_major']}.{attributes['compute_capability_minor']}"
        ),
        multiprocessors=cell_values.count(attributes["multiprocessor_count"]),
        l2_bytes=base("l2_cache_size"),
        dram_bandwidth=2 * clock * width / 8 if clock and width else None,
        dram_bytes=base("total_memory"),
        clock=kilohertz("max_gpu_frequency_khz"),
    )


_RANGE = re.compile(r'"(?P<domain>[^":]*):(?P<name>.*?)(?P<rest>(?::[^:"]*){6})"(?=\s|\Z)', re.DOTALL)


def nvtx_names(cell: str) -> list[str]:
    """The ranges in a cell `11  "<default domain>:step:none:none:none:none:none:none"  "…"`, outermost first.

    Each is domain, name (which may hold colons) and six fields of colour and payload.
    """
    return [printable(match["name"]) for match in _RANGE.finditer(cell) if match["name"]]
