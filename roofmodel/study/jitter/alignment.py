"""Match the kernels of ranks by their sequence, and cut the sequence into steps.

All ranks of a data-parallel run launch the same kernels in the same order. Where the sequences differ, the first
difference is recorded and the kernels that all ranks share are compared. With marks, each step is matched by itself;
without them, the whole sequence is matched, and its repeating part is the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.study.jitter.ranks import NO_STEP, Booleans, ComparedRank, Integers, Kernels
from roofmodel.study.trace.steps import find_period

WINDOW = 8  # kernels that must be equal for two sequences to match again after a difference
SEARCH = 4096  # kernels in which they must match again
_MATRICES = ("starts", "ends", "launches", "previous_ends", "own_gaps", "input")
LAST_STEP = 1 << 62  # above all numbers of steps
LEAST_COMMON = 0.5  # share of the sequence that a rank must have, to be compared


class Difference(NamedTuple):
    """The first kernel at which a rank's sequence differs from the reference sequence."""

    kernel: int  # index on the main stream, within the step if steps are marked
    step: int | None
    rank: int
    name: str | None  # None: the sequence of the rank ends here
    expected: str | None  # of the reference rank
    kernels: int  # of the rank, in this sequence
    expected_kernels: int


class StepKernels(NamedTuple):
    """The common kernels of one step: R ranks x K kernels, ordered by start on the first rank; nanoseconds."""

    step: int
    complete: bool  # false for the rest before the first and after the last step
    ranks: tuple[int, ...]  # places in the list of ranks, R
    codes: Integers  # K
    collective: Booleans  # K
    main: Booleans  # K
    starts: Integers  # R x K, like the following
    ends: Integers
    launches: Integers
    previous_ends: Integers
    own_gaps: Integers
    input: Integers
    extra: Integers  # durations of the rank's other computation between the common kernel before and this one

    @property
    def durations(self) -> Integers:
        """R x K."""
        return self.ends - self.starts

    @property
    def first(self) -> int:
        """The first kernel of the main stream."""
        return int(np.flatnonzero(self.main)[0]) if self.main.any() else 0

    @property
    def follows(self) -> bool:
        """Whether the files have the kernel before the first one, so that the gap between them is known."""
        return bool((self.previous_ends[:, self.first] != UNKNOWN).all())


