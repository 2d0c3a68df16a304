"""Which of the passes that a file holds count, and what one of them takes.

Those that are whole count, without those that took much longer or shorter than the others: a warm-up is no pass to
compare with. Where none is whole, the one of which most is there.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from roofmodel.errors import WorkloadError
from roofmodel.profiles.kernel import Kernel
from roofmodel.study.compare.comparison import Passes
from roofmodel.study.compare.matching import Matching
from roofmodel.study.compare.sequence import Occurrence
from roofmodel.study.profile.points import total

COMPLETE = 0.9  # of the anchors of a pass, or the file holds but a part of it
OUTLIER = 1.5  # times the median pass


class Chosen(NamedTuple):
    """The passes that count: by phase, the steps whose mean is taken, and by how many their sums are divided."""

    steps: Mapping[int, tuple[int, ...]]
    divisors: Mapping[int, int]
    passes: tuple[Passes, ...]
    notes: tuple[str, ...]


def choose(
    found: Matching, sequences: Sequence[Sequence[Occurrence]], phases: Sequence[str], told: int | None
) -> Chosen:
    """The passes of each phase that count; those that the user means, where `told` says how many.

    Raises WorkloadError where those found cannot be dealt out to so many.
    """
    kernels: dict[int, list[Kernel]] = {}
    for step, item in [(unit.step, unit.item) for unit in found.units] + list(found.left):
        kernels.setdefault(step, []).extend(item.kernels)
    steps: dict[int, tuple[int, ...]] = {}
    listed, notes = [], []
    for phase, name in enumerate(phases):
        share = _shares(found, phase, sequences[phase])
        if not share:
            notes.append(f"the file holds no {name}, as far as can be told: its operators are not compared")
            continue
        whole = [step for step, part in share.items() if part >= COMPLETE]
        if told is None:
            steps[phase] = tuple(_alike(kernels, whole)) if whole else (max(share, key=lambda step: share[step]),)
            notes += _left_out(name, len(share), len(whole), len(steps[phase]))
        else:
            steps[phase] = tuple(whole if told == len(whole) else share)
            notes += _told(name, told, len(whole), len(steps[phase]))
        listed.append(_passes(name, found, steps[phase], kernels, len(share), told, partial=not whole))
    divisors = {phase: told or len(used) for phase, used in steps.items()}
    return Chosen(steps, divisors, tuple(listed), tuple(notes))


def _told(name: str, told: int, whole: int, counted: int) -> Iterator[str]:
    if counted % told:
        held = f"{counted} {name} pass" + "es" * (counted > 1) + f", {whole} of them whole" * (whole < counted)
        raise WorkloadError(
            f"--steps {told}: the files hold {held}, by the order of their kernels, which cannot be taken as {told}; "
            f"try --steps {whole or counted}, or leave it out"
        )
    if counted > told:
        yield f"--steps {told}: the kernels make {counted} {name} passes: {counted // told} of them are taken as one"


def _shares(found: Matching, phase: int, sequence: Sequence[Occurrence]) -> dict[int, float]:
    """How much of its anchors each pass of a phase has."""
    anchors = {place for place, occurrence in enumerate(sequence) if occurrence.anchor}
    seen: dict[int, set[int]] = {}
    for unit in found.units:
        if unit.phase == phase:
            seen.setdefault(unit.step, set()).update(unit.operators)
    return {step: len(anchors & places) / len(anchors) for step, places in sorted(seen.items())}


def _alike(kernels: Mapping[int, Sequence[Kernel]], steps: Sequence[int]) -> list[int]:
    """The steps whose kernels take about as long as the median step's; all where times are not known."""
    times = {step: total(kernel.seconds for kernel in kernels[step]) for step in steps}
    known = {step: seconds for step, seconds in times.items() if seconds}
    if len(known) < max(3, len(steps)):
        return list(steps)
    median = statistics.median(known.values())
    return [step for step, seconds in known.items() if 1 / OUTLIER < seconds / median < OUTLIER]


def _left_out(name: str, found: int, whole: int, used: int) -> Iterator[str]:
    if whole > used:
        yield (
            f"{whole - used} of {whole} {name} passes are left out: their kernels take {OUTLIER} times as long as "
            "those of the median pass or longer, or as much less (a warm-up?)"
        )
    if whole and found > whole:
        yield f"{found - whole} of {found} {name} passes are left out: the file holds but a part of each"


def _passes(
    name: str, found: Matching, used: Sequence[int], kernels: Mapping[int, Sequence[Kernel]], seen: int,
    told: int | None, partial: bool,
) -> Passes:  # fmt: skip
    divisor = told or len(used)
    seconds = total(kernel.seconds for step in used for kernel in kernels[step])
    busy = [span for step in used if (span := _busy(_matched(found, step)))]
    spans = len(busy) == divisor
    return Passes(
        phase=name,
        found=told or seen,
        used=divisor,
        partial=partial,
        seconds=None if seconds is None else seconds / divisor,
        span_seconds=sum(span for span, _ in busy) / divisor if spans else None,
        idle_seconds=sum(span - ran for span, ran in busy) / divisor if spans else None,
        kernels=sum(len(kernels[step]) for step in used) / divisor,
    )


def _matched(found: Matching, step: int) -> list[Kernel]:
    return [kernel for unit in found.units if unit.step == step for kernel in unit.item.kernels]


def _busy(kernels: Iterable[Kernel]) -> tuple[float, float] | None:
    """From the first start to the last end, and how much of it some kernel ran; None without times."""
    spans = []
    for kernel in kernels:
        if kernel.start is None or kernel.seconds is None:
            return None
        spans.append((kernel.start, kernel.start + kernel.seconds))
    spans.sort()
    busy, until = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return until - spans[0][0], busy
