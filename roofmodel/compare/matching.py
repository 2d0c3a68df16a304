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

from roofmodel.compare import alignment
from roofmodel.compare.alignment import IMPOSSIBLE, AlignedItem, PairingCosts
from roofmodel.compare.evidence import MARKER_WORK, Anchors
from roofmodel.compare.kernel_groups import WorkGroup
from roofmodel.compare.sequence import Occurrence

MAX_TABLE_CELLS = 60_000_000  # cells of the alignment table; 3 bytes each, twice that while it is built


class MatchedUnit(NamedTuple):
    """A kernel group and its operators, as places in the sequence of its phase.

    In a summary, a group has all kernels of one `kind` of work, of several `passes`.
    """

    kernel_group: WorkGroup
    step: int
    phase: int
    operators: tuple[int, ...]
    passes: int = 1
    kind: str = ""


class Matching(NamedTuple):
    """Matched units and unmatched kernel groups."""

    units: tuple[MatchedUnit, ...]
    unmatched: tuple[tuple[int, WorkGroup], ...]  # with their step
    phases: tuple[int, ...]  # of each step
    cost: float = 0.0  # of the alignment, to choose between execution orders
    dropped: int = 0  # kernels at the end of a file that is too long to match


def match(groups: Sequence[WorkGroup], sequences: Sequence[Sequence[Occurrence]], phases: Sequence[str]) -> Matching:
    """Match kernel groups with the operators of the phases; `sequences` are in execution order."""
    evidence = Anchors(sequences, phases)
    anchors = [i for i, group in enumerate(groups) if group.kind]
    max_anchors = MAX_TABLE_CELLS // max(1, evidence.size)
    used_groups = groups[: anchors[max_anchors]] if len(anchors) > max_anchors else groups
    anchors = anchors[:max_anchors]
    costs_of = evidence.cost_function([groups[i] for i in anchors])
    markers = _markers_before(groups, anchors)
    pairs, cost = alignment.align(
        len(anchors), lambda i: costs_of(groups[anchors[i]], markers[i]), evidence.lengths, evidence.skips
    )
    paired = {anchors[pair.item]: pair for pair in pairs}
    segments = [
        _match_segment(segment, used_groups, paired, evidence) for segment in _segments(used_groups, paired, evidence)
    ]
    for first, second in pairwise(segments):
        _match_across(first, second, evidence)
        _match_across(second, first, evidence)
    steps = max((pair.step for pair in pairs), default=-1) + 1
    patterns = {pair.step: pair.pattern for pair in pairs if pair.operators}
    return Matching(
        units=tuple(unit for each in segments for unit in each.units),
        unmatched=tuple(group for each in segments for group in each.unmatched),
        phases=tuple(patterns.get(step, 0) for step in range(steps)),
        cost=round(cost, 6),  # orders that cost the same differ by rounding; the first of them is the usual one
        dropped=sum(len(group.kernels) for group in groups[len(used_groups) :]),
    )


def _markers_before(groups: Sequence[WorkGroup], anchors: Sequence[int]) -> list[frozenset[str]]:
    """The kinds of light work between each anchor and the previous one that show its position in a layer."""
    return [
        MARKER_WORK & frozenset().union(*(groups[j].words for j in range(last + 1, anchor)))
        for last, anchor in zip([-1, *anchors], anchors, strict=False)
    ]


class _Segment(NamedTuple):
    """Kernel groups from a slot up to the next slot, and the light operators in between."""

    groups: range
    light: tuple[tuple[int, int, int], ...]  # step, phase, place in the phase's sequence


def _segments(groups: Sequence[WorkGroup], paired: dict[int, AlignedItem], evidence: Anchors) -> Iterator[_Segment]:
    starts: list[tuple[int, AlignedItem]] = []
    for i in sorted(paired):
        pair = paired[i]
        if pair.operators and (not starts or not evidence.same_slot(starts[-1][1], pair)):
            starts.append((i, pair))
    if not starts:
        yield _Segment(range(len(groups)), ())
        return
    first = starts[0][1]
    yield _Segment(range(starts[0][0]), evidence.light_operators(None, first))
    for (i, pair), following in zip(starts, [*starts[1:], None], strict=True):
        end, after = following or (len(groups), None)
        yield _Segment(range(i, end), evidence.light_operators(pair, after))


class _MatchedSegment(NamedTuple):
    """Matched units, unmatched kernel groups and unmatched light operators of a segment."""

    units: list[MatchedUnit]
    unmatched: list[tuple[int, WorkGroup]]
    unmatched_operators: list[tuple[int, int, int]]


