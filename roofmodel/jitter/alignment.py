"""Choose the kernels that all ranks share, by the sequence of their names, and cut the sequence into steps.

All ranks of a data-parallel run launch the same kernels in the same order. Where the sequences differ, the first
difference is recorded and the kernels that all ranks share are compared. With marks, each step is matched by itself;
without them, the whole sequence is matched, and its repeating part is the step.

Only the sequences of names of all ranks are in memory, each different one once; the times of one rank at a time are.
Matching is our own: difflib's time is quadratic in sequences of 10,000s of kernels with few different names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from roofmodel.jitter.kernels import Booleans, Integers, name_code
from roofmodel.jitter.ranks import ComparedRank
from roofmodel.jitter.sequences import (
    CollectiveSequence,
    KernelSequence,
    SequencesByStep,
    Shift,
    find_shift,
    main_kernels_before,
    match_sequences,
    sequences_by_step,
)
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.trace.steps import find_period

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


class StepLayout(NamedTuple):
    """The K compared kernels of a step."""

    codes: Integers
    collective: Booleans
    main: Booleans  # on the main stream

    @property
    def first(self) -> int:
        """The first kernel of the main stream."""
        return int(np.flatnonzero(self.main)[0]) if self.main.any() else 0

    @property
    def last(self) -> int:
        """The kernel before the last collective; the last kernel if there is no such collective."""
        places = np.flatnonzero(self.collective)
        return int(places[-1]) - 1 if len(places) and places[-1] > 0 else len(self.codes) - 1


class ComparedStep(NamedTuple):
    """A step of at least two ranks."""

    step: int
    complete: bool  # false for the rest before the first and after the last step
    ranks: tuple[int, ...]  # places in the list of ranks
    layout: int  # index of the layout


class KernelSelection(NamedTuple):
    """Which kernels of a sequence are compared, for ranks with this sequence."""

    main: Integers  # positions in the sequence of the main stream
    collectives: tuple[tuple[int, int], ...]  # code and number of those on other streams, by launch
    order: Integers  # K: the order of the compared kernels


class RankPlan(NamedTuple):
    """Which kernels of one rank are compared.

    A cut of a sequence is a step (index of the compared steps), and its first and last kernel.
    """

    selections: tuple[KernelSelection, ...]
    sequences: tuple[tuple[int | None, int, tuple[tuple[int, int, int], ...]], ...]  # marked step, selection, cuts

    def of_steps(self, chosen: frozenset[int]) -> RankPlan:
        """Only these steps, by index."""
        sequences = [
            (mark, selection, tuple(cut for cut in cuts if cut[0] in chosen))
            for mark, selection, cuts in self.sequences
        ]
        return self._replace(sequences=tuple(each for each in sequences if each[2]))

    @property
    def marks(self) -> frozenset[int] | None:
        """The marked steps; None for a sequence without marks."""
        marks = [mark for mark, _, _ in self.sequences]
        return None if None in marks else frozenset(mark for mark in marks if mark is not None)


class Begins(NamedTuple):
    """Ranks without marks that begin at different steps."""

    dropped: dict[int, float]  # number of a rank: its first steps, which ranks that begin later do not have
    unknown: dict[int, int]  # number of a rank of unknown begin: how many collectives it has fewer than the longest one
    ended: frozenset[int] = frozenset()  # numbers of ranks that end before the last rank begins


@dataclass(frozen=True)
class KernelAlignment:
    """The compared kernels of all ranks."""

    ranks: Sequence[ComparedRank]
    names: dict[int, str]  # of kernels, by code
    marked: bool
    found_steps: bool  # whether steps are marked or repeat
    steps: tuple[ComparedStep, ...]
    layouts: tuple[StepLayout, ...]
    plans: tuple[RankPlan, ...]  # by rank
    difference: Difference | None = None
    left_out: Counter[int] = field(default_factory=Counter)  # number of a rank: steps in which it is not compared
    missing: dict[int, list[int]] = field(default_factory=dict)  # step: numbers of the ranks without it
    begins: Begins = field(default_factory=lambda: Begins({}, {}))

    @property
    def common_kernels(self) -> int:
        """In all steps."""
        return sum(len(self.layouts[step.layout].codes) for step in self.steps)


# --- Sequences of one rank -----------------------------------------------------------------------------------


class RankSequences(NamedTuple):
    """The sequences of a rank by marked step (without marks: None), and the content of each different one.

    Of ranks in Parquet files, the contents are read from one rank per different sequence.
    """

    by_step: SequencesByStep
    codes: dict[bytes, Integers]  # by digest
    names: dict[int, str]


def stored_sequences(rank: ComparedRank, marked: bool, low: int, high: int) -> RankSequences | None:
    """The sequences of a rank without contents, from the metadata of its files; None if the files do not have them."""
    by_file = rank.stored_sequences()
    if by_file is None or (len(by_file) > 1 and not marked):
        return None
    by_step: SequencesByStep = {}
    for sequences in by_file:
        stored = _compared(sequences, marked, low, high)
        if not by_step.keys().isdisjoint(stored):
            return None
        by_step |= stored
    return RankSequences(by_step, {}, {})


def rank_sequences(rank: ComparedRank, marked: bool, low: int, high: int) -> RankSequences:
    """The sequences of a rank, in the marked steps from `low` up to, not including, `high`."""
    tables = rank.load_sequences()
    by_step, codes = sequences_by_step(tables)
    compared = _compared(by_step, marked, low, high)
    used = {sequence.main for sequence in compared.values()}
    names = {name_code(name): name for table in tables for name in table.distinct("name")}
    return RankSequences(compared, {digest: codes[digest] for digest in used}, names)


def _compared(sequences: SequencesByStep, marked: bool, low: int, high: int) -> SequencesByStep:
    if not marked:
        return {None: sequences[None]}
    return {step: each for step, each in sequences.items() if step is not None and low <= step < high}


# --- Kernels that all ranks share ----------------------------------------------------------------------------


class _Planner:
    """Builds an alignment step by step."""

    def __init__(self, ranks: Sequence[ComparedRank], sequences: Sequence[RankSequences]) -> None:
        self.ranks, self.sequences = ranks, sequences
        self.codes = {digest: codes for each in sequences for digest, codes in each.codes.items()}
        self.names = {code: name for each in sequences for code, name in each.names.items()}
        self.steps: list[ComparedStep] = []
        self.layouts: list[StepLayout] = []
        self.difference: Difference | None = None
        self.left_out: Counter[int] = Counter()
        self.missing: dict[int, list[int]] = {}
        self._matched: dict[tuple[bytes, bytes], tuple[Integers, Integers]] = {}
        self._choices: dict[object, tuple[dict[bytes, KernelSelection], int]] = {}
        self._loaded: tuple[int, KernelTable] | None = None
        self._selections: list[dict[int, int]] = [{} for _ in ranks]  # by identity
        self._chosen: list[list[KernelSelection]] = [[] for _ in ranks]
        self._rank_sequences: list[list[tuple[int | None, int, tuple[tuple[int, int, int], ...]]]] = [[] for _ in ranks]

    def match(self, step: int | None) -> tuple[dict[int, KernelSelection], int] | None:
        """The selection of each rank that shares most of a sequence, and their layout; None for fewer than two."""
        present = [place for place, each in enumerate(self.sequences) if step in each.by_step]
        if step is not None and len(present) < len(self.ranks):
            absent = set(range(len(self.ranks))) - set(present)
            self.missing[step] = [self.ranks[place].number for place in sorted(absent)]
        if len(present) < 2:
            return None
        own = {place: self.sequences[place].by_step[step] for place in present}
        reference = _most_common([own[place].main for place in present])
        expected = self.codes[reference]
        least = 0.0 if len(present) == 2 else LEAST_COMMON * len(expected)
        shared = {}
        for place, sequence in own.items():
            positions, own_positions = self._match(reference, sequence.main)
            codes = self.codes[sequence.main]
            if self.difference is None and len(codes) and not (len(positions) == len(codes) == len(expected)):
                self.difference = self._difference(expected, codes, self.ranks[place].number, step)
            if len(own_positions) >= least:
                shared[place] = sequence
            else:
                self.left_out[self.ranks[place].number] += 1
        if len(shared) < 2:
            return None
        kinds = frozenset(shared.values())
        choice = self._choices.get((reference, kinds))
        if choice is None:
            place = next(place for place, sequence in shared.items() if sequence.main == reference)
            choice = self._choices[reference, kinds] = self._select(reference, kinds, place, step)
        selections, layout = choice
        if not len(self.layouts[layout].codes):
            return None
        return {place: selections[sequence.main] for place, sequence in shared.items()}, layout

    def _match(self, reference: bytes, own: bytes) -> tuple[Integers, Integers]:
        positions = self._matched.get((reference, own))
        if positions is None:
            positions = self._matched[reference, own] = match_sequences(self.codes[reference], self.codes[own])
        return positions

    def _select(
        self, reference: bytes, kinds: frozenset[KernelSequence], place: int, step: int | None
    ) -> tuple[dict[bytes, KernelSelection], int]:
        """The selections by sequence. Kernels have the order of their starts on a rank with the reference sequence."""
        common = np.arange(len(self.codes[reference]))
        for sequence in kinds:
            common = np.intersect1d(common, self._match(reference, sequence.main)[0], assume_unique=True)
        counts = [Counter(dict(sequence.collectives)) for sequence in kinds]
        collectives = tuple(
            (code, number) for code in sorted(counts[0]) if (number := min(each[code] for each in counts)) > 0
        )
        selections = {}
        for sequence in kinds:
            positions, own = self._match(reference, sequence.main)
            selections[sequence.main] = own[np.searchsorted(positions, common)]
        kernels = self.load(place)
        rows = np.flatnonzero(kernels.array("step") == step) if step is not None else np.arange(len(kernels))
        unordered = KernelSelection(
            selections[reference], collectives, np.arange(len(common) + sum(n for _, n in collectives))
        )
        chosen = select_rows(kernels, rows, unordered)
        order = np.argsort(chosen, kind="stable")
        ordered = chosen[order]
        layout = StepLayout(*(kernels.array(column)[ordered] for column in ("code", "communicates", "main")))
        self.layouts.append(layout)
        ordered_selections = {main: KernelSelection(own, collectives, order) for main, own in selections.items()}
        return ordered_selections, len(self.layouts) - 1

    def load(self, place: int) -> KernelTable:
        """The kernels of a rank; those of the last one stay in memory."""
        if self._loaded is None or self._loaded[0] != place:
            self._loaded = place, self.ranks[place].load()
        return self._loaded[1]

    def add(
        self, mark: int | None, selections: dict[int, KernelSelection], steps: Sequence[tuple[ComparedStep, int, int]]
    ) -> None:
        """Compare these steps, each with its first and last kernel of the selection."""
        cuts = tuple((len(self.steps) + number, begin, end) for number, (_, begin, end) in enumerate(steps))
        self.steps += [step for step, _, _ in steps]
        for place, selection in selections.items():
            numbers = self._selections[place]
            if id(selection) not in numbers:
                numbers[id(selection)] = len(self._chosen[place])
                self._chosen[place].append(selection)
            self._rank_sequences[place].append((mark, numbers[id(selection)], cuts))

    def alignment(self, marked: bool, found_steps: bool) -> KernelAlignment:
        """The result."""
        return KernelAlignment(
            ranks=self.ranks,
            names=self.names,
            marked=marked,
            found_steps=found_steps,
            steps=tuple(self.steps),
            layouts=tuple(self.layouts),
            plans=tuple(
                RankPlan(tuple(chosen), tuple(sequences))
                for chosen, sequences in zip(self._chosen, self._rank_sequences, strict=True)
            ),
            difference=self.difference,
            left_out=self.left_out,
            missing=self.missing,
        )

    def _difference(self, expected: Integers, own: Integers, rank: int, step: int | None) -> Difference:
        length = min(len(expected), len(own))
        unequal = np.flatnonzero(expected[:length] != own[:length])
        first = int(unequal[0]) if len(unequal) else length

        def name(codes: Integers) -> str | None:
            return self.names[int(codes[first])] if first < len(codes) else None

        return Difference(first, step, rank, name(own), name(expected), len(own), len(expected))


def _most_common(digests: Sequence[bytes]) -> bytes:
    """The first of the most frequent sequences."""
    counts = Counter(digests)
    return max(counts, key=lambda digest: counts[digest])


def align_kernels(
    ranks: Sequence[ComparedRank],
    sequences: Sequence[RankSequences],
    sum_gaps: Callable[[dict[int, KernelSelection]], Integers],
    low: int = 0,
    high: int = LAST_STEP,
) -> KernelAlignment:
    """Choose the kernels of the steps from `low` up to, not including, `high`.

    Without marks, all steps include the kernels before the first and after the last complete one; `sum_gaps` must
    return the gap before each selected kernel, summed over ranks.
    """
    planner = _Planner(ranks, sequences)
    if all(rank.marked for rank in ranks):
        for step in sorted({step for each in sequences for step in each.by_step if step is not None}):
            matched = planner.match(step)
            if matched is not None:
                selections, layout = matched
                count = len(planner.layouts[layout].codes)
                planner.add(step, selections, [(ComparedStep(step, True, tuple(selections), layout), 0, count)])
        return planner.alignment(True, True)
    matched = planner.match(None)
    if matched is None:
        return planner.alignment(False, False)
    selections, layout = matched
    full_layout = planner.layouts[layout]
    pieces = _pieces(full_layout, sum_gaps(selections))
    steps = []
    for step, complete, begin, end in pieces or [(0, True, 0, len(full_layout.codes))]:
        if low <= step < high if complete else (low, high) == (0, LAST_STEP):
            planner.layouts.append(
                StepLayout(full_layout.codes[begin:end], full_layout.collective[begin:end], full_layout.main[begin:end])
            )
            steps.append((ComparedStep(step, complete, tuple(selections), len(planner.layouts) - 1), begin, end))
    planner.add(None, selections, steps)
    return planner.alignment(False, bool(pieces))


def _pieces(layout: StepLayout, gaps: Integers) -> list[tuple[int, bool, int, int]]:
    """Step, completeness, begin and end of the repeating parts of a sequence; none if it does not repeat.

    A step begins after the longest gap of the period.
    """
    main = np.flatnonzero(layout.main)
    period = find_period(_numbered(layout.codes[main]))
    if period is None:
        return []
    before = gaps[main].copy()
    before[0] = 0
    full = len(main) // period * period
    phase = int(np.argmax(np.median(before[:full].reshape(-1, period), axis=0)))
    edges = [0, *(int(main[place]) for place in range(phase, len(main), period)), len(layout.codes)]
    first = int(edges[1] > 0)  # 1: kernels before the first step
    pairs = [pair for pair in pairwise(edges) if pair[1] > pair[0]]
    length = pairs[first][1] - pairs[first][0]
    return [
        (number - first, number >= first and (end - begin == length or end < edges[-1]), begin, end)
        for number, (begin, end) in enumerate(pairs)
    ]


def _numbered(codes: Integers) -> Integers:
    """The codes as numbers in the order of their first occurrence."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse])


