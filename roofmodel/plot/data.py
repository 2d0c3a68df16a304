"""Kernels and roofline points as JSON documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Pipe
from roofmodel.plot.columns import CHANGES, kernel_rows, kernel_table, point_file_table, point_rows

if TYPE_CHECKING:
    from roofmodel.plot.comparison import KernelChange
    from roofmodel.plot.measured import MeasuredKernels
    from roofmodel.plot.place import Roofline, RooflinePlot

# A document of one device has its name at the top. A document of several devices has null there, and a key "hardware"
# in each entry that belongs to one of them.


def kernels_document(measured: MeasuredKernels, source: bool = False) -> dict[str, Any]:
    """The document `roofmodel.kernels/1`; with `source`, each kernel has `lines`."""
    only = measured.runs[0].identification if len(measured.runs) == 1 else None
    names = measured.names
    return {
        "schema": "roofmodel.kernels/1",
        "source": {"tool": measured.tool, "files": list(names.values())},
        "hardware": only and only.device.id,
        "hardware_from": only and only.source,
        "devices": [
            {
                "hardware": identification and identification.device.id,
                "hardware_from": identification and identification.source,
                "tool": profile.tool,
                "files": [names[file] for file in profile.files],
            }
            for profile, identification in measured.runs
        ],
        "kernels": [
            record | ({"lines": [line._asdict() for line in kernel.lines]} if source else {})
            for record, kernel in zip(
                kernel_table(len(measured.runs)).records(kernel_rows(measured)), measured.kernels, strict=True
            )
        ],
        "copies": _copies(measured),
        "warnings": list(map(str, measured.warnings)),
    }


def _copies(measured: MeasuredKernels) -> list[dict[str, Any]]:
    """The copies and memsets of each device by kind."""
    if not any(len(run.profile.copies) for run in measured.runs):
        return []
    from roofmodel.roofline.reasons.copies import copies_by_kind

    return [
        _device_key(measured.runs, run.identification and run.identification.device.id)
        | {"count" if key == "number" else key: value for key, value in each._asdict().items()}
        for run in measured.runs
        for each in copies_by_kind(run.profile.copies)
    ]


def comparison_document(
    before: MeasuredKernels, after: MeasuredKernels, changes: Sequence[KernelChange]
) -> dict[str, Any]:
    """The key `comparison` of `roofmodel.kernels/1`."""
    from roofmodel.plot.measured import total_seconds

    return {
        "before": {"files": list(before.names.values()), "seconds": total_seconds(before)},
        "after": {"files": list(after.names.values()), "seconds": total_seconds(after)},
        "kernels": CHANGES.records(changes),
    }


def _device_key(devices: Sequence[Any], hardware: str | None) -> dict[str, str | None]:
    """The key of an entry's device if there are several devices; else empty."""
    return {"hardware": hardware} if len(devices) > 1 else {}


def points_document(plot: RooflinePlot) -> dict[str, Any]:
    """The document `roofmodel.points/1`."""
    from roofmodel.plot.instructions import instructions_document

    rooflines = plot.rooflines
    only = rooflines[0].identification if len(rooflines) == 1 else None
    return {
        "schema": "roofmodel.points/1",
        "hardware": only and only.device.id,
        "hardware_from": only and only.source,
        "devices": [_device(roofline) for roofline in rooflines],
        "ceilings": [
            _device_key(rooflines, line.device.id) | ceiling
            for line in rooflines
            for ceiling in ceilings(line.device, line.pipes)
        ],
        "points": point_file_table(rooflines).records(point_rows(rooflines)),
        "instructions": instructions_document(plot),
        "warnings": list(map(str, plot.warnings)),
    }


def _device(roofline: Roofline) -> dict[str, Any]:
    """A device of a plot, with the clock of its ceilings (null: the datasheet's) and of the kernels."""
    chosen = roofline.ceilings
    return {
        "hardware": roofline.device.id,
        "hardware_from": roofline.identification.source,
        "files": list(roofline.files),
        "clock": chosen.clock,
        "kernels_clock": chosen.kernel_clock and chosen.kernel_clock.mean,
        "ceilings_from": "measured" if chosen.measured else "datasheet",
    }


def ceilings(device: Device, used: Sequence[Pipe]) -> list[dict[str, Any]]:
    """The ceilings of a device as records: pipes in FLOP/s and whether they are in use, memory levels in B/s."""
    pipes = [
        {"name": pipe.name, "kind": "pipe", "flops_per_second": pipe.peak, "used": pipe in used}
        for pipe in device.pipes.values()
    ]
    levels = [
        {"name": level.name, "kind": "level", "bytes_per_second": level.bandwidth}
        for level in device.levels.values()
        if level.bandwidth is not None
    ]
    return [*pipes, *levels]
