"""Contents of plots of points, for all formats: devices, points, ceilings, axis limits, colors and titles."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Level, Pipe
from roofmodel.report import marks
from roofmodel.report.marks import SeriesStyle
from roofmodel.roofline.formats import pipes_in_use
from roofmodel.roofline.points import Point

CATEGORY_COLORS = {
    "GEMM": marks.ORANGE,
    "convolution": marks.RED,
    "attention": marks.BLUE,
    "norm": marks.GREEN,
    "softmax": marks.GREEN,
    "elementwise": marks.SKY,
    "reduction": marks.SKY,
    "embedding": marks.PURPLE,
    "communication": marks.YELLOW,
    "mlp": marks.ORANGE,
    "residual": marks.SKY,
    "activation": marks.SKY,
    "ssm": marks.GREEN,
    "linear": marks.GREEN,
    "bias": marks.SKY,
    "projector": marks.PURPLE,
    "head": marks.PURPLE,
    "optimizer": marks.RED,
    "layout": marks.GRAY,
    # groups of `--by lecture`
    "matrix-mul": marks.ORANGE,
    "memory_mgmt": marks.PURPLE,
    "custom_ops": marks.SKY,
}
LECTURE_GROUPS = (
    "groups of the profiling lecture, from kernel names: matrix-mul (GEMM), memory_mgmt (NCCL, copies), custom_ops "
    "(PyTorch's own kernels), other"
)
DEVICE_SOURCES = {
    "given": "as given", "attributes": "identified by the file", "assumed": "ASSUMED", "file": "from the file",
}  # fmt: skip
TAIL_NOTE = "Tail: down to the position if each fp16 instruction processes one value, not two."
MIN_SHARE = 0.01  # of the time; points below it do not extend the axes
MIN_UNDRAWN = 0.1  # of the time; a smaller share without a place in the picture is not mentioned


class Panel(NamedTuple):
    """A device, how it was identified (`given`, `attributes`, `assumed` or `file`), and its points."""

    device: Device  # with the ceilings as drawn
    identified: str
    points: Sequence[Point]
    conditions: str = ""  # of the ceilings: `, ceilings at 1.312 GHz`
    workload: str = ""  # of the predicted points: `gpt2, fp16, flash attention, prefill: 1 × 1024 tokens`
    by: str = "name"  # what kernels are grouped by
    used: Sequence[Pipe] = ()  # the pipes that the kernels used; empty: they follow from the points
    counted: bool = False  # FLOPs and bytes of the kernels are counted from the shapes of operators
    not_judged: Sequence[str] = ()  # the titles of the reasons that the files' counters cannot tell
    collecting: str = ""  # what collects these counters

    @property
    def title(self) -> str:
        """The device's name, whether it is assumed, and the conditions of its ceilings."""
        return f"{self.device.name}{' (assumed)' * (self.identified == 'assumed')}{self.conditions}"

    @property
    def item(self) -> str:
        """The noun for a measured point."""
        return {"nvtx": "range", "category": "work", "lecture": "group"}.get(self.by, "kernel")

    @property
    def groups(self) -> str:
        """An explanation of the groups' names; empty if they need none."""
        return LECTURE_GROUPS if self.by == "lecture" else ""

    @property
    def drawn(self) -> list[Point]:
        """The points with a position on logarithmic axes; points without FLOPs are in tables only."""
        return [point for point in self.points if point.drawable]

    @property
    def drawn_share(self) -> float | None:
        """The share of the kernels' time that is drawn; None if most is, the times are unknown or nothing is measured.

        Kernels without FLOPs or bytes are not drawn.
        """
        shares = {point.name: point.share for point in self.points if not point.predicted}
        if not shares or None in shares.values():
            return None
        share = sum(shares[name] or 0 for name in {point.name for point in self.drawn if not point.predicted})
        return share if share < 1 - MIN_UNDRAWN else None

    @property
    def pipes(self) -> Sequence[Pipe]:
        """The pipes in use, by falling peak."""
        return self.used or pipes_in_use(self.points, self.device)

    @property
    def levels(self) -> list[Level]:
        """DRAM, the Infinity Cache in front of it, and the other levels that have points and a known bandwidth.

        No counter states what the Infinity Cache serves: bytes of DRAM are those of both.
        """
        at = {"dram", "infinity_cache", *(p.level for p in self.drawn)}
        return [level for name, level in self.device.levels.items() if name in at and level.bandwidth]


def provenance(panels: Iterable[Panel], sources: Iterable[str]) -> str:
    """The devices, how each was identified, and the sources of the points."""
    devices = [f"device {panel.device.id} {DEVICE_SOURCES[panel.identified]}{panel.conditions}" for panel in panels]
    return " · ".join([*devices, *sources])


def category_color(category: str) -> str:
    """The color of a category of work, which related categories share; gray for an unknown one."""
    return CATEGORY_COLORS.get(category, marks.GRAY)


def category_style(category: str) -> SeriesStyle:
    """The color and shape of a category of work."""
    color = category_color(category)
    return SeriesStyle(color, marks.SHAPES[color])


def point_style(panels: Sequence[Panel], index: int, category: str) -> SeriesStyle:
    """A point's color and shape: those of its category for one device, those of device `index` for several."""
    return marks.series_style(index) if len(panels) > 1 else category_style(category)


def categories(panels: Sequence[Panel]) -> list[str]:
    """The categories of work, by falling time."""
    seconds: dict[str, float] = defaultdict(float)
    for panel in panels:
        for point in panel.points:
            seconds[point.category] += point.seconds or 0
    return sorted(seconds, key=lambda category: -seconds[category])


class Window(NamedTuple):
    """Limits of the axes: left and right in FLOP/B, bottom and top in FLOP/s."""

    left: float
    right: float
    bottom: float
    top: float

    def contains(self, point: Point) -> bool:
        """Whether the point is inside."""
        x, y = point.intensity or 0, point.flops_per_second or 0
        return self.left <= x <= self.right and self.bottom <= y <= self.top


def window(at: Iterable[tuple[float, float]], devices: Iterable[tuple[float, float]]) -> Window:
    """The limits that include points (FLOP/B, FLOP/s) and the ridge points of devices (peak, DRAM bandwidth)."""
    across, up = zip(*at, strict=True) if (at := list(at)) else ((), ())
    peaks, bandwidths = zip(*devices, strict=True)
    ridges = [peak / bandwidth for peak, bandwidth in zip(peaks, bandwidths, strict=True)]
    left = 10 ** math.floor(math.log10(min([*across, min(ridges) / 100])))
    right = 10 ** math.ceil(math.log10(2.5 * max([*across, *ridges])))
    return Window(left, right, min([left * min(bandwidths), *up]) / 1.5, 2.5 * max([*peaks, *up]))


def view(panels: Sequence[Panel]) -> Window:
    """The limits for all panels; points below MIN_SHARE of the time may lie outside."""
    relevant = [p for panel in panels for p in panel.drawn if p.share is None or p.share >= MIN_SHARE]
    at = [(p.intensity or 0, p.flops_per_second or 0) for p in relevant]
    at += [p.unpacked for p in relevant if p.unpacked]
    return window(at, [(panel.pipes[0].peak, panel.device.bandwidth) for panel in panels])
