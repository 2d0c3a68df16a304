"""Measured kernels and points as rows, JSON, CSV and terminal tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group as RichGroup
from rich.table import Table
from rich.text import Text

from roofmodel import units
from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Kernel, Profile
from roofmodel.study.identify import Identified
from roofmodel.study.measured import Placed
from roofmodel.study.points import Point

SHOWN = 30  # rows of a terminal table; the rest is counted in its last line


def kernels_document(profile: Profile, identified: Identified | None, warnings: Sequence[str]) -> dict[str, Any]:
    """The document `roofmodel.kernels/1`."""
    return {
        "schema": "roofmodel.kernels/1",
        "source": {"tool": profile.tool, "files": list(profile.files)},
        "hardware": identified and identified.device.id,
        "hardware_from": identified and identified.how,
        "kernels": [_kernel(kernel) for kernel in profile.kernels],
        "warnings": list(warnings),
    }


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
        "flops": kernel.flops._asdict(),
        "bytes": kernel.bytes._asdict(),
    }


def kernels_csv(document: dict[str, Any]) -> str:
    """A line a kernel: the document's kernels with FLOPs and bytes in columns of their own."""
    return _csv(flat(document))


def flat(document: dict[str, Any]) -> list[dict[str, Any]]:
    """One flat record a kernel, for CSV and data frames."""
    records = []
    for kernel in document["kernels"]:
        record = {key: value for key, value in kernel.items() if key not in ("flops", "bytes")}
        for key in ("grid", "block"):
            record[key] = record[key] and "x".join(map(str, record[key]))
        record["nvtx"] = " / ".join(record["nvtx"])
        record |= {f"flops_{pipe}": value for pipe, value in kernel["flops"].items()}
        record |= {f"bytes_{level}": value for level, value in kernel["bytes"].items()}
        records.append(record)
    return records


def points_document(placed: Placed) -> dict[str, Any]:
    """The document `roofmodel.points/1`."""
    return {
        "schema": "roofmodel.points/1",
        "hardware": placed.identified.device.id,
        "hardware_from": placed.identified.how,
        "ceilings": ceilings(placed.identified.device),
        "points": [point._asdict() for point in placed.points],
        "warnings": list(placed.warnings),
    }


def save_points(placed: Placed, path: str) -> Path:
    """Write the points: a picture, a page, or the data, by the suffix."""
    from roofmodel.views import files, page, points_picture

    subtitle = ", ".join(
        [*(name.rpartition("/")[2] for name in placed.files[:3]), *([placed.model] if placed.model else [])]
    )
    return files.write(
        path,
        draw=lambda file, form: points_picture.draw(placed.points, placed.identified, subtitle, file, form),
        texts={
            "html": lambda: page.of_points(placed),
            "json": lambda: as_json(points_document(placed)),
            "csv": lambda: points_csv(placed.points),
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


def points_csv(found: Sequence[Point]) -> str:
    """A line a point, base units."""
    return _csv([point._asdict() for point in found])


def _csv(records: list[dict[str, Any]]) -> str:
    if not records:
        return ""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return buffer.getvalue().rstrip("\n")


def as_json(document: dict[str, Any]) -> str:
    """One JSON document, unrounded."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)


# --- Tables -----------------------------------------------------------------------------------------


def kernels_table(profile: Profile, identified: Identified | None) -> RichGroup:
    """Kernels, longest first."""
    columns: list[tuple[str, Any]] = [("kernel", "left"), ("×", "right"), ("time", "right"), ("FLOPs", "right")]
    columns.append(("DRAM", "right"))
    registers = any(kernel.registers is not None for kernel in profile.kernels)
    occupancy = any(kernel.occupancy is not None for kernel in profile.kernels)
    columns += [("regs", "right")] * registers + [("occ.", "right")] * occupancy
    table = _table(*columns)
    longest = sorted(profile.kernels, key=lambda kernel: -(kernel.seconds or 0))
    for kernel in longest[:SHOWN]:
        flops = [n for pipe, n in kernel.flops._asdict().items() if n is not None and not pipe.startswith("tensor_l")]
        table.add_row(
            Text(kernel.name, no_wrap=True, overflow="ellipsis"),
            str(kernel.invocations) if kernel.invocations > 1 else "",
            "–" if kernel.seconds is None else units.seconds(kernel.seconds),
            units.si(sum(flops)) if flops else "–",
            "–" if kernel.bytes.dram is None else units.si(kernel.bytes.dram, "B"),
            *(["–" if kernel.registers is None else str(kernel.registers)] * registers),
            *(["–" if kernel.occupancy is None else f"{kernel.occupancy:.0%}"] * occupancy),
        )
    total = sum(kernel.seconds or 0 for kernel in profile.kernels)
    launches = sum(kernel.invocations for kernel in profile.kernels)
    where = f" on {identified.device.name}" if identified else ""
    head = Text(f"{launches} kernel launches{where}, {units.seconds(total)} together, by {profile.tool}", style="bold")
    rest = len(longest) - SHOWN
    tail = [Text(f"and {rest} more; all of them in --format csv or json", style="dim")] if rest > 0 else []
    return RichGroup(head, table, *tail)


def points_table(found: Sequence[Point], identified: Identified) -> RichGroup:
    """Points by share of the time: intensity, performance, and how much of the attainable that is."""
    device = identified.device
    table = _table(
        ("kernel", "left"), ("×", "right"), ("level", "left"), ("FLOP/B", "right"), ("FLOP/s", "right"),
        ("of roof", "right"), ("roof", "left"), ("share", "right"),
    )  # fmt: skip
    for point in found[:SHOWN]:
        table.add_row(
            Text(point.name, no_wrap=True, overflow="ellipsis"),
            str(point.invocations) if point.invocations > 1 else "",
            point.level,
            "–" if point.intensity is None else units.significant(point.intensity),
            "–" if point.flops_per_second is None else units.si(point.flops_per_second),
            "–" if point.fraction is None else f"{'≥ ' if point.incomplete else ''}{point.fraction:.0%}",
            point.bound or "",
            "–" if point.share is None else f"{point.share:.0%}",
        )
    how = {"given": "", "attributes": ", by the file's attributes", "assumed": ", ASSUMED"}[identified.how]
    rest = len(found) - SHOWN
    tail = [Text(f"and {rest} more; all of them in --format csv or json", style="dim")] if rest > 0 else []
    return RichGroup(Text(f"{device.name} ({device.id}{how})", style="bold"), table, *tail)


def _table(*columns: tuple[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", expand=True)
    for index, (name, justify) in enumerate(columns):
        # the first column, the names, gives way; numbers are never cut
        table.add_column(name, justify=justify, no_wrap=True, ratio=1 if index == 0 else None, overflow="ellipsis")
    return table
