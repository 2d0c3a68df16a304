"""Matching of kernels with operators: anchors by order, kind, shape and time, then the light work between them.

Every framework launches GEMMs, attention, convolutions and scans in the model's order, so these anchors are aligned
with the passes of the model (`alignment`). Norms, residual adds and activations are fused, split and reordered; they
are matched by words in their names with the light operators between the same anchors. NVTX ranges and annotations
around a launch take precedence: a kernel in the range `layers.3.mlp` is not attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from roofmodel.study.compare import alignment
from roofmodel.study.compare.alignment import NEVER, Costs, Pair
from roofmodel.study.compare.evidence import TELLING, Anchors
from roofmodel.study.compare.kernel_groups import KernelGroup
from roofmodel.study.compare.sequence import Occurrence

LARGEST = 60_000_000  # cells of the alignment table; 3 bytes each, twice that while it is built


class Unit(NamedTuple):
    """An item and its operators, as places in the sequence of its phase.

    In a summary, an item has all kernels of one `kind` of work, of several `passes`.
    """

    item: KernelGroup
    step: int
    phase: int
    operators: tuple[int, ...]
    passes: int = 1
    kind: str = ""


class Matching(NamedTuple):
    """Matched units and unmatched items."""

    units: tuple[Unit, ...]
    unmatched: tuple[tuple[int, KernelGroup], ...]  # with their step
    phases: tuple[int, ...]  # of each step
    cost: float = 0.0  # of the alignment, to choose between execution orders
    dropped: int = 0  # kernels at the end of a file that is too long to match


def match(found: Sequence[KernelGroup], sequences: Sequence[Sequence[Occurrence]], phases: Sequence[str]) -> Matching:
    """Match items with the operators of the phases; `sequences` are in execution order."""
    evidence = Anchors(sequences, phases)
    fixed = [i for i, item in enumerate(found) if item.kind]
    most = LARGEST // max(1, evidence.size)
    kept = found[: fixed[most]] if len(fixed) > most else found
    fixed = fixed[:most]
    means = evidence.means([found[i] for i in fixed])
    before = _before(found, fixed)
    pairs, cost = alignment.align(
        len(fixed), lambda i: means(found[fixed[i]], before[i]), evidence.lengths, evidence.skips
    )
    placed = {fixed[pair.item]: pair for pair in pairs}
    segments = [_match_segment(segment, kept, placed, evidence) for segment in _segments(kept, placed, evidence)]
    for one, other in pairwise(segments):
        _match_across(one, other, evidence)
        _match_across(other, one, evidence)
    steps = max((pair.step for pair in pairs), default=-1) + 1
    patterns = {pair.step: pair.pattern for pair in pairs if pair.operators}
    return Matching(
        units=tuple(unit for each in segments for unit in each.units),
        unmatched=tuple(item for each in segments for item in each.unmatched),
        phases=tuple(patterns.get(step, 0) for step in range(steps)),
        cost=round(cost, 6),  # orders that cost the same differ by rounding; the first of them is the usual one
        dropped=sum(len(item.kernels) for item in found[len(kept) :]),
    )


def _before(found: Sequence[KernelGroup], fixed: Sequence[int]) -> list[frozenset[str]]:
    """The kinds of light work between each anchor and the previous one that show its position in a layer."""
    return [
        TELLING & frozenset().union(*(found[j].words for j in range(last + 1, at)))
        for last, at in zip([-1, *fixed], fixed, strict=False)
    ]


class _Segment(NamedTuple):
    """Items from the first kernel of a slot up to that of the next, and the light operators in between."""

    items: range
    light: tuple[tuple[int, int, int], ...]  # step, phase, place in the phase's sequence


def _segments(found: Sequence[KernelGroup], placed: dict[int, Pair], evidence: Anchors) -> Iterator[_Segment]:
    starts: list[tuple[int, Pair]] = []
    for i in sorted(placed):
        pair = placed[i]
        if pair.operators and (not starts or not evidence.same_slot(starts[-1][1], pair)):
            starts.append((i, pair))
    if not starts:
        yield _Segment(range(len(found)), ())
        return
    first = starts[0][1]
    yield _Segment(range(starts[0][0]), evidence.light(None, first))
    for (i, pair), following in zip(starts, [*starts[1:], None], strict=True):
        end, after = following or (len(found), None)
        yield _Segment(range(i, end), evidence.light(pair, after))


class _MatchedSegment(NamedTuple):
    """Matched units, unmatched items and unmatched light operators of a segment."""

    units: list[Unit]
    unmatched: list[tuple[int, KernelGroup]]
    free: list[tuple[int, int, int]]


def _match_segment(
    segment: _Segment, found: Sequence[KernelGroup], placed: dict[int, Pair], evidence: Anchors
) -> _MatchedSegment:
    """Match each item of a segment with operators, or leave it unmatched."""
    units: list[Unit] = []
    unmatched: list[tuple[int, KernelGroup]] = []
    free = set(segment.light)
    own = [i for i in segment.items if i in placed and placed[i].operators]
    inside = range(own[0], own[-1]) if own and evidence.is_attention(placed[own[0]]) else range(0)
    loose: list[int] = []
    step = placed[own[0]].step if own else 0
    for i in segment.items:
        pair = placed.get(i)
        if pair and pair.operators:
            step = pair.step
            units.append(Unit(found[i], pair.step, pair.pattern, evidence.places(pair)))
        elif found[i].kind:
            unmatched.append((step, found[i]))
        elif i in inside or (own and found[i].hint.exact and evidence.allows(placed[own[0]], found[i].hint)):
            units.append(Unit(found[i], step, placed[own[0]].pattern, evidence.places(placed[own[0]])))
        else:
            loose.append(i)
    works = tuple(evidence.sequences[phase][place].work for _, phase, place in segment.light)
    ways = tuple(
        (found[i].words, tuple(evidence.permits(found[i], phase, place) for _, phase, place in segment.light))
        for i in loose
    )
    for i, taken in zip(loose, _light(ways, works), strict=True):
        if not taken:
            unmatched.append((step, found[i]))
            continue
        at, phase, _ = segment.light[taken[0]]
        of_one = tuple(place for s, p, place in (segment.light[t] for t in taken) if (s, p) == (at, phase))
        units.append(Unit(found[i], at, phase, of_one))
        free -= {segment.light[t] for t in taken}
    return _MatchedSegment(units, unmatched, sorted(free))


def _match_across(one: _MatchedSegment, other: _MatchedSegment, evidence: Anchors) -> None:
    """Match unmatched items of one segment with unmatched operators of another if their names agree."""
    for step, item in list(one.unmatched):
        for spot in other.free:
            at, phase, place = spot
            work = evidence.sequences[phase][place].work
            if (
                item.kind is None
                and at == step
                and work in item.words & TELLING
                and evidence.permits(item, phase, place)
            ):
                other.units.append(Unit(item, at, phase, (place,)))
                one.unmatched.remove((step, item))
                other.free.remove(spot)
                break


# --- Light work -------------------------------------------------------------------------------------

_ELEMENTWISE = ("add", "activation", "rotary", "combine", "routing", "copy")
_ALONE, _SKIPPED, _FURTHER, _RUN = 0.8, 0.35, 0.25, 4


@lru_cache(maxsize=4096)
def _light(
    ways: tuple[tuple[frozenset[str], tuple[bool, ...]], ...], works: tuple[str, ...]
) -> tuple[tuple[int, ...], ...]:
    """The light operators of each light item; empty if it has none."""
    import numpy as np

    if not works:
        return ((),) * len(ways)

    def costs(i: int) -> Costs:
        said, permitted = ways[i]
        single = np.array([_unlike(said, w) if may else NEVER for w, may in zip(works, permitted, strict=True)])
        runs = [single]
        for n in range(2, min(_RUN, len(works)) + 1):
            several = np.full(len(works), NEVER)
            for p in range(len(works) - n + 1):
                part = single[p : p + n]
                if (part == 0).all() and len(set(works[p : p + n])) > 1:
                    several[p] = -0.05 * n
            runs.append(several)
        return Costs(runs, single + _FURTHER, _ALONE)

    found = alignment.align(len(ways), costs, [len(works)], np.full(len(works), _SKIPPED), repeats=False)
    return tuple(pair.operators for pair in found.pairs)


def _unlike(said: frozenset[str], work: str) -> float:
    """Cost of matching the words of a name with a kind of light work; 0 if they name it."""
    if work in said or (work == "norm" and "pool" in said):
        return 0.0
    if said & {"norm", "softmax", "gather", "routing", "index"}:  # they name other work
        return NEVER
    if said & {"copy", "optimizer"} and not said & {"mul", "add"}:
        return NEVER
    if work == "optimizer" and said & {"mul", "add"}:  # a kernel for each tensor and each step
        return 0.4
    if work in _ELEMENTWISE and said & {"elementwise", "mul", "add"}:
        return 0.5
    if work in ("norm", "softmax") and said & {"elementwise", "mul", "add", "reduction"}:
        return 0.45
    if work in ("reduction", "pool") and said & {"reduction", "pool"}:
        return 0.2
    return NEVER
