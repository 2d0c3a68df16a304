"""Whether a file's layers can be the model's: how many stand between two embeddings, and what ranges call them.

Matching is by order, and finds a place for most kernels of another model too: a pass of as many layers as it should
have, of which the last ones, or an embedding in the middle, are left over.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from roofmodel.profiles.kernel import Kernel
from roofmodel.study.compare.comparison import Layers
from roofmodel.study.compare.matching import Matching
from roofmodel.study.compare.sequence import Occurrence

Run = list[tuple[int, int]]  # step and layer of each product or attention between one embedding and the next


def doubtful(
    kernels: Sequence[Kernel], found: Matching, sequences: Sequence[Sequence[Occurrence]], phases: Sequence[str]
) -> Iterator[Layers]:
    """What of the file's layers speaks against the model; of a training step only what ranges say.

    `kernels` are those of the file as they ran, `sequences` the operators of each of the `phases`.
    """
    whole = max(len({each.layer for each in sequence if each.anchor} - {None}) for sequence in sequences)
    items = [unit.item for unit in found.units] + [item for _, item in found.left]
    named = {item.hint.layer for item in items if item.hint.layer is not None}
    runs, first = _runs(kernels, found, sequences), phases[found.phases[0]] if found.phases else ""
    many, often = Counter(map(_layers, runs[:-1] or runs)).most_common(1)[0] if runs else (whole, 0)
    if whole and named and max(named) > whole - (0 in named):  # they count from 0, or from 1
        yield Layers("named", first, max(named), whole)
    elif first == "train" or 2 * often <= len(runs[:-1]):
        return
    elif many > whole or (many < whole and len(runs) > 1):
        yield Layers("run", first, many, whole)
    elif many < whole and _ends(runs[0]) and not _heads(found, sequences):
        yield Layers("end", first, many, whole)


def _runs(kernels: Sequence[Kernel], found: Matching, sequences: Sequence[Sequence[Occurrence]]) -> list[Run]:
    """What follows each embedding, up to the next; what was matched as one tells the name of those that were not."""
    order = {id(kernel): i for i, kernel in enumerate(kernels)}
    opening = [_opening(sequence) for sequence in sequences]
    opens = {id(u.item) for u in found.units if opening[u.phase] & {*u.operators}}
    names = {u.item.kernels[0].name for u in found.units if id(u.item) in opens and "gather" in u.item.words}
    opens |= {id(item) for _, item in found.left if item.kernels[0].name in names}
    placed = [(u.item, u.step, sequences[u.phase][u.operators[0]]) for u in found.units]
    runs: list[Run] = []
    for item, step, each in sorted(
        [*placed, *((item, step, None) for step, item in found.left)], key=lambda one: order[id(one[0].kernels[0])]
    ):
        if id(item) in opens and (not runs or runs[-1]):
            runs.append([])
        elif runs and each and each.anchor and each.layer is not None:
            runs[-1].append((step, each.layer))
    return [run for run in runs if run]


def _opening(sequence: Sequence[Occurrence]) -> set[int]:
    """Where tokens are looked up, or an image is cut to pieces: places ahead of the layers."""
    first = next((place for place, each in enumerate(sequence) if each.anchor and each.layer is not None), 0)
    return {place for place, each in enumerate(sequence[:first]) if each.anchor or each.work == "gather"}


def _layers(run: Run) -> int:
    """How many layers: not one of which there is much less than of others, as where a head was taken for a part."""
    parts = Counter(run)
    return sum(2 * n > statistics.median(parts.values()) for n in parts.values())


def _ends(run: Run) -> bool:
    """Whether there is one kernel more than whole layers have."""
    *others, last = Counter(run).values()
    return last == 1 and min(others, default=1) > 1


def _heads(found: Matching, sequences: Sequence[Sequence[Occurrence]]) -> bool:
    """Whether some product behind the layers found its kernel."""
    placed = (sequences[unit.phase][place] for unit in found.units for place in unit.operators)
    return any(each.anchor and each.layer is None and each.placed.operator.group == "head" for each in placed)