def _match_segment(
    segment: _Segment, groups: Sequence[WorkGroup], paired: dict[int, AlignedItem], evidence: Anchors
) -> _MatchedSegment:
    """Match each kernel group of a segment with operators, or leave it unmatched."""
    units: list[MatchedUnit] = []
    unmatched: list[tuple[int, WorkGroup]] = []
    unmatched_operators = set(segment.light)
    anchors = [i for i in segment.groups if i in paired and paired[i].operators]
    inside_attention = (
        range(anchors[0], anchors[-1]) if anchors and evidence.is_attention(paired[anchors[0]]) else range(0)
    )
    unassigned: list[int] = []
    step = paired[anchors[0]].step if anchors else 0
    for i in segment.groups:
        pair = paired.get(i)
        if pair and pair.operators:
            step = pair.step
            units.append(MatchedUnit(groups[i], pair.step, pair.pattern, evidence.places(pair)))
        elif groups[i].kind:
            unmatched.append((step, groups[i]))
        elif i in inside_attention or (
            anchors and groups[i].hint.exact and evidence.allows_pair(paired[anchors[0]], groups[i].hint)
        ):
            units.append(MatchedUnit(groups[i], step, paired[anchors[0]].pattern, evidence.places(paired[anchors[0]])))
        else:
            unassigned.append(i)
    work = tuple(evidence.sequences[phase][place].work for _, phase, place in segment.light)
    candidates = tuple(
        (groups[i].words, tuple(evidence.allows_operator(groups[i], phase, place) for _, phase, place in segment.light))
        for i in unassigned
    )
    for i, matched in zip(unassigned, _match_light_work(candidates, work), strict=True):
        if not matched:
            unmatched.append((step, groups[i]))
            continue
        matched_step, phase, _ = segment.light[matched[0]]
        same_pass = tuple(
            place for s, p, place in (segment.light[t] for t in matched) if (s, p) == (matched_step, phase)
        )
        units.append(MatchedUnit(groups[i], matched_step, phase, same_pass))
        unmatched_operators -= {segment.light[t] for t in matched}
    return _MatchedSegment(units, unmatched, sorted(unmatched_operators))


def _match_across(source: _MatchedSegment, target: _MatchedSegment, evidence: Anchors) -> None:
    """Match unmatched kernel groups of a segment with unmatched operators of another if their names agree."""
    for step, group in list(source.unmatched):
        for operator in target.unmatched_operators:
            operator_step, phase, place = operator
            work = evidence.sequences[phase][place].work
            if (
                group.kind is None
                and operator_step == step
                and work in group.words & MARKER_WORK
                and evidence.allows_operator(group, phase, place)
            ):
                target.units.append(MatchedUnit(group, operator_step, phase, (place,)))
                source.unmatched.remove((step, group))
                target.unmatched_operators.remove(operator)
                break


# --- Light work -------------------------------------------------------------------------------------

_ELEMENTWISE = ("add", "activation", "rotary", "combine", "routing", "copy")
_UNMATCHED_KERNEL, _UNMATCHED_OPERATOR, _FURTHER_KERNEL, _MAX_FUSED = 0.8, 0.35, 0.25, 4


@lru_cache(maxsize=4096)
def _match_light_work(
    candidates: tuple[tuple[frozenset[str], tuple[bool, ...]], ...], work: tuple[str, ...]
) -> tuple[tuple[int, ...], ...]:
    """The light operators of each light kernel group; empty if it has none."""
    import numpy as np

    if not work:
        return ((),) * len(candidates)

    def costs(i: int) -> PairingCosts:
        name_words, allowed = candidates[i]
        single = np.array(
            [
                _word_cost(name_words, each) if is_allowed else IMPOSSIBLE
                for each, is_allowed in zip(work, allowed, strict=True)
            ]
        )
        runs = [single]
        for n in range(2, min(_MAX_FUSED, len(work)) + 1):
            fused = np.full(len(work), IMPOSSIBLE)
            for p in range(len(work) - n + 1):
                part = single[p : p + n]
                if (part == 0).all() and len(set(work[p : p + n])) > 1:
                    fused[p] = -0.05 * n
            runs.append(fused)
        return PairingCosts(runs, single + _FURTHER_KERNEL, _UNMATCHED_KERNEL)

    pairing = alignment.align(
        len(candidates), costs, [len(work)], np.full(len(work), _UNMATCHED_OPERATOR), repeats=False
    )
    return tuple(pair.operators for pair in pairing.pairs)


def _word_cost(name_words: frozenset[str], work: str) -> float:
    """Cost of matching the words of a name with a kind of light work; 0 if they name it."""
    if work in name_words or (work == "norm" and "pool" in name_words):
        return 0.0
    if name_words & {"norm", "softmax", "gather", "routing", "index"}:  # they name other work
        return IMPOSSIBLE
    if name_words & {"copy", "optimizer"} and not name_words & {"mul", "add"}:
        return IMPOSSIBLE
    if work == "optimizer" and name_words & {"mul", "add"}:  # a kernel for each tensor and each step
        return 0.4
    if work in _ELEMENTWISE and name_words & {"elementwise", "mul", "add"}:
        return 0.5
    if work in ("norm", "softmax") and name_words & {"elementwise", "mul", "add", "reduction"}:
        return 0.45
    if work in ("reduction", "pool") and name_words & {"reduction", "pool"}:
        return 0.2
    return IMPOSSIBLE
