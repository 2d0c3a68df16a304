"""Match sequences of kernel names that differ in places."""

from __future__ import annotations

import numpy as np

from roofmodel.study.jitter.kernels import Integers

WINDOW = 8  # kernels that must be equal for two sequences to match again after a difference
SEARCH = 4096  # kernels in which they must match again


def match_sequences(a: Integers, b: Integers) -> tuple[Integers, Integers]:
    """Positions in `a` and in `b` of kernels that follow each other in both sequences with equal names.

    Equal runs are taken as they are. At a difference both sequences continue at the nearest place where WINDOW kernels
    are equal again; without one within SEARCH kernels the rest does not match.
    """
    if len(a) == len(b) and np.array_equal(a, b):
        places = np.arange(len(a))
        return places, places
    found_a, found_b = [], []
    i = j = 0
    while i < len(a) and j < len(b):
        length = min(len(a) - i, len(b) - j)
        unequal = np.flatnonzero(a[i : i + length] != b[j : j + length])
        run = int(unequal[0]) if len(unequal) else length
        found_a.append(np.arange(i, i + run))
        found_b.append(np.arange(j, j + run))
        i, j = i + run, j + run
        if i >= len(a) or j >= len(b):
            break
        skip = _next_match(a[i : i + SEARCH], b[j : j + SEARCH])
        if skip is None:
            break
        i, j = i + skip[0], j + skip[1]
    empty = np.empty(0, np.int64)
    return np.concatenate([empty, *found_a]), np.concatenate([empty, *found_b])


def _next_match(a: Integers, b: Integers) -> tuple[int, int] | None:
    """Kernels to skip in each sequence, as few as possible, until WINDOW kernels (or the rest) are equal."""
    width = min(WINDOW, len(a), len(b))
    first: dict[bytes, int] = {}
    for place in range(len(b) - width + 1):
        first.setdefault(b[place : place + width].tobytes(), place)
    best: tuple[int, int] | None = None
    for place in range(len(a) - width + 1):
        if best is not None and place >= sum(best):
            break
        other = first.get(a[place : place + width].tobytes())
        if other is not None and (best is None or place + other < sum(best)):
            best = place, other
    return best
