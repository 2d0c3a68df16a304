"""What every picture of points shows: which roofs, which part of the plane, in which words."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofmodel.devices.device import Device, Level, Pipe
from roofmodel.study.compare import formats
from roofmodel.study.compare.naming import anchor, auxiliary_role
from roofmodel.study.estimate.estimate import Estimate
from roofmodel.study.profile.place import RooflinePlot
from roofmodel.study.profile.points import LEVELS, Point
from roofmodel.views.kit import canvas
from roofmodel.views.kit.workload_text import describe_phase, describe_workload

COLOURS = {
    "matrix product": canvas.ORANGE,
    "convolution": canvas.RED,
    "attention": canvas.BLUE,
    "norm": canvas.GREEN,
    "softmax": canvas.GREEN,
    "elementwise": canvas.SKY,
    "reduction": canvas.SKY,
    "embedding": canvas.PURPLE,
    "communication": canvas.YELLOW,
    "mlp": canvas.ORANGE,
    "residual": canvas.SKY,
    "activation": canvas.SKY,
    "ssm": canvas.GREEN,
    "linear": canvas.GREEN,
    "bias": canvas.SKY,
    "head": canvas.PURPLE,
    "optimizer": canvas.RED,
    "layout": canvas.GREY,
    # the lecture's groups
    "matrix-mul": canvas.ORANGE,
    "memory_mgmt": canvas.PURPLE,
    "custom_ops": canvas.SKY,
}
DEVICES = (canvas.BLUE, canvas.RED, canvas.GREEN, canvas.PURPLE, canvas.ORANGE, canvas.SKY)
LECTURE = (
    "groups of the profiling lecture, by name: matrix-mul (gemm), memory_mgmt (nccl, copies), custom_ops (PyTorch's "
    "own kernels), other"
)
FOUND = {"given": "as given", "attributes": "by the file's attributes", "assumed": "ASSUMED"}
LISTED = 3  # files by name
_FOLDERS = re.compile(r"(?<![\w<])(?:~|\.{1,2})?/(?:[^/\s]+/)*(?=[^/\s])")  # what stands before a file's name
_LEADING = re.compile(r"void |static |(?:\(anonymous namespace\)|<unnamed>|\w+)::")
_BASE = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|[^<(])*")
TAIL = "Tail: down to where it stands if an instruction on halves works on one, not on two."
MATTERS = 0.01  # of the time: a point of less does not stretch a picture's axes


class Panel(NamedTuple):
    """A device, how it was found (`given`, `attributes` or `assumed`), and the points under its roofs."""

    device: Device  # with the ceilings as drawn
    how: str
    points: Sequence[Point]
    conditions: str = ""  # of the roofs: `, ceilings at 1.312 GHz`
    workload: str = ""  # of the predicted points: `gpt2, fp16, flash attention, prefill: 1 × 1024 tokens`
    by: str = "name"  # what kernels are grouped by

    @property
    def title(self) -> str:
        """The device's name, what is to be known of its roofs, and whether it is an assumption."""
        return f"{self.device.name}{' (assumed)' * (self.how == 'assumed')}{self.conditions}"

    @property
    def one(self) -> str:
        """What a measured point is one of."""
        return {"nvtx": "range", "category": "work", "lecture": "group"}.get(self.by, "kernel")

    @property
    def groups(self) -> str:
        """What the names of the groups mean, where they do not say it."""
        return LECTURE if self.by == "lecture" else ""

    @property
    def drawn(self) -> list[Point]:
        """The points that have a place on two logarithmic axes; those without FLOPs stand in tables alone."""
        return [p for p in self.points if p.intensity and p.flops_per_second]

    @property
    def pipes(self) -> list[Pipe]:
        """The pipes that the points used, highest first; all of them where no point tells."""
        used = {self.device.pipes[p.pipe] for p in self.drawn if p.pipe} or set(self.device.pipes.values())
        partly = [p.name for p in self.drawn if p.incomplete]
        if partly:  # the roof that the work that was not counted would stand under, of tensor cores as products say
            said = {
                formats.format_in_name(name) or "fp16" for name in partly if anchor(name) and not auxiliary_role(name)
            } - {"fp32"}
            used |= {self.device.matmul_pipe(name) for name in said or {"fp16"} if name in self.device.types}
        return sorted(used, key=lambda pipe: -pipe.peak)

    @property
    def levels(self) -> list[Level]:
        """The memory levels whose bandwidth is known and where points stand; DRAM always, and first."""
        at = {"dram", *(p.level for p in self.drawn)}
        known = [self.device.levels[name] for name in LEVELS if name in at and name in self.device.levels]
        return [level for level in known if level.bandwidth]


