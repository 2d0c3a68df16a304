"""Whether the layers in a file contradict the model: layers per embedding lookup, and layer numbers in NVTX ranges.

Matching is by order, so kernels of another model also find operators: the last layers of the file, or an embedding
lookup in the middle of a pass, then stay unmatched.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from roofmodel.compare.comparison import LayerMismatch
from roofmodel.compare.matching import Matching
from roofmodel.compare.sequence import Occurrence
from roofmodel.profiles.kernel import Kernel

Run = list[tuple[int, int]]  # step and layer of each anchor kernel between two embedding lookups


def layer_mismatches(
    kernels: Sequence[Kernel], matching: Matching, sequences: Sequence[Sequence[Occurrence]], phases: Sequence[str]
) -> Iterator[LayerMismatch]:
    """Layer counts and numbers of the file that the model does not have; for a training step only layer numbers.

    `kernels` are in launch order; `sequences` are the operators of each phase.
    """
    expected = max(len({each.layer for each in sequence if each.anchor} - {None}) for sequence in sequences)
    groups = [unit.kernel_group for unit in matching.units] + [group for _, group in matching.unmatched]
    named_layers = {group.hint.layer for group in groups if group.hint.layer is not None}
    runs, first = _runs(kernels, matching, sequences), phases[matching.phases[0]] if matching.phases else ""
    layers, count = Counter(map(_layers, runs[:-1] or runs)).most_common(1)[0] if runs else (expected, 0)
    if expected and named_layers and max(named_layers) > expected - (0 in named_layers):  # numbered from 0 or from 1
        yield LayerMismatch("named", first, max(named_layers), expected)
    elif first == "train" or 2 * count <= len(runs[:-1]):
        return
    elif layers > expected or (layers < expected and len(runs) > 1):
        yield LayerMismatch("run", first, layers, expected)
    elif layers < expected and _ends_after_whole_layers(runs[0]) and not _has_head(matching, sequences):
        yield LayerMismatch("end", first, layers, expected)


def _runs(kernels: Sequence[Kernel], matching: Matching, sequences: Sequence[Sequence[Occurrence]]) -> list[Run]:
    """The anchor kernels between embedding lookups. Unmatched lookups are found by the names of matched ones."""
    order = {id(kernel): i for i, kernel in enumerate(kernels)}
    lookups = [_lookups(sequence) for sequence in sequences]
    lookup_groups = {id(u.kernel_group) for u in matching.units if lookups[u.phase] & {*u.operators}}
    names = {
        u.kernel_group.kernels[0].name
        for u in matching.units
        if id(u.kernel_group) in lookup_groups and "gather" in u.kernel_group.words
    }
    lookup_groups |= {
        id(group)
        for _, group in matching.unmatched
        if group.kernels[0].name in names and group.hint.layer is None  # in a layer, it permutes tokens for experts
    }
    matched = [(u.kernel_group, u.step, sequences[u.phase][u.operators[0]]) for u in matching.units]
    unmatched = [(group, step, None) for step, group in matching.unmatched]
    runs: list[Run] = []
    for group, step, occurrence in sorted([*matched, *unmatched], key=lambda each: order[id(each[0].kernels[0])]):
        if id(group) in lookup_groups and (not runs or runs[-1]):
            runs.append([])
        elif runs and occurrence and occurrence.anchor and occurrence.layer is not None:
            runs[-1].append((step, occurrence.layer))
    return [run for run in runs if run]


def _lookups(sequence: Sequence[Occurrence]) -> set[int]:
    """Places of embedding lookups and patch embeddings, ahead of the first layer."""
    first = next((place for place, each in enumerate(sequence) if each.anchor and each.layer is not None), 0)
    return {place for place, each in enumerate(sequence[:first]) if each.anchor or each.work == "gather"}


def _layers(run: Run) -> int:
    """The number of layers with at least half the median number of kernels; fewer may be a head matched as a layer."""
    kernels = Counter(run)
    return sum(2 * n > statistics.median(kernels.values()) for n in kernels.values())


def _ends_after_whole_layers(run: Run) -> bool:
    """Whether a run has one kernel after its last complete layer."""
    *others, last = Counter(run).values()
    return last == 1 and min(others, default=1) > 1


def _has_head(matching: Matching, sequences: Sequence[Sequence[Occurrence]]) -> bool:
    """Whether a GEMM of the head is matched."""
    placed = (sequences[unit.phase][place] for unit in matching.units for place in unit.operators)
    return any(each.anchor and each.layer is None and each.placed.operator.group == "head" for each in placed)
