"""The panels of a roofline plot, the letters of its points, and what its title and its sources say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from roofmodel.report import marks
from roofmodel.roofline.panel import MIN_SHARE, Panel
from roofmodel.roofline.points import Point

if TYPE_CHECKING:
    from roofmodel.plot.place import RooflinePlot
    from roofmodel.steps.estimate import Estimate

COUNTED = "FLOPs and bytes counted from shapes"
MAX_FILES = 3  # names of files that are shown


def panels_of(placed: RooflinePlot) -> list[Panel]:
    """One panel for each device."""
    return [
        Panel(
            line.device,
            line.identification.source,
            line.points,
            str(line.ceilings),
            _workload(line.predicted),
            placed.by,
            line.pipes,
            line.counted,
            line.not_judged,
            line.collecting,
        )
        for line in placed.rooflines
    ]


def _workload(predicted: Estimate | str) -> str:
    if isinstance(predicted, str):
        return predicted
    from roofmodel.steps.estimate import describe_phase, describe_workload

    phases = map(describe_phase, predicted.phases)
    return ", ".join([predicted.architecture.name, describe_workload(predicted), *phases])


def heading(placed: RooflinePlot) -> str:
    """`NVIDIA A100 SXM4 40 GB (assumed): measured kernels, gpt2 predicted`."""
    panels = panels_of(placed)
    devices = ", ".join(panel.device.id for panel in panels) if len(panels) > 1 else panels[0].title
    measured = f"measured kernels{f', {COUNTED}' * any(panel.counted for panel in panels)}"
    measured = "instruction roofline" if placed.instructions else measured
    subjects = [measured] * bool(placed.files) + [f"{placed.model} predicted"] * bool(placed.model)
    return f"{devices}: {', '.join(subjects)}"


def sources(placed: RooflinePlot) -> list[str]:
    """The names of the files, and the predicted workloads."""
    listed = MAX_FILES if len(placed.rooflines) == 1 else 1
    lines = []
    for roofline in placed.rooflines:
        names = roofline.files
        lines += [*names[:listed], *([f"and {len(names) - listed} more files"] if len(names) > listed else [])]
    workloads = dict.fromkeys(panel.workload for panel in panels_of(placed) if panel.workload)
    return [*lines, *(f"predicted: {workload}" for workload in workloads)]


def letters_of(panels: Sequence[Panel]) -> dict[str, str]:
    """A letter for each of the first names of points, the same in tables, charts and pictures, and for all devices.

    A name can have a letter if one of its DRAM points has FLOPs and a relevant share of the time: measured ones first,
    then the longest.
    """
    share: dict[tuple[bool, str], float] = {}
    for panel in panels:
        for p in panel.drawn:
            if p.level == "dram" and (p.share is None or p.share >= MIN_SHARE):
                key = p.predicted, p.name
                share[key] = max(share.get(key, 0), p.share or 0)
    longest = dict.fromkeys(name for _, name in sorted(share, key=lambda key: (key[0], -share[key])))
    return dict(zip(longest, marks.LETTERS, strict=False))


def letter_of(point: Point, letters: Mapping[str, str]) -> str:
    """The letter of a point; empty if it is not in a chart."""
    return letters.get(point.name, "") if point.level == "dram" and point.drawable else ""
