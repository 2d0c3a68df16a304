"""Measured kernels and points as rows, JSON, CSV and terminal tables."""

from __future__ import annotations

import csv
import heapq
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group as RichGroup
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from roofmodel import units
from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import Kernel
from roofmodel.study.measured import Kernels, Measured, Placed, Roofline
from roofmodel.study.points import Point, incomplete, work
from roofmodel.views import points_chart
from roofmodel.views.panel import Panel, colour, heading, panels_of, provenance, sources

SHOWN = 30  # rows of a terminal table; the rest is counted in its last line


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
        "warnings": list(found.warnings),
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
    rooflines = placed.rooflines
    one = rooflines[0].identified if len(rooflines) == 1 else None
    return {
        "schema": "roofmodel.points/1",
        "hardware": one and one.device.id,
        "hardware_from": one and one.how,
        "devices": [_device(roofline) for roofline in rooflines],
        "ceilings": [_of(rooflines, p.device.id) | ceiling for p in rooflines for ceiling in ceilings(p.device)],
        "points": point_rows(rooflines),
        "warnings": list(placed.warnings),
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


def save_points(placed: Placed, path: str) -> Path:
    """Write the points: a picture, a page, or the data, by the suffix."""
    from roofmodel.views import files, page, points_picture

    subtitle = provenance(panels_of(placed), sources(placed))
    return files.write(
        path,
        draw=lambda file, form: points_picture.draw(panels_of(placed), heading(placed), subtitle, file, form),
        texts={
            "html": lambda: page.of_points(placed),
            "json": lambda: as_json(points_document(placed)),
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
    return _csv(point_rows(rooflines))


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
    return json.dumps(document, indent=1, allow_nan=False)


# --- Tables -----------------------------------------------------------------------------------------


def kernels_table(found: Kernels) -> RichGroup:
    """Kernels, longest first; a table a device."""
    return RichGroup(*(_kernels_table(run) for run in found.runs))


def _kernels_table(run: Measured) -> RichGroup:
    profile, identified = run
    columns: list[tuple[str, Any]] = [("kernel", "left"), ("×", "right"), ("time", "right"), ("FLOPs", "right")]
    columns.append(("DRAM", "right"))
    longest = heapq.nlargest(SHOWN, profile.kernels, key=lambda kernel: kernel.seconds or 0)
    registers = any(kernel.registers is not None for kernel in longest)
    occupancy = any(kernel.occupancy is not None for kernel in longest)
    columns += [("regs", "right")] * registers + [("occ.", "right")] * occupancy
    table = _table(*columns)
    for kernel in longest:
        flops, device = work(kernel.flops), identified and identified.device
        table.add_row(
            Text(kernel.name, no_wrap=True, overflow="ellipsis"),
            str(kernel.invocations) if kernel.invocations > 1 else "",
            "–" if kernel.seconds is None else units.seconds(kernel.seconds),
            _least(units.si(sum(flops.values())), incomplete(kernel.flops, device)) if flops else "–",
            "–" if kernel.bytes.dram is None else units.si(kernel.bytes.dram, "B"),
            *(["–" if kernel.registers is None else str(kernel.registers)] * registers),
            *(["–" if kernel.occupancy is None else f"{kernel.occupancy:.0%}"] * occupancy),
        )
    sums = profile.summed()
    known = [kernel.seconds for kernel in sums if kernel.seconds is not None]
    took = f"{units.seconds(sum(known))} together" if known else "times not collected"
    launches = sum(kernel.invocations for kernel in sums)
    where = f" on {identified.device.name}" if identified else ""
    head = Text(f"{launches} kernel launches{where}, {took}, by {profile.tool}", style="bold")
    rest = len(profile.kernels) - SHOWN
    tail = [Text(f"and {rest} more; all of them in --format csv or json", style="dim")] if rest > 0 else []
    return RichGroup(head, table, *tail)


def points_table(placed: Placed) -> RichGroup:
    """A table and a small roofline a device: intensity, performance, how much of the attainable that is."""
    return RichGroup(*(device_table(panel) for panel in panels_of(placed)))


def device_table(panel: Panel) -> RichGroup:
    """A device's points by share of the time, what is predicted apart, and the roofline that they stand under."""
    letters = points_chart.signs(panel.points)
    measured, predicted = ([p for p in panel.points if p.predicted is which] for which in (False, True))
    how = {"given": "", "attributes": ", by the file's attributes", "assumed": ", ASSUMED"}[panel.how]
    head = f"{panel.device.name} ({panel.device.id}{how}){panel.conditions}"
    blocks: list[RenderableType] = [Text(head, style="bold")]
    if measured or not predicted:
        blocks += _points_table(panel, measured, letters, "share")
    if predicted:
        about = f"predicted, each at its bound: {panel.workload}" if panel.workload else "predicted, each at its bound"
        blocks += [Text(about, style="bold"), *_points_table(panel, predicted, letters, "of phase")]
    return RichGroup(*blocks, Text(), points_chart.PointsChart(panel))


def _points_table(
    panel: Panel, found: Sequence[Point], letters: Mapping[Point, str], share: str
) -> Iterator[RenderableType]:
    """The longest of some points, and how many more there are."""
    table = _table(
        ("", "left"), ("kernel", "left"), ("×", "right"), ("level", "left"), ("FLOP/B", "right"), ("FLOP/s", "right"),
        ("of roof", "right"), ("roof", "left"), (share, "right"),
    )  # fmt: skip
    for point in found[:SHOWN]:
        table.add_row(
            Text(letters.get(point, ""), style=f"bold {colour([panel], 0, point.category)}"),
            Text(point.name, no_wrap=True, overflow="ellipsis"),
            str(point.invocations) if point.invocations > 1 else "",
            point.level,
            "–" if point.intensity is None else _least(units.significant(point.intensity), point.incomplete),
            "–" if point.flops_per_second is None else _least(units.si(point.flops_per_second), point.incomplete),
            _part(point),
            point.bound or "?" * point.incomplete,
            "–" if point.share is None else f"{point.share:.0%}",
        )
    yield table
    if len(found) > SHOWN:
        yield Text(f"and {len(found) - SHOWN} more; all of them in --format csv or json", style="dim")


def _part(point: Point) -> str:
    """How much of the roof was achieved; what is predicted achieved nothing."""
    if point.predicted:
        return "bound"
    if point.fraction is None:
        return "–"
    return _least(f"{point.fraction:.0%}{'!' * bool(point.finding)}", point.incomplete)


def _least(figure: str, incomplete: bool) -> str:
    """A figure, marked where it is a lower bound."""
    return f"≥ {figure}" if incomplete else figure


def _table(*columns: tuple[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", expand=True)
    for name, justify in columns:
        # the names give way; numbers are never cut
        table.add_column(
            name, justify=justify, no_wrap=True, ratio=1 if name == "kernel" else None, overflow="ellipsis"
        )
    return table
