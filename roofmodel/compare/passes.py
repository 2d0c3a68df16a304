"""The passes of a file that a comparison uses, the mean time of one, and whether its layers contradict the model.

Complete passes are used, except those much slower or faster than the median, such as a warm-up. If no pass is complete,
the most complete one is used.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from roofmodel.compare.comparison import FoundPasses, LayerMismatch
from roofmodel.compare.matching import Matching
from roofmodel.compare.sequence import Occurrence
from roofmodel.errors import Message, Option, Text, WorkloadError
from roofmodel.profiles.kernel import Kernel
from roofmodel.roofline.points import total

COMPLETE = 0.9  # share of its anchors from which a pass counts as complete
OUTLIER = 1.5  # times the median pass


class ChosenPasses(NamedTuple):
    """The passes to use: by phase, the steps whose kernels are summed, and the divisor of the sums."""

    steps: Mapping[int, tuple[int, ...]]
    divisors: Mapping[int, int]
    passes: tuple[FoundPasses, ...]
    notes: tuple[Text, ...]


def choose(
    matching: Matching, sequences: Sequence[Sequence[Occurrence]], phases: Sequence[str], pass_count: int | None
) -> ChosenPasses:
    """The passes to use of each phase. `pass_count` is the number of passes that the user states, None to detect it.

    Raises WorkloadError if the number of detected passes is not a multiple of the given number.
    """
    kernels: dict[int, list[Kernel]] = {}
    for step, group in [(unit.step, unit.kernel_group) for unit in matching.units] + list(matching.unmatched):
        kernels.setdefault(step, []).extend(group.kernels)
    steps: dict[int, tuple[int, ...]] = {}
    listed: list[FoundPasses] = []
    notes: list[Text] = []
    for phase, name in enumerate(phases):
        share = _shares(matching, phase, sequences[phase])
        if not share:
            notes.append(f"no {name} pass was found in the file: its operators are not compared")
            continue
        complete = [step for step, part in share.items() if part >= COMPLETE]
        if pass_count is None:
            most_complete = max(share, key=lambda step: share[step])
            steps[phase] = tuple(_without_outliers(kernels, complete)) if complete else (most_complete,)
            notes += _left_out(name, len(share), len(complete), len(steps[phase]))
        else:
            steps[phase] = tuple(complete if pass_count == len(complete) else share)
            notes += _merged(name, pass_count, len(complete), len(steps[phase]))
        listed.append(_passes(name, matching, steps[phase], kernels, len(share), pass_count, partial=not complete))
    divisors = {phase: pass_count or len(used) for phase, used in steps.items()}
    return ChosenPasses(steps, divisors, tuple(listed), tuple(notes))


def _merged(name: str, pass_count: int, complete: int, detected: int) -> Iterator[Text]:
    if detected % pass_count:
        text = f"{detected} {name} pass" + "es" * (detected > 1) + f", {complete} complete" * (complete < detected)
        raise WorkloadError(
            Option("steps", pass_count), f": the kernels form {text}, not a multiple of {pass_count}; use ",
            Option("steps", complete or detected), " or omit it",
        )  # fmt: skip
    if detected > pass_count:
        yield Message(
            Option("steps", pass_count),
            f": the kernels form {detected} {name} passes; {detected // pass_count} count as one",
        )


def _shares(matching: Matching, phase: int, sequence: Sequence[Occurrence]) -> dict[int, float]:
    """The matched share of the anchors of each pass of a phase."""
    anchors = {place for place, occurrence in enumerate(sequence) if occurrence.anchor}
    matched: dict[int, set[int]] = {}
    for unit in matching.units:
        if unit.phase == phase:
            matched.setdefault(unit.step, set()).update(unit.operators)
    return {step: len(anchors & places) / len(anchors) for step, places in sorted(matched.items())}


def _without_outliers(kernels: Mapping[int, Sequence[Kernel]], steps: Sequence[int]) -> list[int]:
    """The steps whose kernel time is near the median; all steps if times are unknown or fewer than three."""
    times = {step: total(kernel.seconds for kernel in kernels[step]) for step in steps}
    known_times = {step: seconds for step, seconds in times.items() if seconds}
    if len(known_times) < max(3, len(steps)):
        return list(steps)
    median = statistics.median(known_times.values())
    return [step for step, seconds in known_times.items() if 1 / OUTLIER < seconds / median < OUTLIER]


def _left_out(name: str, detected: int, complete: int, used: int) -> Iterator[str]:
    if complete > used:
        yield (
            f"{complete - used} of {complete} {name} passes are left out: their kernel time differs from the median by "
            f"a factor of {OUTLIER} or more (a warm-up?)"
        )
    if complete and detected > complete:
        yield f"{detected - complete} of {detected} {name} passes are left out: the file has only part of them"


def _passes(
    name: str, matching: Matching, used: Sequence[int], kernels: Mapping[int, Sequence[Kernel]], detected: int,
    pass_count: int | None, partial: bool,
) -> FoundPasses:  # fmt: skip
    divisor = pass_count or len(used)
    seconds = total(kernel.seconds for step in used for kernel in kernels[step])
    busy = [span for step in used if (span := _span_and_busy(_matched(matching, step), kernels[step]))]
    has_times = len(busy) == divisor
    return FoundPasses(
        phase=name,
        detected=pass_count or detected,
        used=divisor,
        partial=partial,
        seconds=None if seconds is None else seconds / divisor,
        span_seconds=sum(span for span, _ in busy) / divisor if has_times else None,
        idle_seconds=sum(span - running for span, running in busy) / divisor if has_times else None,
        kernels=sum(len(kernels[step]) for step in used) / divisor,
    )


def _matched(matching: Matching, step: int) -> list[Kernel]:
    return [kernel for unit in matching.units if unit.step == step for kernel in unit.kernel_group.kernels]


def _span_and_busy(matched: Iterable[Kernel], kernels: Iterable[Kernel]) -> tuple[float, float] | None:
    """Seconds from the first start to the last end of the matched kernels, and seconds of these in which one of all
    `kernels` of the step runs; None without times."""
    spans, running = _intervals(matched), _intervals(kernels)
    if not spans or not running:
        return None
    until, last = spans[0][0], max(end for _, end in spans)
    span, busy = last - until, 0.0
    for start, end in running:
        busy += max(0.0, min(end, last) - max(start, until))
        until = max(until, end)
    return span, busy


def _intervals(kernels: Iterable[Kernel]) -> list[tuple[float, float]] | None:
    """Start and end of each kernel, by start; None if one has no times."""
    intervals = []
    for kernel in kernels:
        if kernel.start is None or kernel.seconds is None:
            return None
        intervals.append((kernel.start, kernel.start + kernel.seconds))
    return sorted(intervals)


# --- Layers ---------------------------------------------------------------------------------------

LayerRun = list[tuple[int, int]]  # step and layer of each anchor kernel between two embedding lookups


def layer_mismatches(
    kernels: Sequence[Kernel], matching: Matching, sequences: Sequence[Sequence[Occurrence]], phases: Sequence[str]
) -> Iterator[LayerMismatch]:
    """Layer counts and numbers of the file that the model does not have; for a training step only layer numbers.

    Matching is by order, so kernels of another model also find operators: the last layers of the file, or an embedding
    lookup in the middle of a pass, then stay unmatched.

    `kernels` are in launch order; `sequences` are the operators of each phase.
    """
    expected = max(len({each.layer for each in sequence if each.anchor} - {None}) for sequence in sequences)
    groups = [unit.kernel_group for unit in matching.units] + [group for _, group in matching.unmatched]
    named_layers = {group.hint.layer for group in groups if group.hint.layer is not None}
    runs, first = _layer_runs(kernels, matching, sequences), phases[matching.phases[0]] if matching.phases else ""
    layers, count = Counter(map(_layers, runs[:-1] or runs)).most_common(1)[0] if runs else (expected, 0)
    if expected and named_layers and max(named_layers) > expected - (0 in named_layers):  # numbered from 0 or from 1
        yield LayerMismatch("named", first, max(named_layers), expected)
    elif first == "train" or 2 * count <= len(runs[:-1]):
        return
    elif layers > expected or (layers < expected and len(runs) > 1):
        yield LayerMismatch("run", first, layers, expected)
    elif layers < expected and _ends_after_whole_layers(runs[0]) and not _has_head(matching, sequences):
        yield LayerMismatch("end", first, layers, expected)


def _layer_runs(
    kernels: Sequence[Kernel], matching: Matching, sequences: Sequence[Sequence[Occurrence]]
) -> list[LayerRun]:
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
    runs: list[LayerRun] = []
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


def _layers(run: LayerRun) -> int:
    """The number of layers with at least half the median number of kernels; fewer may be a head matched as a layer."""
    kernels = Counter(run)
    return sum(2 * n > statistics.median(kernels.values()) for n in kernels.values())


def _ends_after_whole_layers(run: LayerRun) -> bool:
    """Whether a run has one kernel after its last complete layer."""
    *others, last = Counter(run).values()
    return last == 1 and min(others, default=1) > 1


def _has_head(matching: Matching, sequences: Sequence[Sequence[Occurrence]]) -> bool:
    """Whether a GEMM of the head is matched."""
    placed = (sequences[unit.phase][place] for unit in matching.units for place in unit.operators)
    return any(each.anchor and each.layer is None and each.placed.operator.group == "head" for each in placed)