class Alignment:
    """The matched kernels of all ranks. Iterating over `steps` reads one step at a time."""

    def __init__(self, ranks: Sequence[ComparedRank], names: Sequence[str]) -> None:
        self.ranks, self.names = ranks, names
        self.marked = all((rank.compared.steps != NO_STEP).any() for rank in ranks)
        self.found_steps = self.marked
        self.difference: Difference | None = None
        self.common_kernels = 0  # of the steps that were read
        self.left_out: Counter[int] = Counter()  # number of a rank: steps in which it is not compared
        self.missing: dict[int, list[int]] = {}  # step: numbers of the ranks without it

    def steps(self, low: int = 0, high: int = LAST_STEP) -> Iterator[StepKernels]:
        """The steps with numbers from `low` up to `high`, in order; `high` is not included.

        Without marks, all steps include the kernels before the first and after the last complete one.
        """
        for step in self._marked(low, high) if self.marked else self._whole(low, high):
            self.common_kernels += len(step.codes)
            yield step

    def _marked(self, low: int, high: int) -> Iterator[StepKernels]:
        places = [_places(rank.compared.steps) for rank in self.ranks]
        every = sorted({step for each in places for step in each if step != NO_STEP and low <= step < high})
        for step in every:
            present = [number for number, each in enumerate(places) if step in each]
            if len(present) < len(self.ranks):
                self.missing[step] = [self.ranks[n].number for n in range(len(self.ranks)) if n not in present]
            if len(present) < 2:
                continue
            matched = self._match(present, [self.ranks[n].compared.part(places[n][step]) for n in present], step)
            if matched is not None:
                yield matched

    def _whole(self, low: int, high: int) -> Iterator[StepKernels]:
        matched = self._match(list(range(len(self.ranks))), [rank.compared for rank in self.ranks], None)
        if matched is None:
            return
        main = np.flatnonzero(matched.main)
        period = find_period(matched.codes[main])
        if period is None:
            if low <= 0 < high:
                yield matched._replace(step=0)
            return
        self.found_steps = True
        gaps = (matched.starts - matched.previous_ends)[:, main].mean(axis=0)
        gaps[0] = 0
        whole = len(main) // period * period
        phase = int(np.argmax(np.median(gaps[:whole].reshape(-1, period), axis=0)))
        edges = [0, *(int(main[place]) for place in range(phase, len(main), period)), len(matched.codes)]
        first = int(edges[1] > 0)  # 1: kernels before the first step
        pieces = [pair for pair in pairwise(edges) if pair[1] > pair[0]]
        for number, (begin, end) in enumerate(pieces):
            complete = number >= first and (end - begin == pieces[first][1] - pieces[first][0] or end < edges[-1])
            step = number - first
            if low <= step < high if complete else (low, high) == (0, LAST_STEP):
                yield _columns(matched, begin, end)._replace(step=step, complete=complete)

    def _match(self, present: list[int], kernels: list[Kernels], step: int | None) -> StepKernels | None:
        """The kernels that the ranks share; ranks with few of them are left out. None if fewer than two remain."""
        main = [np.flatnonzero(each.main) for each in kernels]
        codes = [each.codes[places] for each, places in zip(kernels, main, strict=True)]
        reference = _most_common(codes)
        shared: dict[int, tuple[Integers, Integers]] = {}  # positions in the reference, and in the rank
        for rank, own in enumerate(codes):
            matched = match_sequences(codes[reference], own)
            if self.difference is None and not (len(matched[0]) == len(own) == len(codes[reference])):
                self.difference = self._difference(codes[reference], own, self.ranks[present[rank]].number, step)
            if len(matched[0]) >= LEAST_COMMON * len(codes[reference]) or len(codes) == 2:
                shared[rank] = matched
            else:
                self.left_out[self.ranks[present[rank]].number] += 1
        if len(shared) < 2:
            return None
        common = shared[reference][0]
        for positions, _ in shared.values():
            common = np.intersect1d(common, positions, assume_unique=True)
        sides = {rank: _collectives(kernels[rank]) for rank in shared}
        counts = [{code: len(places) for code, places in side.items()} for side in sides.values()]
        kept = {code: min(each.get(code, 0) for each in counts) for code in counts[0]}
        chosen = []
        for rank, (positions, places) in shared.items():
            own_main = main[rank][places[np.searchsorted(positions, common)]]
            side = [sides[rank][code][:number] for code, number in kept.items() if number]
            chosen.append(np.concatenate([own_main, *side]).astype(np.int64))
        if not len(chosen[0]):
            return None
        place = list(shared).index(reference)
        order = np.argsort(kernels[reference].starts[chosen[place]], kind="stable")
        picked = [kernels[rank].part(each[order]) for rank, each in zip(shared, chosen, strict=True)]
        stacked = {name: np.stack([getattr(each, name) for each in picked]) for name in _MATRICES}
        return StepKernels(
            step=0 if step is None else step,
            complete=True,
            ranks=tuple(present[rank] for rank in shared),
            codes=picked[0].codes,
            collective=picked[0].collective,
            main=picked[0].main,
            extra=np.stack([_extra(kernels[r], each[order]) for r, each in zip(shared, chosen, strict=True)]),
            **stacked,
        )

    def _difference(self, expected: Integers, own: Integers, rank: int, step: int | None) -> Difference:
        length = min(len(expected), len(own))
        unequal = np.flatnonzero(expected[:length] != own[:length])
        first = int(unequal[0]) if len(unequal) else length

        def name(codes: Integers) -> str | None:
            return self.names[codes[first]] if first < len(codes) else None

        return Difference(first, step, rank, name(own), name(expected), len(own), len(expected))


def _places(steps: Integers) -> dict[int, Integers]:
    """The positions of the kernels of each step."""
    order = np.argsort(steps, kind="stable")
    numbers, firsts = np.unique(steps[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True))


def _most_common(sequences: list[Integers]) -> int:
    """The first of the most frequent sequences."""
    keys = [sequence.tobytes() for sequence in sequences]
    counts = Counter(keys)
    return keys.index(max(counts, key=lambda key: counts[key]))


def _collectives(kernels: Kernels) -> dict[int, Integers]:
    """The positions of the collectives that are not on the main stream, by name, in the order of their launches."""
    places = np.flatnonzero(~kernels.main)
    launches = kernels.launches[places]
    if not (launches == UNKNOWN).any():
        places = places[np.argsort(launches, kind="stable")]
    return {int(code): places[kernels.codes[places] == code] for code in np.unique(kernels.codes[places])}


def _extra(kernels: Kernels, chosen: Integers) -> Integers:
    """Durations of the main stream's computation that is not chosen, between the chosen kernels of this stream.

    Kernels before the first and after the last chosen kernel do not count: the ranks may be cut at different places.
    """
    rest = kernels.main & ~kernels.collective
    rest[chosen] = False
    found = np.zeros(len(chosen), np.int64)
    places = np.flatnonzero(kernels.main[chosen])
    if len(places) and rest.any():
        before = np.cumsum(np.where(rest, kernels.ends - kernels.starts, 0))[chosen[places]]
        found[places[1:]] = np.diff(before)
    return found


def _columns(matched: StepKernels, begin: int, end: int) -> StepKernels:
    """Kernels `begin` to `end` of the sequence."""
    cut = {name: getattr(matched, name)[begin:end] for name in ("codes", "collective", "main")} | {
        name: getattr(matched, name)[:, begin:end] for name in (*_MATRICES, "extra")
    }
    return matched._replace(**cut)


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