# --- Ranks that begin at different steps -----------------------------------------------------------------------


def begin_together(
    ranks: Sequence[ComparedRank], sequences: Sequence[CollectiveSequence]
) -> tuple[list[ComparedRank], Begins]:
    """The ranks from the step on with which the last rank begins, by their collectives.

    Where the collectives do not show the begin of a rank, its first kernel is compared with the first of the longest
    rank.
    """
    longest = max(range(len(ranks)), key=lambda place: sequences[place].total)
    reference = sequences[longest]
    shifts = [find_shift(reference, each) if each is not reference else Shift(0, True) for each in sequences]
    unknown = {
        rank.number: reference.total - own.total
        for rank, own, shift in zip(ranks, sequences, shifts, strict=True)
        if not shift.certain and reference.total > own.total > 0
    }
    last = max(range(len(ranks)), key=lambda place: shifts[place].collectives)
    if not any(shift.collectives for shift in shifts):
        return list(ranks), Begins({}, unknown)
    period = find_period(_numbered(reference.main_codes))
    trimmed_ranks, dropped, ended = [], {}, set()
    for rank, own, shift in zip(ranks, sequences, shifts, strict=True):
        collectives = shifts[last].collectives - shift.collectives
        if collectives >= max(len(own.codes), 1):
            rank = replace(rank, skipped=(rank.kernels, rank.kernels))
            ended.add(rank.number)
            unknown.pop(rank.number, None)
        elif collectives:
            main = main_kernels_before(own, collectives, sequences[last])
            others = int((~own.on_main[:collectives]).sum())
            rank = replace(rank, skipped=(main, others))
            dropped[rank.number] = main / (period or math.inf)
        trimmed_ranks.append(rank)
    return trimmed_ranks, Begins(dropped, unknown, frozenset(ended))


