"""Measured kernels and points as rows, JSON and CSV, and as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Kernel
from roofmodel.study.profile.place import Kernels, Measured, Placed, Roofline
from roofmodel.views.kit import encoding, files
from roofmodel.views.kit.panel import heading, panels_of, provenance, sources

# A document of one device names it once, at the top. One of several devices has null there, a list of them, and the
# key "hardware" on whatever belongs to one of them.


def kernels_document(found: Kernels) -> dict[str, Any]:
    """The document `roofmodel.kernels/1`."""
    one = found.runs[0].identified if len(found.runs) == 1 else None
    return {
        "schema": "roofmodel.kernels/1",
        "source": {"tool": found.tool, "files": list(found.files)},
        "hardware": one and one.device.id,
        "hardware_from": one and one.how,
        "devices": [
            {
                "hardware": identified and identified.device.id,
                "hardware_from": identified and identified.how,
                "tool": profile.tool,
                "files": list(profile.files),
            }
            for profile, identified in found.runs
        ],
        "kernels": [
            _of(found.runs, identified and identified.device.id) | _kernel(kernel)
            for profile, identified in found.runs
            for kernel in profile.kernels
        ],
        "warnings": list(map(str, found.warnings)),
    }


def _of(together: Sequence[Measured | Roofline], hardware: str | None) -> dict[str, str | None]:
    """The key that tells the device, where there are several."""
    return {"hardware": hardware} if len(together) > 1 else {}


def _kernel(kernel: Kernel) -> dict[str, Any]:
    return {
        "id": kernel.id,
        "file": kernel.file,
        "process": kernel.process,
        "device": kernel.device,
        "stream": kernel.stream,
        "name": kernel.name,
        "grid": kernel.grid and list(kernel.grid),
        "block": kernel.block and list(kernel.block),
        "nvtx": list(kernel.nvtx),
        "invocations": kernel.invocations,
        "seconds": kernel.seconds,
        "occupancy": kernel.occupancy,
        "registers": kernel.registers,
        "clock": kernel.clock,
        "flops": kernel.flops._asdict(),
        "bytes": kernel.bytes._asdict(),
    }


def kernels_csv(document: dict[str, Any]) -> str:
    """A line a kernel: the document's kernels with FLOPs and bytes in columns of their own."""
    return encoding.as_csv(flat(document))


def flat(document: dict[str, Any]) -> list[dict[str, Any]]:
    """One flat record a kernel, for CSV and data frames."""
    found = []
    for kernel in document["kernels"]:
        record = {key: value for key, value in kernel.items() if key not in ("flops", "bytes")}
        for key in ("grid", "block"):
            record[key] = record[key] and "x".join(map(str, record[key]))
        record["nvtx"] = " / ".join(record["nvtx"])
        record |= {f"flops_{pipe}": value for pipe, value in kernel["flops"].items()}
        record |= {f"bytes_{level}": value for level, value in kernel["bytes"].items()}
        found.append(record)
    return found


def points_document(placed: Placed) -> dict[str, Any]:
    """The document `roofmodel.points/1`."""
    rooflines = placed.rooflines
    one = rooflines[0].identified if len(rooflines) == 1 else None
    return {
        "schema": "roofmodel.points/1",
        "hardware": one and one.device.id,
        "hardware_from": one and one.how,
        "devices": [_device(roofline) for roofline in rooflines],
        "ceilings": [_of(rooflines, p.device.id) | ceiling for p in rooflines for ceiling in ceilings(p.device)],
        "points": point_rows(rooflines),
        "warnings": list(map(str, placed.warnings)),
    }


def _device(roofline: Roofline) -> dict[str, Any]:
    """A device of a picture: the clock of its roofs (null: as the datasheet states them), that of the kernels."""
    drawn = roofline.drawn
    return {
        "hardware": roofline.device.id,
        "hardware_from": roofline.identified.how,
        "files": list(roofline.files),
        "clock": drawn.clock,
        "kernels_clock": drawn.counters and drawn.counters.mean,
        "ceilings_from": "measured" if drawn.measured else "datasheet",
    }


def point_rows(rooflines: Sequence[Roofline]) -> list[dict[str, Any]]:
    """A record a point, one device after the other."""
    return [_of(rooflines, roofline.device.id) | point._asdict() for roofline in rooflines for point in roofline.points]


SUFFIXES = (*files.PICTURES, "html", "json", "csv")  # what `save_points` writes


def save_points(placed: Placed, path: str) -> Path:
    """Write the points: a picture, a page, or the data, by the suffix."""
    from roofmodel.views.kit import roofline_page
    from roofmodel.views.profile import picture

    subtitle = provenance(panels_of(placed), sources(placed))
    return files.write(
        path,
        draw=lambda file, form: picture.draw(panels_of(placed), heading(placed), subtitle, file, form),
        texts={
            "html": lambda: roofline_page.of_points(placed),
            "json": lambda: encoding.as_json(points_document(placed)),
            "csv": lambda: points_csv(placed.rooflines),
        },
    )


def ceilings(device: Device) -> list[dict[str, Any]]:
    """All roofs of a device: pipes in FLOP/s, levels in bytes per second."""
    pipes = [{"name": p.name, "kind": "pipe", "flops_per_second": p.peak} for p in device.pipes.values()]
    levels = [
        {"name": level.name, "kind": "level", "bytes_per_second": level.bandwidth}
        for level in device.levels.values()
        if level.bandwidth is not None
    ]
    return [*pipes, *levels]


def points_csv(rooflines: Sequence[Roofline]) -> str:
    """A line a point, base units."""
    return encoding.as_csv(point_rows(rooflines))
