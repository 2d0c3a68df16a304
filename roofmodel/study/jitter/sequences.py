"""Sequences of kernel names: their digests by step, and the match of sequences that differ in places."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from roofmodel.study.jitter.kernels import NO_STEP, Integers, KernelTable

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
    compared = [table.main | table.collective for table in tables]

    def joined(column: str) -> Integers:
        parts = [getattr(table, column)[kept] for table, kept in zip(tables, compared, strict=True)]
        return np.asarray(parts[0] if len(parts) == 1 else np.concatenate(parts))

    codes, main, steps = joined("codes"), joined("main").astype(bool), joined("steps")
    sequences: dict[int | None, Integers] = {**_cut(codes[main], steps[main]), None: codes[main]}
    others: dict[int | None, Integers] = {**_cut(codes[~main], steps[~main]), None: codes[~main]}
    nothing = np.zeros(0, np.int64)
    found: SequencesByStep = {}
    contents: dict[bytes, Integers] = {}
    for step in {**sequences, **others}:
        if step != NO_STEP:
            sequence = sequences.get(step, nothing)
            digest = blake2b(sequence.tobytes(), digest_size=16).digest()
            contents.setdefault(digest, sequence)
            kinds, numbers = np.unique(others.get(step, nothing), return_counts=True)
            found[step] = KernelSequence(digest, tuple(zip(kinds.tolist(), numbers.tolist(), strict=True)))
    return found, contents


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