# --- Selected kernels of one rank ----------------------------------------------------------------------------


def select_rows(kernels: KernelTable, rows: Integers, selection: KernelSelection) -> Integers:
    """The selected ones among the kernels `rows` of a rank, in the order of the layout; K."""
    main = kernels.array("main")[rows]
    others = rows[~main]
    launches = kernels.array("launch_start")[others]
    if not (launches == UNKNOWN).any():
        others = others[np.argsort(launches, kind="stable")]
    codes = kernels.array("code")[others]
    side = [others[codes == code][:number] for code, number in selection.collectives]
    return np.concatenate([rows[main][selection.main], *side]).astype(np.int64)[selection.order]


def extra_durations(kernels: KernelTable, rows: Integers, chosen: Integers) -> Integers:
    """Nanoseconds of the main stream's computation in `rows` that is not chosen, before each chosen kernel; K.

    Kernels before the first and after the last chosen kernel of this stream do not count: the ranks may be cut at
    different places.
    """
    main = kernels.array("main")
    rest = main[rows] & ~kernels.array("communicates")[rows]
    local = np.searchsorted(rows, chosen)
    rest[local] = False
    durations = np.zeros(len(chosen), np.int64)
    places = np.flatnonzero(main[chosen])
    if len(places) and rest.any():
        times = kernels.array("end")[rows] - kernels.array("start")[rows]
        before = np.cumsum(np.where(rest, times, 0))[local[places]]
        durations[places[1:]] = np.diff(before)
    return durations