def panels_of(placed: RooflinePlot) -> list[Panel]:
    """A panel a device."""
    return [
        Panel(
            line.device,
            line.identification.source,
            line.points,
            str(line.ceilings),
            _workload(line.predicted),
            placed.by,
        )
        for line in placed.rooflines
    ]


def _workload(predicted: Estimate | None) -> str:
    if predicted is None:
        return ""
    phases = map(describe_phase, predicted.phases)
    return ", ".join([predicted.architecture.name, describe_workload(predicted), *phases])


def heading(placed: RooflinePlot) -> str:
    """`NVIDIA A100 SXM4 40 GB (assumed): measured kernels, gpt2 predicted`."""
    panels = panels_of(placed)
    devices = ", ".join(panel.device.id for panel in panels) if len(panels) > 1 else panels[0].title
    what = ["measured kernels"] * bool(placed.files) + [f"{placed.model} predicted"] * bool(placed.model)
    return f"{devices}: {', '.join(what)}"


def provenance(panels: Iterable[Panel], sources: Iterable[str]) -> str:
    """Which devices, how each was found, and what the points came from."""
    devices = [f"device {panel.device.id} {FOUND[panel.how]}{panel.conditions}" for panel in panels]
    return " · ".join([*devices, *sources])


def sources(placed: RooflinePlot) -> list[str]:
    """The files' names, without their folders, and the workload of what is predicted."""
    listed = LISTED if len(placed.rooflines) == 1 else 1
    found = []
    for roofline in placed.rooflines:
        names = [name.rpartition("/")[2] for name in roofline.files]
        found += [*names[:listed], *([f"and {len(names) - listed} more files"] if len(names) > listed else [])]
    workloads = dict.fromkeys(panel.workload for panel in panels_of(placed) if panel.workload)
    return [*found, *(f"predicted: {workload}" for workload in workloads)]


def nameless(warning: str, files: Iterable[str]) -> str:
    """A warning as it may be shown to others: files without their folders."""
    for file in files:
        warning = warning.replace(file, file.rpartition("/")[2])
    return _FOLDERS.sub("", warning)


def short(name: str, room: int) -> str:
    """A kernel's name in so many letters: first its arguments are cut, then its return type and namespaces."""
    while len(name) > room and (base := _BASE.match(name)) and base.end() >= room and (lead := _LEADING.match(name)):
        name = name[lead.end() :]
    return name if len(name) <= room else f"{name[: max(room - 1, 0)]}…"


def ink(category: str) -> str:
    """The colour of a kind of work; related kinds share one, and those that have none are grey."""
    return COLOURS.get(category, canvas.GREY)


def colour(panels: Sequence[Panel], index: int, category: str) -> str:
    """A point's colour: its kind of work; where there are several devices, its device."""
    return DEVICES[index % len(DEVICES)] if len(panels) > 1 else ink(category)


def kinds(panels: Sequence[Panel]) -> list[str]:
    """The kinds of work, in the order of their time."""
    seconds: dict[str, float] = defaultdict(float)
    for panel in panels:
        for point in panel.points:
            seconds[point.category] += point.seconds or 0
    return sorted(seconds, key=lambda kind: -seconds[kind])


class Window(NamedTuple):
    """The part of the plane that a picture shows: FLOP/B across, FLOP/s up."""

    left: float
    right: float
    bottom: float
    top: float

    def holds(self, point: Point) -> bool:
        """Whether the point is inside."""
        x, y = point.intensity or 0, point.flops_per_second or 0
        return self.left <= x <= self.right and self.bottom <= y <= self.top


def window(at: Iterable[tuple[float, float]], devices: Iterable[tuple[float, float]]) -> Window:
    """The window that holds points (FLOP/B, FLOP/s) and the knees of roofs (peak, DRAM bandwidth)."""
    across, up = zip(*at, strict=True) if (at := list(at)) else ((), ())
    peaks, bandwidths = zip(*devices, strict=True)
    knees = [peak / bandwidth for peak, bandwidth in zip(peaks, bandwidths, strict=True)]
    left = 10 ** math.floor(math.log10(min([*across, min(knees) / 100])))
    right = 10 ** math.ceil(math.log10(2.5 * max([*across, *knees])))
    return Window(left, right, min([left * min(bandwidths), *up]) / 1.5, 2.5 * max([*peaks, *up]))


def view(panels: Sequence[Panel]) -> Window:
    """The window of all panels; points of little time may lie outside."""
    mattering = [p for panel in panels for p in panel.drawn if p.share is None or p.share >= MATTERS]
    at = [(p.intensity or 0, p.flops_per_second or 0) for p in mattering]
    at += [p.unpacked for p in mattering if p.unpacked]
    return window(at, [(panel.pipes[0].peak, panel.device.bandwidth) for panel in panels])
