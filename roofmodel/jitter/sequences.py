"""Sequences of kernel names: their digests by step, the match of sequences that differ, and shifts between ranks."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofmodel.jitter.kernels import NO_STEP, Booleans, Integers, compared_rows, name_codes
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines.timeline import UNKNOWN

# Of shifts between ranks; choices of this project. Least number of collectives that two ranks share, and its part of
# the shorter sequence; collectives that are compared; shifts of them; share of the names that must be equal; how often
# a name occurs that is not of every step; drift of two clocks (crystal oscillators are within 50 millionths); largest
# mean difference of the ends, in nanoseconds.
LEAST_SHARED, SHARED_PART, MAX_COLLECTIVES, MAX_SHIFTS, EQUAL_NAMES, RARE = 5, 1 / 3, 4096, 256, 0.9, 2
MAX_DRIFT, MAX_DIFFERENCE = 1e-4, 100e3

# By how much the times must agree better than with any other shift; and if the differences of so many collectives are
# independent of each other, as those of one collective are: the variance of their steps is at least their variance.
DECISIVE, DECISIVE_IF_INDEPENDENT, LEAST_INDEPENDENT = 3.0, 1.5, 20

WINDOW = 8  # kernels that must be equal for two sequences to match again after a difference
SEARCH = 4096  # kernels in which they must match again


class KernelSequence(NamedTuple):
    """The compared kernels of a rank, in one marked step or in all its files."""

    main: bytes  # digest of the codes on the main stream
    collectives: tuple[tuple[int, int], ...]  # code and number of the collectives on other streams, by code


SequencesByStep = dict[int | None, KernelSequence]
"""The sequence of each marked step, and of all kernels (None)."""


def sequences_by_step(tables: Sequence[KernelTable]) -> tuple[SequencesByStep, dict[bytes, Integers]]:
    """The sequences of a rank from its files, and the codes on the main stream by digest."""
    columns = zip(*map(_compared_sequence, tables), strict=True)
    codes, main, steps = (parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in columns)
    sequences: dict[int | None, Integers] = {**_cut(codes[main], steps[main]), None: codes[main]}
    others: dict[int | None, Integers] = {**_cut(codes[~main], steps[~main]), None: codes[~main]}
    nothing = np.zeros(0, np.int64)
    by_step: SequencesByStep = {}
    contents: dict[bytes, Integers] = {}
    for step in {**sequences, **others}:
        if step != NO_STEP:
            sequence = sequences.get(step, nothing)
            digest = blake2b(sequence.tobytes(), digest_size=16).digest()
            contents.setdefault(digest, sequence)
            kinds, numbers = np.unique(others.get(step, nothing), return_counts=True)
            by_step[step] = KernelSequence(digest, tuple(zip(kinds.tolist(), numbers.tolist(), strict=True)))
    return by_step, contents


def _compared_sequence(kernels: KernelTable) -> tuple[Integers, Booleans, Integers]:
    """Code, whether it is on the main stream, and step of the compared kernels."""
    compared = compared_rows(kernels)
    return name_codes(kernels)[compared], kernels.array("main")[compared], kernels.array("step")[compared]


def _cut(values: Integers, steps: Integers) -> dict[int | None, Integers]:
    """The values of each step, in their order."""
    if (np.diff(steps) < 0).any():
        order = np.argsort(steps, kind="stable")
        values, steps = values[order], steps[order]
    edges = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    return {int(steps[begin]): values[begin:end] for begin, end in pairwise(edges) if end > begin}


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


# --- Ranks that begin at different steps -----------------------------------------------------------------------


class CollectiveSequence(NamedTuple):
    """The first collectives of a rank in one file, in the order of their launches, and its first kernels."""

    codes: Integers
    ends: Integers  # nanoseconds
    on_main: Booleans  # on the main stream
    main_before: Integers  # kernels of the main stream that are launched before each
    main_codes: Integers  # of the main stream, as many as are launched before the last of these collectives
    total: int  # number of all collectives


class Shift(NamedTuple):
    """The collectives of one rank before the first one of the other rank; negative if the other one begins earlier."""

    collectives: int
    certain: bool  # whether the ends of the collectives agree clearly better than with any other shift


def collective_sequence(kernels: KernelTable) -> CollectiveSequence:
    """The collectives of a rank. Without launches, the kernels are in the order of their starts."""
    compared = np.flatnonzero(compared_rows(kernels))
    launches = kernels.array("launch_start")[compared]
    if not (launches == UNKNOWN).any():
        compared = compared[np.argsort(launches, kind="stable")]
    collective, main, ends = (kernels.array(column)[compared] for column in ("communicates", "main", "end"))
    codes = name_codes(kernels)[compared]
    places = np.flatnonzero(collective)
    count = len(places)
    places = places[:MAX_COLLECTIVES]
    before: Integers = np.cumsum(main)[places] - main[places]
    return CollectiveSequence(
        codes[places],
        ends[places],
        main[places],
        before,
        codes[main][: int(before[-1]) + 1 if count else 0],
        count,
    )


def find_shift(reference: CollectiveSequence, own: CollectiveSequence) -> Shift:
    """The shift at which the names of collectives agree, and the times of their ends.

    All ranks leave a collective together, so the ends of the same collectives differ by the difference of the clocks,
    which is constant or drifts slowly; those of different steps differ by the noise of the steps as well. Ranks share
    SHARED_PART of the collectives of the shorter sequence at least. Collectives of one step only, such as those of an
    evaluation, decide before the times.
    """
    codes, counts = np.unique(reference.codes, return_counts=True)
    is_rare = np.isin(reference.codes, codes[counts <= RARE])
    candidates: list[tuple[int, float, int, bool]] = []  # minus equal rare names, mean difference, shift, independence
    for shift in _possible_shifts(reference, own):
        a, b = max(shift, 0), max(-shift, 0)
        length = min(len(reference.codes) - a, len(own.codes) - b)
        equal = reference.codes[a : a + length] == own.codes[b : b + length]
        if equal.mean() >= EQUAL_NAMES:
            rest = _without_clocks(reference.ends[a : a + length], own.ends[b : b + length])
            independent = length >= LEAST_INDEPENDENT and float(np.diff(rest).var()) >= float(rest.var())
            candidates.append(
                (-int(equal[is_rare[a : a + length]].sum()), float(np.abs(rest).mean()), shift, independent)
            )
    if not candidates:
        return Shift(0, False)
    names = min(candidates)[0]
    best, *others = sorted((each[1], abs(each[2]), *each[2:]) for each in candidates if each[0] == names)
    factor = DECISIVE_IF_INDEPENDENT if best[3] else DECISIVE
    certain = best[0] <= MAX_DIFFERENCE and all(best[0] * factor < other[0] for other in others)
    return Shift(best[2] if certain else 0, certain)


def _possible_shifts(reference: CollectiveSequence, own: CollectiveSequence) -> list[int]:
    """The shifts at which the first intervals between collectives agree best."""
    lengths = len(reference.ends), len(own.ends)
    least = max(LEAST_SHARED, int(SHARED_PART * min(lengths)))
    if min(lengths) < least:
        return []
    intervals = np.diff(reference.ends), np.diff(own.ends)
    candidates: list[tuple[float, int]] = []
    for sign, later, earlier in ((1, 0, 1), (-1, 1, 0)):
        count = lengths[later] - least + 1
        windows = np.lib.stride_tricks.sliding_window_view(intervals[later], least - 1)[:count, : 4 * WINDOW]
        differences = np.abs(windows - intervals[earlier][: windows.shape[1]]).mean(axis=1)
        candidates += [(float(difference), sign * shift) for shift, difference in enumerate(differences)]
    return sorted({shift for _, shift in sorted(candidates)[:MAX_SHIFTS]})


def _without_clocks(a: Integers, b: Integers) -> NDArray[np.float64]:
    """The differences of times on two clocks, without the constant difference and the drift of the clocks."""
    difference, times = (a - b - (a[0] - b[0])).astype(float), (a - a[0]).astype(float)
    difference -= difference.mean()
    times -= times.mean()
    drift = float(times @ difference) / (float(times @ times) or 1)
    return np.asarray(difference - times * min(max(drift, -MAX_DRIFT), MAX_DRIFT))


def main_kernels_before(own: CollectiveSequence, collectives: int, last: CollectiveSequence) -> int:
    """The kernels of the main stream to drop so that a rank begins as the rank that begins last.

    `collectives` is the number of collectives to drop.
    """
    estimate = max(0, int(own.main_before[collectives]) - int(last.main_before[0]))
    expected = last.main_codes[: max(WINDOW, int(last.main_before[0]))]
    for distance in range(SEARCH):
        for place in (estimate - distance, estimate + distance):
            if place >= 0 and np.array_equal(own.main_codes[place : place + len(expected)], expected):
                return place
    return estimate
