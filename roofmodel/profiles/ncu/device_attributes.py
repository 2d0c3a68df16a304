"""Device attributes, metric units and NVTX ranges as Nsight Compute writes them in tables and reports."""

from __future__ import annotations

import re
from collections.abc import Callable

from roofmodel.files.text_files import printable
from roofmodel.profiles import cell_values
from roofmodel.profiles.kernel import Evidence
from roofmodel.profiles.ncu import metric_names

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
    """The factor from a metric's unit to base units; None if the unit does not fit the metric."""
    parsed_unit, is_read = cell_values.parse_unit(unit), metric_names.dimension(name)
    if is_read == "%" and not unit:
        return 0.01
    if parsed_unit is not None and (parsed_unit[1] == is_read or (not parsed_unit[1] and is_read == "/s")):
        return parsed_unit[0]
    return None


def in_base_units(value: float, factor: float) -> float:
    """value × factor. Divides by 10^9 instead of multiplying by 1e-9, which would round twice."""
    return value * factor if factor >= 1 else value / round(1 / factor)


def evidence(attributes: dict[str, str], unit: Callable[[str], str]) -> Evidence:
    """The device that these `ATTRIBUTES` (as text) describe; `unit` gives the unit of an attribute.

    DRAM transfers data on both clock edges: bandwidth = 2 × clock × bus width / 8.
    """

    def base(name: str) -> int | None:
        number, scale = cell_values.parse_count_any_locale(attributes[name]), cell_values.parse_unit(unit(name))
        return number if scale and scale[0] == 1 else None  # a scaled number is rounded

    def kilohertz(name: str) -> int | None:
        number = cell_values.parse_count_any_locale(attributes[name])
        return number * 1000 if number is not None and unit(name).lower() in ("", "khz", "kilohertz") else None

    width, clock = (
        cell_values.parse_count_any_locale(attributes["global_memory_bus_width"]),
        kilohertz("max_mem_frequency_khz"),
    )
    return Evidence(
        name=attributes["display_name"] or None,
        compute_capability=metric_names.capability(
            f"{attributes['compute_capability_major']}.{attributes['compute_capability_minor']}"
        ),
        multiprocessors=cell_values.parse_count_any_locale(attributes["multiprocessor_count"]),
        l2_bytes=base("l2_cache_size"),
        dram_bandwidth=2 * clock * width / 8 if clock and width else None,
        dram_bytes=base("total_memory"),
        clock=kilohertz("max_gpu_frequency_khz"),
    )


_RANGE = re.compile(r'"(?P<domain>[^":]*):(?P<name>.*?)(?P<rest>(?::[^:"]*){6})"(?=\s|\Z)', re.DOTALL)


def nvtx_names(cell: str) -> list[str]:
    """The NVTX ranges in a cell `11  "<default domain>:step:none:none:none:none:none:none"  "…"`, outermost first.

    A range has a domain, a name (which may contain colons) and six fields of color and payload.
    """
    return [printable(match["name"]) for match in _RANGE.finditer(cell) if match["name"]]
