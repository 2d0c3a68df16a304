"""Align clocks at the end of collectives, which all ranks leave together.

The ranks of one file have one clock, except in tables of kernels by step, which join the exports of several hosts. The
offset of a clock is the median, over its collectives, of the difference to the median over all ranks. The rest is the
error of the alignment. No library does this: HTA takes clocks as equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from roofmodel.jitter.deviations import Floats
from roofmodel.jitter.kernels import Integers

ROUNDS = 3  # of the median over all ranks, which depends on the offsets


class CollectiveTimes(NamedTuple):
    """The collectives of one step; r ranks x n collectives, nanoseconds of the files' clocks."""

    ranks: tuple[int, ...]  # places in the list of ranks
    starts: Integers
    ends: Integers


class RankClocks(NamedTuple):
    """The clocks of all ranks relative to each other."""

    offsets: Floats  # nanoseconds to subtract from the times of each rank
    error_seconds: float | None  # largest difference between the ranks' ends of a collective; None without collectives
    start_skew_seconds: tuple[float, float] | None  # least and largest start, minus the first rank's start


def align(steps: Sequence[CollectiveTimes], time_bases: Sequence[str]) -> RankClocks:
    """The clocks; ranks with one time base have one clock, and are not shifted against each other."""
    count = len(time_bases)
    steps = [step for step in steps if step.ends.size]
    if not steps:
        return RankClocks(np.zeros(count), None, None)
    ranks_by_clock: dict[str, list[int]] = {}
    for rank, time_base in enumerate(time_bases):
        ranks_by_clock.setdefault(time_base, []).append(rank)
    groups = list(ranks_by_clock.values())
    if len(groups) > 1:
        matrix = _end_matrix(steps, count)
        offsets = _against_first(matrix, groups)
        for _ in range(ROUNDS):
            offsets = _refined(matrix, offsets, groups)
    else:
        offsets = np.zeros(count)
    offsets -= offsets[0]
    error, low, high = 0.0, 0.0, 0.0
    for step in steps:
        shift = offsets[list(step.ranks)][:, None]
        ends, starts = _relative(step.ends, step.ends) - shift, _relative(step.starts, step.ends) - shift
        error = max(error, float((ends.max(axis=0) - ends.min(axis=0)).max()))
        skew = starts - starts[0]
        low, high = min(low, float(skew.min())), max(high, float(skew.max()))
    return RankClocks(offsets, error / 1e9, (low / 1e9, high / 1e9))


def _relative(times: Integers, ends: Integers) -> Floats:
    """Differences to the first end of the first rank, which a float represents exactly."""
    return np.asarray(times - ends[0, 0], float)


def _end_matrix(steps: Sequence[CollectiveTimes], count: int) -> Floats:
    """The ends of N collectives on all ranks, N x R, relative to the first rank that has them; NaN for other ranks."""
    blocks = []
    for step in steps:
        ends = np.full((step.ends.shape[1], count), np.nan)
        ends[:, list(step.ranks)] = (step.ends - step.ends[0]).T
        blocks.append(ends)
    return np.concatenate(blocks)


def _against_first(ends: Floats, groups: list[list[int]]) -> Floats:
    """The median difference of each clock's ends to those of the first one.

    A clock without a common step with the first one is compared with one whose offset is known, until no further
    file has such a step. If then some are left, the first of them is the reference of the others.
    """
    present = ~np.isnan(ends)
    offsets = np.full(ends.shape[1], np.nan)
    offsets[groups[0]] = 0
    while (unknown := np.isnan(offsets)).any():
        usable = np.flatnonzero((present & ~unknown).any(axis=1) & (present & unknown).any(axis=1))
        reference = (present & ~unknown)[usable].argmax(axis=1)
        differences = ends[usable] - (ends[usable, reference] - offsets[reference])[:, None]
        for group in groups:
            values = differences[:, group]
            if unknown[group[0]] and not np.isnan(values).all():
                offsets[group] = np.nanmedian(values)
        if not len(usable):
            offsets[next(group for group in groups if unknown[group[0]])] = 0
    return offsets


def _refined(ends: Floats, offsets: Floats, groups: list[list[int]]) -> Floats:
    """The offsets against the median over all ranks."""
    differences = ends - np.nanmedian(ends - offsets, axis=1, keepdims=True)
    refined = offsets.copy()
    for group in groups:
        values = differences[:, group]
        if not np.isnan(values).all():
            refined[group] = np.nanmedian(values)
    return refined
