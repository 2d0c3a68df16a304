"""Names and colors of the parts of the wall time, names of the causes of idle time, and the largest part in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from roofmodel.numbers import units
from roofmodel.report import marks
from roofmodel.trace.steps import total
from roofmodel.trace.trace import RankReport


class Part(NamedTuple):
    """How outputs show a part of the wall time."""

    title: str  # column of a table
    legend: str  # legend of the picture
    color: str


PARTS = {
    "compute_only": Part("compute", "compute alone", marks.BLUE),
    "communication_exposed": Part("communication", "communication exposed", marks.ORANGE),
    "copies_exposed": Part("copies", "copies exposed", marks.PURPLE),
    "overlap": Part("overlap", "compute, overlapped", marks.SKY),
    "idle": Part("idle", "idle", "0.85"),
}
COMPUTATION = ("compute_only", "overlap")
COMPUTATION_FIRST = sorted(PARTS, key=lambda part: part not in COMPUTATION)  # for stacked bars
OUTSIDE = "outside"
"""The idle time of a step that is outside the span of GPU work, so that nothing in the file ends it: no cause."""
CAUSE_TEXTS = {
    "input": "data loader",
    "synchronization": "after the CPU waited for the GPU",
    "launch": "the CPU launches too slowly",
    "cpu_work": "the CPU does other work",
    "other_rank": "the CPU waits for other ranks",
    "allocation": "the CPU allocates memory or loads modules",
    "queued": "kernels launched but not started (stream order, events, other devices)",
    "unknown": "unknown",
    OUTSIDE: "before the first or after the last GPU work of the file",
}


def describe_causes(idle_by_cause: Mapping[str, float]) -> str:
    """The causes of idle time with their seconds, the largest first: `data loader 12 ms; unknown 1 µs`."""
    causes = sorted(idle_by_cause.items(), key=lambda item: -item[1])
    return "; ".join(f"{CAUSE_TEXTS[cause]} {units.seconds(seconds)}" for cause, seconds in causes)


def largest_part(ranks: Iterable[RankReport]) -> str:
    """The largest part of the wall time, summed over the ranks, and the main cause if it is idle time."""
    seconds: dict[str, float] = defaultdict(float)
    causes: dict[str, float] = defaultdict(float)
    for report in ranks:
        window = total(report.rank)
        seconds["computation"] += (window.compute_only + window.overlap) / 1e9
        seconds["exposed communication"] += window.communication_exposed / 1e9
        seconds["copying"] += window.copies_exposed / 1e9
        seconds["idle time"] += window.idle / 1e9
        for cause, idle in report.idle_by_cause.items():
            causes[cause] += idle
    if not seconds:
        return "no GPU work"
    wall = sum(seconds.values())
    if not wall:
        return "the GPU work takes no time"
    part, longest = max(seconds.items(), key=lambda item: item[1])
    size = "takes most" if 2 * longest > wall else "is the largest part"
    text = f"{part} {size} of the wall time: {units.seconds(longest)} of {units.seconds(wall)} ({longest / wall:.0%})"
    if part == "idle time" and causes:
        text += f", main cause: {CAUSE_TEXTS[max(causes, key=causes.__getitem__)]}"
    return text
