"""The columns of the tables of kernels and of roofline points."""

from collections.abc import Sequence
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.plot.place import MeasuredKernels, Roofline
from roofmodel.profiles.kernel import Flops, Kernel, Traffic
from roofmodel.report.table import BYTES, COUNT, NAME, PERCENT, RATE, SECONDS, TIMES, Cell, Column, Table, joined
from roofmodel.roofline.points import Point, flops_by_pipe, incomplete

LOWER_BOUND = "≥ lower bound: FLOPs of some pipes were not counted"


def _lower_bound(figure: str, incomplete: bool) -> str:
    """A number, marked if it is a lower bound."""
    return f"≥ {figure}" if incomplete else figure


class KernelRow(NamedTuple):
    """A kernel with the name of its file and its device."""

    kernel: Kernel
    file: str = ""
    device: Device | None = None


def _flops(row: KernelRow) -> str | None:
    flops = flops_by_pipe(row.kernel.flops)
    return _lower_bound(units.si(sum(flops.values())), incomplete(row.kernel.flops, row.device)) if flops else None


KERNELS = Table(
    "kernels",
    (
        Column("hardware", value="device.id"),
        Column("id", value="kernel.id"),
        Column("file"),
        Column("process", value="kernel.process"),
        Column("device", value="kernel.device"),
        Column("stream", value="kernel.stream"),
        Column("name", "kernel", NAME, "kernel.name"),
        Column("grid", value=lambda row: row.kernel.grid and list(row.kernel.grid), flat=joined("x")),
        Column("block", value=lambda row: row.kernel.block and list(row.kernel.block), flat=joined("x")),
        Column("nvtx", value=lambda row: list(row.kernel.nvtx), flat=joined(" / ")),
        Column("operator", value="kernel.call.name"),
        Column(
            "shapes",
            value=lambda row: row.kernel.call and [list(shape) for shape in row.kernel.call.shapes],
            flat=lambda shapes: " ".join("x".join(map(str, shape)) or "-" for shape in shapes) or None,
        ),
        Column("launch_seconds", value="kernel.launch"),
        Column("start_seconds", value="kernel.start"),
        Column("invocations", value="kernel.invocations"),
        Column(None, "×", TIMES, "kernel.invocations", priority=3),
        Column("seconds", "time", SECONDS, "kernel.seconds", unknown="–"),
        Column(None, "FLOPs", text=_flops, unit=COUNT, unknown="–", priority=8),
        Column(None, "DRAM", BYTES, "kernel.bytes.dram", unknown="–", priority=7),
        Column("occupancy", value="kernel.occupancy"),
        Column(
            "registers", "regs", COUNT, "kernel.registers", unknown="–", priority=1, legend="regs: registers per thread"
        ),
        Column(
            None, "occ.", PERCENT, "kernel.occupancy", unknown="–", priority=2,
            legend="occ.: achieved occupancy, resident warps / maximum warps (PyTorch: its own estimate)",
        ),
        Column("clock", value="kernel.clock"),
        Column("flops", value=lambda row: row.kernel.flops._asdict(), flat=Flops._fields),
        Column("bytes", value=lambda row: row.kernel.bytes._asdict(), flat=Traffic._fields),
    ),
    marks={"≥": LOWER_BOUND},
)  # fmt: skip


def kernel_rows(found: MeasuredKernels) -> list[KernelRow]:
    """A row for each kernel, device by device."""
    names = found.names
    return [
        KernelRow(kernel, names.get(kernel.file, kernel.file), identification and identification.device)
        for profile, identification in found.runs
        for kernel in profile.kernels
    ]


def kernel_table(devices: int) -> Table:
    """The columns of a file of kernels of so many devices; that of the device only if there are several."""
    return KERNELS if devices > 1 else KERNELS.without("hardware")


class PointRow(NamedTuple):
    """A point with its device and its letter in the chart."""

    point: Point
    hardware: str = ""
    letter: Cell = ""


def _achieved(row: PointRow) -> str | None:
    """The share of the attainable performance that was achieved; `bound` for predicted points."""
    point = row.point
    if point.predicted:
        return "bound"
    if point.fraction is None:
        return None
    return _lower_bound(f"{point.fraction:.0%}{'!' * bool(point.finding)}", point.incomplete)


def _intensity(row: PointRow) -> str | None:
    intensity = row.point.intensity
    return None if intensity is None else _lower_bound(units.significant(intensity), row.point.incomplete)


def _performance(row: PointRow) -> str | None:
    rate = row.point.flops_per_second
    return None if rate is None else _lower_bound(units.si(rate), row.point.incomplete)


def points_table(item: str = "kernel", share: str = "share") -> Table:
    """The columns of points; the titles of the names and of their share in the time."""
    return Table(
        "points",
        (
            Column("hardware"),
            *(Column(field, value=f"point.{field}") for field in Point._fields),
            Column(None, "", text=lambda row: row.letter),
            Column(None, item, NAME, "point.name"),
            Column(None, "×", TIMES, "point.invocations", priority=3),
            Column(None, "level", value="point.level", priority=9),
            Column(None, "FLOP/B", COUNT, text=_intensity, unknown="–", priority=7),
            Column(None, "FLOP/s", COUNT, text=_performance, unknown="–", priority=5),
            Column(None, "B/s", RATE, "point.bytes_per_second", priority=4),
            Column(
                None, "achieved", COUNT, text=_achieved, unknown="–", priority=10,
                legend="achieved: share of the attainable performance",
            ),
            Column(None, "bound by", text=lambda row: row.point.bound or "?" * row.point.incomplete, priority=6),
            Column(None, share, PERCENT, "point.share", unknown="–"),
        ),
        marks={
            "≥": LOWER_BOUND,
            "?": "? unknown: FLOPs of some pipes were not collected and could make compute the limit",
            "!": "! above the ceiling: see the warnings",
        },
    )  # fmt: skip


def point_rows(rooflines: Sequence[Roofline]) -> list[PointRow]:
    """A row for each point, device by device."""
    return [PointRow(point, roofline.device.id) for roofline in rooflines for point in roofline.points]


def point_file_table(rooflines: Sequence[Roofline]) -> Table:
    """The columns of a file of points; that of the device only if there are several."""
    return points_table() if len(rooflines) > 1 else points_table().without("hardware")
