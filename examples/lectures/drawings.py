"""Pictures for the lectures, drawn from a device file or from numbers of a cell.

A notebook shows the picture below the cell that calls the function. For slides, as a file:

    python examples/lectures/drawings.py gpu a100 gpu.png
    python examples/lectures/drawings.py dgx1 v100-sxm2-32gb links.png
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from roofmodel import Device
from roofmodel.devices.parts import Level

BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#777777"
Point = tuple[float, float]
COLORS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00")

# NVLinks between the GPUs of a DGX-1 with V100: `nvidia-smi topo -m`, as in pytorch/pytorch@bf69c149,
# benchmarks/distributed/ddp/README.md. Other pairs communicate over PCIe.
DGX1_LINKS = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2,
    (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
    (0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1,
}  # fmt: skip


def empty(width: float, height: float) -> Axes:
    """Axes without ticks, in which a unit is an inch."""
    figure = plt.figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_aspect("equal")
    axes.axis("off")
    return axes


def box(
    axes: Axes, x: float, y: float, width: float, height: float, text: str, color: str = BLUE
) -> None:
    """A box with its lower left corner at x, y."""
    style = {"boxstyle": "round,pad=0,rounding_size=0.06", "facecolor": light(color)}
    axes.add_patch(FancyBboxPatch((x, y), width, height, edgecolor=color, **style))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9)


def light(color: str) -> tuple[float, ...]:
    """A light, opaque version of a color."""
    return tuple(0.85 + 0.15 * part for part in to_rgb(color))


def arrow(axes: Axes, start: Point, end: Point, style: str = "-|>") -> None:
    """An arrow."""
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle=style, mutation_scale=11, color=GRAY))


def gpu(device: Device) -> None:
    """The schematic of a GPU: SMs, caches, memory and links, with the numbers of its device file."""
    axes = empty(8, 5.2)
    l1, l2, dram = (device.levels.get(name) for name in ("l1", "l2", "dram"))
    count = device.multiprocessors or 0
    cores = "SM" if device.vendor == "NVIDIA" else "core"
    axes.text(0.1, 5.0, f"{device.name}: {count or '?'} {cores}s", fontsize=11, va="center")
    last = count - 1 if count else "n"
    for x, number in ((0.1, 0), (2.1, 1), (6.1, last)):
        box(axes, x, 3.2, 1.6, 1.5, "", GRAY)
        axes.text(x + 0.8, 4.55, f"{cores} {number}", ha="center", va="center", fontsize=9)
        box(axes, x + 0.1, 3.95, 1.4, 0.42, "pipes, registers", ORANGE)
        if l1 and l1.capacity and count:
            box(axes, x + 0.1, 3.3, 1.4, 0.5, f"L1 and shared\n{l1.capacity / count / 2**10:.0f} KiB")
        arrow(axes, (x + 0.8, 3.2), (x + 0.8, 2.75 if l2 else 1.65), "<|-|>")
    axes.text(4.9, 4.0, "…", ha="center", fontsize=14)
    if l2:
        box(axes, 0.1, 2.1, 7.6, 0.65, _level("L2", l2, 2**20, "MiB"))
        arrow(axes, (3.9, 2.1), (3.9, 1.65), "<|-|>")
    box(axes, 0.1, 1.0, 7.6, 0.65, _level("DRAM", dram, 2**30, "GiB"), GREEN)
    dtype = "fp16" if "fp16" in device.types else "bf16"
    rates = {f"GEMM in {dtype}": device.matmul_pipe(dtype).peak}
    rates |= {name: device.pipes[name].peak for name in ("fp32", "fp64") if name in device.pipes}
    peaks = ", ".join(f"{name} {peak / 1e12:.4g}" for name, peak in rates.items())
    links = ", ".join(f"{name} {link.bandwidth / 1e9:g}" for name, link in device.links.items())
    axes.text(0.1, 0.65, f"all {cores}s together, TFLOP/s: {peaks}", fontsize=9)
    axes.text(0.1, 0.3, f"links, both directions together, GB/s: {links}", fontsize=9)


def _level(name: str, level: Level, unit: int, unit_name: str) -> str:
    """Capacity and bandwidth of a level, as far as the device file has them."""
    parts = [f"{level.capacity / unit:.4g} {unit_name}"] if level.capacity else []
    parts += [f"{level.bandwidth / 1e12:.4g} TB/s"] if level.bandwidth else []
    return f"{name}   " + ",  ".join(parts)


def dgx1(device: Device) -> None:
    """The NVLinks of a DGX-1 with V100, a line for each link, at the bandwidth of the device file."""
    total = device.links["nvlink"].bandwidth
    each = total / 6
    places = {}
    for half, left in enumerate((0.6, 4.4)):
        places |= {4 * half + number: (left + x, y) for number, (x, y) in enumerate(_SQUARE)}
    axes = empty(8, 3.9)
    for (first, second), links in DGX1_LINKS.items():
        for line in range(links):
            offset = 0.07 * (line - (links - 1) / 2)
            _link(axes, places[first], places[second], offset, across=second - first == 4)
    for number, (x, y) in places.items():
        box(axes, x - 0.35, y - 0.2, 0.7, 0.4, f"GPU {number}")
    text = f"Each line is an NVLink of {each / 1e9:.0f} GB/s; a GPU has six: {total / 1e9:.0f} GB/s"
    axes.text(4, 0.1, text, ha="center", fontsize=9)


_SQUARE = ((0.3, 3.0), (2.3, 3.0), (2.3, 1.0), (0.3, 1.0))  # GPUs 0 and 1 over 3 and 2


def _link(axes: Axes, start: Point, end: Point, offset: float, *, across: bool) -> None:
    """A line; between the halves an arc, which passes above or below the other GPUs."""
    (x0, y0), (x1, y1) = start, end
    length = math.hypot(x1 - x0, y1 - y0)
    dx, dy = -offset * (y1 - y0) / length, offset * (x1 - x0) / length
    bend = 0 if not across else -0.22 if y0 > 2 else 0.22
    ends = (x0 + dx, y0 + dy), (x1 + dx, y1 + dy)
    style = {"connectionstyle": f"arc3,rad={bend}", "color": ORANGE if across else BLUE}
    axes.add_patch(FancyArrowPatch(*ends, arrowstyle="-", linewidth=1.6, zorder=0, **style))


def block(operators: Sequence[tuple[str, str]], adds: Mapping[int, int]) -> None:
    """A transformer block from bottom to top: names of operators and a note on each.

    `adds[end] = start`: the input of operator `start` is added to the output of operator `end`.
    """
    axes = empty(8, 0.52 * len(operators) + 0.9)
    x, width = 1.6, 2.3
    for number, (name, note) in enumerate(operators):
        y = 0.4 + 0.52 * number
        box(axes, x, y, width, 0.34, name, ORANGE if note else BLUE)
        axes.text(x + width + 0.6, y + 0.17, note, va="center", fontsize=9)
        arrow(axes, (x + width / 2, y - 0.18), (x + width / 2, y), "-|>")
    top = 0.4 + 0.52 * len(operators)
    arrow(axes, (x + width / 2, top - 0.18), (x + width / 2, top + 0.1), "-|>")
    for end, start in adds.items():
        low, high = 0.4 + 0.52 * start - 0.14, 0.4 + 0.52 * end + 0.17
        axes.plot([x + width / 2, x - 0.5, x - 0.5], [low, low, high], color=GRAY, linewidth=1)
        arrow(axes, (x - 0.5, high), (x, high))


def ring(count: int, text: str) -> None:
    """A ring of GPUs, each of which sends to its neighbor."""
    axes = empty(8, 3.2)
    angles = [2 * math.pi * number / count for number in range(count)]
    places = [(4 + 2.3 * math.sin(angle), 1.6 + 1.25 * math.cos(angle)) for angle in angles]
    for number, (x, y) in enumerate(places):
        x1, y1 = places[(number + 1) % count]
        length = math.hypot(x1 - x, y1 - y)
        dx, dy = (x1 - x) / length, (y1 - y) / length
        gap = 0.4 * abs(dx) + 0.24 * abs(dy)
        arrow(axes, (x + gap * dx, y + gap * dy), (x1 - gap * dx, y1 - gap * dy))
    for number, (x, y) in enumerate(places):
        box(axes, x - 0.35, y - 0.17, 0.7, 0.34, f"GPU {number}")
    axes.text(4, 1.6, text, ha="center", va="center", fontsize=9)


def timeline(rows: Mapping[str, Sequence[tuple[float, float, str]]], unit: str) -> None:
    """Intervals in rows: start, end, text. Texts that differ only in a number have one color."""
    _, axes = plt.subplots(figsize=(8, 0.42 * len(rows) + 0.9))
    colors: dict[str, str] = {}
    for row, intervals in enumerate(rows.values()):
        for start, end, text in intervals:
            color = colors.setdefault(text.rstrip("0123456789 "), COLORS[len(colors) % len(COLORS)])
            axes.barh(row, end - start, left=start, height=0.7, color=light(color), edgecolor=color)
            axes.text((start + end) / 2, row, text, ha="center", va="center", fontsize=8, clip_on=True)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)


if __name__ == "__main__":
    _, picture, name, path = sys.argv
    {"gpu": gpu, "dgx1": dgx1}[picture](Device.load(name))
    plt.savefig(path, dpi=200)
