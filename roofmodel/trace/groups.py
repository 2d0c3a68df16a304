"""Time of GPU work (kernels, copies, memsets) by category, name, range, operator, device, stream or step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from roofmodel.profiles.timelines import enclosing
from roofmodel.profiles.timelines.timeline import MEMSET
from roofmodel.roofline.categories import category, lecture_category
from roofmodel.trace.achieved import Achieved, RankWork
from roofmodel.trace.ranks import Rank
from roofmodel.trace.steps import Steps

_CALL = re.compile(r", (?:seq|op_id|sizes) = .*$", re.DOTALL)
"""What `torch.autograd.profiler.emit_nvtx` appends to the name of an operator: numbers and shapes of one call."""


class GroupTime(NamedTuple):
    """Launches of one group on one rank. Overlapping launches count fully: `seconds` is not wall time."""

    rank: int
    group: str
    kernels: int  # launches; with copies and memsets
    seconds: float
    share: float  # of the rank's summed time
    mean: float
    median: float
    min: float
    max: float
    achieved: Achieved | None = None  # against the ceilings; None: FLOPs and bytes are unknown


def grouped(rank: Rank, steps: Steps, by: str, work: RankWork | None = None) -> list[GroupTime]:
    """The groups of a rank, longest first; `by` is a key of GROUPINGS; `work` has FLOPs and bytes."""
    if not len(rank.work):
        return []
    durations = rank.ends - rank.starts
    total = float(durations.sum()) or 1.0
    numbers: dict[str, int] = {}
    group_of = np.array([numbers.setdefault(key, len(numbers)) for key in GROUPINGS[by](rank, steps)])
    times = []
    for key, rows in zip(numbers, enclosing.rows_by_value(group_of).values(), strict=True):
        own = durations[rows]
        time, median = float(own.sum()), float(np.median(own)) / 1e9
        times.append(
            GroupTime(rank.number, key, len(own), time / 1e9, time / total, time / len(own) / 1e9, median,
                      float(own.min()) / 1e9, float(own.max()) / 1e9, work.total(rows) if work else None)
        )  # fmt: skip
    return sorted(times, key=lambda row: (-row.seconds, row.group))


class LectureShares(NamedTuple):
    """Shares of a rank's summed time. The lecture's share of communication contains copies, so NCCL is apart."""

    memory_mgmt: float  # copies, memsets and collectives: the group of the lecture
    collectives: float


def lecture_shares(rank: Rank) -> LectureShares | None:
    """The share of communication as the lecture defines it, and of collectives alone; None without GPU work."""
    durations = rank.ends - rank.starts
    total = int(durations.sum())
    if not total:
        return None
    memory = _by_name_only(lecture_category)(rank, Steps([])) == "memory_mgmt"
    return LectureShares(int(durations[memory].sum()) / total, int(durations[rank.is_collective].sum()) / total)


Grouping = Callable[[Rank, Steps], Any]
"""The group of each activity."""


def _by_name_only(label: Callable[[str], str]) -> Grouping:
    """A grouping that depends on the name alone."""
    return lambda rank, steps: rank.work.mapped("name", label, label(""))


def _kinds(rank: Rank, steps: Steps) -> Any:
    """The category of kernels; copies and memsets apart, copies by direction."""
    keys = _by_name_only(category)(rank, steps)
    keys[rank.is_copy] = rank.work.mapped("direction", "copy {}".format, "copy ")[rank.is_copy]
    keys[rank.is_memset] = MEMSET
    return keys


def _ranges(rank: Rank, steps: Steps) -> Any:
    labels = enclosing.innermost_names(rank.work, rank.timeline.range_table)
    return [_CALL.sub("", label) if label else "(no range)" for label in labels]


def _operators(rank: Rank, steps: Steps) -> Any:
    """The operators of the framework; without them, the ranges that PyTorch's `emit_nvtx` writes for its operators."""
    events = rank.timeline.operator_table
    if not len(events):
        ranges = rank.timeline.range_table
        is_call = ranges.mapped("name", lambda name: _CALL.search(name) is not None, False, bool)
        events = ranges.select(np.flatnonzero(is_call))
    labels = enclosing.innermost_names(rank.work, events)
    return [_CALL.sub("", label) if label else "(no operator)" for label in labels]


def _steps(rank: Rank, steps: Steps) -> Any:
    keys = np.full(len(rank.work), "(no step)", dtype=object)
    for step in steps.steps:
        keys[slice(*np.searchsorted(rank.starts, [step.start, step.end]))] = step.label
    return keys


def _column(name: str) -> Grouping:
    return lambda rank, steps: rank.work.mapped(name, str, f"(no {name})")


GROUPINGS: Mapping[str, Grouping] = {
    "group": _kinds,
    "lecture": _by_name_only(lecture_category),
    "name": _by_name_only(str),
    "nvtx": _ranges,
    "operator": _operators,
    "device": _column("device"),
    "stream": _column("stream"),
    "step": _steps,
}
