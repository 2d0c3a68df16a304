"""Interpret the metrics of many launches as arrays.

A gigabyte of Nsight Compute CSV has half a million launches or more. `metrics.interpret` is written for one launch; it
processes many when its values are `LaunchArray`s instead of numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from roofmodel.profiles.kernel import COLUMNS, KernelTable, ReaderWarning
from roofmodel.profiles.ncu import metric_names, metrics

Places = npt.NDArray[np.intp]  # rows of a table


class LaunchArray(np.ndarray[Any, Any]):
    """A metric of many launches in place of one number; a branch on it requires all launches to agree."""

    def __bool__(self) -> bool:
        mask = np.asarray(self) != 0
        if mask.any() and not mask.all():
            raise DivergentBranch(mask)
        return bool(mask[0])

    def __round__(self, digits: int = 0) -> Any:
        return np.rint(self) if not digits else NotImplemented


class DivergentBranch(Exception):
    """A branch on which launches disagree: those in `mask` take it, the others do not."""

    def __init__(self, mask: npt.NDArray[np.bool_]) -> None:
        super().__init__()
        self.mask = mask


def interpret(
    launches: KernelTable, rows: Sequence[int], generation: str | None, averaged: bool
) -> Counter[ReaderWarning]:
    """Add what the metrics of launches tell, as totals over their invocations; returns how often each note applies.

    Launches that have the same metrics and take the same branches are interpreted together.
    """
    notes: Counter[ReaderWarning] = Counter()
    chosen = np.asarray(rows)
    columns = {name: launches.array(name)[chosen] for name in launches.metrics if metric_names.is_interpreted(name)}
    collected = np.zeros(len(chosen), np.intp)  # one number per set of collected metrics
    for column in columns.values():
        collected = np.unique(2 * collected + np.isnan(column), return_inverse=True)[1]
    for number in range(collected.max(initial=-1) + 1):
        together = np.flatnonzero(collected == number)
        values = {
            name: column[together].view(LaunchArray)
            for name, column in columns.items()
            if not np.isnan(column[together[0]])
        }
        for among, found in _interpret_together(values, np.arange(len(together)), generation, averaged):
            places = chosen[together[among]]
            notes.update(dict.fromkeys(found.notes, len(places)))
            for name, value in found.quantities():
                scale = launches.array("invocations")[places] if averaged and COLUMNS[name].total == "sum" else 1
                if COLUMNS[name].kind is float:
                    launches.stored(name)
                    launches.array(name)[places] = np.asarray(value) * scale
                else:
                    launches.update(name, places.tolist(), np.asarray(value).astype(int).tolist())
    return notes


def _interpret_together(
    values: Mapping[str, LaunchArray], places: Places, generation: str | None, averaged: bool
) -> Iterator[tuple[Places, metrics.LaunchMetrics]]:
    try:
        meaning = metrics.interpret(cast(Mapping[str, float], values), generation, averaged)
    except DivergentBranch as diverged:
        for mask in (diverged.mask, ~diverged.mask):
            some = {name: lanes[mask].view(LaunchArray) for name, lanes in values.items()}
            yield from _interpret_together(some, places[mask], generation, averaged)
    else:
        yield places, meaning
