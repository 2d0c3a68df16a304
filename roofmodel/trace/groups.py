"""Time of GPU work (kernels, copies, memsets) by category, name, range, operator, device, stream or step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roofmodel.profiles.timelines import enclosing
from roofmodel.profiles.timelines.timeline import COPY, MEMSET
from roofmodel.roofline.categories import category, lecture_category
from roofmodel.trace.achieved import Achieved, RankWork
from roofmodel.trace.ranks import Rank
from roofmodel.trace.steps import Steps

if TYPE_CHECKING:
    import pandas


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
    durations = rank.work["end"] - rank.work["start"]
    keys = np.asarray(GROUPINGS[by](rank, steps), dtype=object)
    groups = durations.groupby(keys)
    achieved = {str(key): work.total(rows) for key, rows in groups.indices.items()} if work else {}
    table = groups.agg(["size", "sum", "mean", "median", "min", "max"])
    total = float(durations.sum()) or 1.0
    rows = [
        GroupTime(rank.number, str(key), int(row["size"]), row["sum"] / 1e9, row["sum"] / total,
                  row["mean"] / 1e9, row["median"] / 1e9, row["min"] / 1e9, row["max"] / 1e9, achieved.get(str(key)))
        for key, row in table.iterrows()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row.seconds, row.group))


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
    memory = np.array(_by_name_only(lecture_category)(rank, Steps([]))) == "memory_mgmt"
    return LectureShares(int(durations[memory].sum()) / total, int(durations[rank.is_collective].sum()) / total)


def _by_name_only(label: Callable[[str], str]) -> Callable[[Rank, Steps], object]:
    """A grouping that depends on the name alone."""

    def keys(rank: Rank, steps: Steps) -> object:
        names = rank.work["name"].cat
        of_code = np.array([label(name) for name in names.categories], dtype=object)
        return of_code[names.codes.to_numpy()]

    return keys


def _kinds(rank: Rank, steps: Steps) -> object:
    """The category of kernels; copies and memsets apart, copies by direction."""
    keys = np.array(_by_name_only(category)(rank, steps), dtype=object)
    copies = (rank.work["kind"] == COPY).to_numpy()
    keys[copies] = "copy " + rank.work["direction"].astype(object).fillna("")[copies]
    keys[(rank.work["kind"] == MEMSET).to_numpy()] = MEMSET
    return keys


def _ranges(rank: Rank, steps: Steps) -> object:
    labels = enclosing.innermost_names(rank.work, rank.timeline.ranges)
    return [_CALL.sub("", label) if label else "(no range)" for label in labels]


def _operators(rank: Rank, steps: Steps) -> object:
    """The operators of the framework; without them, the ranges that PyTorch's `emit_nvtx` writes for its operators."""
    events = rank.timeline.operators
    if not len(events):
        names = rank.timeline.ranges["name"].astype(object)
        events = rank.timeline.ranges[names.str.contains(_CALL, na=False).astype(bool)]
    labels = enclosing.innermost_names(rank.work, events)
    return [_CALL.sub("", label) if label else "(no operator)" for label in labels]


def _steps(rank: Rank, steps: Steps) -> object:
    keys = np.full(len(rank.work), "(no step)", dtype=object)
    for step in steps.steps:
        keys[slice(*np.searchsorted(rank.starts, [step.start, step.end]))] = step.label
    return keys


def _column(name: str) -> Callable[[Rank, Steps], object]:
    def keys(rank: Rank, steps: Steps) -> pandas.Series:
        return rank.work[name].astype(object).fillna(f"(no {name})")

    return keys


GROUPINGS: Mapping[str, Callable[[Rank, Steps], object]] = {
    "group": _kinds,
    "lecture": _by_name_only(lecture_category),
    "name": _by_name_only(str),
    "nvtx": _ranges,
    "operator": _operators,
    "device": _column("device"),
    "stream": _column("stream"),
    "step": _steps,
}
