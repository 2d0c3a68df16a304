"""Align the clocks of files at the end of collectives, which all ranks leave together.

The ranks of one file have one clock. The offset of a file is the median, over its collectives, of the difference to the
median over all ranks. The rest is the error of the alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from roofmodel.study.jitter.deviations import Floats
from roofmodel.study.jitter.ranks import Integers

ROUNDS = 3  # of the median over all ranks, which depends on the offsets


class CollectiveTimes(NamedTuple):
    """The collectives of one step; r ranks x n collectives, nanoseconds of the files' clocks."""

    ranks: tuple[int, ...]  # places in the list of ranks
    starts: Integers
    ends: Integers


class Clocks(NamedTuple):
    """The clocks of all ranks relative to each other."""

    offsets: Floats  # nanoseconds to subtract from the times of each rank
    error_seconds: float | None  # largest difference between the ranks' ends of a collective; None without collectives
    start_skew_seconds: tuple[float, float] | None  # least and largest start, minus the first rank's start


def align(steps: Sequence[CollectiveTimes], files: Sequence[str]) -> Clocks:
    """The clocks; `files` has the file of each rank. Times of one file are not shifted against each other."""
    count = len(files)
    steps = [step for step in steps if step.ends.size]
    if not steps:
        return Clocks(np.zeros(count), None, None)
    groups = [[rank for rank in range(count) if files[rank] == file] for file in dict.fromkeys(files)]
    if len(groups) > 1:
        offsets = _against_first(steps, groups)
        for _ in range(ROUNDS):
            offsets = _refined(steps, offsets, groups)
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
    return Clocks(offsets, error / 1e9, (low / 1e9, high / 1e9))


def _relative(times: Integers, ends: Integers) -> Floats:
    """Differences to the first end of the first rank, which a float represents exactly."""
    return np.asarray(times - ends[0, 0], float)


def _against_first(steps: Sequence[CollectiveTimes], groups: list[list[int]]) -> Floats:
    """The median difference of each file's ends to those of the first file.

    A file without a common step with the first one is compared with a file whose offset is known, until no further
    file has such a step. If then some are left, the first of them is the reference of the others.
    """
    offsets = np.full(sum(map(len, groups)), np.nan)
    offsets[groups[0]] = 0
    while np.isnan(offsets).any():
        found: dict[int, list[Floats]] = {}
        for step in steps:
            known = [place for place, rank in enumerate(step.ranks) if not np.isnan(offsets[rank])]
            if not known or len(known) == len(step.ranks):
                continue
            reference, shift = step.ends[known[0]], offsets[step.ranks[known[0]]]
            for place, rank in enumerate(step.ranks):
                if np.isnan(offsets[rank]):
                    found.setdefault(rank, []).append((step.ends[place] - reference) + shift)
        for group in groups:
            if values := [each for rank in group for each in found.get(rank, [])]:
                offsets[group] = np.median(np.concatenate(values))
        if not found:
            offsets[next(group for group in groups if np.isnan(offsets[group[0]]))] = 0
    return offsets


def _refined(steps: Sequence[CollectiveTimes], offsets: Floats, groups: list[list[int]]) -> Floats:
    rest: list[list[Floats]] = [[] for _ in offsets]
    for step in steps:
        own = offsets[list(step.ranks)][:, None]
        ends = _relative(step.ends, step.ends) - own
        difference = ends - np.median(ends, axis=0)
        for place, rank in enumerate(step.ranks):
            rest[rank].append(difference[place] + own[place, 0])
    refined = offsets.copy()
    for group in groups:
        every = [values for rank in group for values in rest[rank]]
        if every:
            refined[group] = np.median(np.concatenate(every))
    return refined
