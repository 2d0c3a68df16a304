"""The columns of the tables of kernels and of roofline points."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.profiles.kernel import Flops, Kernel, Traffic
from roofmodel.report.table import BYTES, COUNT, NAME, PERCENT, RATE, SECONDS, TIMES, Cell, Column, Table, joined
from roofmodel.roofline.judged_kernels import reasons_by_launch
from roofmodel.roofline.naming import KERNEL_NAME, short_names
from roofmodel.roofline.points import Point, Reason, flops_by_pipe, incomplete
from roofmodel.roofline.reasons import text_of

if TYPE_CHECKING:
    from roofmodel.plot.comparison import KernelChange
    from roofmodel.plot.measured import MeasuredKernels
    from roofmodel.plot.place import Roofline

MAX_NAME = 34  # characters of a name in the table of changes: with its colon, one line of a terminal of 80 columns
LOWER_BOUND = "≥ lower bound: FLOPs of some pipes were not counted"


def _lower_bound(figure: str, incomplete: bool) -> str:
    """A number, marked if it is a lower bound."""
    return f"≥ {figure}" if incomplete else figure


class KernelRow(NamedTuple):
    """A launch, in the terminal also a sum of launches, with the name of its file, its device, and its reasons."""

    kernel: Kernel
    file: str = ""
    device: Device | None = None
    reasons: Sequence[Reason] = ()


def reason_records(reasons: Sequence[Reason]) -> list[dict[str, Any]]:
    """The reasons as JSON has them."""
    return [{**reason._asdict(), "text": text_of(reason)} for reason in reasons]


REASONS_COLUMN = Column(
    "reasons",
    value=lambda row: reason_records(row.reasons),
    flat=lambda reasons: "; ".join(f"{each['reason']}: {each['evidence']}" for each in reasons) or None,
    meaning="the reasons for its time, the costliest first: `reason`, `seconds` (an estimate of what its removal "
    "saves, or the next feasible step of it; 0: unknown), `evidence`, `most_seconds` (that it saves at most, if it "
    "limits the launch), `affected_seconds` (the time of the launches that have it), `source` (`roof`, or `ncu` for a "
    "rule of the tool) and `text` (title and evidence)",
)


def _flops(row: KernelRow) -> str | None:
    total, is_partial = sum(flops_by_pipe(row.kernel.flops).values()), incomplete(row.kernel.flops, row.device)
    return _lower_bound(units.si(total), is_partial) if total or not is_partial else None


KERNELS = Table(
    "kernels",
    (
        Column("hardware", value="device.id", meaning="the device, if there are several"),
        Column("id", value="kernel.id", meaning="the launch, as the profiler numbers it"),
        Column("file", meaning="its file"),
        Column("process", value="kernel.process", meaning="its process, GPU and CUDA stream"),
        Column("device", value="kernel.device", meaning="its process, GPU and CUDA stream"),
        Column("stream", value="kernel.stream", meaning="its process, GPU and CUDA stream"),
        Column("name", "kernel", KERNEL_NAME, "kernel.name", meaning="the kernel"),
        Column(
            "grid", value=lambda row: row.kernel.grid and list(row.kernel.grid), flat=joined("x"),
            meaning="thread blocks by dimension, and threads of a block",
        ),
        Column(
            "block", value=lambda row: row.kernel.block and list(row.kernel.block), flat=joined("x"),
            meaning="thread blocks by dimension, and threads of a block",
        ),
        Column(
            "nvtx", value=lambda row: list(row.kernel.nvtx), flat=joined(" / "),
            meaning="the NVTX ranges that contain the launch, the outer ones first",
        ),
        Column("operator", value="kernel.call.name", meaning="the operator of the framework that launched it"),
        Column(
            "shapes",
            value=lambda row: row.kernel.call and [list(shape) for shape in row.kernel.call.shapes],
            flat=lambda shapes: " ".join("x".join(map(str, shape)) or "-" for shape in shapes) or None,
            meaning="the shapes of the operator's arguments",
        ),
        Column("launch_seconds", value="kernel.launch", meaning="when it was launched, from the start of the trace"),
        Column("start_seconds", value="kernel.start", meaning="when it started, from the start of the trace"),
        Column(
            "invocations", "×", TIMES, "kernel.invocations", priority=3,
            meaning="the number of launches that the row sums",
        ),
        Column("seconds", "time", SECONDS, "kernel.seconds", unknown="–", meaning="the sum of their durations"),
        Column(None, "FLOPs", text=_flops, unit=COUNT, unknown="–", priority=8),
        Column(None, "DRAM", BYTES, "kernel.bytes.dram", unknown="–", priority=7),
        Column(
            "occupancy", value="kernel.occupancy",
            meaning="achieved occupancy: resident warps / maximum warps (PyTorch: its own estimate)",
        ),
        Column(
            "registers", "regs", COUNT, "kernel.registers", unknown="–", priority=1,
            legend="regs: registers per thread", meaning="registers per thread",
        ),
        Column(
            None, "occ.", PERCENT, "kernel.occupancy", unknown="–", priority=2,
            legend="occ.: achieved occupancy, resident warps / maximum warps (PyTorch: its own estimate)",
        ),
        Column("clock", value="kernel.clock", meaning="the clock of the SMs in Hz"),
        Column(
            "flops", value=lambda row: row.kernel.flops._asdict(), flat=Flops._fields,
            meaning="FLOPs by pipe: `fp64`, `fp32`, `fp16`, `tensor_fp16` …; `tensor_low` and `tensor_high` are limits "
            "if only instructions were counted",
        ),
        Column(
            "bytes", value=lambda row: row.kernel.bytes._asdict(), flat=Traffic._fields,
            meaning="bytes by memory level: `dram`, `l2`, `l1`",
        ),
        REASONS_COLUMN,
    ),
    marks={"≥": LOWER_BOUND},
)  # fmt: skip


def _relative(row: "KernelChange") -> str:
    return "" if row.relative_change is None else f"{row.relative_change:+.0%}"


CHANGES = Table(
    "changes",
    (
        Column("name", meaning="the kernel"),
        Column("before_name", meaning="its name before the change, if it was another one"),
        Column(
            "verdict", "",
            meaning="`faster`, `slower`, `unchanged` (within 2 %), `new` or `gone`; `unknown` without the times",
        ),
        Column("before_launches", value="before.summed.invocations", meaning="the number of launches before"),
        Column("after_launches", value="after.summed.invocations", meaning="the number of launches after"),
        Column("before_seconds", "before", SECONDS, unknown="–", meaning="the sum of their durations before"),
        Column("after_seconds", "after", SECONDS, unknown="–", meaning="the sum of their durations after"),
        Column("change_seconds", "change", SECONDS, unknown="–", meaning="after - before; null if a time is unknown"),
        Column("relative_change", "", PERCENT, text=_relative, meaning="after / before - 1"),
        Column(
            "causes", flat="; ".join,
            meaning="what changed with the time: reasons that came, went or cost another share of it, and counters",
        ),
    ),
)  # fmt: skip


def changes_table(shortened: "Sequence[KernelChange]") -> Table:
    """The columns of CHANGES for people; names of the rows `shortened` are short and differ among these rows."""
    names = list(dict.fromkeys(name for row in shortened for name in (row.name, row.before_name) if name))
    short = dict(zip(names, short_names(names, MAX_NAME), strict=True))

    def kernel_and_causes(row: "KernelChange") -> str:
        renamed = f" (was {short.get(row.before_name, row.before_name)})" if row.before_name else ""
        causes = "; ".join(row.causes) or "no recorded counter explains it" * (row.verdict in ("faster", "slower"))
        return f"{short.get(row.name, row.name)}{renamed}{': ' * bool(causes)}{causes}"

    kernel = Column(None, "kernel: what changed with its time", text=kernel_and_causes, wrap=True)
    return CHANGES._replace(columns=(*CHANGES.columns, kernel))


def kernel_rows(measured: "MeasuredKernels") -> list[KernelRow]:
    """A row for each kernel, device by device."""
    names = measured.names
    rows = []
    for profile, identification in measured.runs:
        device = identification and identification.device
        judge = reasons_by_launch(profile, device)
        for kernel in profile.kernels:
            rows.append(KernelRow(kernel, names.get(kernel.file, kernel.file), device, judge(kernel)))
    return rows


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

    def field(key: str, meaning: str, title: str | None = None, **shown: Any) -> Column:
        return Column(key, title, value=f"point.{key}", meaning=meaning, **shown)

    return Table(
        "points",
        (
            Column("hardware", meaning="the device, if there are several"),
            Column(None, "", text=lambda row: row.letter),
            field(
                "name", "a group of kernels, or a predicted operator", item,
                unit=KERNEL_NAME if item == "kernel" else NAME,
            ),
            Column(None, "×", TIMES, "point.invocations", priority=3),
            field("category", "the kind of work, such as `GEMM`"),
            field(
                "level", "the memory level whose traffic places the point: `dram`, `l2` or `l1`", "level", priority=9
            ),
            field("pipe", "the pipe with the longest minimum time; null if no FLOPs were counted"),
            field(
                "intensity", "FLOPs / bytes at this level", "FLOP/B",
                unit=COUNT, text=_intensity, unknown="–", priority=7,
            ),
            field(
                "flops_per_second", "achieved FLOP/s; of a predicted operator, FLOP/s at its bound", "FLOP/s",
                unit=COUNT, text=_performance, unknown="–", priority=5,
            ),
            Column(None, "B/s", RATE, "point.bytes_per_second", priority=4),
            field("attainable", "FLOP/s that the ceilings allow at this intensity"),
            field(
                "fraction", "achieved / attainable", "achieved", unit=COUNT, text=_achieved, unknown="–", priority=10,
                legend="achieved: share of the attainable performance",
            ),
            field(
                "bound", "`compute` or `memory`; null if FLOPs that were not collected could change it", "bound by",
                text=lambda row: row.point.bound or "?" * row.point.incomplete, priority=6,
            ),
            field("seconds", "the time of the group"),
            field("share", "its share of the total time", share, unit=PERCENT, unknown="–"),
            field("invocations", "its number of launches"),
            field("predicted", "whether it is an operator of `--model`"),
            field("incomplete", "whether not all FLOPs were counted: intensity and FLOP/s are lower bounds"),
            field("occupancy", "achieved occupancy: resident warps / maximum warps"),
            field("registers", "registers per thread"),
            field("finding", "why the point may be above its ceiling; null if it is not"),
            field(
                "flops_per_second_low", "the lower limit of the FLOP/s if counters only bracket the FLOPs; else null"
            ),
            field("bytes_per_second", "bytes at this level / time"),
            field("counted", "whether FLOPs and bytes are counted from the shapes that a PyTorch trace recorded, "
                  "not measured"),
            REASONS_COLUMN._replace(value=lambda row: reason_records(row.point.reasons)),
        ),
        marks={
            "≥": LOWER_BOUND,
            "?": "? unknown: FLOPs of some pipes were not collected and could make compute the limit",
            "!": "! above the ceiling: see the warnings",
        },
    )  # fmt: skip


def point_rows(rooflines: "Sequence[Roofline]") -> list[PointRow]:
    """A row for each point, device by device."""
    return [PointRow(point, roofline.device.id) for roofline in rooflines for point in roofline.points]


def point_file_table(rooflines: "Sequence[Roofline]") -> Table:
    """The columns of a file of points; that of the device only if there are several."""
    return points_table() if len(rooflines) > 1 else points_table().without("hardware")
